"""Sessions and deduplication compared with plain Python: late events, repeats, any number of tasks."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.spark.events import DELAY, GAP, event_batches
from support.spark.stateful_batches import run_batch, table_rows
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidBatch

TIME = pa.timestamp("us", "UTC")
WINDOW = [("start", TIME), ("end", TIME), ("n", pa.int64()), ("total", pa.int64())]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """An empty store."""
    with connect(tmp_path.as_uri(), compaction=False) as opened:
        yield opened


def batches_with_watermarks(seed: int) -> Iterator[tuple[list[dict[str, Any]], datetime | None]]:
    """The rows of each batch, and its watermark."""
    newest: datetime | None = None
    for batch in event_batches(seed):
        rows = batch.to_pylist()
        yield rows, None if newest is None else newest - DELAY
        newest = max([row["at"] for row in rows] + ([] if newest is None else [newest]))


def plain_sessions(seed: int) -> list[tuple[Any, ...]]:
    """Closed sessions, computed row by row."""
    open_sessions: dict[str, list[list[Any]]] = {}
    closed = []
    for rows, watermark in batches_with_watermarks(seed):
        if watermark is not None:
            for key, sessions in open_sessions.items():
                closed += [(key, *session) for session in sessions if session[1] <= watermark]
                open_sessions[key] = [session for session in sessions if session[1] > watermark]
        for row in rows:
            start, end = row["at"], row["at"] + GAP
            if watermark is not None and end <= watermark:
                continue
            joined = [start, end, 1, row["v"]]
            apart = []
            for session in open_sessions.setdefault(row["k"], []):
                if session[1] < joined[0] or joined[1] < session[0]:
                    apart.append(session)
                    continue
                values = [value for value in (session[3], joined[3]) if value is not None]
                total = sum(values) if values else None
                joined = [min(session[0], joined[0]), max(session[1], joined[1]), session[2] + joined[2], total]
            open_sessions[row["k"]] = [*apart, joined]
    return sorted(closed)


def plain_unique(seed: int, keep: timedelta) -> list[tuple[Any, ...]]:
    """The rows that pass, computed row by row."""
    seen: dict[str, datetime] = {}
    passed = []
    for rows, watermark in batches_with_watermarks(seed):
        if watermark is not None:
            seen = {key: expires for key, expires in seen.items() if expires > watermark}
        for row in rows:
            if (watermark is None or row["at"] > watermark) and row["k"] not in seen:
                seen[row["k"]] = row["at"] + keep
                passed.append((row["k"], row["at"], row["v"]))
    return sorted(passed, key=str)


@pytest.mark.parametrize(("seed", "tasks"), [(1, 1), (2, 2), (3, 7), (4, 16)])
def test_sessions_equal_those_computed_row_by_row(store: StateStore, seed: int, tasks: int) -> None:
    """Every closed session with its count and sum, and none that is still open."""
    schema = pa.schema([("k", pa.string()), ("open", pa.list_(pa.struct(WINDOW)))])
    store.create_table("open", schema=schema, primary_key=["k"])
    closed = store.create_table("closed", schema=pa.schema([("k", pa.string()), *WINDOW]), primary_key=["k", "start"])
    fn = ts.sessions(GAP, event_time="at", n="count", total=("sum", "v"))
    options: dict[str, Any] = {"event_time": "at", "delay": DELAY, "outputs": {"closed": "closed"}}
    write = ts.stateful("open", key="k", fn=fn, store=store, **options)
    for number, batch in enumerate(event_batches(seed)):
        run_batch(write, store, batch, number, tasks=4 if number == 2 else tasks)
    expected = plain_sessions(seed)
    assert len(expected) > 40
    assert [tuple(row.values()) for row in table_rows(closed)] == expected


@pytest.mark.parametrize(("seed", "tasks"), [(1, 1), (2, 2), (3, 7), (4, 16)])
def test_deduplication_equals_that_computed_row_by_row(store: StateStore, seed: int, tasks: int) -> None:
    """The first row of each key passes, and the next one after that has been forgotten."""
    schema = pa.schema([("k", pa.string()), ("expires", TIME)])
    store.create_table("seen", schema=schema, primary_key=["k"])
    rows = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
    unique = store.create_table("unique", schema=rows, primary_key=["k", "at"])
    fn = ts.deduplicate(event_time="at", keep=DELAY)
    options: dict[str, Any] = {"event_time": "at", "delay": DELAY, "outputs": {"unique": "unique"}}
    write = ts.stateful("seen", key="k", fn=fn, store=store, **options)
    for number, batch in enumerate(event_batches(seed)):
        run_batch(write, store, batch, number, tasks=4 if number == 2 else tasks)
    expected = plain_unique(seed, DELAY)
    assert sorted(((row["k"], row["at"], row["v"]) for row in table_rows(unique)), key=str) == expected


def test_without_a_time_keys_are_remembered_for_ever(store: StateStore) -> None:
    """A key passes once."""
    schema = pa.schema([("k", pa.int64()), ("expires", TIME)])
    store.create_table("seen", schema=schema, primary_key=["k"])
    unique = store.create_table("unique", schema=pa.schema([("k", pa.int64()), ("v", pa.int64())]), primary_key=["v"])
    write = ts.stateful("seen", key="k", fn=ts.deduplicate(), store=store, outputs={"unique": "unique"})
    for batch in range(2):
        run_batch(
            write, store, pa.table({"k": [1, 1, 2 + batch], "v": [10 * batch, 10 * batch + 1, 10 * batch + 2]}), batch
        )
    assert [row["v"] for row in table_rows(unique)] == [0, 2, 12]


def test_the_event_time_may_be_part_of_the_key(store: StateStore) -> None:
    """Rows of one key and time pass once, and are forgotten when the watermark has passed them."""
    schema = pa.schema([("k", pa.string()), ("at", TIME), ("expires", TIME)])
    seen = store.create_table("seen", schema=schema, primary_key=["k", "at"])
    rows = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
    unique = store.create_table("unique", schema=rows, primary_key=["k", "at"])
    options: dict[str, Any] = {"event_time": "at", "delay": DELAY, "outputs": {"unique": "unique"}}
    fn = ts.deduplicate(event_time="at", keep=0)
    write = ts.stateful("seen", key=["k", "at"], fn=fn, store=store, **options)
    passed: dict[Any, Any] = {}
    for number, ((batch, watermark), arrow) in enumerate(
        zip(batches_with_watermarks(5), event_batches(5), strict=True)
    ):
        run_batch(write, store, arrow, number)
        for row in batch:
            if watermark is None or row["at"] > watermark:
                passed.setdefault((row["k"], row["at"]), row["v"])
    assert {(row["k"], row["at"]): row["v"] for row in table_rows(unique)} == passed
    assert {row["k"] for row in table_rows(seen)} == {"end"}


@pytest.mark.parametrize("kind", ["sessions", "deduplicate"])
def test_a_time_at_the_end_of_all_times_is_refused(store: StateStore, kind: str) -> None:
    """Its session, or the memory of it, would end long before it began."""
    values = [("open", pa.list_(pa.struct(WINDOW)))] if kind == "sessions" else [("expires", TIME)]
    state = store.create_table("state", schema=pa.schema([("k", pa.string()), *values]), primary_key=["k"])
    fields = WINDOW if kind == "sessions" else [("v", pa.int64()), ("at", TIME)]
    primary_key = ["k", "start" if kind == "sessions" else "at"]
    store.create_table("answers", schema=pa.schema([("k", pa.string()), *fields]), primary_key=primary_key)
    if kind == "sessions":
        fn: Any = ts.sessions(GAP, event_time="at", n="count", total=("sum", "v"))
        outputs = {"closed": "answers"}
    else:
        fn, outputs = ts.deduplicate(event_time="at", keep=DELAY), {"unique": "answers"}
    write = ts.stateful("state", key="k", fn=fn, store=store, event_time="at", delay=DELAY, outputs=outputs)
    times = pa.array([(1 << 63) - 1000], pa.int64()).view(TIME)
    rows = pa.table({"k": ["a"], "v": pa.array([1], pa.int64()), "at": times})
    with pytest.raises(InvalidBatch, match=r"event time 'at'.*64 bits"):
        run_batch(write, store, rows, 0)
    assert table_rows(state) == []
