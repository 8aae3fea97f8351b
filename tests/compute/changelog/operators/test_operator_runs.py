"""Operators give the same however a transaction is computed: record by record, by columns, in steps, in a replay."""

import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.changelog.random_transactions import SOURCE_SCHEMA, RandomTransactions, as_arrow
from support.changelog.view_checks import apply, comparable, table_rows
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

VALUES: dict[str, Any] = {
    "n": ("count",),
    "total": ("sum", "v"),
    "mean": ("avg", "money"),
    "least": ("min", "wide"),
    "most": ("max", "v"),
    "newest": ("last", "text", "at"),
}


def source(store: StateStore, name: str = "s") -> cl.Stream:
    return cl.Stream(store, name, schema=SOURCE_SCHEMA, key=["k", "part"])


def streams(store: StateStore) -> list[cl.Stream]:
    """A source, and one of each operator; some in a chain."""
    s, other = source(store), source(store, "other")
    kept = cl.filter("kept", s, pc.field("v").is_valid())
    by_function = cl.filter("by_function", s, lambda row: row["flag"])
    columns = {"g": "g", "id": pc.field("k"), "part": "part", "v": "v", "word": "word"}
    renamed = cl.project("renamed", kept, columns, key=["word", "id", "part"])
    grouped = cl.aggregate("grouped", kept, "g", VALUES)
    numbers = cl.distinct("numbers", cl.project("counts", grouped, {"g": "g", "n": "n"}), "n")
    both = cl.union("both", other, s)
    return [s, other, kept, by_function, renamed, grouped, numbers.inputs[0], numbers, both]


@contextmanager
def running(store: StateStore, **options: Any) -> Iterator[dict[str, cl.Stream]]:
    """A flow of all of them, by name."""
    made = streams(store)
    flow = cl.Flow(store, made, **options)
    flow.start()
    try:
        yield {one.name: one for one in made}
    finally:
        flow.stop()


def all_tables(store: StateStore) -> dict[str, list[tuple[Any, ...]]]:
    """What all tables of the flow have, but those that say what has come when."""
    times = ("histories", "bad_rows", "push_ids")
    names = [name for name in store.tables() if not name.startswith("_") and not name.endswith(times)]
    return {name: comparable(table_rows(store, name), store.table(name).schema.names) for name in names}


def memory(name: str, tmp_path: Path) -> Any:
    return connect(f"memory://{tmp_path.name}-{name}", compaction=False)


@pytest.mark.parametrize("seed", range(2))
def test_few_records_at_a_time_give_what_many_give(tmp_path: Path, seed: int) -> None:
    """Streams, and all that operators keep, are the same."""
    draws = {name: RandomTransactions(2 * seed + at, keys=60) for at, name in enumerate(("s", "other"))}
    with memory("few", tmp_path) as few, memory("many", tmp_path) as many:
        with running(few) as one, running(many) as other:
            for _ in range(6):
                name = "other" if draws["s"].chance(0.3) else "s"
                records = draws[name].next(draws[name].size(900))
                for start in range(0, len(records), 50):
                    one[name].push(records[start : start + 50]).result(10)
                other[name].push(as_arrow(records)).result(10)
            one["s"].flow.drain(60)
            other["s"].flow.drain(60)
            assert [stream.bad_rows() for stream in [*one.values(), *other.values()]] == [[]] * 18
        assert all_tables(few) == all_tables(many)


def test_what_was_stepped_through_is_published_as_a_whole(tmp_path: Path) -> None:
    """With breakpoints each record is computed alone to be looked at; stored and published is what all come to."""
    draw = RandomTransactions(7, keys=30)
    with memory("stepped", tmp_path) as stepped, memory("plain", tmp_path) as plain:
        with running(stepped) as one, running(plain) as other:
            for stream in one.values():
                stream.break_on("input", lambda row: False)
            for _ in range(4):
                records = draw.next(draw.size(200))
                for rows in (one, other):
                    rows["s"].push(records).result(10)
                    rows["s"].flow.drain(60)
            published = [[repr(stream.out_history()) for stream in rows.values()] for rows in (one, other)]
            assert published[0] == published[1]
        assert all_tables(stepped) == all_tables(plain)


@pytest.mark.parametrize("is_stepped", [False, True], ids=["run", "stepped"])
def test_a_replay_after_a_crash_gives_the_same(tmp_path: Path, is_stepped: bool) -> None:
    """Nothing was committed but the input log; the replay takes each transaction as a whole, and finds no change."""
    draw = RandomTransactions(3, keys=40)
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        with running(store, checkpoint=3600) as made:
            if is_stepped:
                for stream in made.values():
                    stream.break_on("input", lambda row: False)
            for records in (draw.next(size) for size in (3, 300, 64, 65, 1)):
                made["s"].push(records if len(records) < 50 else as_arrow(records)).result(10)
            for stream in made.values():
                with stream.subscribe(from_seq=1, timeout=60) as found:
                    for _ in range(0 if stream.name == "other" else 5):
                        next(found)
            # As the bucket is when the process is killed here.
            shutil.copytree(tmp_path / "store", tmp_path / "crashed")
        expected = all_tables(store)
    with connect((tmp_path / "crashed").as_uri(), compaction=False) as store:
        assert not table_rows(store, "grouped")
        with running(store) as made:
            made["s"].flow.drain(60)
        assert all_tables(store) == expected


def test_in_the_debugger_each_record_shows_what_it_comes_to(tmp_path: Path) -> None:
    """`out_row` is that of the record alone; the group is right after the last one."""
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.string(), nullable=False)])
    with memory("debugged", tmp_path) as store:
        s = cl.Stream(store, "s", schema=schema, key=["k"])
        sizes = cl.aggregate("sizes", s, "g", {"n": ("count",)})
        flow = cl.Flow(store, [s, sizes])
        flow.start()
        point = sizes.break_on("output")
        s.push([cl.insert(k=1, g="a"), cl.insert(k=2, g="b"), cl.insert(k=3, g="a")]).result(10)
        seen = []
        for _ in range(3):
            flow.wait_paused(10)
            seen.append(sizes.out_row)
            flow.resume()
        point.remove()
        flow.drain(10)
        assert seen == [[cl.upsert(g="a", n=1)], [cl.upsert(g="b", n=1)], [cl.upsert(g="a", n=2)]]
        assert sizes.out_history()[-1].records == [cl.insert(g="a", n=2), cl.insert(g="b", n=1)]
        flow.stop()


def test_a_union_shows_the_row_of_the_first_source_that_has_the_key(tmp_path: Path) -> None:
    """Whatever the order in which sources change, and which of them had the key before; also after a restart."""
    draws = {name: RandomTransactions(seed, keys=25) for seed, name in enumerate(("a", "b", "c"))}
    rows: dict[Any, dict[str, Any]] = {}
    with memory("union", tmp_path) as store:
        published = 0
        for _ in range(2):
            sources = {name: source(store, name) for name in draws}
            view = cl.union("view", *sources.values())
            flow = cl.Flow(store, [*sources.values(), view])
            flow.start()
            with view.subscribe(from_seq=published + 1, timeout=30) as found:
                for at in range(30):
                    name = "abc"[at * 7 % 3]
                    draw = draws[name]
                    records = draw.next(draw.size(150))
                    sources[name].push(as_arrow(records) if draw.chance(0.5) else records).result(10)
                    apply(rows, next(found), view)
                    expected = {**draws["c"].rows, **draws["b"].rows, **draws["a"].rows}.values()
                    assert comparable(rows.values(), view.schema.names) == comparable(expected, view.schema.names)
                    published += 1
            flow.stop()
        assert comparable(table_rows(store, "view"), view.schema.names) == comparable(expected, view.schema.names)


def test_a_chain_is_what_polars_computes(tmp_path: Path) -> None:
    """filter, aggregate and distinct, each on what the one before publishes."""
    draw = RandomTransactions(11, keys=50)
    recompute: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: (  # noqa: E731 - one expression reads better
        rows.filter(pl.col("small") >= 0).group_by("word", "flag").agg(n=pl.len()).select("word", "n").unique()
    )
    with memory("chain", tmp_path) as store:
        s = source(store)
        flag = pc.coalesce(pc.field("flag").cast(pa.int8()), pc.scalar(-1))
        positive = cl.filter("positive", s, pc.field("small") >= 0)
        known = cl.project(
            "known",
            positive,
            {
                "k": "k",
                "part": "part",
                "word": "word",
                "flag": flag,
            },
            required=["flag"],
        )
        sizes = cl.aggregate("sizes", known, ["word", "flag"], {"n": ("count",)})
        view = cl.distinct("view", sizes, ["word", "n"])
        flow = cl.Flow(store, [s, positive, known, sizes, view])
        flow.start()
        for _ in range(15):
            records = draw.next(draw.size(300))
            s.push(as_arrow(records) if draw.chance(0.5) else records).result(10)
            flow.drain(30)
            frame = pl.from_arrow(pa.Table.from_pylist(list(draw.rows.values()), schema=SOURCE_SCHEMA))
            assert isinstance(frame, pl.DataFrame)
            expected = recompute(frame).to_dicts()
            assert comparable(table_rows(store, "view"), ["word", "n"]) == comparable(expected, ["word", "n"])
        flow.stop()


def test_many_groups_lose_their_first_rows(tmp_path: Path) -> None:
    """Few are looked up in the index, many are found by a scan of it, which ends early where it would take too long."""
    groups, most = 70_000, 3
    numbers = np.arange(groups * most)
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field("g", pa.int64(), nullable=False),
            pa.field("v", pa.float64()),
        ]
    )
    rows = pa.table({"k": numbers, "g": numbers % groups, "v": numbers / 7}, schema=schema)
    with memory("groups", tmp_path) as store:
        s = cl.Stream(store, "s", schema=schema, key=["k"])
        view = cl.aggregate("view", s, "g", {"least": ("min", "v"), "last": ("last", "k", "v"), "sum": ("sum", "v")})
        flow = cl.Flow(store, [s, view])
        flow.start()
        s.push(rows.append_column("_op", pa.repeat("INSERT", rows.num_rows))).result(60)
        left = np.ones(rows.num_rows, np.bool_)
        for count in (50, 65, 20_000):
            # The last rows of some groups, and the first ones of others.
            firsts = np.flatnonzero(left)[:count]
            lasts = np.flatnonzero(left)[-count:]
            left[firsts] = left[lasts] = False
            gone = rows.take(np.concatenate([firsts, lasts]))
            s.push(gone.append_column("_op", pa.repeat("DELETE", gone.num_rows))).result(60)
            flow.drain(60)
            frame = pl.from_arrow(rows.filter(pa.array(left)))
            assert isinstance(frame, pl.DataFrame)
            expected = frame.group_by("g").agg(least=pl.col("v").min(), last=pl.col("k").sort_by("v").last()).sort("g")
            found = pl.DataFrame(table_rows(store, "view")).sort("g")
            assert found.select("g", "least", "last").equals(expected)
            sums = frame.group_by("g").agg(pl.col("v")).sort("g")["v"].to_list()
            assert found["sum"].to_list() == [math.fsum(values) for values in sums]
        assert view.bad_rows() == []
        flow.stop()
