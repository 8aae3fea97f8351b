"""Streams that are added to a flow that has run: they take the rows of their inputs in parts, each once."""

from collections import Counter
from contextlib import suppress

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import FaultyBucket, LostRead
from support.procedures.histories import Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.int64(), nullable=False), ("t", pa.string())]
)
LARGE = 3 << 20


class _LaterSystem(QuickSystem):
    """After a leap of the clock."""

    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


def rows(start: int, stop: int, size: int = 1) -> pa.Table:
    numbers = range(start, stop)
    texts = [f"{k}" * (size // len(f"{k}")) for k in numbers]
    return pa.table({"k": numbers, "g": [k % 3 for k in numbers], "t": texts, "_op": ["UPSERT"] * len(numbers)})


def source_of(store: StateStore) -> cl.Stream:
    return cl.Stream(store, "s", schema=SCHEMA, key=["k"])


def added(source: cl.Stream) -> list[cl.Stream]:
    """One that counts, whose result shows a row that came twice; and a copy of the rows."""
    counts = cl.aggregate("counts", source, "g", {"n": ("count",), "last": ("max", "k")})
    return [counts, cl.filter("copy", source, lambda _: True)]


def counted(store: StateStore) -> dict[int, tuple[int, int]]:
    found = (row for batch in store.table("counts").read() for row in batch.to_pylist())
    return {row["g"]: (row["n"], row["last"]) for row in found}


def test_a_large_input_comes_in_parts() -> None:
    """Of at most 100,000 rows each; what is pushed meanwhile comes behind them."""
    with connect("memory://", compaction=False) as store:
        source = source_of(store)
        with cl.Flow(store, [source]):
            for start in range(0, 250_000, 50_000):
                source.push(rows(start, start + 50_000)).result(60)
        source = source_of(store)
        views = added(source)
        with cl.Flow(store, [source, *views], name="s") as flow:
            source.push(rows(249_990, 250_020)).result(60)
            flow.drain(120)
            for view in views:
                sizes = [len(one) for one in view.in_history()]
                assert sizes == [100_000, 100_000, 50_000, 20]
                assert {record.op for record in view.in_history()[2].records} == {"INSERT"}
            assert counted(store) == {g: (83_340, 250_017 + g) for g in range(3)}
            assert sum(batch.num_rows for batch in store.table("copy").read(["k"])) == 250_020
        source = source_of(store)
        views = added(source)
        with cl.Flow(store, [source, *views], name="s") as flow:
            assert [len(one) for one in views[0].in_history()] == [100_000, 100_000, 50_000, 20]


def test_others_have_their_turn_between_parts() -> None:
    """A start does not wait for all of them, and a commit may come after each: then a kill loses one part."""
    system = _LaterSystem()

    def takes_long(_: object) -> bool:
        system.seconds += 0.05
        return True

    with open_on(open_bucket("memory://"), system) as store:
        source = source_of(store)
        with cl.Flow(store, [source]):
            source.push(rows(0, 12, LARGE)).result(60)
        source = source_of(store)
        flow = cl.Flow(store, [source, cl.filter("copy", source, takes_long)], name="s", checkpoint=0)
        flow.start()
        flow.drain(60)
        # All at once it was one.
        assert flow.stats()["commits"] > 1
        flow.stop()


def test_large_rows_come_in_small_parts() -> None:
    """A part ends where it has 16 MiB, be it with one row."""
    with connect("memory://", compaction=False) as store:
        source = source_of(store)
        with cl.Flow(store, [source]):
            source.push(rows(0, 4, LARGE)).result(60)
            source.push(rows(4, 5, 17 << 20)).result(60)
        source = source_of(store)
        views = added(source)
        with cl.Flow(store, [source, *views], name="s") as flow:
            flow.drain(60)
            parts = [list(one) for one in views[1].in_history()]
            assert sorted(record["k"] for one in parts for record in one) == list(range(5))
            assert len(parts) >= 2
            assert all(sum(len(record["t"]) for record in one[:-1]) < 16 << 20 for one in parts)


def test_an_input_takes_nothing_until_its_rows_were_taken() -> None:
    """Held back by a stream that is added, it keeps what is pushed in its queue, over a restart, too."""
    with connect("memory://", compaction=False) as store:
        source = source_of(store)
        with cl.Flow(store, [source]):
            source.push(rows(0, 7, LARGE)).result(60)
        for _ in range(2):
            source = source_of(store)
            views = added(source)
            flow = cl.Flow(store, [source, *views], name="s")
            views[0].break_on("input")
            flow.start()
            flow.wait_paused(10)
            source.push([cl.upsert(k=0, g=0, t="new")]).result(10)
            flow.step("trans", views[0])
            flow.step("location", views[0])
            assert source.queued
            assert source.get(0)["t"] != "new"
            flow.stop()
        source = source_of(store)
        views = added(source)
        with cl.Flow(store, [source, *views], name="s") as flow:
            flow.drain(60)
            assert views[1].get(0)["t"] == "new"
            assert counted(store) == {0: (3, 6), 1: (2, 4), 2: (2, 5)}


def test_each_row_comes_once_whichever_read_fails() -> None:
    """One outage after the other, each in another run: a part that cannot be read is read again, and comes once."""
    began = open_bucket("memory://")
    with open_on(began, QuickSystem()) as store:
        source = source_of(store)
        with cl.Flow(store, [source]):
            source.push(rows(0, 7, LARGE)).result(60)
    at = 0
    while _is_read(began, at):
        at += 1
    assert at > 1


def _is_read(began: ObjectStore, at: int) -> bool:
    """Whether the streams that are added make more than `at` reads of rows; the one behind these fails once."""
    bucket = FaultyBucket(copied(began))
    system = _LaterSystem()
    with open_on(bucket, system, cache_bytes=1) as store:
        source = source_of(store)
        lost = LostRead(at)
        views = added(source)
        first = views[0].break_on("input")
        with cl.Flow(store, [source, *views], name="s") as flow:
            flow.wait_paused(10)
            first.remove()
            # What was read ahead is too old by then.
            system.seconds = 61.0
            bucket.script = lost
            flow.resume()
            flow.drain(60)
            bucket.script = None
            assert counted(store) == {0: (3, 6), 1: (2, 4), 2: (2, 5)}, f"after an outage at read {at + 1}"
            assert [one for view in views for one in view.bad_rows()] == []
    return lost.reads > at


def copied(bucket: ObjectStore) -> ObjectStore:
    copy = open_bucket("memory://")
    for one in bucket.list(""):
        copy.put(one.path, bucket.get(one.path))
    return copy


@pytest.mark.slow
def test_each_row_comes_once_wherever_the_flow_dies() -> None:
    """At any request of its first run with the streams that are added, and of the next one."""
    began = open_bucket("memory://")
    with open_on(began, QuickSystem()) as store:
        source = source_of(store)
        with cl.Flow(store, [source]):
            source.push(rows(0, 7, LARGE)).result(60)
    at, outcomes = 1, Counter[str]()
    while not outcomes["lived"]:
        bucket = copied(began)
        for fuse in (Fuse(at, is_done=at % 2 == 0, hiccups={}), Fuse(at + 7, is_done=False, hiccups={})):
            outcomes[_run(bucket, fuse)] += 1
        with open_on(bucket, QuickSystem()) as store:
            source = source_of(store)
            with cl.Flow(store, [source, *added(source)], name="s") as flow:
                source.push([cl.upsert(k=9, g=0, t="new")]).result(60)
                flow.drain(60)
                assert counted(store) == {0: (4, 9), 1: (2, 4), 2: (2, 5)}, at
        at += 15
    assert outcomes["died"] > 3


def _run(bucket: object, fuse: Fuse) -> str:
    """The streams are added, something is pushed, and at some request all is over."""
    store = flow = None
    try:
        store = open_on(FaultyBucket(bucket, fuse), QuickSystem())  # type: ignore[arg-type]
        source = source_of(store)
        flow = cl.Flow(store, [source, *added(source)], name="s", checkpoint=0)
        flow.start()
        source.push([cl.upsert(k=9, g=0, t="new")]).result(60)
        flow.drain(60)
        flow.stop()
    except Exception:
        if not fuse.is_blown:
            raise
        return "died"
    finally:
        fuse.blow()
        for one in (flow, store):
            with suppress(Exception):
                if isinstance(one, cl.Flow):
                    one.stop()
                elif one is not None:
                    one.close()
    return "lived"
