"""A short batch of Arrow in a raw table is kept as pairs are, with the same rows and the same refusals."""

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import open_on, pairs
from tussock.statestore import InvalidBatch, SchemaMismatch, StateStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.tables.raw_input import few_rows


def batch(*rows: tuple[bytes | None, bytes | None]) -> pa.Table:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


@pytest.fixture
def store() -> Iterator[StateStore]:
    with open_on(FaultyBucket(open_bucket("memory://")), RealSystem(), compaction=False) as opened:
        opened.create_table("kv")
        yield opened


def test_what_is_kept_so() -> None:
    """Short batches of exactly `{key: binary, value: binary}`, with the keys in order unless that does not matter."""
    rows = batch((b"b", b"1"), (b"a", None), (b"b", b""))
    assert few_rows(rows, ordered=False) == [(b"b", {"value": b"1"}), (b"a", None), (b"b", {"value": b""})]
    assert few_rows(rows.to_batches()[0], ordered=False) == few_rows(rows, ordered=False)
    assert few_rows(rows.slice(1, 1)) == [(b"a", None)]
    assert few_rows(batch()) == []
    for other in (
        rows,
        batch((None, b"")),
        batch(*[(b"%02d" % at, b"") for at in range(17)]),
        batch((b"a", bytes(2 << 20))),
        rows.append_column("op", [["put"] * 3]),
        rows.select(["value", "key"]),
        rows.set_column(1, "value", pa.array([b"1"] * 3, pa.large_binary())),
    ):
        assert few_rows(other) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_are_those_of_a_long_batch(store: StateStore, seed: int) -> None:
    """Of several with one key the last wins, within a batch and among batches; null deletes."""
    chance = random.Random(seed)
    expected: dict[bytes, bytes | None] = {}
    for number in range(6):
        epoch = store.new_epoch()
        with store.transaction() as tx:
            for _ in range(3):
                count = chance.choice((1, 3, 16, 17, 30))
                rows = [(b"%02d" % chance.randrange(40), chance.choice((None, b"x", b"y"))) for _ in range(count)]
                expected.update(rows)
                if number % 2:
                    store.table("kv").upsert(batch(*rows), epoch)
                    assert store.table("kv").get(rows[-1][0]) == rows[-1][1]
                else:
                    tx.table("kv").upsert(batch(*rows))
                    assert tx.table("kv").get(rows[-1][0]) == rows[-1][1]
        store.commit_epoch(epoch)
        assert pairs(store.table("kv").scan()) == sorted(row for row in expected.items() if row[1] is not None)


def test_what_is_wrong_is_refused_by_name(store: StateStore) -> None:
    """As of a long batch, and nothing was stored."""
    epoch = store.new_epoch()
    table = store.table("kv")
    with pytest.raises(InvalidBatch, match="position 1"):
        table.ingest_batch(batch((b"b", b""), (b"a", b"")), epoch)
    with pytest.raises(SchemaMismatch, match="position 0 is null"):
        table.upsert(batch((None, b"")), epoch)
    with pytest.raises(SchemaMismatch, match="found columns"):
        table.upsert(pa.table({"key": pa.array([b"a"]), "other": pa.array([b"a"])}), epoch)
    store.commit_epoch(epoch)
    assert pairs(table.scan()) == []
