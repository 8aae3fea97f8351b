"""A table whose rows wait in a buffer that only its user sees: of a transaction, or of a delta."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import pyarrow as pa

from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidOption
from tussock.statestore.read.access import Reads
from tussock.statestore.read.overlaid_reads import OverlaidReads
from tussock.statestore.read.table_views import TableViews
from tussock.statestore.rows.row_codec import Row
from tussock.statestore.rows.rows import Rows
from tussock.statestore.shown import show_value
from tussock.statestore.write.loose_rows import EncodeRows, RowsAlone, loose_sizes
from tussock.statestore.write.row_overlay import RowOverlay
from tussock.statestore.write.writes import UNCOMMITTED_EPOCH

__all__ = ["BufferedAccess"]


class BufferedAccess:
    """A `TableAccess` whose rows get their epoch from the commit to come."""

    def __init__(
        self,
        kind: str,
        spec: TableSpec,
        views: TableViews,
        reads: Reads,
        write: Callable[[int, Rows], None],
        check_open: Callable[[], None],
        overlay_rows: int,
        before_write: "Callable[[BufferedAccess], None] | None" = None,
        *,
        keeps_copies: bool = True,
    ) -> None:
        """`kind` is what this is part of, for messages; `write` buffers a sorted run for a table's id.

        `overlay_rows` are kept as they were given, at most twice. `before_write` is called before a write as long as
        no savepoint is open here, and may `begin` one. `keeps_copies` is as for `RowOverlay`.
        """
        self._before_write = before_write
        self._keeps_copies = keeps_copies
        self.table = spec.id
        self.name = spec.name
        self.views = views
        self.reads = OverlaidReads(reads)
        self._kind = kind
        self._write = write
        self._check_open = check_open
        self._overlay_rows = overlay_rows
        self._is_noting = False
        self._encode: EncodeRows | None = None
        """Of the overlay."""
        self._digest: int | None = None
        """Of the batches that were written since the savepoint."""

    def write_epoch(self, epoch: int | None) -> int:
        """Where the rows are kept until the commit, which draws the epoch that holds."""
        self._check_open()
        if epoch is not None:
            raise InvalidOption(
                f"table {self.name!r}: a write in {self._kind} takes no epoch, found {show_value(epoch)}; the commit "
                "draws it"
            )
        return UNCOMMITTED_EPOCH

    def write(self, epoch: int, rows: Rows) -> None:  # noqa: ARG002 - there is one epoch here
        """Past the overlay into the buffer."""
        self._prepare()
        if self.reads.overlay is not None:
            self.reads.overlay.forget()
        self._write(self.table, rows)
        if self._is_noting:
            self._digest = _digest(rows, self._digest or 0)

    def write_alone(self, epoch: int, written: Sequence[tuple[bytes, Row | None]], encode: EncodeRows) -> bool:  # noqa: ARG002 - there is one epoch here
        """Into the overlay, which was begun with `encode`."""
        sizes = loose_sizes(written)
        if sizes is None:
            return False
        overlay = self.begin_overlay(encode) if self.reads.overlay is None else self.reads.overlay
        for (key, row), size in zip(written, sizes, strict=True):
            overlay.write(key, row, size)
        return True

    def upload(
        self, spec: TableSpec, parts: Iterator[Rows], waited: Callable[[float], object] | None
    ) -> list[UploadedRun]:
        """What is uploaded is committed by `commit_uploaded`, not by what this is part of."""
        self._refuse("upload() is", spec, parts, waited)

    def begin_overlay(self, encode: EncodeRows) -> RowOverlay:
        """Rows that are written alone, until something needs them in the buffer."""
        self._encode = encode
        overlay = self.reads.overlay = RowOverlay(
            lambda keys, rows: self._write(self.table, encode(keys, rows)),
            self._overlay_rows,
            None if self._before_write is None else self._prepare,
            keeps_copies=self._keeps_copies,
        )
        return overlay

    def flush(self) -> None:
        """Put all that was written into the buffer."""
        if self.reads.overlay is not None:
            self.reads.overlay.flush()

    def end(self) -> None:
        """The transaction is over: its rows are read through it no more."""
        if self.reads.overlay is not None:
            self.reads.overlay.end()

    def alone(self) -> RowsAlone | None:
        """What was written row by row and is not in the buffer; `None` if there is nothing such."""
        if not self.reads.overlay or self._encode is None:
            return None
        return RowsAlone(self.reads.overlay.fresh(), self._encode)

    def turn(self) -> None:
        """The same, before the buffer is cut off; older copies of rows go."""
        if self.reads.overlay is not None:
            self.reads.overlay.turn()

    def begin(self) -> None:
        """A savepoint begins."""
        self._is_noting, self._digest = True, None
        if self.reads.overlay is not None:
            self.reads.overlay.begin()

    def keep(self) -> None:
        """It is not needed any more."""
        self._is_noting = False
        if self.reads.overlay is not None:
            self.reads.overlay.keep()

    @property
    def digest(self) -> int | None:
        """Of what was written since the savepoint; `None` if nothing was."""
        alone = None if self.reads.overlay is None else self.reads.overlay.digest
        if alone is None or self._digest is None:
            return self._digest if alone is None else alone
        return zlib.crc32(alone.to_bytes(4, "little"), self._digest)

    def undo(self) -> None:
        """Be as at its beginning; what went into the buffer since is the caller's to take back."""
        self._is_noting = False
        if self.reads.overlay is not None:
            self.reads.overlay.undo()

    def check_history(self) -> None:
        """Changes have no own rows."""
        self._refuse("changes are")

    def _prepare(self) -> None:
        if self._before_write is not None and not self._is_noting:
            self._before_write(self)

    def _refuse(self, what: str, *_: object) -> NoReturn:
        raise InvalidOption(f"table {self.name!r}: {what} not part of {self._kind}; use store.table()")


def _digest(rows: Rows, before: int) -> int:
    digest = zlib.crc32(rows.delete_array().tobytes(), before)
    for array in (rows.keys, *rows.columns):
        # By IPC, which leaves out what a slice does not show.
        digest = zlib.crc32(pa.record_batch([array], names=[""]).serialize(), digest)
    return digest
