"""Where in a sorted run of rows the versions of many keys are."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.rows.byte_order import first_places
from tussock.statestore.rows.key_arrays import fixed_view
from tussock.statestore.rows.rows import Rows

__all__ = ["locate", "locate_fixed"]


def locate_fixed(
    here: npt.NDArray[np.bytes_], wanted: npt.NDArray[np.bytes_]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where in the ascending keys `here`, at least one, each of `wanted` is first: (row, index of the key) of hits.

    All keys have one width, see `fixed_view`. Four steps of NumPy, since the wanted keys may be few.
    """
    at = here.searchsorted(wanted)
    # A key after the last one is compared with that, and is larger.
    same = here.take(at, mode="clip") == wanted
    hit = same.nonzero()[0]
    return (at if len(hit) == len(at) else at[hit]), hit


def locate(rows: Rows, wanted: pa.BinaryArray, epoch: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where in the sorted run `rows` the newest version <= `epoch` of each key is: (row, index of the key) of hits."""
    here, there = fixed_view(rows.keys), fixed_view(wanted)
    if here is not None and there is not None and here.dtype == there.dtype:
        at, hit = locate_fixed(here, there)
    else:
        at = first_places(rows.keys, wanted)
        inside = np.minimum(at, len(rows) - 1)
        same = pc.equal(rows.keys.take(pa.array(inside)), wanted).to_numpy(zero_copy_only=False)
        hit = np.flatnonzero(same & (at < len(rows)))
        at = at[hit]
    epochs = rows.epochs
    if isinstance(epochs, int):
        return (at, hit) if epochs <= epoch else (at[:0], hit[:0])
    old = epochs[at] > np.uint64(epoch)
    if old.any():
        # A version too new: step down the key's versions, few as a rule.
        for slot in np.flatnonzero(old).tolist():
            row, key = int(at[slot]) + 1, wanted[int(hit[slot])].as_py()
            while row < len(rows) and epochs[row] > epoch and rows.key(row) == key:
                row += 1
            at[slot] = row if row < len(rows) and rows.key(row) == key else -1
        keep = at >= 0
        at, hit = at[keep], hit[keep]
    return at, hit
