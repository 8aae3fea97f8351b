"""Which rows of a merge stay in the live tree, which go to history, and which go for good.

The versions of a key come newest first, and w is the task's low watermark: no reader may ask for an epoch below it.

1. The newest version stays in the live tree. If it is a delete and the task is at the bottom, where nothing older of
   its key can lie below, it goes to history *until* its own epoch: only the changes of that epoch still need it.
2. Another version goes to history *until* the epoch of the version before it, which took its place: a reader at that
   epoch or a later one never sees it.
   So does a row whose time to live was over at w: nobody sees it any more, but it hides what is older of its key.
3. What is needed only until w, or an epoch before it, goes for good.

A key written twice in one epoch (its batch was spilled in between) has two rows of one epoch; the first, which is from
the newer run, counts, and the other goes for good.

Runs of history are merged by the same third rule. `docs/decisions/0030-superseded-rows-are-history.md` has the proof.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tussock.statestore.rows.key_arrays import repeats
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.history import until_array, with_untils

__all__ = ["Parted", "part_rows", "unexpired"]


class Parted(NamedTuple):
    """What becomes of a batch of a merge."""

    live: Rows
    history: Rows
    """With `UNTIL` as its first column."""


def part_rows(
    rows: Rows,
    watermark: int,
    *,
    bottom: bool,
    before: tuple[bytes, int] | None = None,
    expired: npt.NDArray[np.bool_] | None = None,
) -> Parted:
    """Divide a merged batch of at least one row.

    `before` is the key and the epoch of the row right before the batch: its key may go on in this one. `expired` are
    the rows whose time to live is over for every reader at the watermark or later.
    """
    epochs = rows.epoch_array()
    again = repeats(rows.keys)
    newer = np.zeros(len(rows), np.uint64)
    newer[1:] = epochs[:-1]
    if before is not None and rows.key(0) == before[0]:
        again[0], newer[0] = True, before[1]
    hiding = rows.delete_array() if expired is None else rows.delete_array() | expired
    vanishing = ~again & hiding if bottom else np.zeros(len(rows), np.bool_)
    untils = np.where(again, newer, epochs)
    past = (again | vanishing) & ~(again & (newer == epochs)) & (untils > np.uint64(watermark))
    live = rows.filter(~again & ~vanishing)
    return Parted(live, with_untils(rows.filter(past), untils[past], added=True))


def unexpired(rows: Rows, watermark: int, *, before: tuple[bytes, int] | None = None) -> Rows:
    """Of merged rows of history, `UNTIL` first, those that a reader may ask for; of one key and epoch the first.

    `before` is the key and the epoch of the row right before the batch.
    """
    again = repeats(rows.keys)
    epochs = rows.epoch_array()
    again[1:] &= epochs[1:] == epochs[:-1]
    again[0] = before is not None and before == (rows.key(0), int(epochs[0]))
    return rows.filter(~again & (until_array(rows) > np.uint64(watermark)))
