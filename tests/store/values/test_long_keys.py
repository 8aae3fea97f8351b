"""A key has at most 64 KiB: versions and the log hold keys whole."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tussock.meta.version.deltas import commits
from tussock.statestore import InvalidBatch, StateStore, connect
from tussock.statestore.keys import key_bytes
from tussock.statestore.keys.key_bytes import KEY_BYTES_MAX
from tussock.statestore.write import loose_rows

LONG = b"k" * (KEY_BYTES_MAX + 1)
LONGEST = LONG[:-1]
TEXTS = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.int64())])
Write = Callable[[Any, Any, int], object]

WRITES: dict[str, Write] = {
    "a pair": lambda raw, _, at: raw.ingest_batch([(LONG, b"v")], at),
    "a delete": lambda raw, _, at: raw.ingest_batch([(b"a", b"v"), (LONG, None)], at),
    "many pairs": lambda raw, _, at: raw.ingest_batch([(b"%02d" % n, b"v") for n in range(50)] + [(LONG, b"v")], at),
    "Arrow in order": lambda raw, _, at: raw.ingest_batch(pa.table({"key": [b"a", LONG], "value": [b"", b""]}), at),
    "Arrow in any order": lambda raw, _, at: raw.upsert(pa.table({"key": [LONG, b"a"], "value": [b"", b""]}), at),
    "an upload": lambda raw, *_: raw.upload([pa.record_batch({"key": [LONG], "value": [b"v"]})]),
    "a dict": lambda _, typed, at: typed.upsert([{"k": LONG.decode(), "v": 1}], at),
    "a typed batch": lambda _, typed, at: typed.upsert(pa.table({"k": ["a", LONG.decode()], "v": [1, 2]}), at),
    "a typed batch in order": lambda _, typed, at: typed.ingest_batch(pa.table({"k": [LONG.decode()], "v": [1]}), at),
    "a typed delete": lambda _, typed, at: typed.delete([LONG.decode()], at),
    "typed deletes": lambda _, typed, at: typed.delete(pa.table({"k": ["a"] * 40 + [LONG.decode()]}), at),
    "a typed upload": lambda _, typed, __: typed.upload([pa.record_batch({"k": [LONG.decode()], "v": [1]})]),
    "zeros, which are escaped": lambda _, typed, at: typed.upsert([{"k": "\0" * (KEY_BYTES_MAX // 2), "v": 1}], at),
}


def tables(store: StateStore, write: str) -> tuple[Any, Any]:
    key = ["k", "v"] if "escaped" in write else ["k"]
    schema = pa.schema([TEXTS.field("k"), TEXTS.field("v").with_nullable(len(key) == 1)])
    return store.create_table("raw"), store.create_table("typed", schema, primary_key=key)


@pytest.mark.parametrize("write", WRITES)
def test_a_longer_key_is_refused_with_its_batch(write: str) -> None:
    """The error says where it is and how long it may be; the epoch goes on."""
    with connect("memory://", compaction=False) as store:
        raw, typed = tables(store, write)
        epoch = store.new_epoch()
        with pytest.raises(InvalidBatch, match=r"the key at position \d+ has 6\d+ bytes .* at most 65536 are allowed"):
            WRITES[write](raw, typed, epoch)
        raw.ingest_batch([(b"b", b"v")], epoch)
        store.commit_epoch(epoch)
        assert [row for batch in raw.scan() for row in batch["key"].to_pylist()] == [b"b"]
        assert sum(batch.num_rows for batch in typed.read()) == 0


def test_a_transaction_refuses_it_where_it_is_written() -> None:
    """Not at the commit: the steps before it stay."""
    with connect("memory://", compaction=False) as store:
        raw = store.create_table("raw")
        with store.transaction() as tx:
            tx.table("raw").ingest_batch([(b"a", b"1")])
            with pytest.raises(InvalidBatch, match="at most 65536 are allowed"):
                tx.table("raw").ingest_batch([(LONG, b"1")])
        assert (raw.get(b"a"), raw.get(LONG)) == (b"1", None)


def test_the_longest_key_is_a_key_as_any_other(store: StateStore) -> None:
    raw: Any = store.create_table("raw")
    epoch = store.new_epoch()
    raw.ingest_batch([(LONGEST, b"v")], epoch)
    store.commit_epoch(epoch)
    store.compact("raw")
    assert raw.get(LONGEST) == b"v"
    assert raw.get(LONG) is None
    epoch = store.new_epoch()
    raw.ingest_batch([(LONGEST, None)], epoch)
    store.commit_epoch(epoch)
    assert raw.get(LONGEST) is None


def test_a_commit_that_names_a_longer_key_is_refused() -> None:
    """As a client of a service may, whose own checks are not those of a release."""
    with connect("memory://", compaction=False) as store:
        raw: Any = store.create_table("raw")
        [run] = raw.upload([pa.record_batch({"key": [b"a"], "value": [b"v"]})])
        claimed = replace(run, ssts=tuple(replace(sst, largest=LONG) for sst in run.ssts))
        with pytest.raises(InvalidBatch, match="more than 65536 bytes; nothing was committed"):
            store.commit_uploaded({"raw": [claimed]})
        store.commit_uploaded({"raw": [run]})
        assert raw.get(b"a") == b"v"


def test_rows_of_older_releases_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read and compacted; a drop of their table, or a copy, ends them."""
    with connect("memory://", compaction=False) as store:
        raw: Any = store.create_table("raw")
        with monkeypatch.context() as older:
            for module in (key_bytes, loose_rows, commits):
                older.setattr(module, "KEY_BYTES_MAX", 2 << 20)
            epoch = store.new_epoch()
            raw.ingest_batch([(b"k" * (1 << 20), b"v")], epoch)
            store.commit_epoch(epoch)
        epoch = store.new_epoch()
        raw.ingest_batch([(b"a", b"w")], epoch)
        store.commit_epoch(epoch)
        store.compact("raw")
        assert raw.get(b"k" * (1 << 20)) == b"v"
        assert [row for batch in raw.scan() for row in batch["value"].to_pylist()] == [b"w", b"v"]
        with pytest.raises(InvalidBatch, match="at most 65536 are allowed"):
            raw.ingest_batch([(b"k" * (1 << 20), None)], store.new_epoch())
