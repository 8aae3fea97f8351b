"""Which rows of a batch are newer than what is known of their keys. Pure: it takes Arrow arrays and returns arrays.

A version is a value of a column that orders the changes of a key, such as the position in a database's log. Where two
versions are equal, what is there stays: a change that is delivered again is the same change.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.writes.merges import calculable
from tussock.statestore.keys.spark_hash import spark_hash

__all__ = ["VERSION_KINDS", "hash_places", "is_newer", "newest_of_each"]

VERSION_KINDS = ("integer", "decimal", "date", "time", "timestamp", "string", "binary")
"""Kinds of types with a total order; floats have NaN."""

_PLACES = 256
"""Hashes are told apart by their lowest byte, which decides the task in any repartition into a power of two of tasks up
to this number, and the virtual node."""


def newest_of_each(keys: pa.ChunkedArray, versions: pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Which rows have the largest version of their key, of equal ones the last; `None` if each key is there once.

    `keys` are encoded, `versions` without nulls and of a type that Arrow sorts (no views).
    """
    codes = keys.dictionary_encode().combine_chunks()
    if len(codes.dictionary) == len(keys):
        return None
    place = codes.indices
    # The position makes the order of equal versions that of the rows, whatever sort Arrow uses.
    columns = {"place": place, "version": versions, "at": pa.array(np.arange(len(keys)))}
    order = pc.sort_indices(pa.table(columns), [(name, "ascending") for name in columns]).to_numpy()
    sorted_places = place.to_numpy()[order]
    is_last = np.append(sorted_places[1:] != sorted_places[:-1], True)
    wins = np.zeros(len(keys), np.bool_)
    wins[order[is_last]] = True
    return wins


def is_newer(versions: pa.Array, *known: pa.Array) -> pa.BooleanArray:
    """Which of these versions, without nulls, are greater than all that is `known` of their keys, null if nothing is.

    Greater, not equal: a change that was applied must not be applied again.
    """
    newer = pa.repeat(True, len(versions))
    for other in known:
        newer = pc.and_(newer, pc.fill_null(pc.greater(versions, calculable(other)), True))
    return newer


def hash_places(columns: Sequence[pa.Array]) -> int:
    """The places of these rows among 256, as bits: by the hash with which Spark would repartition by these columns.

    Rows of one key have one place, so tasks that share no place share no key.
    """
    there = np.zeros(_PLACES, np.bool_)
    there[spark_hash(columns) & np.uint32(_PLACES - 1)] = True
    return int.from_bytes(np.packbits(there).tobytes(), "big")
