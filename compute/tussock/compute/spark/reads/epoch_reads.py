"""Reads of a task at one epoch, even if the task takes longer than the retention."""

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from tussock.compute.spark.reads.connections import same_table
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import Run, TableSpec
from tussock.statestore.errors import SnapshotExpired
from tussock.statestore.snapshot import Snapshot

__all__ = ["EpochReads"]

T = TypeVar("T")


class EpochReads:
    """Reads at one epoch. Past the retention the job's pin keeps it; then this object pins it, too.

    A task takes no pin at its beginning, since hardly any task takes that long.
    """

    def __init__(self, store: StateStore, epoch: int, uploads: Sequence[Run] = ()) -> None:
        """`uploads`: rows of the one table that is read, over those of the epoch; newest first."""
        self._uploads = uploads
        self._store = store
        self._epoch = epoch
        self._snapshot: Snapshot | None = None

    def run(self, spec: TableSpec, read: Callable[[Any], T]) -> T:
        """Return what `read` returns for the table; may call it twice.

        If `read` returns batches, it must check the epoch at once; the pin holds until `close`, while they are read.
        Raises `SnapshotExpired` if nothing keeps the epoch.
        """
        if self._snapshot is None:
            try:
                same_table(self._store, spec)
                return read(self._store.table(spec.name, uploaded=self._uploads))
            except SnapshotExpired:
                self._snapshot = self._store.pin_snapshot(self._epoch)
        return read(self._snapshot.table(spec.name, uploaded=self._uploads))

    def close(self) -> None:
        """Release the pin."""
        if self._snapshot is not None:
            self._snapshot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
