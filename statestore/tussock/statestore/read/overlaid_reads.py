"""Reads of a table some of whose rows are kept one by one."""

from collections.abc import Iterator, Sequence

from tussock.statestore.format.value_bounds import ValueTest
from tussock.statestore.keys.ranges import KeyRanges
from tussock.statestore.read.access import Reads
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.lookups.lookup import FoundRow
from tussock.statestore.sst.lookups.lookup_many import Hits
from tussock.statestore.sst.lookups.wanted_keys import Keys
from tussock.statestore.write.row_overlay import RowOverlay

__all__ = ["OverlaidReads"]


class OverlaidReads:
    """Reads that need all rows as Arrow, so that the overlay's go into the buffer first; a `Reads`."""

    def __init__(self, reads: Reads) -> None:
        self.overlay: RowOverlay | None = None
        self._reads = reads

    def find(self, key: bytes, epoch: int | None) -> FoundRow | None:
        """A key that the overlay does not know is looked up below it; at an epoch that was asked for, in the buffer."""
        if epoch is not None:
            self._flush()
        return self._reads.find(key, epoch)

    def find_many(self, keys: Keys, epoch: int | None) -> Hits:
        """Where the newest versions of `keys` are."""
        self._flush()
        return self._reads.find_many(keys, epoch)

    def scan(
        self,
        ranges: KeyRanges,
        epoch: int | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        columns: Sequence[int] | None = None,
        tests: Sequence[ValueTest] = (),
    ) -> Iterator[Rows]:
        """The rows of the ranges."""
        self._flush()
        return self._reads.scan(ranges, epoch, limit=limit, reverse=reverse, columns=columns, tests=tests)

    def _flush(self) -> None:
        if self.overlay is not None:
            self.overlay.flush()
