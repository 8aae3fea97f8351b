"""A short scan that is answered from blocks at hand gives what the iterators of long scans give."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from tussock.statestore import RawTable, TypedTable, connect

KEYS = 120


def key(number: int, *, fixed: bool) -> bytes:
    return b"%04d" % number + (b"" if fixed else b"k" * (number % 3) + b"\0" * (number % 2))


def write(draw: random.Random, kv: RawTable, epoch: int, *, fixed: bool, deletes: bool) -> None:
    some = sorted(draw.sample(range(KEYS), draw.randrange(1, KEYS)))
    if draw.random() < 0.5:
        # Runs that lie apart: most of a scan meets one of them.
        low = draw.randrange(KEYS)
        some = [number for number in some if low <= number < low + KEYS // 4] or some[:1]
    rows = [
        (key(number, fixed=fixed), None if deletes and draw.random() < 0.3 else b"%d" % draw.randrange(10**6))
        for number in some
    ]
    kv.ingest_batch(sorted(rows), epoch)


def pairs(batches: Iterator[pa.RecordBatch]) -> list[Any]:
    return [row for batch in batches for row in batch.to_pylist()]


def bound(draw: random.Random, *, fixed: bool) -> bytes | None:
    if draw.random() < 0.2:
        return None
    whole = key(draw.randrange(KEYS), fixed=fixed)
    return draw.choice([whole, whole + b"\0", whole[: draw.randrange(len(whole) + 1)], whole + b"x"])


@pytest.mark.parametrize("fixed", [True, False], ids=["one width", "several widths"])
@pytest.mark.parametrize("deletes", [True, False], ids=["deletes", "no deletes"])
@pytest.mark.parametrize("seed", range(6))
def test_a_short_scan_equals_the_scan_by_iterators(seed: int, *, deletes: bool, fixed: bool) -> None:
    """Over several runs, own rows, spilled rows, history, any bounds, limits and epochs."""
    draw = random.Random(seed)
    taken = 0
    with connect("memory://", compaction=False, buffer_bytes=draw.choice([1, 1 << 20])) as store:
        kv = store.create_table("kv", block_bytes=draw.choice([256, 600, 4000]))
        epochs: list[int | None] = [None, None]
        for _ in range(draw.randrange(1, 6)):
            epoch = store.new_epoch()
            write(draw, kv, epoch, fixed=fixed, deletes=deletes)
            epochs.append(store.commit_epoch(epoch))
            if draw.random() < 0.3:
                store.compact("kv")
        if draw.random() < 0.3:
            store.compact("kv")
        if draw.random() < 0.4:
            own = store.new_epoch()
            for _ in range(draw.choice([1, 2])):
                write(draw, kv, own, fixed=fixed, deletes=deletes)
        for _ in range(draw.choice([0, 3])):
            kv.get(key(draw.randrange(KEYS), fixed=fixed))
        if draw.random() < 0.7:
            pairs(kv.scan())
        for _ in range(150):
            arguments = bound(draw, fixed=fixed), bound(draw, fixed=fixed)
            limit, epoch = draw.choice([0, 1, 2, 5, 30, 999]), draw.choice(epochs)
            # First: the other one leaves in the cache what it has read.
            with inside.short_scans() as begun:
                found = pairs(kv.scan(*arguments, limit=limit, epoch=epoch))
            with inside.iterators_alone():
                assert found == pairs(kv.scan(*arguments, limit=limit, epoch=epoch)), (seed, arguments, limit, epoch)
            taken += begun[0]
        assert taken > 30 or any(inside.spilled_runs(store))


@pytest.mark.parametrize("seed", range(4))
def test_the_same_of_a_typed_table(seed: int) -> None:
    """With virtual nodes, columns that are picked, and a column that came later."""
    draw = random.Random(seed)
    schema = pa.schema([("user", pa.int64()), ("at", pa.int32()), ("name", pa.string()), ("score", pa.int32())])
    taken = 0
    with connect("memory://", compaction=False) as store:
        table: TypedTable = store.create_table(
            "t", schema=schema, primary_key=["user", "at"], distribution_key=["user"], vnodes=4, block_bytes=256
        )
        for number in range(4):
            epoch = store.new_epoch()
            rows = [{"user": u, "at": a, "name": f"{u} {a}", "score": number} for u in range(6) for a in range(12)]
            table.upsert(draw.sample(rows, 30), epoch)
            store.commit_epoch(epoch)
            if number == 1:
                store.alter_table("t", add={"later": pa.int64()})
            if number == 2 and draw.random() < 0.5:
                store.compact("t")
        pairs(table.read())
        for _ in range(80):
            low = draw.randrange(5)
            options: dict[str, Any] = draw.choice(
                [
                    {"prefix": (draw.randrange(7),)},
                    {"between": ((low, 3), (low, draw.randrange(12)))},
                    {"between": ((low,), (low + 1,)), "vnodes": (draw.randrange(2), 3)},
                    {"vnodes": (draw.randrange(4), 4)},
                    {},
                ]
            )
            options |= {"limit": draw.randrange(1, 20), "columns": draw.choice([None, ["name"], ["later", "at"]])}
            with inside.short_scans() as begun:
                found = pairs(table.read(**options))
            with inside.iterators_alone():
                assert found == pairs(table.read(**options)), (seed, options)
            taken += begun[0]
    assert taken > 20


def test_a_short_scan_of_an_older_epoch_shows_what_history_has() -> None:
    """Where compaction took both the row and the delete that hides it now out of the live tree."""
    with connect("memory://", compaction=False) as store:
        kv = store.create_table("kv")
        epochs = []
        for rows in ([(b"a", b"1"), (b"b", b"2")], [(b"a", None)]):
            epoch = store.new_epoch()
            kv.ingest_batch(rows, epoch)
            epochs.append(store.commit_epoch(epoch))
        store.compact("kv")
        assert pairs(kv.scan(limit=5)) == pairs(kv.scan(limit=5)) == [{"key": b"b", "value": b"2"}]
        assert [row["key"] for row in pairs(kv.scan(limit=5, epoch=epochs[0]))] == [b"a", b"b"]


def test_a_short_scan_of_an_older_epoch_shows_nothing_newer() -> None:
    """Also where only a newer run has keys in its range."""
    with connect("memory://", compaction=False) as store:
        kv = store.create_table("kv")
        epochs = []
        for rows in ([(b"a", b"1")], [(b"b", b"2")]):
            epoch = store.new_epoch()
            kv.ingest_batch(rows, epoch)
            epochs.append(store.commit_epoch(epoch))
        assert [row["key"] for row in pairs(kv.scan())] == [b"a", b"b"]
        assert pairs(kv.scan(b"b", limit=5, epoch=epochs[0])) == []


def test_expired_rows_are_in_no_short_scan() -> None:
    """With a time to live in use the iterators leave out what is over."""
    with connect("memory://", compaction=False) as store:
        kv = store.create_table("kv", ttl=1.0)
        old = store.new_epoch()
        kv.ingest_batch([(b"a", b"1"), (b"b", b"2")], old)
        store.commit_epoch(old)
        assert len(pairs(kv.scan(limit=5))) == 2
        later = ((old >> 16) + 5000) << 16
        kv.ingest_batch([(b"b", b"3")], later)
        store.commit_epoch(later)
        assert pairs(kv.scan(limit=5)) == [{"key": b"b", "value": b"3"}]
