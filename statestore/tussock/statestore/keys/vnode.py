"""Virtual nodes: the first two bytes of a typed table's key, by which writers, readers and compaction share the work.

A vnode is a hash of the distribution key's columns, so the rows of one distribution key always have the same one.
The hash is Spark's, and its low byte is reversed bit by bit: Spark puts a row into partition `hash mod n`, which for
n = 2**m is the low m bits of the hash, and these become the top m bits of the vnode. So partition i of n holds one
contiguous range of vnodes, hence of keys: each Spark task reads and writes one slice of the table and no other task's.
(The idea of vnodes is consistent hashing as RisingWave's Hummock uses it.) On disk, hence frozen: see
`docs/formats/vnodes.md`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.errors import InvalidOption
from tussock.statestore.keys.spark_hash import hash_value, spark_hash
from tussock.statestore.rows.buffers import AnyArray

__all__ = ["VNODES_MAX", "partition_vnodes", "vnode_of", "vnode_table", "vnodes"]

VNODES_MAX = 256


def vnode_table(count: int) -> npt.NDArray[np.uint8]:
    """The vnode of each low byte of a hash where there are `count` vnodes; 256 entries.

    Raises `InvalidOption` if `count` is not a power of two from 1 to 256.
    """
    bits = _log2(count, "vnodes")
    reversed_bytes = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8), bitorder="little"))
    # Fewer vnodes keep the top bits, so a range of vnodes stays a range when a table is made with another count.
    return (reversed_bytes.astype(np.uint16) >> (8 - bits)).astype(np.uint8)


def vnodes(columns: Sequence[AnyArray], count: int = VNODES_MAX) -> npt.NDArray[np.uint8]:
    """The vnode, 0 .. count-1, of each row over its distribution key's `columns` (at least one, in the key's order)."""
    return vnode_table(count).take(spark_hash(columns) & np.uint32(255))


def vnode_of(values: Sequence[Any], kinds: Sequence[pa.DataType], count: int = VNODES_MAX) -> int:
    """The vnode of one distribution key given as Python values of columns of these types."""
    return int(vnode_table(count)[hash_value(values, kinds) & 255])


def partition_vnodes(partition: int, of: int, count: int = VNODES_MAX) -> range:
    """The vnodes of the rows that Spark's hash partitioning puts into `partition` of `of`; contiguous.

    `of` must be a power of two and at most `count`: otherwise partitions share vnodes, and this raises `InvalidOption`.
    """
    _log2(count, "vnodes")
    _log2(of, "Spark partitions")
    if of > count:
        raise InvalidOption(
            f"{of} Spark partitions share {count} vnodes; expected at most as many partitions as vnodes"
        )
    if not 0 <= partition < of:
        raise InvalidOption(f"partition {partition} of {of}; expected 0 to {of - 1}")
    width = count // of
    first = int(vnode_table(of)[partition]) * width
    return range(first, first + width)


def _log2(count: int, what: str) -> int:
    bits = count.bit_length() - 1
    if not 1 <= count <= VNODES_MAX or count != 1 << bits:
        raise InvalidOption(f"{count} {what}; expected a power of two from 1 to {VNODES_MAX}")
    return bits
