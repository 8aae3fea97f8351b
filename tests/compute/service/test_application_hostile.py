"""A node in bad company: bytes that are no requests, too large ones, floods. It refuses them, and serves others."""

import asyncio
import random
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from support.network.held_calls import hold_checks, hold_watches, seconds_until_closed
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.application_errors import error_of
from tussock.compute.service.rpc.kinds import ASK, CONVERSE, ERROR_METADATA, PROTOCOL_METADATA
from tussock.compute.service.server.grpc_port import HANDSHAKE_SECONDS
from tussock.statestore.errors import InvalidOption, SchemaMismatch, TussockError

SECONDS = 60
SPOKEN = ((PROTOCOL_METADATA, "1"),)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    limits = ("--limits.outstanding", "300", "--limits.conversation-outstanding", "200")
    url = (tmp_path_factory.mktemp("hostile") / "store").as_uri()
    with ServeProcess(url, *limits, "--limits.message-bytes", str(4 << 20)) as process:
        yield process
        assert process.process.poll() is None


@pytest.fixture
def channel(node: ServeProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(node.address, [("grpc.max_send_message_length", -1)]) as found:
        yield found


def ask(channel: grpc.Channel, data: bytes, metadata: Any = SPOKEN) -> pb.Reply:
    """One request as bytes; raises the error of the node, or gRPC's."""
    try:
        return pb.Reply.FromString(channel.unary_unary(ASK)(data, SECONDS, metadata))
    except grpc.RpcError as error:
        for key, value in error.trailing_metadata() or ():  # type: ignore[attr-defined]
            if key == ERROR_METADATA:
                raise error_of(pb.Error.FromString(value)) from None
        raise


def converse(channel: grpc.Channel, *messages: bytes) -> tuple[list[pb.Reply], Any]:
    """All replies to these messages, and how the conversation ended."""
    found: list[pb.Reply] = []
    stream = channel.stream_stream(CONVERSE)(iter(messages), SECONDS, SPOKEN)
    try:
        for data in stream:
            found.extend(pb.Replies.FromString(data).replies)
    except grpc.RpcError as error:
        return found, error.code()  # type: ignore[attr-defined]
    return found, grpc.StatusCode.OK


def submit(**fields: Any) -> bytes:
    return pb.Request(submit=pb.Submit(procedure="take", **fields)).SerializeToString()


def arrow(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def test_a_single_request_is_answered(channel: grpc.Channel) -> None:
    """The protocol needs no client of Tussock: one unary call, MessagePack both ways."""
    call = pb.Request(number=3, call=pb.Call(name="echo", arguments=msgspec.msgpack.encode(["x", 1])))
    reply = ask(channel, call.SerializeToString())
    assert (reply.number, msgspec.msgpack.decode(reply.plain)) == (3, ["x", 1])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff\xff\xff", "InvalidOption"),
        (b"", "InvalidOption"),
        (pb.Request(number=1).SerializeToString(), "InvalidOption"),
        (submit(plain=b"\xc1"), "SchemaMismatch"),
        (submit(plain=msgspec.msgpack.encode({"n": 1})), "SchemaMismatch"),
        (submit(plain=msgspec.msgpack.encode([1])), "SchemaMismatch"),
        (submit(plain=b"\x91" * 5000), "SchemaMismatch"),
        (submit(plain=msgspec.msgpack.encode([{}] * 1_100_000)), "MessageTooLarge"),
        (submit(arrow=b"junk" * 100), "SchemaMismatch"),
        (submit(arrow=b"\xff\xff\xff\xff\xff\xff\xff\x7f"), "SchemaMismatch"),
        (submit(arrow=arrow(pa.table({"n": [0] * 100_000}), compression="zstd")), "SchemaMismatch"),
        (submit(arrow=arrow(pa.table({"n": pa.nulls(1_000_000)}))), "SchemaMismatch"),
        (submit(batch_id=(1 << 64) - 1), "InvalidOption"),
        (pb.Request(call=pb.Call(name="echo", arguments=b"\x01")).SerializeToString(), "InvalidOption"),
        (pb.Request(call=pb.Call(name="x" * 100_000)).SerializeToString(), "InvalidOption"),
        (pb.Request(trace=pb.Trace(last=0)).SerializeToString(), "InvalidOption"),
        (pb.Request(window_rows=pb.WindowRows(window="\0")).SerializeToString(), "InvalidOption"),
    ],
)
def test_bad_requests_have_typed_errors(channel: grpc.Channel, data: bytes, kind: str) -> None:
    """Each with a name; none is the service's failure."""
    with pytest.raises(TussockError) as caught:
        ask(channel, data)
    assert type(caught.value).__name__ == kind


def test_another_protocol_is_refused(channel: grpc.Channel) -> None:
    """Before anything is read."""
    for metadata in ((), ((PROTOCOL_METADATA, "2"),)):
        with pytest.raises(Exception, match="protocol") as caught:
            ask(channel, b"", metadata)
        assert type(caught.value).__name__ == "ProtocolMismatch"


def test_random_bytes_are_survived(node: ServeProcess, channel: grpc.Channel) -> None:
    """As requests, as groups, and as Arrow with flipped bytes."""
    chance = random.Random(7)
    whole = arrow(pa.table({"n": [1, 2, 3]}))
    for _ in range(60):
        converse(channel, chance.randbytes(chance.randint(1, 300)))
        flipped = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            flipped[chance.randrange(len(flipped))] = chance.randrange(256)
        request = pb.Request(number=1, submit=pb.Submit(procedure="anything", arrow=bytes(flipped)))
        converse(channel, pb.Requests(requests=[request]).SerializeToString())
    with ps.Client(node.address) as client:
        assert client.call("echo", 1, timeout=SECONDS) == [1]


def test_numbers_that_do_not_ascend_end_the_conversation(channel: grpc.Channel) -> None:
    """And so does a group of empty requests, which would take much memory."""
    stats = pb.Stats()
    twice = pb.Requests(requests=[pb.Request(number=1, stats=stats), pb.Request(number=1, stats=stats)])
    zero = pb.Requests(requests=[pb.Request(stats=stats)])
    empty = b"\x0a\x00" * 1_000_000
    for data in (twice.SerializeToString(), zero.SerializeToString(), empty):
        assert converse(channel, data)[1] == grpc.StatusCode.INVALID_ARGUMENT


def test_a_message_that_is_too_large_is_refused(channel: grpc.Channel) -> None:
    """By gRPC, unread."""
    with pytest.raises(grpc.RpcError) as caught:
        ask(channel, bytes(5 << 20))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]


def test_a_flood_is_refused_with_a_hint(node: ServeProcess, channel: grpc.Channel) -> None:
    """Beyond the limits of a conversation nothing begins, nor what comes behind it; the client is told when to try."""
    with ps.Client(node.address) as admin:
        admin.pause()
        try:
            calls = [pb.Request(number=at, call=pb.Call(name="total"), deadline_ms=2000) for at in range(1, 400)]
            replies, code = converse(channel, pb.Requests(requests=calls).SerializeToString())
        finally:
            admin.resume()
    assert code == grpc.StatusCode.OK
    refused = [error_of(reply.error) for reply in replies if reply.error.kind == "Full"]
    assert len(refused) == 199
    assert all(isinstance(error, ps.Full) and error.args[1] > 0 for error in refused)
    withdrawn = [reply for reply in replies if reply.error.kind == "WaitTimeout"]
    assert len(withdrawn) == 200
    eventually(lambda: node.status()["outstanding"] == 0)


def test_clients_of_ours_wait_when_the_node_is_full(node: ServeProcess) -> None:
    """Four clients want more than the node takes: all is run, each batch once, in the order of each client."""
    clients = [ps.Client(node.address, outstanding=200) for _ in range(4)]
    total = clients[0].call("total", timeout=SECONDS)
    tickets = [client.submit("take", [{"n": 1}]) for _ in range(150) for client in clients]
    sums = [ticket.result(SECONDS) for ticket in tickets]
    assert sorted(sums) == list(range(total + 1, total + 601))
    for at in range(4):
        assert sums[at::4] == sorted(sums[at::4])
        clients[at].close()


def test_an_error_without_a_utf8_text_breaks_no_conversation(node: ServeProcess) -> None:
    """Its reply could not be written, so that all others on their way had none."""
    with ps.Client(node.address) as client:
        tickets = [client.call_async("echo", 1), client.call_async("half"), client.call_async("echo", 2)]
        assert tickets[0].result(SECONDS) == [1]
        with pytest.raises(ps.ProcedureError) as caught:
            tickets[1].result(SECONDS)
        assert caught.value.cause == r"LookupError: caf\udce9"
        assert tickets[2].result(SECONDS) == [2]
    assert node.status()["failures"][-1]["text"].endswith(r"LookupError: caf\udce9")


def test_a_callback_cannot_end_the_client(node: ServeProcess) -> None:
    """It runs in the thread that takes the replies."""
    with ps.Client(node.address) as client:
        client.call_async("echo", 1).add_done_callback(lambda _: sys.exit(3))
        assert client.call("echo", 2, timeout=SECONDS) == [2]
        assert client.call("echo", 3, timeout=SECONDS) == [3]


HALF = "caf\udce9"
"""Half of a surrogate pair, which no message can have."""


def test_what_no_message_can_have_is_refused_by_the_client(node: ServeProcess) -> None:
    """By Tussock's errors; protobuf's and Python's own were raised."""
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    nested: Any = 1
    for _ in range(70):
        nested = [nested]
    with ps.Client(node.address) as client:
        for name in (5, None, HALF, ""):
            for refused in (
                lambda name=name: client.submit(name, []),
                lambda name=name: client.call(name),
                lambda name=name: client.window_rows(name),
            ):
                with pytest.raises(InvalidOption, match="expected text"):
                    refused()
        for argument in (HALF, deep, object()):
            with pytest.raises(InvalidOption, match="call procedure 'echo': its arguments"):
                client.call("echo", argument)
        for rows in ([{"n": HALF}], [{HALF: 1}], [{"n": nested}], [{"n": 1, 5: 1}, {5: nested}]):
            with pytest.raises(SchemaMismatch):
                client.submit("anything", rows).result(SECONDS)
        assert client.call("echo", 1, timeout=SECONDS) == [1]


@pytest.mark.parametrize("address", ["", "x", "x:y", "127.0.0.1:99999", "http://127.0.0.1:1", "a:1,b:2", 5])
def test_the_address_of_an_application_is_told_as_one(address: Any) -> None:
    """It is no meta service."""
    with pytest.raises(InvalidOption, match=r"the application's address is .*; expected HOST:PORT"):
        ps.Client(address)


@pytest.mark.parametrize("hold", [hold_watches, hold_checks], ids=["watches", "checks without a request"])
def test_calls_about_health_keep_no_places(node: ServeProcess, channel: grpc.Channel, hold: Any) -> None:
    """They need no token: more of them than the node has places end, and others are served."""

    async def body() -> set[str]:
        ends, channels = await hold(node.address, 4_200, SECONDS)
        called = pb.Request(number=3, call=pb.Call(name="echo", arguments=msgspec.msgpack.encode([1])))
        assert (await asyncio.to_thread(ask, channel, called.SerializeToString())).number == 3
        for one in channels:
            await one.close()
        return set(ends)

    assert "held" not in asyncio.run(body())


def test_a_silent_connection_is_closed(node: ServeProcess) -> None:
    """It counts among all connections until it has spoken TLS and HTTP/2."""
    assert max(seconds_until_closed(node.address, 20, 8 * HANDSHAKE_SECONDS)) < 6 * HANDSHAKE_SECONDS
