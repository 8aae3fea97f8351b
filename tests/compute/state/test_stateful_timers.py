"""Timers of `stateful`: each reaches the function, in order of time; and random batches compared with plain Python."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.spark.stateful_batches import run_batch, table_rows
from support.spark.stateful_model import DELAY, KEY, Model, create_tables, log_call, random_rows
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidBatch, SchemaMismatch

TIME = pa.timestamp("us", "UTC")
NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """An empty store."""
    with connect(tmp_path.as_uri(), compaction=False) as opened:
        yield opened


def minute(number: float) -> datetime:
    return NOON + timedelta(minutes=number)


def rows(*events: tuple[int, float, list[float]]) -> pa.Table:
    keys, times, timers = zip(*events, strict=True)
    asked = pa.array([[minute(at) for at in several] for several in timers], pa.list_(TIME))
    return pa.table({"k": pa.array(keys, pa.int64()), "at": pa.array(map(minute, times), TIME), "timers": asked})


def test_each_due_timer_is_a_call_in_order_of_time(store: StateStore) -> None:
    """Rows come with the last due timer; each call sees the state that the one before it left."""
    store.create_table("t", schema=pa.schema([("k", pa.int64()), ("seen", pa.list_(pa.string()))]), primary_key=["k"])

    def note(key: int, rows: list[Any], state: Any, turn: ts.Turn) -> Any:
        for row in rows:
            for at in row["timers"]:
                turn.timer(at)
        if turn.fired == minute(7) and not rows:
            return None
        fired = None if turn.fired is None else turn.fired.minute
        return {"seen": [*(state["seen"] if state else []), f"{fired} {len(rows)}"]}

    write = ts.stateful("t", key="k", fn=ts.per_key(note), store=store, event_time="at", delay=0)
    run_batch(write, store, rows((1, 0, [9, 5, 7]), (2, 0, [5, 5]), (3, 0, [6, 8]), (4, 0, [20])), 0)
    run_batch(write, store, rows((5, 9, [])), 1)
    table = store.table("t")
    assert table.get(1)["seen"] == ["None 1"]
    run_batch(write, store, rows((1, 9.5, []), (4, 9.5, [])), 2)
    seen = {row["k"]: row["seen"] for row in table_rows(table)}
    # Key 1 was forgotten by its timer at 7. A timer is due at its time, not after it.
    assert seen == {
        1: ["9 1"],
        2: ["None 1", "5 0"],
        3: ["None 1", "6 0", "8 0"],
        4: ["None 1", "None 1"],
        5: ["None 1"],
    }
    assert [row["timer_at"] for row in table_rows(store.table("t.timers"))] == [minute(20)]


def test_rounds_of_vectorised_functions(store: StateStore) -> None:
    """Each key comes once in a round, with one timer; the last round has the rows, and is usually the only one."""
    store.create_table("t", schema=pa.schema([("k", pa.int64()), ("calls", pa.int64())]), primary_key=["k"])
    store.create_table("rounds", schema=pa.schema([("n", pa.int64()), ("text", pa.string())]), primary_key=["n"])

    def count(batch: ts.KeyedBatch) -> ts.Update:
        old = batch.state.column("calls").fill_null(0).to_numpy(zero_copy_only=False)
        assert batch.fired is not None
        fired = batch.fired.astype("datetime64[m]").astype(object)
        told = sorted(
            (k, None if at is None else at.minute) for k, at in zip(batch.keys["k"].to_pylist(), fired, strict=True)
        )
        timers = [{"k": row["k"], "timer_at": at} for row in batch.rows.to_pylist() for at in row["timers"]]
        text = f"{told} {batch.rows.num_rows}"
        return ts.Update(
            state=batch.keys.append_column("calls", pa.array(old + 1)),
            outputs={"rounds": [{"n": batch.batch_id * 10 + int(old.max()), "text": text}]},
            timers=timers,
        )

    write = ts.stateful("t", key="k", fn=count, store=store, event_time="at", delay=0, outputs={"rounds": "rounds"})
    run_batch(write, store, rows((1, 0, [1, 2, 3]), (2, 0, [2]), (3, 0, [3, 1])), 0, tasks=1)
    run_batch(write, store, rows((4, 5, [])), 1, tasks=1)
    run_batch(write, store, rows((2, 6, []), (5, 6, [])), 2, tasks=1)
    assert [row["text"] for row in table_rows(store.table("rounds")) if row["n"] >= 20] == [
        "[(1, 1)] 0",
        "[(1, 2), (3, 1)] 0",
        "[(1, 3), (2, 2), (3, 3), (5, None)] 2",
    ]
    assert {row["k"]: row["calls"] for row in table_rows(store.table("t"))} == {1: 4, 2: 2, 3: 3, 4: 1, 5: 1}


def test_a_timer_in_the_past_fires_in_the_next_batch(store: StateStore) -> None:
    """Not in the batch that sets it, even if a timer of the same time has just fired."""
    store.create_table("t", schema=pa.schema([("k", pa.int64()), ("calls", pa.int64())]), primary_key=["k"])

    def again(key: int, rows: list[Any], state: Any, turn: ts.Turn) -> Any:
        turn.timer(minute(1))
        return {"calls": (state["calls"] if state else 0) + 1}

    write = ts.stateful("t", key="k", fn=ts.per_key(again), store=store, event_time="at", delay=0)
    for batch in range(5):
        run_batch(write, store, rows((2 if batch else 1, 5 + batch, [])), batch)
        assert store.table("t").get(1)["calls"] == max(1, batch + 1)


def test_state_that_expires_between_rounds(store: StateStore) -> None:
    """State that a call gave a past time is not shown to the next call."""
    schema = pa.schema([("k", pa.int64()), ("calls", pa.int64()), ("until", TIME)])
    store.create_table("t", schema=schema, primary_key=["k"])

    def call(key: int, rows: list[Any], state: Any, turn: ts.Turn) -> Any:
        for row in rows:
            for at in row["timers"]:
                turn.timer(at)
        until = turn.fired if turn.fired == minute(2) else minute(90)
        return {"calls": (state["calls"] if state else 0) + 1, "until": until}

    ttl = ts.Ttl("until", timedelta(minutes=1), by="event")
    write = ts.stateful("t", key="k", fn=ts.per_key(call), store=store, event_time="at", delay=0, ttl=ttl)
    run_batch(write, store, rows((1, 0, [1, 2, 3, 4])), 0)
    run_batch(write, store, rows((2, 10, [])), 1)
    run_batch(write, store, rows((2, 11, [])), 2)
    assert store.table("t").get(1)["calls"] == 2


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_state_may_have_any_unit(store: StateStore, unit: str) -> None:
    """Time to live by a column whose unit is finer or coarser than the watermark's."""
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("seen", pa.timestamp(unit, "UTC"))])
    table = store.create_table("t", schema=schema, primary_key=["k"])

    def keep(batch: ts.KeyedBatch) -> ts.Update:
        seen = pa.array(np.full(batch.keys.num_rows, 1_357_041_600_000_000_001)).cast(pa.timestamp("ns", "UTC"))
        counts = pa.array(batch.state.column("n").fill_null(0).to_numpy(zero_copy_only=False) + 1)
        columns = [batch.keys.column("k"), counts, seen.cast(schema.field("seen").type, safe=False)]
        return ts.Update(state=pa.record_batch(columns, names=schema.names))

    options: dict[str, Any] = {"event_time": "at", "delay": 0, "ttl": ts.Ttl("seen", timedelta(minutes=5), by="event")}
    write = ts.stateful("t", key="k", fn=keep, store=store, **options)
    for batch, (at, calls) in enumerate([(0, 1), (4, 2), (6, 3), (7, 1)]):
        run_batch(write, store, rows((1, at, [])), batch)
        assert table.get(1)["n"] == calls


@pytest.mark.parametrize("year", [1, 9999, 200_000])
def test_a_watermark_at_the_end_of_time(store: StateStore, year: int) -> None:
    """A time that no `datetime` can hold, or a delay of thousands of years, ends no stream."""
    store.create_table("t", schema=pa.schema([("k", pa.int64()), ("n", pa.int64())]), primary_key=["k"])
    at = pa.array([(year - 1970) * 31_556_952_000], pa.int64()).cast(pa.timestamp("ms")).cast(TIME)
    for delay, expected in ((timedelta(days=999_999_999), 3), (0, 1)):
        fn = ts.merges(n="count")
        write = ts.stateful("t", key="k", fn=fn, store=store, event_time="at", delay=delay, writer=str(delay))
        for batch in range(expected):
            run_batch(write, store, pa.table({"k": [1], "at": at}), batch + int(delay == 0) * 3)
    assert store.table("t").get(1)["n"] >= 3


@pytest.mark.parametrize(("seed", "tasks", "chunk_bytes"), [(1, 1, 1 << 20), (2, 2, 3000), (3, 7, 1 << 20)])
def test_random_batches_equal_plain_python(store: StateStore, seed: int, tasks: int, chunk_bytes: int) -> None:
    """Several timers a key, late rows, keys of mixed and changing types, and refused batches in between."""
    create_tables(store)
    outputs = {"log": "log", "late": "late"}
    options: dict[str, Any] = {"event_time": "at", "delay": DELAY, "outputs": outputs, "order_by": "v"}
    options |= {"chunk_bytes": chunk_bytes}
    write = ts.stateful("t", key=KEY, fn=ts.per_key(log_call), store=store, **options)
    chance = random.Random(seed)
    model = Model()
    foreign = ts.stateful("t", key=KEY, fn=lambda batch: ts.Update(deletes=[(99, "x", 1)]), store=store, **options)
    several = 0
    for batch in range(12):
        # A pause now and then, after which many timers of a key are due at once.
        made = random_rows(chance, batch + 2 * (batch // 4), 60, batch * 100)
        if chance.random() < 0.3:
            with pytest.raises(InvalidBatch, match="with which it was not called"):
                run_batch(foreign, store, made, batch, tasks)
            misfit = made.set_column(2, "price", pa.array([0.5] * 60).cast(pa.decimal128(10, 4)))
            misfit = misfit.set_column(2, "price", pa.compute.add(misfit["price"], pa.scalar(1, pa.decimal128(5, 4))))
            broken = misfit.set_column(0, "id", pa.array(["1"] * 60))
            with pytest.raises(SchemaMismatch):
                run_batch(write, store, broken, batch, tasks)
        run_batch(write, store, made, batch, tasks if batch % 3 else 4)
        before = len(model.log)
        model.run([row for part in made.to_batches() for row in part.to_pylist()])
        calls = [tuple(row[name] for name in KEY) for row in model.log[before:]]
        several += len(calls) - len(set(calls))
        state = {tuple(row[name] for name in KEY): row for row in table_rows(store.table("t"))}
        assert {key: {name: row[name] for name in ("calls", "total")} for key, row in state.items()} == model.state
        assert {(row["timer_at"], tuple(row[name] for name in KEY)) for row in table_rows(store.table("t.timers"))} == (
            model.timers
        )
    assert several > 50
    assert [row["v"] for row in table_rows(store.table("late"))] == sorted(model.late)
    log = {(*(row[name] for name in KEY), row["batch"], row["call"]): row for row in model.log}
    found = table_rows(store.table("log"))
    assert len(found) == len(model.log)
    for row in found:
        assert row == log[*(row[name] for name in KEY), row["batch"], row["call"]]
