"""A shared buffer that is too small for the written rows."""

from typing import Any

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import Fate, FaultyBucket, where
from support.store.stores import open_on
from tussock.statestore import ObjectStoreUnavailable, connect
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

TEXTS = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.string())])


@pytest.mark.parametrize("buffer_bytes", [0, 300])
def test_a_batch_is_stored_or_refused_whole_around_a_spill(tmp_path: object, buffer_bytes: int) -> None:
    """The buffer makes room before a batch, so a small one changes neither reads nor commits."""
    with connect(f"file://{tmp_path}", buffer_bytes=buffer_bytes) as store:
        table = store.create_table("kv")
        for number in range(5):
            table.ingest_batch([(b"%d" % number, bytes(100)), (b"x", b"%d" % number)], 1)
            assert table.get(b"x") == b"%d" % number
        store.commit_epoch(1)
        assert [row["key"] for batch in table.scan() for row in batch.to_pylist()] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
            b"x",
        ]


@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("within", ["transaction", "delta", "epoch"])
def test_a_spill_that_fails_loses_no_row_that_was_taken(within: str, is_raw: bool) -> None:
    """A call that needs room is repeated, or not; what was written before it is committed in any case."""
    bucket = FaultyBucket(open_bucket("memory://"))
    value = "v" * 400
    with open_on(bucket, RealSystem(), buffer_bytes=4000) as store:
        store.create_table("t", **({} if is_raw else {"schema": TEXTS, "primary_key": ["k"]}))
        delta = store.delta("app")
        tx: Any = store.transaction()
        epoch = store.new_epoch()
        table = {"transaction": tx, "delta": delta, "epoch": store}[within].table("t")
        at = (epoch,) if within == "epoch" else ()

        def write(*keys: str) -> None:
            if is_raw:
                table.ingest_batch([(key.encode(), value.encode()) for key in keys], *at)
            else:
                table.upsert([{"k": key, "v": value} for key in keys], *at)

        def keys() -> list[str]:
            batches = table.scan() if is_raw else table.read()
            return sorted(str(key) for batch in batches for key in batch.column(0).cast(pa.string()).to_pylist())

        write("a", "b")
        assert keys() == ["a", "b"]
        bucket.script = where("put", "sst/", Fate.LOSE_REQUEST, times=2)
        refused = 0
        for key in "cdefgh":
            # A read puts rows that came alone into the buffer, and may have to make room for them.
            for call in (lambda key=key: write(key), keys):
                is_done = False
                while not is_done:
                    try:
                        call()
                        is_done = True
                    except ObjectStoreUnavailable:
                        refused += 1
        assert refused == 2
        assert keys() == [*"abcdefgh"]
        if within == "delta":
            delta.freeze(1).commit()
        elif within == "epoch":
            store.commit_epoch(epoch)
        else:
            with tx:
                pass
        table, at = store.table("t"), ()
        assert keys() == [*"abcdefgh"]
