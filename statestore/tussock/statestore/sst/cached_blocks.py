"""What the block cache holds: decoded blocks and segments, with what point lookups make for themselves in them.

`Sstables` makes them; the shared buffer keeps its rows in blocks of the same kind.
"""

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tussock.statestore.rows.key_arrays import binary_buffers, fixed_view, fixed_width, repeats
from tussock.statestore.rows.rows import Rows

__all__ = ["CachedBlock", "CachedSegment"]

_BLOCK_BYTES = 700
"""What a cached block takes in objects, beside its rows and keys."""


class CachedBlock:
    """A decoded block together with what point lookups in it need, which is made at the first lookup.

    Keys of one width are searched where they lie: in a table of a million rows that takes less time than to follow
    references to as many objects, and no memory. Keys of several widths are searched as a list of `bytes`.
    """

    __slots__ = ("_fixed", "_names", "_plain", "_prepared", "_rows_bytes", "_values", "_view", "rows")

    def __init__(self, rows: Rows, rows_bytes: int | None = None) -> None:
        """`rows_bytes`: what the rows take, where that is known; to ask Arrow takes as long as to decode a column."""
        self.rows = rows
        self._rows_bytes = rows_bytes
        self._plain: bool | None = None
        self._prepared = False
        self._fixed: tuple[Callable[..., np.intp], int, memoryview] | None = None
        self._view: npt.NDArray[np.bytes_] | None = None
        self._names: list[bytes] = []
        self._values: tuple[memoryview, memoryview, npt.NDArray[np.bool_] | None, int, int] | None = None

    def row_of(self, key: bytes) -> int:
        """The first row of that key, or -1 if it is not in the block."""
        if not self._prepared:
            self._prepare()
        if self._fixed is None:
            names = self._names
            at = bisect_left(names, key)
            return at if at < len(names) and names[at] == key else -1
        search, width, data = self._fixed
        if len(key) != width:
            return -1
        at = int(search(key))
        # Behind the last key there is nothing, which is no key.
        return at if data[at * width : (at + 1) * width] == key else -1

    def lower_bound(self, key: bytes) -> int:
        """As `Rows.lower_bound`: the first row whose key is not below `key`."""
        if not self._prepared:
            self._prepare()
        if self._fixed is None:
            return bisect_left(self._names, key)
        search, width, _ = self._fixed
        # Of a longer key, which no row has, the rows below it are those that are not above as much of it as they have.
        # A shorter one is filled with zeros: no key of the width lies between the two.
        return int(search(key[:width], "right") if len(key) > width else search(key))

    @property
    def is_plain(self) -> bool:
        """Whether each key stands once, and none is deleted."""
        if self._plain is None:
            rows = self.rows
            self._plain = rows.deletes is None and (isinstance(rows.epochs, int) or not repeats(rows.keys).any())
        return self._plain

    def _prepare(self) -> None:
        keys = self.rows.keys
        fixed = fixed_view(keys)
        if fixed is None:
            self._names = keys.to_pylist()
        else:
            offsets, data = binary_buffers(keys)
            # Arrow says that its bytes are signed, and a memoryview of such is not equal to `bytes`.
            self._view = fixed
            self._fixed = fixed.searchsorted, fixed.dtype.itemsize, data.cast("B")[int(offsets[0]) : int(offsets[-1])]
        self._prepared = True

    @property
    def one_width(self) -> bool:
        """Whether its keys have one width."""
        return self.fixed is not None

    @property
    def fixed(self) -> npt.NDArray[np.bytes_] | None:
        """The keys as `fixed_view` has them; `None` if they have several widths."""
        if not self._prepared:
            self._prepare()
        return self._view

    def value(self, index: int) -> bytes | None:
        """The first value column of one row, which has to be binary; `None` if it is null, or there is no column."""
        if self._values is None:
            if not self.rows.columns:
                return None
            column = self.rows.columns[0]
            offsets, data = binary_buffers(column)
            valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
            # Values of one width are found without a look at two offsets, which in a large table waits for memory.
            width = fixed_width(offsets) if valid is None else 0
            self._values = memoryview(offsets), data, valid, width, int(offsets[0])  # type: ignore[arg-type]
        ends, data, valid, width, start = self._values
        if width:
            start += index * width
            return data[start : start + width].tobytes()
        if valid is not None and not valid[index]:
            return None
        return data[ends[index] : ends[index + 1]].tobytes()

    @property
    def search_bytes(self) -> int:
        """Bytes beside the rows: of what is made for lookups, whether it is made yet or not.

        Key objects take 33 bytes each and 8 in their list.
        """
        keys = self.rows.keys
        return _BLOCK_BYTES if fixed_view(keys) is not None else int(keys.nbytes) + 41 * len(keys) + _BLOCK_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes to count in the cache."""
        return (self.rows.nbytes if self._rows_bytes is None else self._rows_bytes) + self.search_bytes


class CachedSegment:
    """The rows of a segment, and those of its blocks, as views into the rows, in which keys were looked up."""

    __slots__ = ("_one_width", "beside_blocks", "rows", "views", "whole")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.views: dict[int, CachedBlock] = {}
        self.whole: CachedBlock | None = None
        """All its rows as one block, once keys of one width were looked up in it."""
        self._one_width: bool | None = None
        self.beside_blocks = False
        """Whether some of its blocks are in the cache by themselves, too."""

    @property
    def one_width(self) -> bool:
        """Whether its keys have one width."""
        if self._one_width is None:
            self._one_width = fixed_view(self.rows.keys) is not None
        return self._one_width
