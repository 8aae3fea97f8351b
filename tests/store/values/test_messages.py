"""What errors say where the plain text would mislead, or would be as long as what was given."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, TableNotFound, connect

SCHEMA = pa.schema([pa.field("k", pa.decimal128(8, 2), nullable=False), ("v", pa.int64()), ("d", pa.decimal128(8, 2))])
LONG = "x" * 100_000


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://", compaction=False) as opened:
        opened.create_table("t", SCHEMA, ["k"])
        opened.create_table("raw")
        yield opened


def test_a_read_that_is_refused_speaks_of_no_rows(store: StateStore) -> None:
    """Nothing was to be stored."""
    with pytest.raises(SchemaMismatch) as refused:
        store.table("t").multi_get([Decimal("0.001")])
    assert "stored" not in str(refused.value)


@pytest.mark.parametrize("value", [Decimal(10) ** 7, 10**7, -(10**6), Decimal("-1000000.5")])
def test_a_decimal_with_too_many_digits_is_told(store: StateStore, value: Any) -> None:
    """As a key, and as a value; one digit less is taken."""
    table = store.table("t")
    for row in ({"k": value, "v": 1}, {"k": 1, "d": value}):
        with pytest.raises(SchemaMismatch, match=r"more digits in front of the point than the 6 of decimal128\(8, 2\)"):
            table.upsert([row], store.new_epoch())
    with pytest.raises(SchemaMismatch, match="than the 6 of"):
        table.get(value)
    table.upsert([{"k": 999_999, "d": Decimal("-999999.99")}], store.new_epoch())
    assert table.get(Decimal(999_999))["d"] == Decimal("-999999.99")


def test_a_distribution_key_outside_of_the_key_is_told(store: StateStore) -> None:
    """And nothing else."""
    with pytest.raises(SchemaMismatch, match="distribution key: found \\['v'\\]") as refused:
        store.create_table("u", SCHEMA, ["k"], distribution_key=["v"])
    assert "nullable" not in str(refused.value)


@pytest.mark.parametrize("read", ["changes", "change_feed", "change_epochs"])
def test_changes_after_an_epoch_to_come_are_told(store: StateStore, read: str) -> None:
    """With an open end the range does not end before it begins."""
    epoch = store.new_epoch()
    store.table("raw").ingest_batch([(b"a", b"1")], epoch)
    newest = store.commit_epoch(epoch)
    with pytest.raises(InvalidOption, match=f"the newest committed epoch is {newest}"):
        getattr(store.table("raw"), read)(newest + 5)
    assert list(getattr(store.table("raw"), read)(newest)) == []


CALLS: list[tuple[type[Exception], Callable[[StateStore], object]]] = [
    (TableNotFound, lambda store: store.table(LONG)),
    (TableNotFound, lambda store: store.drop_table(LONG)),
    (TableNotFound, lambda store: store.alter_table(LONG, add={"a": pa.int64()})),
    (TableNotFound, lambda store: store.compact(LONG)),
    (TableNotFound, lambda store: store.commit_epoch(store.new_epoch(), expect={LONG: 1})),
    (TableNotFound, lambda store: store.delta("w").table(LONG)),
    (TableNotFound, lambda store: store.transaction().table(LONG)),
    (TableNotFound, lambda store: store.pin_snapshot().table(LONG)),
    (SchemaMismatch, lambda store: store.create_table("u", SCHEMA, [LONG])),
    (SchemaMismatch, lambda store: store.table("t").upsert([{"k": 1, LONG: 1}], store.new_epoch())),
    (InvalidOption, lambda _: connect(LONG)),
    (InvalidOption, lambda _: connect("s3://" + LONG)),
]


@pytest.mark.parametrize(("error", "call"), CALLS)
def test_no_message_is_as_long_as_what_was_given(
    store: StateStore, error: type[Exception], call: Callable[[StateStore], object]
) -> None:
    """A hundred characters of it are shown."""
    with pytest.raises(error) as refused:
        call(store)
    assert len(str(refused.value)) < 1000
    assert "x" * 50 in str(refused.value)


def test_integers_of_any_class_are_numbers(store: StateStore) -> None:
    """Epochs, batches, generations and limits of NumPy; no truth value is one."""
    table, generation = store.table("t"), np.int64(store.open_writer("w"))
    epoch = np.int64(store.new_epoch())
    table.upsert([{"k": 1, "v": 1}, {"k": 2, "v": 2}], epoch)
    done = store.commit_epoch(
        epoch, "w", np.int64(4), expect={"t": np.uint64(store.committed_epoch)}, generation=generation
    )
    assert store.committed_batch("w", np.uint8(4)) == done
    store.wait_epoch(np.int64(done))
    assert sum(batch.num_rows for batch in table.read(epoch=np.int64(done), limit=np.int32(1))) == 1
    assert len(list(table.changes(np.int64(0), np.int64(done)))) == 1
    assert table.change_epochs(np.int64(0)) == [done]
    with store.pin_snapshot(np.int64(done)) as snapshot:
        assert snapshot.table("t").get(1, epoch=np.int64(done))["v"] == 1
    with store.transaction(writer="w", batch_id=np.int64(5), generation=generation) as tx:
        tx.table("t").upsert([{"k": 3, "v": 3}])
    delta = store.delta("w", generation=generation)
    delta.table("t").upsert([{"k": 4, "v": 4}])
    delta.freeze(np.int64(6)).commit()
    delta.close()
    for wrong in (True, np.True_, 4.0, np.float64(4), "4"):
        with pytest.raises(InvalidOption):
            store.commit_epoch(store.new_epoch(), "w", wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption):
            next(table.read(limit=wrong))  # type: ignore[arg-type]
