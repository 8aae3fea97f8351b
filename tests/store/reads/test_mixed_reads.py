"""Reads of every kind on one open store agree with a dict, and do not push each other out of the cache."""

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from tussock.statestore import RawTable, StateStore, connect
from tussock.statestore.base.limits import Limits

Kind = Callable[[RawTable], object]


def block_requests(store: StateStore) -> int:
    """The number of requests for blocks until now."""
    return sum(operations.get("get_range", (0, 0))[0] for operations in store.requests().values())


def names(count: int, *, fixed: bool) -> list[bytes]:
    """Keys of one width, or of several, ascending."""
    return sorted(b"%06d" % (7 * at) + (b"" if fixed else b"k" * (at % 5)) for at in range(count))


@pytest.mark.parametrize("fixed", [True, False], ids=["one width", "several widths"])
def test_rows_that_fit_into_the_cache_are_fetched_once_by_any_reads(fixed: bool) -> None:
    """Blocks, segments and keys for lookups are one thing and counted once, so rows that fit stay, for every kind."""
    made = random.Random(7)
    keys = names(40_000, fixed=fixed)
    value = made.randbytes(100 * len(keys))
    values = [value[100 * at : 100 * at + 100] for at in range(len(keys))]
    shuffled = made.sample(keys, len(keys))
    kinds: list[Kind] = [
        lambda kv: [kv.get(key) for key in shuffled[::9]],
        lambda kv: [kv.multi_get(shuffled[at : at + 10]) for at in range(0, 3000, 10)],
        lambda kv: [kv.multi_get(shuffled[at : at + 1000]) for at in range(0, 9000, 1000)],
        lambda kv: kv.multi_get(shuffled),
        lambda kv: [list(kv.scan(key, limit=10)) for key in shuffled[::99]],
        lambda kv: list(kv.scan()),
        lambda kv: list(kv.scan(reverse=True, limit=15_000)),
    ]
    bytes_of_keys = 0 if fixed else sum(41 + len(key) for key in keys)
    rows = 108 * len(keys) + sum(map(len, keys)) + bytes_of_keys
    with connect("memory://", compaction=False, retention=0, cache_bytes=int(rows * 8 / 7 * 1.1)) as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.upsert(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), epoch)
        store.commit_epoch(epoch)
        store.compact("kv")
        for read in kinds:
            read(kv)
        before = block_requests(store)
        assert before > 0
        for _ in range(3):
            for read in made.sample(kinds, len(kinds)):
                read(kv)
        assert block_requests(store) == before


@pytest.mark.parametrize("seed", range(10))
def test_every_read_agrees_with_a_dict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny blocks, segments, SSTs and caches; at the newest and at old epochs; own rows, spilled ones and compacted."""
    made = random.Random(seed)
    limits = Limits(segment_bytes=made.choice([1, 900, 4000, 1 << 20]), sst_bytes=made.choice([1000, 20_000, 1 << 20]))
    inside.look_up_in_other_ways(monkeypatch, lambda number: made.choice([1, 4, number]))
    keys = names(400, fixed=made.random() < 0.5)
    history: dict[int, dict[bytes, bytes]] = {}
    rows: dict[bytes, bytes] = {}
    cache_bytes, buffer_bytes = made.choice([0, 3000, 20_000, 1 << 20]), made.choice([2000, 1 << 20])
    options: dict[str, Any] = {"cache_bytes": cache_bytes, "buffer_bytes": buffer_bytes, "limits": limits}
    with connect("memory://", compaction=False, **options) as store:
        kv = store.create_table("kv", block_bytes=256, compression=made.choice(["none", "lz4"]))
        for step in range(12):
            epoch = store.new_epoch()
            for _ in range(made.choice([1, 2])):
                picked = made.sample(keys, made.choice([1, 20, 200]))
                batch = {key: None if made.random() < 0.2 else made.randbytes(made.randrange(60)) for key in picked}
                kv.ingest_batch(sorted(batch.items()), epoch)
                rows = {key: value for key, value in (rows | batch).items() if value is not None}
            agree(kv, rows, keys, made, None)
            committed = store.commit_epoch(epoch)
            history[committed] = rows
            if step % 5 == 4:
                store.compact("kv")
            agree(kv, rows, keys, made, None)
            at = made.choice(list(history))
            agree(kv, history[at], keys, made, at)


def agree(kv: RawTable, rows: dict[bytes, bytes], keys: list[bytes], made: random.Random, epoch: int | None) -> None:
    """Compare some reads of each kind, in some order."""
    kinds = ["get", "few", "many", "all", "short", "scan"]
    for kind in made.sample(kinds, len(kinds)):
        if kind == "get":
            wanted = [made.choice([*keys, b"absent", b"", b"~"]) for _ in range(10)]
            assert [kv.get(key, epoch) for key in wanted] == [rows.get(key) for key in wanted]
        elif kind in ("few", "many", "all"):
            count = {"few": made.randrange(5), "many": 60, "all": 700}[kind]
            wanted = made.choices([*keys, b"absent", b"", *(key + b"\0" for key in keys[::9])], k=count)
            assert kv.multi_get(wanted, epoch).to_pylist() == [rows.get(key) for key in wanted]
        else:
            start, end = made.choice([(None, None), sorted(made.choices(keys, k=2))])
            limit, reverse = None if kind == "scan" else made.randrange(1, 30), made.random() < 0.5
            expected = sorted(
                ((key, value) for key, value in rows.items() if start is None or start <= key < end), reverse=reverse
            )
            batches = kv.scan(start, end, epoch=epoch, limit=limit, reverse=reverse)
            found = [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]
            assert found == expected[:limit]
