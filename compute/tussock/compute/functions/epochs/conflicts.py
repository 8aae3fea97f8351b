"""Which transactions of an epoch commit without locks, decided over whole arrays (Styx, section 6.1).

All transactions of an epoch ran on one snapshot. Where two of them meet at a key, the one with the lower number goes
first, and the other one runs again behind it. What counts as meeting depends on the mode, and is decided for a
transaction as a whole, over all partitions: two reads and writes that cross in different partitions are as much of a
cycle as in one.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

__all__ = ["Conflicts", "losers"]

Conflicts = Literal["serializable", "reorder", "snapshot"]
Numbers = npt.NDArray[np.int64]


def losers(
    mode: Conflicts,
    transactions: int,
    keys: int,
    reads: tuple[Numbers, Numbers],
    writes: tuple[Numbers, Numbers],
) -> npt.NDArray[np.bool_]:
    """For each transaction whether it has to run again; the one with the lowest number never has.

    `reads` and `writes` are pairs (transaction, key) as two arrays of one length each: a transaction is its place in
    the order of the numbers, from 0 to `transactions - 1`, a key a number below `keys`. Costs a few steps an entry.

    - `serializable`: it reads or writes what a lower one writes. The result is that of one after the other.
    - `reorder`: it writes what a lower one writes; or it reads what a lower one writes and also writes what a lower one
      reads. One that only reads what a lower one writes goes before that one (Aria, VLDB 2020, section 4).
    - `snapshot`: it writes what a lower one writes. Two that read what the other one writes both commit.
    """
    read_by, read_key = reads
    write_by, write_key = writes
    first_writer = np.full(keys, transactions, np.int64)
    np.minimum.at(first_writer, write_key, write_by)
    lost = np.zeros(transactions, np.bool_)
    lost[write_by[first_writer[write_key] < write_by]] = True
    if mode == "snapshot":
        return lost
    reads_newer = np.zeros(transactions, np.bool_)
    reads_newer[read_by[first_writer[read_key] < read_by]] = True
    if mode == "serializable":
        return lost | reads_newer
    first_reader = np.full(keys, transactions, np.int64)
    np.minimum.at(first_reader, read_key, read_by)
    writes_read = np.zeros(transactions, np.bool_)
    writes_read[write_by[first_reader[write_key] < write_by]] = True
    return lost | (reads_newer & writes_read)
