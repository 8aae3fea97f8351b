"""A read stays on one version, also if it takes several ranges or outlives its pin."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support import inside
from tussock.statestore import InvalidOption, SnapshotExpired, connect

SCHEMA = pa.schema([("shop", pa.string()), ("item", pa.int64()), ("count", pa.int64())])


def test_read_by_prefix_shows_a_commit_whole_or_not_at_all() -> None:
    """Once each virtual node of a prefix was read on another version, so a commit between two of them was seen half."""
    with connect("memory://") as store:
        stock = store.create_table("stock", schema=SCHEMA, primary_key=["shop", "item"])

        def write(count: int) -> None:
            epoch = store.new_epoch()
            stock.upsert(pa.table({"shop": ["a"] * 200, "item": list(range(200)), "count": [count] * 200}), epoch)
            store.commit_epoch(epoch)

        write(1)
        made = 0

        def write_in_the_middle() -> None:
            nonlocal made
            made += 1
            if made == 100:
                write(2)

        with inside.before_each_range(stock, write_in_the_middle):
            counts = [count for batch in stock.read(prefix=("a",)) for count in batch["count"].to_pylist()]
        assert counts == [1] * 200


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
