"""Which versions of a key compaction keeps (Hummock, *Compaction*; LevelDB's `DoCompactionWork` has the same rules).

Let w be the task's low watermark: no reader may ask for an epoch below it. For the versions of one key, newest first:

1. A version above w stays: some reader may still be at or above its epoch and below the next newer one's.
2. Of the versions at or below w the newest stays, the others go: a reader at w or later sees that one or a newer one.
3. If that newest one at or below w is a delete, or its time to live was over at w, it goes too, but only at the bottom,
   where nothing older of its key can lie below; elsewhere it has to stay to hide what is below.

A key written twice in one epoch (its batch was spilled in between) has two rows of one epoch; the first, which is
from the newer run, stays.
"""

import numpy as np
import numpy.typing as npt

from tussock.statestore.rows.key_arrays import repeats
from tussock.statestore.rows.rows import Rows

__all__ = ["retained_rows"]


def retained_rows(
    rows: Rows,
    watermark: int,
    *,
    bottom: bool,
    before: tuple[bytes, int] | None = None,
    expired: npt.NDArray[np.bool_] | None = None,
) -> Rows:
    """The rows of a merged batch that compaction keeps.

    `before` is the key and the epoch of the row right before the batch: its key may go on in this one. `expired` are
    the rows whose time to live is over for every reader at the watermark or later.
    """
    epochs = rows.epoch_array()
    again = repeats(rows.keys)
    above = epochs > np.uint64(watermark)
    # Whether the row before, if it is of the same key, is above the watermark: then this is the newest below.
    before_above = np.zeros(len(rows), np.bool_)
    before_above[1:] = above[:-1]
    twice_first = False
    if before is not None and len(rows) and rows.key(0) == before[0]:
        again[0], before_above[0], twice_first = True, before[1] > watermark, int(epochs[0]) == before[1]
    newest_below = ~above & (~again | before_above)
    if bottom and rows.deletes is not None:
        newest_below &= ~rows.deletes
    if bottom and expired is not None:
        newest_below &= ~expired
    twice = np.full(len(rows), twice_first)
    twice[1:] = again[1:] & (epochs[1:] == epochs[:-1])
    return rows.filter((above & ~twice) | (newest_below & ~twice))
