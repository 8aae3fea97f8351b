"""A read stays on one version, also if it takes several ranges or outlives its pin."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support import inside
from tussock.statestore import InvalidOption, SnapshotExpired, connect
from tussock.statestore.base.limits import Limits

SCHEMA = pa.schema([("shop", pa.string()), ("item", pa.int64()), ("count", pa.int64())])


@pytest.mark.parametrize("how", [{"prefix": ("a",)}, {"filter": pc.field("shop") == "a"}], ids=["prefix", "filter"])
def test_read_of_many_ranges_shows_a_commit_whole_or_not_at_all(how: dict[str, Any]) -> None:
    """Once each virtual node of a prefix was read on another version, so a commit between two of them was seen half.

    Vacuum takes the SSTs of the version that it began on, so it also moves on to another one, at the same epoch.
    """
    with connect("memory://", compaction=False, cache_bytes=0, gc_grace=0, limits=Limits(segment_bytes=600)) as store:
        stock = store.create_table("stock", schema=SCHEMA, primary_key=["shop", "item"], vnodes=64, block_bytes=256)

        def write(count: int) -> None:
            epoch = store.new_epoch()
            shops = ["a", "b"] * 600
            stock.upsert(pa.table({"shop": shops, "item": list(range(1200)), "count": [count] * 1200}), epoch)
            store.commit_epoch(epoch)

        write(1)
        batches = stock.read(**how)
        counts = next(batches)["count"].to_pylist()
        write(2)
        store.compact("stock")
        store.vacuum()
        assert 0 < len(counts) < 600
        counts += [count for batch in batches for count in batch["count"].to_pylist()]
        assert counts == [1] * 600


def test_read_checks_its_pin_on_the_version_that_it_reads() -> None:
    """A lease that lapsed after the read began is noticed before any row of a later version."""
    with connect("memory://") as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"k", b"1")], epoch)
        store.commit_epoch(epoch)
        with store.pin_snapshot() as snapshot:
            table = snapshot.table("kv")
            with (
                inside.before_each_view(store, lambda: inside.lapse(snapshot)),
                pytest.raises(SnapshotExpired, match="not renewed"),
            ):
                table.get(b"k")


@pytest.mark.parametrize("condition", [None, pc.field("count") > 0], ids=["all", "filtered"])
def test_read_refuses_a_negative_limit(condition: pc.Expression | None) -> None:
    """A filtered read once took it for a count from the end, and returned a batch of -1 rows."""
    with connect("memory://") as store:
        stock = store.create_table("stock", schema=SCHEMA, primary_key=["shop", "item"])
        with pytest.raises(InvalidOption, match="limit is -1"):
            list(stock.read(filter=condition, limit=-1))
