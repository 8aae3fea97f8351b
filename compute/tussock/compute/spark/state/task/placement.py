"""The keys of a task: Spark puts a row into partition `pmod(hash(key), tasks)`, and so does this module.

If the number of tasks is a power of two, these keys are a range of vnodes. Otherwise they are spread over all vnodes,
and a task that reads rows that it was not sent (timers, expiring state) picks its own by their hash.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.errors import InvalidBatch
from tussock.statestore.keys.spark_hash import spark_hash
from tussock.statestore.keys.vnode import partition_vnodes

__all__ = ["check_placed", "own_rows", "own_vnodes"]


def own_vnodes(partition: int, tasks: int, vnodes: int) -> range:
    """The vnodes, out of `vnodes`, with keys of the partition; other partitions may have keys there, too."""
    if tasks & (tasks - 1) or tasks > vnodes:
        return range(vnodes)
    return partition_vnodes(partition, tasks, vnodes)


def own_rows(columns: Sequence[pa.Array], partition: int, tasks: int) -> npt.NDArray[np.bool_]:
    """Which rows are the partition's, by the columns of their distribution key."""
    partitions: npt.NDArray[np.int32] = np.mod(spark_hash(columns).view(np.int32), np.int32(tasks))
    return partitions == partition


def check_placed(columns: Sequence[pa.Array], partition: int, tasks: int, table: str) -> None:
    """Raise `InvalidBatch` if rows came to another task than that of their keys, which would split a key's state."""
    if len(columns[0]) and not own_rows(columns, partition, tasks).all():
        raise InvalidBatch(
            f"table {table!r}: task {partition} of {tasks} was given keys of another task; expected Spark to give each "
            "row to the task of its key's hash, whatever the plan above it; nothing of the batch was stored, report "
            "this with the query's plan and Spark's version"
        )
