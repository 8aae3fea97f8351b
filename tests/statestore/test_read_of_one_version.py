"""A read stays on one version, also where it takes several ranges or outlives its pin."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.statestore import InvalidOption, SnapshotExpired, connect
from tussock.statestore.tables.table_reader import TableReader

SCHEMA = pa.schema([("shop", pa.string()), ("item", pa.int64()), ("count", pa.int64())])


def test_read_by_prefix_shows_a_commit_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The virtual nodes of a prefix were once read on a version each, so a commit between two of them was seen half."""
    with connect("memory://") as store:
        stock = store.create_table("stock", schema=SCHEMA, primary_key=["shop", "item"])

        def write(count: int) -> None:
            epoch = store.new_epoch()
            stock.upsert(pa.table({"shop": ["a"] * 200, "item": list(range(200)), "count": [count] * 200}), epoch)
            store.commit_epoch(epoch)

        write(1)
        made = 0
        visible = TableReader._visible

        def visible_with_a_commit_between(self: TableReader, *args: object) -> object:
            nonlocal made
            made += 1
            if made == 100:
                write(2)
            return visible(self, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(TableReader, "_visible", visible_with_a_commit_between)
        counts = [count for batch in stock.read(prefix=("a",)) for count in batch["count"].to_pylist()]
        assert counts == [1] * 200


def test_read_checks_its_pin_on_the_version_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that lapsed after the read began is noticed before a row of a later version is shown."""
    with connect("memory://") as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"k", b"1")], epoch)
        store.commit_epoch(epoch)
        with store.pin_snapshot() as snapshot:
            table = snapshot.table("kv")
            pin = snapshot._pin._pin
            view = store._core.view

            def view_after_a_long_sleep(*args: Any, **options: Any) -> object:
                pin.deadline = 0.0  # type: ignore[attr-defined]
                return view(*args, **options)

            monkeypatch.setattr(store._core, "view", view_after_a_long_sleep)
            with pytest.raises(SnapshotExpired, match="not renewed"):
                table.get(b"k")


@pytest.mark.parametrize("condition", [None, pc.field("count") > 0], ids=["all", "filtered"])
def test_read_refuses_a_negative_limit(condition: pc.Expression | None) -> None:
    """A filtered read once took it for a count from the end, and answered a batch of -1 rows."""
    with connect("memory://") as store:
        stock = store.create_table("stock", schema=SCHEMA, primary_key=["shop", "item"])
        with pytest.raises(InvalidOption, match="limit is -1"):
            list(stock.read(filter=condition, limit=-1))
