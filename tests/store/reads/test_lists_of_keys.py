"""A list of keys has the values of a dict, as its keys one by one have, whatever the store is like and is cached."""

import random
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import StateStore, connect
from tussock.statestore.base.limits import Limits

Values = dict[bytes, bytes | None]
"""What a key has, `None` if it was deleted."""


def raw_key(number: int, width: int) -> bytes:
    """A key of that width, of several if it is 0."""
    return (b"%06d" % number) + (b"\0" * (number % 4) if width == 0 else b"\0" * (width - 6))


def raw_value(number: int, kind: int) -> bytes:
    """Values of one width, or of several, some empty."""
    return b"%08d" % number if kind else b"%d" % number * (number % 3)


def opened(made: random.Random, retention: int) -> Any:
    """A store with small SSTs and segments, and a cache of nothing, of little, of some and of all."""
    limits = Limits(
        segment_bytes=made.choice([1, 600, 3000, 1 << 20]),
        sst_bytes=made.choice([2000, 30_000, 1 << 20]),
        one_object_bytes=made.choice([0, 256 << 10]),
        whole_filter_bytes=made.choice([1, 1 << 20]),
    )
    cache_bytes = made.choice([0, 5000, 200_000, 64 << 20])
    return connect("memory://", compaction=False, retention=retention, cache_bytes=cache_bytes, limits=limits)


def write_some(
    made: random.Random, store: StateStore, kv: Any, keys: int, width: int, kind: int, before: Values
) -> tuple[int, Values]:
    """One epoch of puts and deletes, not committed yet; the epoch, and what the keys have after it."""
    epoch = store.new_epoch()
    batch = sorted(
        (raw_key(number, width), None if made.random() < 0.2 else raw_value(made.randrange(10**8), kind))
        for number in made.sample(range(keys), made.randrange(1, keys))
    )
    kv.ingest_batch(batch, epoch)
    return epoch, before | dict(batch)


@pytest.mark.parametrize("seed", range(12))
def test_a_list_of_keys_equals_its_keys_one_by_one(seed: int) -> None:
    """Runs, own rows, deletes, keys that are not there, repeated ones and epochs; read in turn from what is cached."""
    made = random.Random(seed)
    width, kind, keys = made.choice([0, 6, 9]), made.choice([0, 1]), made.choice([40, 700, 2000])
    retention = made.choice([0, 3600])
    with opened(made, retention) as store:
        kv = store.create_table("kv", block_bytes=made.choice([256, 1000, 64 << 10]))
        values: Values = {}
        seen: dict[int | None, Values] = {}
        for _ in range(made.randrange(1, 5)):
            epoch, values = write_some(made, store, kv, keys, width, kind, values)
            seen[store.commit_epoch(epoch)] = values
            if made.random() < 0.4:
                store.compact("kv")
        newest = max(at for at in seen if at is not None)
        older = made.choice(list(seen)) if retention else newest
        if made.random() < 0.5:
            _, values = write_some(made, store, kv, keys, width, kind, values)
        seen[None] = values
        for at in [None, None, older, newest]:
            count = made.choice([1, 20, 60, 400, 3000])
            wanted = [raw_key(made.randrange(keys + keys // 4), width) for _ in range(count)]
            if made.random() < 0.3:
                wanted += [b"", b"\xff" * 9, wanted[0] + b"\0"]
            if made.random() < 0.3:
                wanted = sorted(wanted)
            asked: list[bytes] | pa.Array = wanted if made.random() < 0.7 else pa.array(wanted, pa.binary())
            before = kv.multi_get(asked, at).to_pylist() if made.random() < 0.7 else None
            expected = [seen[at].get(key) for key in wanted]
            assert before in (None, expected)
            assert [kv.get(key, at) for key in wanted] == expected
            assert kv.multi_get(asked, at).to_pylist() == expected
            if made.random() < 0.3:
                list(kv.scan(epoch=at))
                assert kv.multi_get(asked, at).to_pylist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_list_of_typed_keys_equals_its_keys_one_by_one(seed: int) -> None:
    """Behind virtual nodes, with keys of one width and of several, and columns that may be null."""
    made = random.Random(seed)
    numbers = made.random() < 0.5
    schema = pa.schema([("id", pa.int64() if numbers else pa.string()), ("name", pa.string()), ("size", pa.int32())])

    def name(number: int) -> int | str:
        return number if numbers else f"k{number}"

    with opened(made, 0) as store:
        kv = store.create_table("t", schema, primary_key=["id"], vnodes=made.choice([1, 4, 256]))
        keys = made.choice([40, 2000])
        for _ in range(made.randrange(1, 4)):
            epoch = store.new_epoch()
            rows = [
                {"id": name(at), "name": made.choice([None, f"n{at}"]), "size": made.choice([None, at])}
                for at in made.sample(range(keys), keys // 2)
            ]
            kv.upsert(pa.RecordBatch.from_pylist(rows, schema), epoch)
            store.commit_epoch(epoch)
        store.compact("t")
        for count in (5, 50, 1500):
            wanted = [(name(made.randrange(keys + 20)),) for _ in range(count)]
            for _ in range(2):
                found = kv.multi_get(wanted).to_pylist()
                expected = [kv.get(key) for key in wanted]
                assert found == expected
