"""A snapshot that is dropped without `close()` holds no epoch for ever: its pin is released with a warning."""

import gc
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from support import inside
from support.store.stores import pairs
from support.waiting import eventually
from tussock.statestore import StateStore, StoreClosed

ROWS = 5000


def _renew(store: StateStore) -> None:
    """Renew the pins, as the store does every few seconds while it has some."""
    inside.renew_pins(inside.backend(store))


def _until_pinned_are(store: StateStore, *epochs: int) -> None:
    """Wait until these are pinned and no others: a renewal of the store itself may be letting go of one just now."""

    def are_pinned() -> bool:
        _renew(store)
        return [pin.epoch for pin in store.pins()] == list(epochs)

    eventually(are_pinned)


@pytest.fixture
def pinned_snapshots(store: StateStore) -> list[Any]:
    """A snapshot of a table `kv`, in a list from which the test takes it."""
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"%05d" % number, bytes(1000)) for number in range(ROWS)], epoch)
    store.commit_epoch(epoch)
    return [store.pin_snapshot()]


def test_the_pin_of_a_dropped_snapshot_is_released_with_a_warning(
    store: StateStore, pinned_snapshots: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Five are taken and dropped; the one that is in use stays."""
    epochs = [store.pin_snapshot().epoch for _ in range(5)]
    gc.collect()
    with caplog.at_level(logging.WARNING):
        _until_pinned_are(store, pinned_snapshots[0].epoch)
    warnings = [record.message for record in caplog.records if "dropped without close()" in record.message]
    assert len(warnings) == len(epochs)
    assert all(f"epoch={epochs[0]}" in line for line in warnings)
    assert len(pairs(pinned_snapshots[0].table("kv").scan())) == ROWS


@pytest.mark.parametrize(
    "begun",
    [
        lambda snapshot: snapshot.table("kv"),
        lambda snapshot: snapshot.table("kv").scan(),
        lambda snapshot: snapshot.table("kv").change_feed(snapshot.epoch),
        lambda snapshot: iter([snapshot]),
    ],
    ids=["table", "scan", "feed", "kept in something else"],
)
def test_tables_and_iterators_of_a_snapshot_keep_its_pin(
    store: StateStore, pinned_snapshots: list[Any], begun: Callable[[Any], Any]
) -> None:
    """The snapshot itself is gone; the pin ends with the last table or iterator of it."""
    reading = begun(pinned_snapshots[0])
    pinned_snapshots.clear()
    gc.collect()
    _renew(store)
    assert len(store.pins()) == 1
    del reading
    gc.collect()
    _until_pinned_are(store)


def test_a_scan_of_a_dropped_snapshot_shows_all_of_it(store: StateStore, pinned_snapshots: list[Any]) -> None:
    """Begun, dropped and renewed on the way: no row is missing, whatever is committed and compacted meanwhile."""
    scan = pinned_snapshots[0].table("kv").scan()
    found = next(scan).num_rows
    pinned_snapshots.clear()
    gc.collect()
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(b"%05d" % number, None) for number in range(ROWS)], epoch)
    store.commit_epoch(epoch)
    _renew(store)
    store.compact("kv")
    store.vacuum()
    assert found + sum(batch.num_rows for batch in scan) == ROWS
    assert pairs(store.table("kv").scan()) == []


def test_a_closed_snapshot_causes_no_warning(
    store: StateStore, pinned_snapshots: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Closed before it is dropped, it causes no warning; its table, kept, raises that it was closed."""
    with ExitStack() as stack:
        table = stack.enter_context(pinned_snapshots.pop()).table("kv")
    gc.collect()
    with caplog.at_level(logging.WARNING):
        _until_pinned_are(store)
    assert not [record for record in caplog.records if "dropped" in record.message]
    with pytest.raises(StoreClosed, match="released"):
        table.get(b"00000")
