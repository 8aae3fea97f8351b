"""A run of a transaction over all workers, as far as they have told of it."""

from collections.abc import Sequence

from tussock.compute.functions.epochs.touched_keys import TouchedKeys
from tussock.compute.functions.program.context import GraphRun
from tussock.compute.functions.workers.messages import CachedEnd

__all__ = ["Attempt", "touched_by"]


class Attempt:
    """A run; a cached one has `ends`, and what a token did in one that moves is in `stays`."""

    __slots__ = ("digests", "ends", "number", "reads", "run", "stays", "writes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.run = GraphRun()
        self.reads: set[int] = set()
        """Entities, by their numbers over all workers."""
        self.writes: set[int] = set()
        self.digests: dict[int, int] = {}
        """Of the workers that it has written in."""
        self.stays: list[tuple[int, int]] = []
        """In their order: worker, and how many functions had begun before."""
        self.ends: dict[int, CachedEnd] = {}
        """By worker."""

    @property
    def touched(self) -> set[int]:
        """Entities that it read or wrote."""
        return self.reads | self.writes

    @property
    def workers(self) -> set[int]:
        """Those that it has been to."""
        return {worker for worker, _ in self.stays}

    def first_other(self, first: "Attempt") -> tuple[CachedEnd | None, int]:
        """Of a cached run the end of the first stay that was not as in `first`, and how many functions began before it.

        Where all stays before were the same, each token came as it would have come, so that end is the one of a run
        that moves. `None`: all were the same.
        """
        met: dict[int, int] = {}
        for worker, begun in first.stays:
            at = met[worker] = met.get(worker, -1) + 1
            if self.ends[worker].end != "same" and self.ends[worker].at == at:
                return self.ends[worker], begun
        # What it has touched in a worker is compared behind the last stay there.
        return next((end for end in self.ends.values() if end.end != "same"), None), 0


def touched_by(attempts: Sequence[Attempt]) -> tuple[TouchedKeys, set[int]]:
    """What each of them has touched, by its place, and all of these entities."""
    keys = TouchedKeys()
    used: set[int] = set()
    for at, attempt in enumerate(attempts):
        keys.read_by += [at] * len(attempt.reads)
        keys.read_key += attempt.reads
        keys.write_by += [at] * len(attempt.writes)
        keys.write_key += attempt.writes
        used |= attempt.reads
        used |= attempt.writes
    return keys, used
