"""What the tasks of `stateful` compute and commit, without a JVM: gathering, state, outputs, watermark, timers, TTL."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.spark.stateful_batches import run_batch, table_rows
from tussock.compute.spark.state.task.groups import pieces_of
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, InvalidBatch, InvalidOption, SchemaMismatch

SEED = 20_131_006
TIME = pa.timestamp("us", "UTC")
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
TOTALS = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64())])
SUMS = ts.merges(n="count", total=("sum", "v"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """An open store with a state table `totals` of {k (key), n, total}."""
    with connect(tmp_path.as_uri(), compaction=False) as opened:
        opened.create_table("totals", schema=TOTALS, primary_key=["k"])
        yield opened


def numbers(start: int, end: int, keys: int = 13) -> pa.Table:
    values = np.arange(start, end)
    # Narrower than the key of the table: what places a row is the hash of the table's type.
    return pa.table({"k": pa.array(values % keys, pa.int32()), "v": values})


def expected_totals(end: int, keys: int = 13) -> list[tuple[int, int, int]]:
    return [(k, len(range(k, end, keys)), sum(range(k, end, keys))) for k in range(keys)]


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def add_up(batch: ts.KeyedBatch) -> ts.Update:
    """Totals computed with NumPy and a frame of Polars."""
    values = batch.rows.column("v").to_numpy()
    assert (batch.rows.column("k").to_numpy() == batch.keys.column("k").to_numpy()[batch.groups]).all()
    old = pl.DataFrame(pl.from_arrow(batch.state)).fill_null(0)
    added = pl.DataFrame(
        {"n": np.diff(batch.starts, append=len(values)), "total": np.add.reduceat(values, batch.starts)}
    )
    return ts.Update(state=old.select("k", n=old["n"] + added["n"], total=old["total"] + added["total"]))


@pytest.mark.parametrize(("tasks", "chunk_bytes"), [(1, 1 << 20), (2, 500), (7, 1 << 20), (16, 500)])
@pytest.mark.parametrize("function", [add_up, SUMS], ids=["numpy", "merges"])
def test_state_equals_plain_arithmetic(store: StateStore, tasks: int, chunk_bytes: int, function: Any) -> None:
    """For any number of tasks, also one that changes between batches, and with rows that go through the disk."""
    write = ts.stateful("totals", key="k", fn=function, store=store, chunk_bytes=chunk_bytes)
    for batch, count in enumerate((tasks, 4, tasks)):
        run_batch(write, store, numbers(batch * 500, batch * 500 + 500), batch, count)
    assert [tuple(row.values()) for row in table_rows(store.table("totals"))] == expected_totals(1500)


def test_a_piece_of_rows_has_whole_keys(store: StateStore) -> None:
    """Rows beyond a piece are divided by key, even if one key alone is too large, and keep their order."""
    chance = random.Random(SEED)
    keys = [chance.choice([1, 1, 1, *range(40)]) for _ in range(3000)]
    rows = pa.table({"k": pa.array(keys, pa.int64()), "at": np.arange(3000)})
    pieces = list(pieces_of(rows.to_batches(64), rows.schema, ["k"], 2000))
    assert len(pieces) > 16
    seen: dict[int, int] = {}
    for at, piece in enumerate(pieces):
        for key in set(piece.rows.column("k").to_pylist()):
            assert seen.setdefault(key, at) == at, f"key {key} is in two pieces"
        shared = piece.share.of(pa.RecordBatch.from_arrays([piece.rows.column("k").combine_chunks()], ["k"]))
        assert shared.all()
        one = piece.rows.filter(pa.compute.equal(piece.rows.column("k"), 1)).column("at").to_numpy()
        assert (np.diff(one) > 0).all()
    assert sorted(at for piece in pieces for at in piece.rows.column("at").to_pylist()) == list(range(3000))


def test_state_and_outputs_share_an_epoch(store: StateStore) -> None:
    """Rejected rows go to another table; deletes forget keys; two state tables are read and written at once."""
    for name in ("left", "right"):
        schema = pa.schema([("k", pa.int64()), ("seen", pa.list_(pa.int64()))])
        store.create_table(name, schema=schema, primary_key=["k"])
    store.create_table("rejects", schema=pa.schema([("v", pa.int64()), ("why", pa.string())]), primary_key=["v"])

    def sides(batch: ts.KeyedBatch) -> ts.Update:
        rows = batch.rows.to_pylist()
        states = {name: dict.fromkeys(batch.keys.column("k").to_pylist(), ()) for name in ("left", "right")}
        for name, state in states.items():
            found = batch.states[name]
            state.update({r["k"]: r["seen"] for r, f in zip(found.rows.to_pylist(), found.found, strict=True) if f})
        for row in rows:
            if row["v"] >= 0:
                states[row["side"]][row["k"]] = [*states[row["side"]][row["k"]], row["v"]]
        gone = [row["k"] for row in rows if row["v"] == -2]
        return ts.Update(
            state={
                name: [{"k": k, "seen": seen} for k, seen in state.items() if seen and k not in gone]
                for name, state in states.items()
            },
            deletes={"left": gone, "right": None},
            outputs={"bad": [{"v": row["v"], "why": row["side"]} for row in rows if row["v"] == -1]},
        )

    write = ts.stateful(["left", "right"], key="k", fn=sides, store=store, outputs={"bad": "rejects"}, order_by="v")
    run_batch(write, store, pa.table({"k": [1, 1, 2], "side": ["left", "right", "left"], "v": [10, 11, -1]}), 0)
    epoch = run_batch(write, store, pa.table({"k": [3, 1, 1], "side": ["left", "right", "right"], "v": [1, 9, 8]}), 1)
    assert table_rows(store.table("left")) == [{"k": 1, "seen": [10]}, {"k": 3, "seen": [1]}]
    assert table_rows(store.table("right")) == [{"k": 1, "seen": [11, 8, 9]}]
    assert table_rows(store.table("rejects")) == [{"v": -1, "why": "left"}]
    version = store.version()
    assert version.find_table("left").last_epoch == version.find_table("right").last_epoch == epoch
    run_batch(write, store, pa.table({"k": [3], "side": ["right"], "v": [-2]}), 2)
    assert table_rows(store.table("left")) == [{"k": 1, "seen": [10]}]


def test_a_commit_of_another_writer_is_a_conflict(store: StateStore) -> None:
    """State written after the epoch that the tasks read is not overwritten."""

    def interrupt(batch: ts.KeyedBatch) -> ts.Update:
        store.table("totals").upsert([{"k": 1, "n": 1000, "total": 0}], epoch := store.new_epoch())
        store.commit_epoch(epoch)
        return add_up(batch)

    write = ts.stateful("totals", key="k", fn=add_up, store=store)
    write.function = interrupt  # type: ignore[attr-defined]
    # A function that closes over a store does not travel, so it is put where the tasks unpickle theirs.
    from tussock.compute.spark.state.task import task as tasks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "load_function", lambda function: function)
        with pytest.raises(Conflict, match="table 'totals' was read at epoch"):
            run_batch(write, store, numbers(0, 50, 1), 0, tasks=1)
    assert table_rows(store.table("totals")) == [{"k": 1, "n": 1000, "total": 0}]


def test_declared_merges_on_every_kind(store: StateStore) -> None:
    """Each function over two batches, with nulls, in the order of `order_by`; other columns keep their values."""
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("rows", pa.int64()),
            ("some", pa.int32()),
            ("low", pa.string()),
            ("high", pa.float64()),
            ("born", TIME),
            ("last", pa.string()),
            ("recent", pa.list_(pa.string())),
            ("note", pa.string()),
        ]
    )
    table = store.create_table("all", schema=schema, primary_key=["k"])
    fn = ts.merges(
        rows="count",
        some=("count", "s"),
        low=("min", "s"),
        high=("max", "x"),
        born=("first", "at"),
        last=("last", "s"),
        recent=("collect", "s", 3),
    )
    write = ts.stateful("all", key="k", fn=fn, store=store, order_by=["at"])
    columns = pa.schema([("k", pa.string()), ("s", pa.string()), ("x", pa.float32()), ("at", TIME)])

    def batch(*rows: tuple[Any, ...]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(columns.names, row, strict=True)) for row in rows], columns)

    run_batch(write, store, batch(("a", "q", 1.5, minute(2)), ("a", "z", None, minute(1)), ("b", None, None, None)), 0)
    table.upsert([{**table.get("a"), "note": "kept"}], epoch := store.new_epoch())
    store.commit_epoch(epoch)
    run_batch(write, store, batch(("a", None, 0.5, minute(5)), ("a", "x", 7.0, minute(4)), ("a", "y", 1, minute(3))), 1)
    assert table_rows(table) == [
        {
            "k": "a",
            "rows": 5,
            "some": 4,
            "low": "q",
            "high": 7.0,
            "born": minute(1),
            "last": None,
            "recent": ["q", "y", "x"],
            "note": "kept",
        },
        {**dict.fromkeys(schema.names), "k": "b", "rows": 1, "some": 0, "recent": []},
    ]


def bank(key: int, rows: list[dict[str, Any]], state: dict[str, Any] | None, turn: ts.Turn) -> dict[str, Any] | None:
    """An account that refuses to be overdrawn, and is closed by a timer five minutes after its last row."""
    if turn.fired is not None and not rows:
        turn.emit("closed", {"k": key, "at": turn.fired})
        return None
    total = state["total"] if state else 0
    for row in rows:
        if total + row["v"] < 0:
            turn.emit("rejects", {"v": row["v"], "why": "overdrawn"})
        else:
            total += row["v"]
    if rows:
        turn.timer(rows[-1]["at"] + timedelta(minutes=5))
    return {"n": (state["n"] if state else 0) + len(rows), "total": total}


def test_plain_python_per_key_with_timers(store: StateStore) -> None:
    """A key is called again once the watermark has passed its timer, with and without rows, and not before."""
    store.create_table("rejects", schema=pa.schema([("v", pa.int64()), ("why", pa.string())]), primary_key=["v"])
    store.create_table("closed", schema=pa.schema([("k", pa.int64()), ("at", TIME)]), primary_key=["k"])
    outputs = {"rejects": "rejects", "closed": "closed"}
    write = ts.stateful(
        "totals", key="k", fn=ts.per_key(bank), store=store, outputs=outputs, order_by="at", event_time="at", delay=0
    )

    def batch(*rows: tuple[int, int, float]) -> pa.Table:
        keys, values, times = zip(*rows, strict=True)
        return pa.table({"k": keys, "v": values, "at": pa.array([minute(time) for time in times], TIME)})

    run_batch(write, store, batch((1, 5, 0), (2, 7, 0.5), (1, -6, 1)), 0, tasks=2)
    assert table_rows(store.table("rejects")) == [{"v": -6, "why": "overdrawn"}]
    run_batch(write, store, batch((1, 1, 4), (3, 1, 5.5)), 1, tasks=7)
    # The watermark is 5.5 now: the timer of key 2 fires, and that of key 1's first rows is due at 6 only.
    run_batch(write, store, batch((3, 1, 6.5)), 2, tasks=2)
    assert table_rows(store.table("closed")) == [{"k": 2, "at": minute(5.5)}]
    # At 6.5 the first timer of key 1 fires although its account goes on: it has a row here, so it is not closed.
    run_batch(write, store, batch((1, 1, 7)), 3, tasks=1)
    assert [row["k"] for row in table_rows(store.table("closed"))] == [2]
    assert table_rows(store.table("totals")) == [{"k": 1, "n": 4, "total": 7}, {"k": 3, "n": 2, "total": 2}]
    run_batch(write, store, batch((4, 0, 60)), 4, tasks=2)
    run_batch(write, store, batch((4, 0, 61)), 5, tasks=4)
    assert [row["k"] for row in table_rows(store.table("closed"))] == [1, 2, 3]
    assert [row["timer_at"] for row in table_rows(store.table("totals.timers"))] == [minute(65), minute(66)]


def test_late_rows_go_to_the_output_late(store: StateStore) -> None:
    """A row at or before the watermark is late; the watermark is that of earlier batches; nulls are never late."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", TIME)])
    store.create_table("late", schema=schema, primary_key=["v"])
    options: dict[str, Any] = {"event_time": "at", "delay": timedelta(minutes=2), "outputs": {"late": "late"}}
    write = ts.stateful("totals", key="k", fn=SUMS, store=store, **options)

    def batch(*times: float | None) -> pa.Table:
        count = len(times)
        at = [None if time is None else minute(time) for time in times]
        return pa.table({"k": [1] * count, "v": [int((time or 0) * 10) for time in times], "at": pa.array(at, TIME)})

    run_batch(write, store, batch(10, 1, None), 0)
    assert table_rows(store.table("late")) == []
    run_batch(write, store, batch(8, 8.1, None, 30), 1)
    assert [row["v"] for row in table_rows(store.table("late"))] == [80]
    assert store.table("totals").get(1)["n"] == 6


def test_state_expires(store: StateStore) -> None:
    """By event time: state that the watermark has passed is not shown, and its vnode's turn deletes it."""
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("seen", TIME)])
    table = store.create_table("t", schema=schema, primary_key=["k"])
    options: dict[str, Any] = {"event_time": "at", "delay": 0, "ttl": ts.Ttl("seen", timedelta(minutes=5), by="event")}
    write = ts.stateful("t", key="k", fn=ts.merges(n="count", seen=("max", "at")), store=store, **options)

    def batch(keys: list[int], time: float) -> pa.Table:
        return pa.table({"k": keys, "at": pa.array([minute(time)] * len(keys), TIME)})

    run_batch(write, store, batch([1, 2], 0), 0)
    run_batch(write, store, batch([2], 4), 1)
    run_batch(write, store, batch([3], 6), 2)
    run_batch(write, store, batch([1, 2], 7), 3)
    assert {row["k"]: row["n"] for row in table_rows(table)} == {1: 1, 2: 3, 3: 1}
    run_batch(write, store, batch([4], 60), 4)
    for number in range(5, 69):
        run_batch(write, store, batch([4], 60), number, tasks=1)
    assert [row["k"] for row in table_rows(table)] == [4]


def test_state_expires_by_the_clock(store: StateStore) -> None:
    """By processing time: each write of a row sets the column, and after that length the row is hidden."""
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("written", TIME)])
    table = store.create_table("t", schema=schema, primary_key=["k"])
    for number, (after, expected) in enumerate([(3600, 1), (3600, 2), (1e-6, 1)]):
        write = ts.stateful("t", key="k", fn=ts.merges(n="count"), store=store, ttl=ts.Ttl("written", after))
        run_batch(write, store, pa.table({"k": [1]}), number)
        assert table.get(1)["n"] == expected
        assert table.get(1)["written"].year >= 2013


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (pa.table({"k": pa.array([1, None]), "v": [1, 2]}), SchemaMismatch, "'k': expected int64, found null"),
        (pa.table({"v": [1]}), SchemaMismatch, r"table 'totals': the rows have no column 'k'; they have \['v'\]"),
        (pa.table({"k": ["a"], "v": [1]}), SchemaMismatch, "column 'k': expected int64, found string"),
        (pa.table({"k": [1], "x": [1]}), InvalidOption, "merge of 'total' reads column 'v', which the rows lack"),
    ],
)
def test_rows_that_do_not_fit_the_table_are_refused(
    store: StateStore, rows: pa.Table, error: type[Exception], message: str
) -> None:
    """The error names table and column, and nothing is stored."""
    with pytest.raises(error, match=message):
        run_batch(ts.stateful("totals", key="k", fn=SUMS, store=store), store, rows, 0, tasks=1)
    assert store.committed_epoch == 0


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda batch: {"k": 1}, InvalidBatch, "returned a value of type dict; expected an Update"),
        (lambda batch: ts.Update(outputs={"x": []}), InvalidBatch, r"output 'x'; expected one of \[\]"),
        (lambda batch: ts.Update(state={"x": []}), InvalidBatch, r"the state tables \['x'\]; expected some of"),
        (lambda batch: ts.Update(timers=[]), InvalidBatch, "give stateful an event_time and a delay"),
        (lambda batch: ts.Update(state=3), SchemaMismatch, "returned a value of type int; expected Arrow data"),
        (lambda batch: ts.Update(state=[{"k": 1, "y": 2}]), SchemaMismatch, r"unknown columns \['y'\]"),
        (lambda batch: ts.Update(deletes=[("a", "b")]), SchemaMismatch, "has 2 values, expected 1"),
    ],
)
def test_results_that_do_not_fit_are_refused(
    store: StateStore, answer: Any, error: type[Exception], message: str
) -> None:
    """The result of a function is checked before anything is committed."""
    with pytest.raises(error, match=message):
        run_batch(ts.stateful("totals", key="k", fn=answer, store=store), store, numbers(0, 5), 0, tasks=1)
    assert store.committed_epoch == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fn": 3}, "fn is 3; expected a function of a KeyedBatch"),
        ({"key": []}, r"key is \[\]; expected a name, or several different ones"),
        ({"table": ["t", "t"]}, "table is"),
        ({"outputs": ["x"]}, "expected names and tables"),
        ({"event_time": "at"}, "event_time and delay go together"),
        ({"delay": 3}, "event_time and delay go together"),
        ({"event_time": "at", "delay": -1}, "delay is -1; expected a timedelta or seconds, 0 or more"),
        ({"event_time": "at", "delay": "1 hour"}, "delay is '1 hour'"),
        ({"event_time": "at", "delay": True}, "delay is True"),
        ({"ttl": 3}, "ttl is 3; expected a Ttl"),
        ({"ttl": ts.Ttl("x", 0)}, "ttl.after is 0; expected a timedelta or seconds, above 0"),
        ({"ttl": ts.Ttl("x", 1, by="event")}, "whose clock is the watermark"),
        ({"ttl": ts.Ttl("x", 1, by="moon")}, "by 'event' or 'processing' time"),
        ({"partitions": 0}, "partitions is 0; expected a number of tasks from 1 to 256"),
        ({"partitions": True}, "partitions is True"),
        ({"chunk_bytes": 0}, "chunk_bytes is 0"),
    ],
)
def test_arguments_that_cannot_work_are_refused(store: StateStore, options: dict[str, Any], message: str) -> None:
    """The call raises `InvalidOption` and names the argument."""
    given: dict[str, Any] = {"table": "totals", "key": "k", "fn": add_up, "store": store, **options}
    with pytest.raises(InvalidOption, match=message):
        ts.stateful(given.pop("table"), **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "n"}, r"state table 'totals' has the primary key \['k'\], and key is \['n'\]"),
        ({"table": ["totals", "other"]}, "differ in the types of the key or in their distribution key"),
        ({"ttl": ts.Ttl("n", 1)}, "ttl names column 'n'; expected a timestamp of table 'totals'"),
        ({"outputs": {"x": "raw"}}, "output 'x': table 'raw' is raw"),
        ({"event_time": "v", "delay": 0}, "event_time 'v' is int64; expected a timestamp"),
        ({"fn": ts.merges(x="count")}, "merge names 'x'; expected value columns"),
        ({"fn": ts.merges(n=("collect", "v", 1))}, "column 'n' is int64; a collect is a list"),
    ],
)
def test_arguments_that_do_not_fit_the_tables_are_refused(
    store: StateStore, options: dict[str, Any], message: str
) -> None:
    """The first batch raises `InvalidOption` and names table and column."""
    store.create_table("other", schema=pa.schema([("k", pa.string())]), primary_key=["k"])
    store.create_table("raw")
    given: dict[str, Any] = {"table": "totals", "key": "k", "fn": add_up, "store": store, **options}
    with pytest.raises(InvalidOption, match=message):
        run_batch(ts.stateful(given.pop("table"), **given), store, numbers(0, 5), 0)


@pytest.mark.parametrize(
    "make",
    [
        ts.merges,
        lambda: ts.merges(n="median"),
        lambda: ts.merges(n=("collect", "v")),
        lambda: ts.merges(n=("collect", "v", 0)),
        lambda: ts.merges(n=("collect", "v", True)),
        lambda: ts.merges(n=("collect", "v", 1 << 31)),
        lambda: ts.sessions(True, event_time="at"),
        lambda: ts.merges(n=3),
        lambda: ts.sessions(0, event_time="at"),
        lambda: ts.sessions(5, event_time="at", start="min"),
        lambda: ts.sessions(5, event_time="at", v=("collect", "v", 3)),
        lambda: ts.deduplicate(keep=5),
    ],
)
def test_ready_functions_refuse_what_they_cannot_do(make: Any) -> None:
    """Making the function raises `InvalidOption`."""
    with pytest.raises(InvalidOption):
        make()
