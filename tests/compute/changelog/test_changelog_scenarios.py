"""The acceptance scenarios of changelog streams: CE1 to CE12, and the requirements E1 to E22 that they show."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.changelog.hand_clock import HandClock
from support.store.stores import changes_of
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.compute.changelog.flow import host_of
from tussock.statestore import StateStore, connect

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def stream(store: StateStore, name: str = "s", **options: Any) -> cl.Stream:
    return cl.Stream(store, name, schema=SCHEMA, key=["k"], **options)


def rows(store: StateStore, name: str = "s") -> dict[str, int]:
    """What the store has, as of its newest epoch."""
    return {row["k"]: row["v"] for batch in store.table(name).read() for row in batch.to_pylist()}


def begin(store: StateStore, *streams: cl.Stream, k1: bool = True, **options: Any) -> cl.Flow:
    """A running flow whose first stream has {k1: 10}."""
    flow = cl.Flow(store, streams, **options)
    flow.start()
    if k1:
        push(flow, streams[0], cl.insert(k="k1", v=10))
    return flow


@contextmanager
def running(store: StateStore, *streams: cl.Stream, **options: Any) -> Iterator[cl.Flow]:
    """The same, until the block ends."""
    flow = begin(store, *streams, **options)
    try:
        yield flow
    finally:
        flow.stop()


def push(flow: cl.Flow, to: cl.Stream, *records: cl.ChangeRecord) -> None:
    """One transaction, through the whole flow."""
    to.push(records).result(10)
    flow.drain(10)


def published(one: cl.Stream, *, blocks: bool = False, last: int = 1) -> list[list[str]]:
    """What a subscriber gets."""
    with one.subscribe(from_seq=len(one.out_history()) - last + 1, blocks=blocks, timeout=10) as found:
        return [[repr(record) for record in next(found)] for _ in range(last)]


def test_ce1_an_upsert_of_a_new_key_is_an_insert(store: StateStore) -> None:
    """E7, E13, E18: in the history, for subscribers, and in the store."""
    s = stream(store)
    flow = begin(store, s)
    push(flow, s, cl.upsert(k="k2", v=5))
    assert s.out_history()[-1].records == [cl.insert(k="k2", v=5)]
    assert published(s) == [["INSERT(k='k2', v=5)"]]
    flow.stop()
    assert rows(store) == {"k1": 10, "k2": 5}


def test_ce2_an_update_is_a_block_inside_and_an_update_outside(store: StateStore) -> None:
    """E13, E15, E16."""
    s = stream(store)
    with running(store, s) as flow:
        push(flow, s, cl.upsert(k="k1", v=12))
        [block] = s.out_history()[-1].records
        assert (block.op, dict(block), block.old) == (cl.Op.UPDATE_BLOCK, {"k": "k1", "v": 12}, cl.delete(k="k1", v=10))
        assert published(s) == [["UPDATE(k='k1', v=12)"]]
        assert published(s, blocks=True) == [
            ["UPDATE_BLOCK(k='k1', v=12; was {'k': 'k1', 'v': 10})", "DELETE(k='k1', v=10)"]
        ]


def test_ce3_an_update_that_changes_nothing_is_dropped(store: StateStore) -> None:
    """E14: the history has an empty transaction."""
    s = stream(store)
    flow = begin(store, s)
    push(flow, s, cl.update(k="k1", v=10))
    assert [one.records for one in s.out_history()[1:]] == [[]]
    assert published(s) == [[]]
    flow.stop()


def test_ce4_a_safedelete_is_dropped_or_filled_from_the_store(store: StateStore) -> None:
    """E12."""
    s = stream(store)
    flow = begin(store, s)
    push(flow, s, cl.safedelete(k="k9"), cl.safedelete(k="k1"))
    assert published(s) == [["DELETE(k='k1', v=10)"]]
    flow.stop()
    assert rows(store) == {}


def test_ce5_a_duplicate_insert_aborts_the_whole_transaction(store: StateStore) -> None:
    """E17: no output, no history; the next transaction runs."""
    s = stream(store)
    flow = begin(store, s)
    s.push([cl.upsert(k="k3", v=1), cl.insert(k="k1", v=99), cl.upsert(k="k4", v=2)]).result(10)
    flow.drain(10)
    assert len(s.out_history()) == len(s.in_history()) == 1
    assert rows(store) == {"k1": 10}
    [bad] = s.bad_rows()
    assert (bad.seq, bad.row, bad.location) == (2, 1, cl.Location.PUT)
    assert "INSERT of key 'k1', which stream 's' has already" in bad.error
    push(flow, s, cl.upsert(k="k4", v=2))
    assert rows(store) == {"k1": 10, "k4": 2}
    flow.stop()


@pytest.mark.parametrize("by_batch", [False, True])
def test_ce6_an_exception_names_the_row_and_leaves_nothing(store: StateStore, by_batch: bool) -> None:
    """E10: also of the rows before it."""
    s = stream(store)
    norm = stream(store, "norm", inputs=[s])
    if by_batch:

        @norm.compute_batch
        def divide_all(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.set_column(1, "v", pa.array([100 // v for v in batch.column("v").to_pylist()], pa.int64()))

    else:

        @norm.compute
        def divide(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
            return [cl.upsert(k=row["k"], v=100 // row["v"])]

    flow = begin(store, s, norm, k1=False)
    push(flow, s, cl.upsert(k="a", v=5), cl.upsert(k="b", v=0), cl.upsert(k="c", v=2))
    [bad] = norm.bad_rows()
    assert (bad.source, bad.seq, bad.row, bad.location) == ("s", 1, 1, cl.Location.COMPUTE)
    assert "ZeroDivisionError" in bad.error
    assert norm.out_history() == []
    flow.stop()
    assert rows(store, "norm") == {}


def test_ce7_a_key_that_changes_twice_is_two_blocks_and_one_row(store: StateStore) -> None:
    """E13, E15: the store's epoch holds the last one."""
    s = stream(store)
    flow = begin(store, s)
    before = store.committed_epoch
    push(flow, s, cl.upsert(k="k1", v=11), cl.upsert(k="k1", v=12))
    assert [(one["v"], one.old and one.old["v"]) for one in s.out_history()[-1]] == [(11, 10), (12, 11)]
    flow.stop()
    assert [row["v"] for row in changes_of(store.table("s"), before)] == [12]


def test_ce8_what_is_visible_while_rows_are_computed(store: StateStore) -> None:
    """E4, E5, E7, E11: zero, two, one records of three rows."""
    s = stream(store)
    fan = stream(store, "fan", inputs=[s])

    @fan.compute
    def spread(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
        return [cl.upsert(k=f"{row['k']}{at}", v=at) for at in range(row["v"])]

    with running(store, s, fan, k1=False) as flow:
        point = fan.break_on("input", lambda _: True)
        s.push([cl.upsert(k="a", v=0), cl.upsert(k="b", v=2), cl.upsert(k="c", v=1)])
        seen = []
        for _ in range(3):
            at = flow.wait_paused(10)
            assert (at.stream, at.location, at.breakpoint) == ("fan", cl.Location.COMPUTE, point.number)
            assert fan.location is cl.Location.COMPUTE
            assert fan.in_trans is not None
            assert len(fan.in_trans) == 3
            out = fan.out_row
            assert fan.in_row is not None
            seen.append((fan.in_row["k"], None if out is None else len(out), len(fan.out_trans or ())))
            flow.resume()
            eventually(lambda row=at.row: flow.paused_at is None or flow.paused_at.row != row)  # type: ignore[misc]
        assert seen == [("a", None, 0), ("b", 0, 0), ("c", 2, 2)]
        flow.drain(10)
        assert (fan.in_trans, fan.in_row, fan.out_trans, fan.out_row) == (None, None, None, None)


def test_ce8_the_output_is_visible_until_put_begins(store: StateStore) -> None:
    """E11, E18: a step of a transaction stops before PUT, one more location and all is invisible."""
    s = stream(store)
    with running(store, s) as flow:
        flow.pause()
        s.push([cl.upsert(k="a", v=1), cl.upsert(k="b", v=2)]).result(10)
        assert flow.step("trans") == ("s", cl.Location.PUT, None, None)
        assert s.out_trans == [cl.upsert(k="a", v=1), cl.upsert(k="b", v=2)]
        assert s.in_trans is not None
        flow.step("location")
        assert (s.in_trans, s.in_row, s.out_trans, s.out_row) == (None, None, None, None)
        assert s.get("b") == {"k": "b", "v": 2}
        flow.resume()


def test_ce9_an_input_breakpoint_pauses_before_its_row(store: StateStore) -> None:
    """E6, E9: nothing is stored until the transaction goes on; then all of it is."""
    s = stream(store)
    with running(store, s) as flow:
        s.break_on("input", lambda row: row["v"] > 100)
        s.push([cl.upsert(k="a", v=1), cl.upsert(k="b", v=101), cl.upsert(k="c", v=2)]).result(10)
        assert flow.wait_paused(10).row == 1
        assert s.out_trans == [cl.upsert(k="a", v=1)]
        assert s.get("a") is None
        flow.resume()
        flow.drain(10)
        assert rows(store) == {"k1": 10, "a": 1, "b": 101, "c": 2}


def test_ce10_a_full_queue_stops_those_before_it_and_drops_nothing(store: StateStore) -> None:
    """E19, E20, E2: one in the queue, one waits in OUTPUT, one in the queue before it."""
    s = stream(store)
    behind = stream(store, "behind", inputs=[s], queue=1)
    with running(store, s, behind, k1=False) as flow:
        behind.hold()
        for at in (1, 2, 3):
            s.push([cl.upsert(k="a", v=at)]).result(10)
        assert (behind.queued, behind.location) == (1, cl.Location.INPUT)
        assert (s.queued, s.location) == (1, cl.Location.OUTPUT)
        assert s.get("a") == {"k": "a", "v": 2}
        behind.release()
        flow.drain(10)
        assert [[record["v"] for record in one] for one in behind.in_history()] == [[1], [2], [3]]
        assert [record.op for one in behind.in_history() for record in one] == [
            "INSERT",
            "UPDATE_BLOCK",
            "UPDATE_BLOCK",
        ]
        with s.subscribe(timeout=10) as seen:
            assert [next(seen).records[0].op for _ in range(3)] == ["INSERT", "UPDATE", "UPDATE"]


def test_ce10_a_slow_subscriber_stops_the_stream(store: StateStore) -> None:
    """E19: it waits in OUTPUT with the transaction for which there is no room, and goes on when there is."""
    s = stream(store)
    with running(store, s, k1=False) as flow:
        with s.subscribe(buffer=1, timeout=10) as seen:
            for at in (1, 2, 3):
                s.push([cl.upsert(k="a", v=at)]).result(10)
            assert (s.location, s.queued) == (cl.Location.OUTPUT, 1)
            assert [next(seen).records[0]["v"] for _ in range(3)] == [1, 2, 3]
        flow.drain(10)


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[tuple[StateStore, Callable[[int], None]]]:
    """A store whose wall clock is set by hand, in seconds."""
    system = HandClock()
    with connect((tmp_path / "timed").as_uri(), compaction=False, system=system) as opened:
        yield opened, system.set


@pytest.mark.parametrize(
    ("keep", "stays"), [("3 rows", ["e", "f", "g"]), ("every 4 rows", ["e", "f", "g"]), ("2s", ["d", "e", "f", "g"])]
)
def test_a_clock_that_goes_back_makes_no_row_older(
    clock: tuple[StateStore, Callable[[int], None]], keep: str, stays: list[str]
) -> None:
    """Order decides, also after a restart: what came last goes last."""
    store, set_seconds = clock
    first = stream(store, keep=keep)
    with running(store, first, k1=False) as flow:
        set_seconds(100)
        for key in "abc":
            push(flow, first, cl.insert(k=key, v=1))
        flow.drain(10)
    again = stream(store, keep=keep)
    with running(store, again, k1=False) as flow:
        set_seconds(0)
        for key in "defg":
            push(flow, again, cl.insert(k=key, v=1))
            flow.drain(10)
        if keep == "2s":
            set_seconds(101)
            push(flow, again, *(cl.upsert(k=key, v=2) for key in "defg"))
            set_seconds(102)
            host_of(flow).tick()
        flow.drain(10)
        assert sorted(row["k"] for row in again.snapshot()[0]) == stays


def test_ce11_rows_expire_at_their_age(clock: tuple[StateStore, Callable[[int], None]]) -> None:
    """E22: one transaction a tick, with all columns."""
    store, set_seconds = clock
    s = stream(store, keep="5s")
    with running(store, s, k1=False) as flow:
        set_seconds(0)
        push(flow, s, cl.insert(k="a", v=1))
        set_seconds(3)
        push(flow, s, cl.insert(k="b", v=2))
        seen = {}
        for second in (4, 5, 7, 8):
            set_seconds(second)
            host_of(flow).tick()
            flow.drain(10)
            seen[second] = [one.records for one in s.out_history()[2:]]
        assert seen == {
            4: [],
            5: [[cl.delete(k="a", v=1)]],
            7: [[cl.delete(k="a", v=1)]],
            8: [[cl.delete(k="a", v=1)], [cl.delete(k="b", v=2)]],
        }
    assert rows(store) == {}
