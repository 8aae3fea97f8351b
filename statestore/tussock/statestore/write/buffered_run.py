"""A run of the shared buffer: rows that are in memory, or were spilled to SSTs."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from tussock.statestore.contract.records import Run
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.lookups.lookup import RunIndex

__all__ = ["BufferedRun", "neighbours"]

_OVERHEAD_BYTES = 1500
"""What a run takes besides its rows: the objects around them, and buffers of 64 bytes at least."""


class BufferedRun:
    """A sorted run of one table and one epoch: rows in memory, or the SSTs that they were spilled to."""

    __slots__ = ("block", "epoch", "index", "nbytes", "spilled_to", "spilling")

    def __init__(self, epoch: int, rows: Rows | None, spilled_to: Run | None = None) -> None:
        self.epoch = epoch
        self.block = CachedBlock(rows) if rows is not None else None
        self.spilled_to = spilled_to
        self.index = RunIndex(spilled_to.ssts) if spilled_to is not None else None
        self.nbytes = rows.nbytes + _OVERHEAD_BYTES if rows is not None else 0
        self.spilling = False
        """Whether it is being written to SSTs, which will stand in the place of just this run."""

    def joins(self, newer: "BufferedRun") -> bool:
        """Whether it can become one run with a newer one; after the table was altered their columns differ."""
        if self.block is None or newer.block is None or self.spilling:
            return False
        mine, others = self.block.rows.columns, newer.block.rows.columns
        return len(mine) == len(others) and all(a.type == b.type for a, b in zip(mine, others, strict=True))


def neighbours(runs: Iterable[BufferedRun]) -> Iterator[tuple[BufferedRun, ...]]:
    """The runs in their order, those together that follow each other and are all in memory, or all in SSTs.

    Rows in memory lie on both sides of what another process has uploaded, so not all of them can become one run.
    """
    return (tuple(some) for _, some in groupby(runs, key=lambda run: run.block is None))
