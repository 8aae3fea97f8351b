"""How a table is reached: through the store, a snapshot or a transaction.

They differ in what reads see, in what is noted of them, and in where rows go. A table asks its access, and is the same
in all three.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Protocol

from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.epochs import check_epoch
from tussock.statestore.errors import InvalidBatch, InvalidOption
from tussock.statestore.format.value_bounds import ValueTest
from tussock.statestore.keys.ranges import KeyRanges
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.rows.row_codec import Row
from tussock.statestore.rows.rows import Rows
from tussock.statestore.shown import show_value
from tussock.statestore.sst.lookups.lookup import FoundRow
from tussock.statestore.sst.lookups.lookup_many import Hits
from tussock.statestore.sst.lookups.wanted_keys import Keys
from tussock.statestore.write.loose_rows import EncodeRows
from tussock.statestore.write.row_overlay import RowOverlay
from tussock.statestore.write.writes import Writes

__all__ = ["EncodeRows", "ReadOnlyAccess", "Reads", "StoreAccess", "TableAccess"]


class Reads(Protocol):
    """Reads at the level of encoded keys; `KeyReader`, or one that notes what was read."""

    def find(self, key: bytes, epoch: int | None) -> FoundRow | None:
        """The newest version of a key, or `None` if there is none or it is a delete."""

    def find_many(self, keys: Keys, epoch: int | None) -> Hits:
        """Where the newest versions of `keys` are, deletes included."""

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
        """The rows of the ranges in order, all of one version; `reverse` takes one range at most.

        Rows that do not pass the `tests` may be missing, and may be there.
        """


class TableAccess(Protocol):
    """What a table asks."""

    @property
    def views(self) -> TableViews:
        """What reads see."""

    @property
    def reads(self) -> Reads:
        """The reads that the table's own rest on."""

    def write_epoch(self, epoch: int | None) -> int:
        """The epoch to write at, which is open; raises if rows cannot be written, or not at this one."""

    def write(self, epoch: int, rows: Rows) -> None:
        """Buffer a sorted run of unique keys."""

    def write_alone(self, epoch: int, written: Sequence[tuple[bytes, Row | None]], encode: EncodeRows) -> bool:
        """Buffer a few rows, or deletes; of several with one key the last wins. `encode` makes a run of them.

        `False` if they are too large for that: nothing was stored, and `write` takes them.
        """

    def upload(
        self, spec: TableSpec, parts: Iterator[Rows], waited: Callable[[float], object] | None
    ) -> list[UploadedRun]:
        """Write rows in any order straight to SSTs that nobody sees until they are committed."""

    def begin_overlay(self, encode: EncodeRows) -> RowOverlay | None:
        """Where rows that are written one by one are kept as they are; `None` if all go into the buffer at once."""

    def check_history(self) -> None:
        """Raise if committed changes cannot be read here."""


class StoreAccess:
    """A table of the store: the newest rows, and writes at the epochs of the client."""

    def __init__(self, spec: TableSpec, views: TableViews, reads: Reads, writes: Writes) -> None:
        self.views = views
        self.reads = reads
        self._table = spec.id
        self._writes = writes

    def write_epoch(self, epoch: int | None) -> int:
        """The epoch that was given; `EpochTooOld` if it takes no more rows."""
        if epoch is None:
            raise InvalidBatch("no epoch to write at: expected an integer from 1 to 2**63-1, from store.new_epoch()")
        epoch = check_epoch(epoch)
        self._writes.buffer.check_open(epoch)
        return epoch

    def write(self, epoch: int, rows: Rows) -> None:
        """Into the shared buffer, where this client's reads see them at once."""
        self._writes.write(self._table, epoch, rows)

    def write_alone(self, epoch: int, written: Sequence[tuple[bytes, Row | None]], encode: EncodeRows) -> bool:
        """The same for rows as they were given."""
        return self._writes.write_alone(self._table, epoch, written, encode)

    def upload(
        self, spec: TableSpec, parts: Iterator[Rows], waited: Callable[[float], object] | None
    ) -> list[UploadedRun]:
        """For `StateStore.commit_uploaded`."""
        if waited is not None and not callable(waited):
            raise InvalidOption(f"waited is {show_value(waited)}; expected a function of seconds, or None")
        return self._writes.upload_rows(spec, parts, waited)

    def begin_overlay(self, encode: EncodeRows) -> RowOverlay | None:  # noqa: ARG002 - the protocol's
        """None: other threads read the rows as well."""
        return None

    def check_history(self) -> None:
        """All that is kept can be read."""


class ReadOnlyAccess:
    """A table of a snapshot."""

    def __init__(self, spec: TableSpec, views: TableViews, reads: Reads) -> None:
        self.views = views
        self.reads = reads
        self._name = spec.name

    def write_epoch(self, epoch: int | None) -> int:
        """There is none."""
        self._refuse(epoch)

    def write(self, epoch: int, rows: Rows) -> None:
        """Nothing is written through a snapshot."""
        self._refuse(epoch, rows)

    def write_alone(self, epoch: int, written: Sequence[tuple[bytes, Row | None]], encode: EncodeRows) -> bool:
        """Nothing is written through a snapshot."""
        self._refuse(epoch, written, encode)

    def upload(
        self, spec: TableSpec, parts: Iterator[Rows], waited: Callable[[float], object] | None
    ) -> list[UploadedRun]:
        """Nothing is written through a snapshot."""
        self._refuse(spec, parts, waited)

    def begin_overlay(self, encode: EncodeRows) -> RowOverlay | None:  # noqa: ARG002 - the protocol's
        """None: nothing is written."""
        return None

    def check_history(self) -> None:
        """What the pin keeps can be read."""

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidOption(f"table {self._name!r} is read through a snapshot; write through store.table()")
