"""The rows that were written or read one by one, as Python dicts over what a table's other reads see.

A write of a row stays here until something needs it as Arrow: a scan, a look-up of many keys, the commit. Then all that
was written since goes into the buffer as one sorted run, and the rows here are copies, which save the next `get` its
way through blocks. All are bounded, by rows and by bytes: in two generations, of which the older goes when the newer
is full.

A savepoint notes what it takes to undo: of each key that is written after it, what was here before.
"""

import zlib
from collections.abc import Callable, Sequence

import msgspec

from tussock.statestore.rows.row_codec import ABSENT, Absent, Known, Row
from tussock.statestore.write.loose_rows import size_of

__all__ = ["RowOverlay"]

_BYTES_MAX = 8 << 20
"""Of one generation; a run of them has to fit into an Arrow array, too."""

_encode = msgspec.msgpack.Encoder().encode


class _Savepoint:
    """What the overlay was when it began; of no more than the keys that were written since."""

    __slots__ = ("before", "digest", "unflushed")

    def __init__(self) -> None:
        self.digest: int | None = None
        """Of all writes since, in their order; `None` if there were none."""
        self.before: dict[bytes, tuple[Known, bool]] = {}
        """Of each key that was written since: what was known, and whether the buffer lacked it."""
        self.unflushed: dict[bytes, Row | None] | None = None
        """What the buffer lacked when the savepoint began, once it was flushed since."""


class RowOverlay:
    """The rows of one table, by encoded key. Used by one thread at a time."""

    def __init__(
        self,
        flush: Callable[[Sequence[bytes], Sequence[Row | None]], None],
        rows_max: int,
        before_write: Callable[[], None] | None = None,
        *,
        keeps_copies: bool = True,
    ) -> None:
        """`flush` puts rows, or deletes, by ascending keys into the buffer; `rows_max`: of one generation.

        `before_write` is called before a change of what the buffer or the overlay has, as long as no savepoint is
        open, and may open one. Without `keeps_copies` only rows that the buffer lacks are here: what is below it may
        become another one while this lasts.
        """
        self._before_write = before_write
        self._keeps_copies = keeps_copies
        self._rows_max = rows_max
        self._flush = flush
        self._rows: dict[bytes, Row | None] = {}
        self._older: dict[bytes, Row | None] = {}
        self._nbytes = 0
        """Of the newer generation, as an estimate that is not too small."""
        self._fresh: dict[bytes, None] = {}
        """Keys whose rows are not in the buffer."""
        self._savepoint: _Savepoint | None = None

    def __bool__(self) -> bool:
        """Whether there is something that the buffer lacks."""
        return bool(self._fresh)

    def fresh(self) -> dict[bytes, Row | None]:
        """What the buffer lacks, by key."""
        return {key: self._rows[key] for key in self._fresh}

    def find(self, key: bytes) -> Known:
        """The row, `None` for a delete, or `ABSENT`; not to be changed by the caller."""
        row: Known = self._rows.get(key, ABSENT)
        return row if row is not ABSENT or not self._older else self._older.get(key, ABSENT)

    def write(self, key: bytes, row: Row | None, size: int) -> None:
        """A row, or a delete, that reads see from now on; it takes `size` bytes."""
        if len(self._rows) >= self._rows_max or self._nbytes + size > _BYTES_MAX:
            self.flush()
            self._turn()
        self._nbytes += size
        self._prepare()
        savepoint = self._savepoint
        if savepoint is not None:
            if key not in savepoint.before:
                savepoint.before[key] = self.find(key), key in self._fresh
            written = key + _encode(None if row is None else [*row.values()])
            savepoint.digest = zlib.crc32(written, savepoint.digest or 0)
        self._rows[key] = row
        self._fresh[key] = None

    def remember(self, key: bytes, row: Row | None) -> None:
        """What a read has found below, so that the next one need not look there."""
        if not self._keeps_copies:
            return
        size = size_of(key, row)
        if len(self._rows) < self._rows_max and self._nbytes + size <= _BYTES_MAX:
            self._nbytes += size
            self._rows[key] = row

    def flush(self) -> None:
        """Put what the buffer lacks into it."""
        if self._fresh:
            self._prepare()
            if self._savepoint is not None and self._savepoint.unflushed is None:
                self._savepoint.unflushed = self._fresh_at(self._savepoint)
            keys = sorted(self._fresh)
            rows = [self._rows[key] for key in keys]
            self._flush(keys, rows)
            # Not before: making room for them may fail, and then they are still nowhere else.
            self._fresh = {}
            if not self._keeps_copies:
                self._forget_copies()

    def forget(self) -> None:
        """Rows are written past the overlay: flush, and know nothing any more."""
        self.flush()
        if self._savepoint is not None and self._savepoint.unflushed is None:
            self._savepoint.unflushed = {}
        self._forget_copies()

    def end(self) -> None:
        """What it is for is over: it knows nothing any more, and what the buffer lacks is given up."""
        self._rows, self._older, self._fresh = {}, {}, {}

    def turn(self) -> None:
        """Flush, and let the older generation of the copies go."""
        self.flush()
        self._turn()

    def begin(self) -> None:
        """A savepoint begins; there is one at a time."""
        self._savepoint = _Savepoint()

    def keep(self) -> None:
        """The savepoint is not needed any more."""
        self._savepoint = None

    @property
    def digest(self) -> int | None:
        """A number that the same writes since the savepoint, in the same order, have again; `None` without writes."""
        return None if self._savepoint is None else self._savepoint.digest

    def undo(self) -> None:
        """Be as at the savepoint, and end it; what went into the buffer since is the caller's to take back."""
        savepoint, self._savepoint = self._savepoint, None
        assert savepoint is not None, "nothing is undone without a savepoint"
        if savepoint.unflushed is not None:
            # Copies may be of what is undone. What the buffer loses is here again.
            self._rows, self._older = dict(savepoint.unflushed), {}
            self._nbytes = sum([size_of(key, row) for key, row in self._rows.items()])
            self._fresh = dict.fromkeys(savepoint.unflushed)
            return
        for key, (known, was_fresh) in savepoint.before.items():
            if not was_fresh:
                self._fresh.pop(key, None)
            if isinstance(known, Absent):
                self._rows.pop(key, None)
            else:
                self._rows[key] = known

    def _prepare(self) -> None:
        if self._savepoint is None and self._before_write is not None:
            self._before_write()

    def _turn(self) -> None:
        self._older, self._rows = self._rows, {}
        self._nbytes = 0

    def _forget_copies(self) -> None:
        self._rows, self._older = {}, {}
        self._nbytes = 0

    def _fresh_at(self, savepoint: _Savepoint) -> dict[bytes, Row | None]:
        found = {key: self._rows[key] for key in self._fresh if key not in savepoint.before}
        for key, (known, was_fresh) in savepoint.before.items():
            if was_fresh and not isinstance(known, Absent):
                found[key] = known
        return found
