"""`Rows`: a run of versioned rows as Arrow columns, the one shape in which data moves through the store.

Blocks decode to `Rows`, iterators yield them, merges combine them, SST writers take them. Keys and values stay in
Arrow buffers throughout; what is done to them (sort, merge, newest wins, filter) is done to whole batches.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.rows.key_arrays import binary_buffers, key_order, repeats

__all__ = ["Epochs", "Rows"]

Epochs = int | npt.NDArray[np.uint64]

# Batches come and go at megabytes each. Arrow's default allocator gives such memory back to the kernel at once and
# has it handed out anew, page by page; the C library's keeps some of it.
_POOL = pa.system_memory_pool()

# Rows that keep no more than this in memory besides themselves are not copied for it.
_SMALL_BYTES = 4096


def _joined_epochs(parts: Sequence["Rows"]) -> npt.NDArray[np.uint64]:
    """The epochs of all rows of `parts`, written into one array: fresh memory is dear, so none is made per part."""
    epochs = np.empty(sum(map(len, parts)), np.uint64)
    start = 0
    for part in parts:
        epochs[start : start + len(part)] = part.epochs
        start += len(part)
    return epochs


class Rows:
    """n versioned rows: `keys[i]` at `epochs[i]` is deleted or has the values `columns[*][i]`.

    As a sorted run the rows are ordered by key ascending, then epoch descending. `epochs` is one int where all
    rows share it and each key stands once. `deletes` is `None` where no row is a delete; a deleted row's values mean
    nothing.

    `take` and `filter` gather keys, epochs and delete marks at once, the values only when `columns` is asked for:
    what a merge puts in order and a rule then drops is never copied.
    """

    __slots__ = ("_columns", "_waiting", "deletes", "epochs", "keys")

    def __init__(
        self,
        keys: pa.BinaryArray,
        epochs: Epochs,
        deletes: npt.NDArray[np.bool_] | None,
        columns: tuple[pa.Array, ...],
    ) -> None:
        self.keys = keys
        self.epochs = epochs
        self.deletes = deletes
        self._columns: tuple[pa.Array, ...] | None = columns
        # Columns of other rows and which of their rows to take; kept only until that is done.
        self._waiting: tuple[tuple[pa.Array, ...], npt.NDArray[np.intp]] | None = None

    @staticmethod
    def _later(
        keys: pa.BinaryArray,
        epochs: Epochs,
        deletes: npt.NDArray[np.bool_] | None,
        waiting: tuple[tuple[pa.Array, ...], npt.NDArray[np.intp]],
    ) -> "Rows":
        """Rows whose columns are gathered when they are asked for."""
        rows = Rows(keys, epochs, deletes, ())
        rows._waiting = waiting
        rows._columns = None
        return rows

    @property
    def columns(self) -> tuple[pa.Array, ...]:
        """The value columns, n rows each."""
        waiting = self._waiting
        if waiting is not None:
            at = pa.array(waiting[1])
            # In this order, so that another thread finds one of the two at any moment.
            self._columns = tuple(pc.take(column, at, memory_pool=_POOL) for column in waiting[0])
            self._waiting = None
        columns = self._columns
        assert columns is not None
        return columns

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows refer to, for budgets; buffers shared with other slices count in full for their part."""
        size = self.keys.nbytes + sum(column.nbytes for column in self.columns)
        if not isinstance(self.epochs, int):
            size += self.epochs.nbytes
        if self.deletes is not None:
            size += self.deletes.nbytes
        return size

    def slice(self, start: int, stop: int) -> "Rows":
        """Rows start .. stop-1, without a copy."""
        keys, epochs, deletes = self.keys, self.epochs, self.deletes
        if start == 0 and stop >= len(keys):
            return self
        length = max(stop - start, 0)
        return Rows(
            keys.slice(start, length),
            epochs if isinstance(epochs, int) else epochs[start:stop],
            None if deletes is None else deletes[start:stop],
            tuple([column.slice(start, length) for column in self.columns]),
        )

    def take(self, indices: npt.NDArray[np.intp]) -> "Rows":
        """The rows at `indices`, in that order, copied."""
        waiting = self._waiting
        return Rows._later(
            pc.take(self.keys, pa.array(indices), memory_pool=_POOL),
            self.epochs if isinstance(self.epochs, int) else self.epochs[indices],
            None if self.deletes is None else self.deletes[indices],
            (self.columns, indices) if waiting is None else (waiting[0], waiting[1][indices]),
        )

    def filter(self, keep: npt.NDArray[np.bool_]) -> "Rows":
        """The rows where `keep` is true; itself if that is all of them."""
        return self if keep.all() else self.take(np.flatnonzero(keep))

    def with_epochs(self, epochs: Epochs) -> "Rows":
        """The same rows at other epochs."""
        waiting = self._waiting
        if waiting is not None:
            return Rows._later(self.keys, epochs, self.deletes, waiting)
        return Rows(self.keys, epochs, self.deletes, self.columns)

    def epoch_array(self) -> npt.NDArray[np.uint64]:
        """Every row's epoch as an array of n."""
        return np.full(len(self), self.epochs, np.uint64) if isinstance(self.epochs, int) else self.epochs

    def delete_array(self) -> npt.NDArray[np.bool_]:
        """Every row's delete mark as an array of n."""
        return np.zeros(len(self), np.bool_) if self.deletes is None else self.deletes

    def key(self, index: int) -> bytes:
        """The user key of one row."""
        key: bytes = self.keys[index].as_py()
        return key

    def epoch(self, index: int) -> int:
        """The epoch of one row."""
        return self.epochs if isinstance(self.epochs, int) else int(self.epochs[index])

    def lower_bound(self, key: bytes) -> int:
        """The first row of this sorted run whose key is >= `key`; n if there is none."""
        low, high = 0, len(self)
        offsets, data = binary_buffers(self.keys)
        # A fifth of the time that NumPy takes for one of its numbers.
        ends = memoryview(offsets)  # type: ignore[arg-type]
        while low < high:
            middle = (low + high) // 2
            if bytes(data[ends[middle] : ends[middle + 1]]) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def upper_bound(self, key: bytes) -> int:
        """The first row of this sorted run whose key is > `key`; n if there is none."""
        # No key lies between `key` and `key` + a zero byte.
        return self.lower_bound(key + b"\0")

    def between(self, start: bytes | None, end: bytes | None) -> "Rows":
        """The rows of this sorted run with start <= key < end; `None` leaves that side open."""
        first = 0 if start is None else self.lower_bound(start)
        last = len(self) if end is None else self.lower_bound(end)
        return self.slice(first, max(first, last))

    def with_columns(self, columns: Sequence[int] | None) -> "Rows":
        """The same rows with the value columns at these indices only; all if `None`."""
        if columns is None:
            return self
        return Rows(self.keys, self.epochs, self.deletes, tuple(self.columns[at] for at in columns))

    def visible_at(self, epoch: int | None) -> "Rows":
        """The rows with an epoch <= `epoch`, all if it is `None`; order kept."""
        if epoch is None or (isinstance(self.epochs, int) and self.epochs <= epoch):
            return self
        if isinstance(self.epochs, int):
            return self.slice(0, 0)
        return self.filter(self.epochs <= np.uint64(epoch))

    def newest(self) -> "Rows":
        """Of each key of this sorted run the first row, i.e. its newest version."""
        return self.filter(~repeats(self.keys))

    def distinct_versions(self) -> "Rows":
        """Of rows with the same key and epoch the first: a key written twice in an epoch, with a spill between."""
        if isinstance(self.epochs, int):
            return self
        again = repeats(self.keys)
        again[1:] &= self.epochs[1:] == self.epochs[:-1]
        return self.filter(~again)

    def without_deletes(self) -> "Rows":
        """The rows that are not deletes."""
        if self.deletes is None:
            return self
        kept = self.filter(~self.deletes)
        return Rows(kept.keys, kept.epochs, None, kept.columns)

    def copy(self) -> "Rows":
        """A copy that shares no buffer: what a cache keeps must not hold a larger parent alive."""
        copied = self.take(np.arange(len(self)))
        return Rows(copied.keys, copied.epochs, copied.deletes, copied.columns)

    def trim(self) -> "Rows":
        """The same rows, copied if they keep more than twice their bytes in memory: a slice holds all of its parent."""
        roots: dict[int, int] = {}
        for array in (self.keys, *self.columns):
            for buffer in array.buffers():
                while buffer is not None and buffer.parent is not None:
                    buffer = buffer.parent
                if buffer is not None:
                    roots[buffer.address] = buffer.size
        return self.copy() if sum(roots.values()) > 2 * self.nbytes + _SMALL_BYTES else self

    @staticmethod
    def concat(parts: Sequence["Rows"]) -> "Rows":
        """All rows of `parts` in order; at least one part."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0].epochs
        epochs: Epochs
        if isinstance(first, int) and all(isinstance(p.epochs, int) and p.epochs == first for p in parts):
            epochs = first
        else:
            epochs = _joined_epochs(parts)
        deletes = None
        if any(part.deletes is not None for part in parts):
            deletes = np.concatenate([part.delete_array() for part in parts])
        keys = pa.concat_arrays([part.keys for part in parts], memory_pool=_POOL)
        chunks = zip(*(part.columns for part in parts), strict=True)
        columns = tuple(pa.concat_arrays(column, memory_pool=_POOL) for column in chunks)
        return Rows(keys, epochs, deletes, columns)

    @staticmethod
    def merge(runs: Sequence["Rows"]) -> "Rows":
        """One sorted run of several, newest run first.

        Sorting by key alone, stably, is enough: within a run a key's epochs descend, and for one key a newer run
        has the larger epochs, so the versions of a key end up newest first. Where two runs hold the same key at
        the same epoch (a batch that was spilled twice within an epoch), the newer run's row comes first.
        """
        runs = [run for run in runs if len(run)] or list(runs[:1])
        if len(runs) == 1:
            return runs[0]
        joined = Rows.concat(runs)
        # Epochs become an array even where all runs share one: only a run of one epoch has unique keys for sure.
        return joined.with_epochs(joined.epoch_array()).take(key_order(joined.keys))
