"""Rows of one table and epoch that were written one by one, by key: the part of the shared buffer that is no run yet.

A batch of Arrow costs its hundred microseconds whether it has one row or a thousand, and so does a run. Rows that come
alone wait here as they were given, and become one sorted run together: when they are many, when something needs them
as Arrow, or when rows come that they have to stand below.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tussock.statestore.keys.key_bytes import KEY_BYTES_MAX
from tussock.statestore.rows.row_codec import ABSENT, Absent, Row
from tussock.statestore.rows.rows import Rows

__all__ = ["LOOSE_BYTES_MAX", "EncodeRows", "LooseRows", "RowsAlone", "loose_sizes", "size_of"]

EncodeRows = Callable[[Sequence[bytes], Sequence[Row | None]], Rows]
"""A sorted run of rows, or deletes, by ascending keys."""

_ROWS_MAX = 4096

LOOSE_BYTES_MAX = 1 << 20
"""What has more becomes a run at once; so a run of loose rows has less than twice as many."""

_ROW_BYTES = 400
"""What a row takes besides its values: a dict, the key, a place among the others."""

_VALUE_BYTES = 60


class RowsAlone(NamedTuple):
    """Rows, or deletes, of one table as they were given, outside of any buffer."""

    by_key: Mapping[bytes, Row | None]
    encode: EncodeRows

    @property
    def nbytes(self) -> int:
        """Bytes that they take, as an estimate that is not too small."""
        return sum([size_of(key, row) for key, row in self.by_key.items()])


class LooseRows:
    """Of each key that was written alone the newest row, or delete. Changed under the buffer's lock, read without."""

    __slots__ = ("_encode", "_rows", "epoch", "nbytes")

    def __init__(self, epoch: int, encode: EncodeRows) -> None:
        """`encode` makes a run of them."""
        self.epoch = epoch
        self.nbytes = 0
        """Bytes that they take, as an estimate that is not too small."""
        self._encode = encode
        self._rows: dict[bytes, Row | None] = {}

    def add(self, written: Sequence[tuple[bytes, Row | None]], nbytes: int) -> None:
        """Put rows of `nbytes` in the place of what was written before."""
        self._rows.update(written)
        self.nbytes += nbytes

    def find(self, key: bytes) -> Rows | Absent | None:
        """The row alone, `None` for a delete, or `ABSENT`."""
        row = self._rows.get(key, ABSENT)
        return row if row is None or row is ABSENT else self._encode([key], [row])

    @property
    def are_many(self) -> bool:
        """Whether it is time for a run of them."""
        return len(self._rows) >= _ROWS_MAX or self.nbytes >= LOOSE_BYTES_MAX

    def as_run(self) -> Rows:
        """All of them, as a sorted run of unique keys."""
        keys = sorted(self._rows)
        return self._encode(keys, [self._rows[key] for key in keys])


def loose_sizes(written: Sequence[tuple[bytes, Row | None]]) -> list[int] | None:
    """What each of these rows takes; `None` if they are too large to be kept alone, or have a key that is too long.

    The way of batches tells what is wrong with them, if anything is.
    """
    sizes = [size_of(key, row) for key, row in written]
    total = sum(sizes)
    if total > LOOSE_BYTES_MAX or (total > KEY_BYTES_MAX and any(len(key) > KEY_BYTES_MAX for key, _ in written)):
        return None
    return sizes


def size_of(key: bytes, row: Row | None) -> int:
    """Bytes that a row takes in memory while it is loose, as an estimate that is not too small."""
    size = _ROW_BYTES + len(key)
    for value in () if row is None else row.values():
        size += _VALUE_BYTES + (len(value) * _WIDTHS[type(value)] if type(value) in _WIDTHS else 0)
    return size


_WIDTHS: dict[type, int] = {bytes: 1, str: 4}
"""Bytes of a letter, at most."""
