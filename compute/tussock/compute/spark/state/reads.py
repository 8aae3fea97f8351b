"""Reads of a task at the batch's epoch, however long the task takes."""

from collections.abc import Callable
from typing import Any, TypeVar

from tussock.compute.spark.connections import same_table
from tussock.compute.spark.spent import Meter
from tussock.statestore.catalog import TableSpec
from tussock.statestore.client import StateStore
from tussock.statestore.errors import SnapshotExpired
from tussock.statestore.snapshot import Snapshot

__all__ = ["EpochReads"]

T = TypeVar("T")


class EpochReads:
    """Reads at one epoch; pins it once the retention no longer keeps it, which the driver's pin makes possible."""

    def __init__(self, store: StateStore, epoch: int, meter: Meter) -> None:
        self._store = store
        self._meter = meter
        self._epoch = epoch
        self._snapshot: Snapshot | None = None

    def run(self, spec: TableSpec, read: Callable[[Any], T]) -> T:
        """What `read` answers, given the table; it may be called twice."""
        with self._meter.reading():
            if self._snapshot is None:
                try:
                    return read(same_table(self._store, spec))
                except SnapshotExpired:
                    self._snapshot = self._store.pin_snapshot(self._epoch)
            return read(self._snapshot.table(spec.name))

    def close(self) -> None:
        """Let go of the pin."""
        if self._snapshot is not None:
            self._snapshot.close()
