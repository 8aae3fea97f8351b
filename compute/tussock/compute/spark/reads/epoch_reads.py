"""Reads of a task at one epoch, however long the task takes."""

from collections.abc import Callable
from typing import Any, Self, TypeVar

from tussock.compute.spark.reads.connections import same_table
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import SnapshotExpired
from tussock.statestore.snapshot import Snapshot

__all__ = ["EpochReads"]

T = TypeVar("T")


class EpochReads:
    """Reads at one epoch. Past the retention it is kept by whoever pins it for the job; then this pins it, too.

    A task has no pin from its beginning, since almost none takes that long.
    """

    def __init__(self, store: StateStore, epoch: int) -> None:
        self._store = store
        self._epoch = epoch
        self._snapshot: Snapshot | None = None

    def run(self, spec: TableSpec, read: Callable[[Any], T]) -> T:
        """What `read` answers, given the table; it may be called twice.

        If that are batches, `read` checks the epoch at once, and the pin holds while they are read: until `close`.
        Raises `SnapshotExpired` if nobody keeps the epoch.
        """
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
