"""Joins, tops and patterns are the same however their transactions are computed: as a whole, in steps, in a replay."""

import datetime as dt
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.changelog.pooled_transactions import PooledTransactions
from support.changelog.view_checks import comparable, table_rows
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("user", pa.string()),
        ("at", pa.timestamp("ms", "UTC")),
        ("v", pa.float64()),
    ]
)
MOMENTS = [dt.datetime(2026, 1, 1, second=one, tzinfo=dt.UTC) for one in range(30)]
POOLS: dict[str, list[Any]] = {
    "id": list(range(200)),
    "user": [None, "", "a", "b", "c"],
    "at": [None, *MOMENTS],
    "v": [None, math.nan, -1.0, 0.5, 2.0],
}


def streams(store: StateStore) -> list[cl.Stream]:
    """Two sources, and one of each operator on them; some in a chain."""
    left = cl.Stream(store, "left", schema=ROWS, key=["id"])
    right = cl.Stream(store, "right", schema=ROWS, key=["id"])
    pairs = cl.join("pairs", left, right, ["user", "v"], "full", right_prefix="r_")
    same = cl.join("same", left, right, "id", "left", ["user", "r_v"], right_prefix="r_")
    best = cl.top("best", pairs, 3, [("at", "desc")], ["user"], rank="place")
    steps = {"up": pc.field("v") > 0, "down": pc.field("v") < 0}
    falls = cl.pattern("falls", left, ["user"], "at", steps, dt.timedelta(seconds=5))
    return [left, right, pairs, same, best, falls]


@contextmanager
def running(store: StateStore, **options: Any) -> Iterator[dict[str, cl.Stream]]:
    made = streams(store)
    with cl.Flow(store, made, **options):
        yield {one.name: one for one in made}


def all_tables(store: StateStore) -> dict[str, list[tuple[Any, ...]]]:
    """What all tables of the flow have, but those that say what has come when."""
    times = ("histories", "bad_rows", "push_ids")
    names = [one for one in store.tables() if not one.startswith("_") and not one.endswith(times)]
    return {name: comparable(table_rows(store, name), store.table(name).schema.names) for name in names}


def pushes() -> Iterator[tuple[str, Any]]:
    """Transactions of few and of many records, of either side."""
    of = {name: PooledTransactions(seed, ROWS, ["id"], POOLS) for seed, name in enumerate(("left", "right"))}
    for name, size in (("left", 40), ("right", 64), ("left", 130), ("right", 5), ("right", 65), ("left", 1)):
        records = of[name].next(size)
        yield name, records if size < 100 else of[name].as_arrow(records)


def test_stepped_transactions_of_joins_are_stored_as_a_whole() -> None:
    """What a breakpoint lets one look at, record by record, is computed once more for the tables."""
    found = []
    for is_stepped in (False, True):
        with connect("memory://", compaction=False) as store:
            with running(store) as made:
                for stream in made.values() if is_stepped else ():
                    stream.break_on("input", lambda row: False)
                for name, records in pushes():
                    made[name].push(records).result(10)
                    # Which of two sides that wait is taken first is not said.
                    made[name].flow.drain(60)
                published = [repr(one.out_history()) for one in made.values()]
                assert all(not one.bad_rows() for one in made.values())
            found.append((published, all_tables(store)))
    assert found[0] == found[1]
    assert all(found[0][1][name] for name in ("pairs", "same", "best", "falls"))


@pytest.mark.parametrize("is_stepped", [False, True], ids=["run", "stepped"])
def test_replay_of_joins_after_a_crash_gives_the_same(tmp_path: Path, is_stepped: bool) -> None:
    """Nothing was committed but the input log; the writes of the replay have the digest of those that were recorded."""
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        with running(store, checkpoint=3600) as made:
            for stream in made.values() if is_stepped else ():
                stream.break_on("input", lambda row: False)
            for name, records in pushes():
                made[name].push(records).result(10)
            for name, count in (("best", 6), ("same", 6), ("falls", 3)):
                with made[name].subscribe(from_seq=1, timeout=60) as found:
                    for _ in range(count):
                        next(found)
            # As the bucket is when the process is killed here.
            shutil.copytree(tmp_path / "store", tmp_path / "crashed")
        expected = all_tables(store)
    with connect((tmp_path / "crashed").as_uri(), compaction=False) as store:
        assert not table_rows(store, "pairs")
        with running(store) as made:
            made["left"].flow.drain(60)
        assert all_tables(store) == expected


def test_debugger_shows_what_a_record_of_a_join_comes_to() -> None:
    """`out_row` has the rows of that record alone."""
    with connect("memory://", compaction=False) as store:
        left = cl.Stream(store, "left", schema=pa.schema([("k", pa.int64()), ("r", pa.int64())]), key=["k"])
        right = cl.Stream(store, "right", schema=pa.schema([("r", pa.int64()), ("w", pa.string())]), key=["r"])
        joined = cl.join("joined", left, right, "r", "left")
        with cl.Flow(store, [left, right, joined]) as flow:
            right.push([cl.insert(r=1, w="one")]).result(10)
            flow.drain(10)
            point = joined.break_on("output")
            left.push([cl.insert(k=1, r=1), cl.insert(k=2, r=9)]).result(10)
            seen = []
            for _ in range(2):
                flow.wait_paused(10)
                seen.append(joined.out_row)
                flow.resume()
            point.remove()
            flow.drain(10)
        assert seen == [[cl.upsert(k=1, r=1, w="one")], [cl.upsert(k=2, r=9, w=None)]]
