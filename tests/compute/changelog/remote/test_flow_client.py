"""A flow behind `tussock serve`, by its client: the calls of the local objects, with the same results."""

import datetime as dt
import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.compute import procedures as ps
from tussock.compute.applications.ipc_streams import ipc_table
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore import InvalidOption, SchemaMismatch, WaitTimeout, connect

SECONDS = 60
APP = "support.applications.served_orders:make"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path_factory.mktemp("flow") / "store").as_uri(), app=APP) as process:
        yield process


@pytest.fixture
def client(node: ServeProcess) -> Iterator[cl.Client]:
    """With no pause, breakpoint or rows of a test before it."""
    with cl.Client(node.address) as found:
        found.stop_auto_step()
        for one in found.breakpoints:
            one.remove()
        for name in found.streams:
            found.stream(name).release()
        found.resume()
        yield found
        found.resume()


def push(client: cl.Client, *records: cl.ChangeRecord, to: str = "prices") -> int:
    """One transaction; returns its number once the flow is idle again."""
    number = client.stream(to).push(records).result(SECONDS)
    settle(client)
    return number


def settle(client: cl.Client) -> None:
    eventually(lambda: all(one["queued"] == 0 and one["location"] == "INPUT" for one in client.status()["streams"]))


def test_transactions_go_in_and_come_out(client: cl.Client) -> None:
    """Push, row, histories, and a subscriber, with updates as records and as blocks."""
    shares = client.stream("shares")
    begun = push(client, cl.upsert(k="a", v=20), cl.upsert(k="b", v=10))
    assert push(client, cl.upsert(k="a", v=5)) == begun + 1
    assert shares.get("a") == {"k": "a", "v": 20}
    assert shares.get("nobody") is None
    newest = shares.out_history()[-1]
    assert [repr(one) for one in newest] == ["UPDATE_BLOCK(k='a', v=20; was {'k': 'a', 'v': 5})"]
    assert client.stream("prices").in_history(1)[0].records == [cl.upsert(k="a", v=5)]
    with shares.subscribe(newest.seq - 1, timeout=SECONDS) as found:
        first, second = next(found), next(found)
    assert [record.op for record in first] == ["INSERT", "INSERT"]
    assert [(record.op, record["v"]) for record in second] == [("UPDATE", 20)]
    with shares.subscribe(newest.seq, blocks=True, timeout=SECONDS) as found:
        assert [repr(one) for one in next(found)] == [
            "UPDATE_BLOCK(k='a', v=20; was {'k': 'a', 'v': 5})",
            "DELETE(k='a', v=5)",
        ]


def test_a_subscriber_of_what_comes_now(client: cl.Client) -> None:
    """It waits, for a time if it has one, and misses nothing of what comes."""
    with client.stream("halves").subscribe(None, timeout=0.2) as found:
        with pytest.raises(WaitTimeout, match="published nothing"):
            next(found)
        for value in (1, 2, 4):
            push(client, cl.upsert(k="now", v=value))
        seen = [next(found) for _ in range(3)]
        assert [one.records[0]["v"] for one in seen] == [50, 25, 12]
        assert found.next == seen[-1].seq + 1
    with pytest.raises(StopIteration):
        next(found)
    eventually(lambda: all(one["subscribers"] == 0 for one in client.status()["streams"]))


def test_a_stream_waits_for_a_subscriber_elsewhere(client: cl.Client) -> None:
    """E19: with one transaction that it has not read the stream stands in OUTPUT, and nothing is dropped."""
    shares = client.stream("shares")
    with shares.subscribe(None, buffer=1, timeout=SECONDS) as found:
        for value in (1, 2, 4):
            client.stream("prices").push([cl.upsert(k="slow", v=value)]).result(SECONDS)
        eventually(lambda: shares.location is cl.Location.OUTPUT and shares.queued == 1)
        assert shares.get("slow") == {"k": "slow", "v": 50}
        assert [next(found).records[0]["v"] for _ in range(3)] == [100, 50, 25]
    settle(client)


def test_all_types_travel(client: cl.Client) -> None:
    """As records and as Arrow data, in and out: dates, decimals, bytes, nulls."""
    moments = client.stream("moments")
    row = {"day": dt.date(2026, 11, 23), "n": 1, "price": Decimal("1.50"), "raw": b"\x00\xff"}
    push(client, cl.upsert(row), to="moments")
    table = pa.Table.from_pylist([{**row, "n": 2, "price": None}], schema=moments.schema)
    moments.push(table.append_column("_op", pa.array(["UPSERT"]))).result(SECONDS)
    eventually(lambda: len(moments.out_history()) == 2)
    assert [dict(one.records[0]) for one in moments.out_history()] == [row, {**row, "n": 2, "price": None}]
    assert moments.get((dt.date(2026, 11, 23), 1)) == row
    for wrong in ("x", ("x", 1), (dt.date(2026, 11, 23), 1, 2)):
        with pytest.raises(SchemaMismatch, match="key"):
            moments.get(wrong)


def test_what_does_not_fit_is_told(node: ServeProcess, client: cl.Client) -> None:
    """By the client where it knows, and by the node."""
    prices = client.stream("prices")
    with pytest.raises(SchemaMismatch, match="'x'"):
        prices.push([cl.upsert(k="a", x=1)])
    with pytest.raises(InvalidOption, match="expected records"):
        prices.push("records")
    with pytest.raises(InvalidOption, match="reads other streams"):
        client.stream("shares").push([cl.upsert(k="a", v=1)]).result(SECONDS)
    with pytest.raises(InvalidOption, match="no stream 'nothing'"):
        client.stream("nothing")
    with pytest.raises(InvalidOption, match="expected at most"):
        prices.subscribe(1000)
    with pytest.raises(InvalidOption, match="not paused"):
        client.step()
    with pytest.raises(InvalidOption, match="no request 'trace'"), ps.Client(node.address) as other:
        other.trace()


def test_a_transaction_is_looked_at_step_by_step(client: cl.Client) -> None:
    """Location, records, and what they were computed to; then a part of the flow, and steps by themselves."""
    prices, shares = client.stream("prices"), client.stream("shares")
    push(client, cl.upsert(k="s", v=10))
    client.pause()
    prices.push([cl.upsert(k="s", v=25), cl.upsert(k="t", v=50)]).result(SECONDS)
    assert (prices.queued, client.status()["state"]) == (1, "paused")
    client.quiesce("prices")
    assert (prices.queued, shares.queued, prices.location) == (0, 1, cl.Location.INPUT)
    assert client.step("location", shares) == cl.PausedAt("shares", cl.Location.COMPUTE, 0)
    assert client.step("row") == cl.PausedAt("shares", cl.Location.COMPUTE, 1)
    assert shares.out_row == [cl.upsert(k="s", v=4)]
    assert shares.in_row == cl.insert(k="t", v=50)
    assert client.step("row").location is cl.Location.PUT
    assert shares.out_trans == [cl.upsert(k="s", v=4), cl.upsert(k="t", v=2)]
    assert [repr(one) for one in shares.in_trans or ()] == [
        "UPDATE_BLOCK(k='s', v=25; was {'k': 's', 'v': 10})",
        "INSERT(k='t', v=50)",
    ]
    assert shares.get("t") is None
    client.auto_step(0.01, "location")
    eventually(lambda: shares.get("t") == {"k": "t", "v": 2})
    client.stop_auto_step()
    client.resume()
    eventually(lambda: client.paused_at is None)
    assert shares.in_trans is None


def test_breakpoints(client: cl.Client) -> None:
    """Set, listed, met, disabled and removed by numbers; a wrong condition is refused."""
    shares = client.stream("shares")
    one = shares.break_on("input", "v > 100 and op == 'INSERT'")
    client.stream("prices").push([cl.upsert(k="x", v=1), cl.upsert(k="y", v=200)]).result(SECONDS)
    assert client.wait_paused(SECONDS) == cl.PausedAt("shares", cl.Location.COMPUTE, 1, one.number)
    [found] = shares.breakpoints
    assert (found.number, found.condition, found.hits, found.every) == (one.number, one.condition, 1, 1)
    found.disable()
    assert not client.breakpoints[0].is_enabled
    client.resume()
    settle(client)
    found.enable()
    found.remove()
    assert client.breakpoints == []
    with pytest.raises(InvalidOption, match="has no breakpoint"):
        found.remove()
    for side, condition in (("input", "__import__('os')"), ("input", "out.v > 1"), ("input", "x == 1")):
        with pytest.raises(InvalidOption, match="condition"):
            shares.break_on(side, condition)  # type: ignore[arg-type]


def test_bad_transactions_are_seen_tried_and_given_again(client: cl.Client) -> None:
    """With number, record and cause; a try tells what another run would come to."""
    push(client, cl.upsert(k="ok", v=1), cl.upsert(k="zero", v=0))
    bad = client.stream("shares").bad_rows()[-1]
    assert (bad.source, bad.row, bad.location) == ("prices", 1, cl.Location.COMPUTE)
    assert bad.error.startswith("ZeroDivisionError")
    found = client.what_if(bad=bad.number)
    assert (found.error, found.row, found.location) == (bad.error, 1, cl.Location.COMPUTE)
    client.replay_bad(bad.number)
    eventually(lambda: client.stream("shares").bad_rows()[-1].number == bad.number + 1)
    with pytest.raises(InvalidOption, match="no bad transaction"):
        client.replay_bad(bad.number)


def test_a_try_of_a_transaction_of_the_history(client: cl.Client) -> None:
    """The node's function as it is now meets the rows as they were."""
    push(client, cl.upsert(k="w", v=10))
    push(client, cl.upsert(k="w", v=20))
    push(client, cl.upsert(k="w", v=50))
    taken = client.stream("shares").in_history()[-2]
    found = client.what_if("shares", taken.seq)
    assert found.taken == taken
    assert found.computed == [cl.upsert(k="w", v=5)]
    assert [repr(one) for one in found.published] == ["UPDATE_BLOCK(k='w', v=5; was {'k': 'w', 'v': 10})"]
    assert found.was == found.published


def test_a_push_waits_for_room_and_others_go_on(client: cl.Client) -> None:
    """With a full queue: one waits at the node in its order, one is withdrawn in time, one does not want to wait."""
    prices = client.stream("prices")
    client.pause()
    numbers = [prices.push([cl.upsert(k="q", v=value)]) for value in range(1, 9)]
    late = prices.push([cl.upsert(k="q", v=99)], timeout=0.3)
    with pytest.raises(WaitTimeout):
        late.result(SECONDS)
    with pytest.raises(cl.Full, match="queue is full"):
        prices.push([cl.upsert(k="q", v=98)], wait=False).result(SECONDS)
    assert [one.done() for one in numbers] == [True] * 4 + [False] * 4
    client.resume()
    found = [one.result(SECONDS) for one in numbers]
    assert found == list(range(found[0], found[0] + 8))
    settle(client)
    assert prices.get("q") == {"k": "q", "v": 8}


def test_a_stream_is_held(client: cl.Client) -> None:
    """It takes nothing, while others go on."""
    shares = client.stream("shares")
    shares.hold()
    client.stream("prices").push([cl.upsert(k="h", v=100)]).result(SECONDS)
    eventually(lambda: shares.queued == 1)
    assert next(one for one in client.status()["streams"] if one["name"] == "shares")["held"]
    shares.release()
    eventually(lambda: shares.get("h") == {"k": "h", "v": 1})


def test_an_application_of_another_kind_is_told(tmp_path: Path) -> None:
    """A client of flows finds none there."""
    with (
        ServeProcess((tmp_path / "store").as_uri()) as other,
        cl.Client(other.address) as client,
        pytest.raises(InvalidOption, match="no flow"),
    ):
        client.stream("prices")


def test_a_flow_goes_on_at_the_next_node(tmp_path: Path) -> None:
    """A drained node leaves what waits in queues; a subscriber goes on over both without a gap."""
    url = (tmp_path / "store").as_uri()
    with ServeProcess(url, app=APP) as first:
        address = first.address
        with cl.Client(address) as client:
            prices = client.stream("prices")
            prices.push([cl.upsert(k="a", v=1)]).result(SECONDS)
            found = prices.subscribe(timeout=SECONDS)
            assert next(found).seq == 1
            client.pause()
            prices.push([cl.upsert(k="a", v=2)]).result(SECONDS)
            client.drain()
            first.process.wait(SECONDS)
            with ServeProcess(url, "--listen", address, app=APP) as second:
                assert second.address == address
                assert [(one.seq, one.records[0]["v"]) for one in (next(found),)] == [(2, 2)]
                found.close()
    with connect(url) as store:
        assert [row for batch in store.table("prices").read() for row in batch.to_pylist()] == [{"k": "a", "v": 2}]


def test_all_rows_at_one_moment(client: cl.Client) -> None:
    """In pages, whatever comes meanwhile; with the number from which a subscriber goes on."""
    moments, count = client.stream("moments"), 25_000
    assert client.stream("halves").snapshot()[1] == client.stream("halves").out_history()[-1].seq
    day = dt.date(1999, 1, 2)

    def pushed(price: str, numbers: range) -> None:
        columns = {
            "day": pa.array([day] * len(numbers)),
            "n": pa.array(numbers, pa.int64()),
            "price": pa.array([Decimal(price)] * len(numbers), pa.decimal128(12, 2)),
            "raw": pa.nulls(len(numbers), pa.binary()),
            "_op": pa.repeat("UPSERT", len(numbers)),
        }
        moments.push(pa.table(columns)).result(SECONDS)
        settle(client)

    def page(number: int) -> dict[str, Any]:
        asked = pb.Request(stream_rows=pb.StreamRows(stream="moments", reader="r", page=number))
        found: dict[str, Any] = client.ask(asked, is_repeatable=True).result(SECONDS)
        return found

    pushed("1", range(count))
    seq = moments.out_history()[-1].seq
    pages = [page(0)]
    pushed("2", range(count + 10))
    assert page(0) == pages[0]
    while not pages[-1]["is_last"]:
        pages.append(page(len(pages)))
    rows = [row for one in pages for row in ipc_table(one["rows"]).to_pylist() if row["day"] == day]
    assert (len(pages), {one["seq"] for one in pages}) == (3, {seq})
    assert sorted(row["n"] for row in rows) == list(range(count))
    assert {row["price"] for row in rows} == {Decimal("1.00")}
    with pytest.raises(cl.HistoryGone, match="begin with page 0"):
        page(3)
    rows, newest = moments.snapshot()
    mine = [row["price"] for row in rows if row["day"] == day]
    assert (len(mine), {*mine}) == (count + 10, {Decimal("2.00")})
    assert newest == seq + 1


def test_a_row_is_waited_for_no_longer_than_it_may_take(client: cl.Client, node: ServeProcess) -> None:
    """Of a node that stands still; once it goes on it answers again."""
    prices = client.stream("prices")
    push(client, cl.upsert(k="w", v=3))
    node.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(WaitTimeout, match=r"stream 'prices' has not answered within 0\.3 s"):
            prices.get("w", timeout=0.3)
    finally:
        node.process.send_signal(signal.SIGCONT)
    assert prices.get("w", timeout=SECONDS) == {"k": "w", "v": 3}
