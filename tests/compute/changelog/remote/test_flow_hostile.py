"""A flow's node in bad company: requests that fit nothing, subscribers that do not read, callers without a right."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import error_of
from tussock.compute.service.rpc.kinds import ASK, ERROR_METADATA, PROTOCOL_METADATA
from tussock.compute.service.rpc.values import reply_value
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore import AccessDenied, TussockError
from tussock.statestore.base.system import RealSystem

SECONDS = 60
APP = "support.applications.served_orders"
SPOKEN = ((PROTOCOL_METADATA, "1"),)
LARGE = (1 << 64) - 1


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    url = (tmp_path_factory.mktemp("hostile") / "store").as_uri()
    with ServeProcess(url, app=f"{APP}:short_lease") as process:
        yield process
        assert process.process.poll() is None


@pytest.fixture
def channel(node: ServeProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(node.address, [("grpc.max_send_message_length", -1)]) as found:
        yield found


def ask(channel: grpc.Channel, request: pb.Request) -> Any:
    """The value of the reply; raises the error of the node, or gRPC's."""
    try:
        data = channel.unary_unary(ASK)(request.SerializeToString(), SECONDS, SPOKEN)
    except grpc.RpcError as error:
        for key, value in error.trailing_metadata() or ():  # type: ignore[attr-defined]
            if key == ERROR_METADATA:
                raise error_of(pb.Error.FromString(value)) from None
        raise
    return reply_value(pb.Reply.FromString(data))


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def push(**fields: Any) -> pb.Request:
    return pb.Request(push=pb.Push(stream=fields.pop("stream", "prices"), **fields))


def poll(**fields: Any) -> pb.Request:
    wanted = {"stream": "prices", "subscriber": "somebody", "from_seq": 1, **fields}
    return pb.Request(subscribe=pb.Subscribe(**wanted))


def arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


BAD = {
    "push to nothing": push(stream="nothing", plain=packed([])),
    "push to a stream with inputs": push(stream="shares", plain=packed([])),
    "no MessagePack": push(plain=b"\xc1"),
    "a map": push(plain=packed({"k": 1})),
    "no pairs": push(plain=packed([["UPSERT"]])),
    "an operation that is none": push(plain=packed([["REPLACE", {"k": "a"}]])),
    "an operation that is a list": push(plain=packed([[["UPSERT"], {"k": "a"}]])),
    "no columns": push(plain=packed([["UPSERT", [1]]])),
    "numbers for names": push(plain=packed([["UPSERT", {1: 2}]])),
    "a column too many": push(plain=packed([["UPSERT", {"k": "a", "v": 1, "w": 1}]])),
    "a key of another type": push(plain=packed([["UPSERT", {"k": 1, "v": 1}]])),
    "a block": push(plain=packed([["UPDATE_BLOCK", {"k": [1] * 100, "v": 1}]])),
    "nesting": push(plain=b"\x91" * 5000),
    "too much": push(plain=packed([["UPSERT", {"k": "a" * 100}]] * 20_000)),
    "no Arrow": push(arrow=b"junk" * 100),
    "Arrow without operations": push(arrow=arrow(pa.table({"k": ["a"], "v": [1]}))),
    "Arrow of many rows": push(arrow=arrow(pa.table({"k": pa.nulls(1_000_000)}))),
    "old rows that are none": push(arrow=arrow(pa.table({"k": ["a"], "v": [1], "_op": ["UPSERT"], "_old": [None]}))),
    "a subscriber without a name": poll(subscriber=""),
    "a subscriber with a strange name": poll(subscriber="a b"),
    "a subscriber with a long name": poll(subscriber="a" * 65),
    "a subscriber of nothing": poll(stream="nothing"),
    "a far future": poll(from_seq=LARGE),
    "a long wait": poll(wait_ms=3_600_000),
    "a large buffer": poll(buffer=1 << 31),
    "too many": poll(max=1 << 31),
    "no history": pb.Request(history=pb.History(stream="prices")),
    "a long history": pb.Request(history=pb.History(stream="prices", count=(1 << 32) - 1)),
    "a history as long text": pb.Request(history=pb.History(stream="prices", count=1, text_records=1 << 31)),
    "bad rows of nothing": pb.Request(bad_rows=pb.BadRows(stream="\0", last=1)),
    "all bad rows": pb.Request(bad_rows=pb.BadRows(stream="prices", last=1 << 31)),
    "a bad row that is not there": pb.Request(replay_bad=pb.ReplayBad(number=LARGE)),
    "no key": pb.Request(stream_row=pb.StreamRow(stream="prices")),
    "a key that is none": pb.Request(stream_row=pb.StreamRow(stream="prices", plain=b"\xc1")),
    "a nested key": pb.Request(stream_row=pb.StreamRow(stream="prices", plain=packed([["a"]]))),
    "two keys": pb.Request(stream_row=pb.StreamRow(stream="prices", arrow=arrow(pa.table({"k": ["a", "b"]})))),
    "another column": pb.Request(stream_row=pb.StreamRow(stream="prices", arrow=arrow(pa.table({"v": [1]})))),
    "rows of nothing": pb.Request(stream_rows=pb.StreamRows(stream="nothing", reader="r")),
    "rows of nobody": pb.Request(stream_rows=pb.StreamRows(stream="prices")),
    "rows of a strange name": pb.Request(stream_rows=pb.StreamRows(stream="prices", reader="a b")),
    "a look at nothing": pb.Request(stream_look=pb.StreamLook(stream="nothing")),
    "a long look": pb.Request(stream_look=pb.StreamLook(stream="prices", text_records=1 << 31)),
    "a step of a flow that runs": pb.Request(step=pb.Step()),
    "a step that is none": pb.Request(step=pb.Step(what=99)),  # type: ignore[arg-type]
    "steps of no time": pb.Request(auto_step=pb.AutoStep(seconds=float("nan"))),
    "steps back": pb.Request(auto_step=pb.AutoStep(seconds=-1)),
    "steps that work queues off": pb.Request(auto_step=pb.AutoStep(seconds=1, what=pb.Step.QUIESCE)),
    "a hold of nothing": pb.Request(hold=pb.Hold(stream="nothing", is_held=True)),
    "a condition of power": pb.Request(
        set_breakpoint=pb.SetBreakpoint(stream="prices", condition="().__class__.__base__.__subclasses__()")
    ),
    "a condition of length": pb.Request(set_breakpoint=pb.SetBreakpoint(stream="prices", condition="v+" * 100_000)),
    "a condition of depth": pb.Request(set_breakpoint=pb.SetBreakpoint(stream="prices", condition="-" * 999 + "v")),
    "every billionth": pb.Request(set_breakpoint=pb.SetBreakpoint(stream="prices", every=(1 << 32) - 1)),
    "a breakpoint that is not there": pb.Request(change_breakpoint=pb.ChangeBreakpoint(number=99)),
    "a try of nothing": pb.Request(what_if=pb.WhatIf()),
    "a try of the future": pb.Request(what_if=pb.WhatIf(stream="prices", seq=LARGE)),
    "a try of no bad row": pb.Request(what_if=pb.WhatIf(bad=LARGE)),
    "a request of functions": pb.Request(query=pb.Query(operator="prices", key=packed("a"))),
    "a request of procedures": pb.Request(trace=pb.Trace(last=1)),
}


@pytest.mark.parametrize("what", BAD)
def test_requests_that_fit_nothing_have_typed_errors(channel: grpc.Channel, what: str) -> None:
    """None of them is the node's failure, and nothing is taken."""
    with pytest.raises(TussockError) as caught:
        ask(channel, BAD[what])
    found = type(caught.value).__name__
    assert found in ("InvalidOption", "SchemaMismatch", "MessageTooLarge", "KeyTooLarge", "InvalidBatch"), caught.value


def test_random_bytes_in_requests_are_survived(channel: grpc.Channel) -> None:
    """Flipped bits of good ones; what is still good may be taken."""
    chance = random.Random(11)
    table = pa.table({"k": ["a", "b"], "v": [1, 2], "_op": ["UPSERT", "UPSERT"]})
    good = [push(arrow=arrow(table)), push(plain=packed([["UPSERT", {"k": "a", "v": 1}]])), *BAD.values()]
    for _ in range(300):
        data = bytearray(chance.choice(good).SerializeToString()[:100_000])
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            request = pb.Request.FromString(bytes(data))
        except Exception:
            continue
        if request.WhichOneof("what") in ("drain", "pause", "hold", "set_breakpoint", None):
            continue
        try:
            ask(channel, request)
        except (TussockError, grpc.RpcError):
            continue
    ask(channel, push(plain=packed([["UPSERT", {"k": "still", "v": 5}]])))
    found = ask(channel, pb.Request(stream_row=pb.StreamRow(stream="prices", plain=packed("still"))))
    assert found.to_pylist() == [{"k": "still", "v": 5}]


def test_a_stream_waits_for_a_silent_subscriber_no_longer_than_its_lease(node: ServeProcess) -> None:
    """One that says nothing is forgotten, and goes on where it was, as long as that is kept."""
    with cl.Client(node.address) as client:
        halves = client.stream("halves")
        newest = client.stream("prices").push([cl.upsert(k="x", v=100)]).result(SECONDS)
        eventually(lambda: client.stream("prices").out_history(1)[-1].seq >= newest)
        eventually(lambda: all(one["queued"] == 0 for one in client.status()["streams"]))
        reader = halves.subscribe(None, buffer=2, timeout=SECONDS)
        for value in range(1, 7):
            client.stream("prices").push([cl.upsert(k="x", v=value)]).result(SECONDS)
        # The lease of the test's node is a second: then the stream goes on without it.
        eventually(lambda: client.status()["streams"][2]["subscribers"] == 0)
        eventually(lambda: all(one["queued"] == 0 for one in client.status()["streams"]))
        values = [next(reader).records for _ in range(6)]
        assert [records[0]["v"] for records in values if records] == [50, 25, 16, 12, 10, 8]
        assert client.status()["streams"][2]["subscribers"] == 1
        reader.close()


def test_a_subscriber_whose_place_has_gone_is_told(node: ServeProcess) -> None:
    """Only if the history has let go what it has not read."""
    with cl.Client(node.address) as client:
        prices = client.stream("prices")
        reader = prices.subscribe(None, timeout=SECONDS)
        begun = reader.next
        eventually(lambda: client.status()["streams"][0]["subscribers"] == 0)
        for value in range(60):
            prices.push([cl.upsert(k="gone", v=value + 1)]).result(SECONDS)
        eventually(lambda: client.status()["streams"][0]["oldest_kept"] > begun)
        with pytest.raises(cl.HistoryGone) as caught:
            next(reader)
        assert caught.value.args[1] > begun


def test_a_subscriber_that_reads_on_keeps_its_lease(node: ServeProcess) -> None:
    """Also while nothing comes for longer than a lease."""
    with cl.Client(node.address) as client, client.stream("moments").subscribe(None, timeout=3.0) as reader:
        with pytest.raises(TimeoutError):
            next(reader)
        assert client.status()["streams"][3]["subscribers"] == 1


def test_many_polls_of_one_name_are_one(channel: grpc.Channel) -> None:
    """The older one ends at once, so that a client that has lost its connection does not wait for itself."""
    ask(channel, poll(subscriber="twice", newest=True))
    newest = ask(channel, poll(subscriber="twice", newest=True))["next"]
    calls = [
        channel.unary_unary(ASK).future(
            poll(subscriber="twice", from_seq=newest, wait_ms=2000).SerializeToString(), SECONDS, SPOKEN
        )
        for _ in range(20)
    ]
    found = [reply_value(pb.Reply.FromString(one.result())) for one in calls]
    assert found == [{"next": newest, "transactions": []}] * 20
    ask(channel, poll(subscriber="twice", close=True))
    ask(channel, poll(subscriber="twice", close=True))


def test_roles_of_a_flow(tmp_path: Path) -> None:
    """A reader looks and subscribes, a writer pushes and replays, an admin pauses, steps, breaks and tries."""
    made = {role: create_token(role, role, RealSystem()) for role in ("reader", "writer", "admin")}
    file = tmp_path / "tokens"
    file.write_text("".join(line + "\n" for _, line in made.values()))
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url, "--tokens.file", str(file), app=f"{APP}:make") as guarded:
        with cl.Client(guarded.address, token=made["writer"][0]) as writer:
            prices = writer.stream("prices")
            assert prices.push([cl.upsert(k="a", v=0)]).result(SECONDS) == 1
            eventually(lambda: writer.stream("shares").bad_rows())
            writer.replay_bad(1)
            for act in (writer.pause, writer.step, prices.hold, lambda: writer.what_if(bad=2)):
                with pytest.raises(AccessDenied):
                    act()
        with cl.Client(guarded.address, token=made["reader"][0]) as reader:
            prices = reader.stream("prices")
            with prices.subscribe(timeout=SECONDS) as found:
                assert next(found).records == [cl.insert(k="a", v=0)]
            assert len(prices.in_history()) == len(prices.out_history()) == 1
            assert prices.get("a") == {"k": "a", "v": 0}
            assert (prices.location, prices.in_trans, prices.breakpoints) == (cl.Location.INPUT, None, [])
            refused = (
                lambda: prices.push([cl.upsert(k="a", v=1)]).result(SECONDS),
                lambda: reader.replay_bad(2),
                lambda: reader.auto_step(1),
                lambda: reader.quiesce(how="base"),
                lambda: prices.break_on("input"),
                reader.drain,
            )
            for ask_for in refused:
                with pytest.raises(AccessDenied):
                    ask_for()
        with cl.Client(guarded.address, token=made["admin"][0]) as admin:
            admin.stream("prices").break_on("input", "v > 5").remove()
            admin.pause()
            admin.step()
            admin.resume()
