"""Which worker has which entity: a pure function of operator, key, and the number of workers.

A key has a virtual node, a hash of 8 bits; a partition of an operator is a range of virtual nodes, and a worker has a
range of partitions. An operator of fewer partitions than workers has each of them on another worker, and those of
the next operator are on the next workers.
"""

import zlib

from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators

__all__ = ["Assignment"]

VNODES = 256


class Assignment:
    """Of one number of workers."""

    def __init__(self, operators: Operators, workers: int) -> None:
        self.workers = workers
        self._homes = [homes(operator.partitions, workers, number) for number, operator in enumerate(operators.all)]

    def home(self, entity: Entity) -> int:
        """The worker that has an entity, from 0."""
        key = entity[1]
        data = key.encode() if type(key) is str else b"%d" % key if type(key) is int else key
        return self._homes[entity[0]][zlib.crc32(data) & 255]  # type: ignore[arg-type]


def homes(partitions: int, workers: int, operator: int) -> list[int]:
    """For each virtual node of an operator its worker."""
    found = []
    for vnode in range(VNODES):
        partition = vnode * partitions // VNODES
        found.append(partition * workers // partitions if partitions >= workers else (partition + operator) % workers)
    return found
