"""In which order the losers of an epoch run again: each behind all lower ones with which it shares an entity.

Locks are asked for in the order of the numbers and all at once, so nobody waits in a circle; readers share them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush

__all__ = ["LockQueue"]


class LockQueue:
    """The losers by their place in the order of the numbers; keys are numbers."""

    def __init__(self, wants: Sequence[tuple[Collection[int], Collection[int]]]) -> None:
        """For each loser what it reads and what it writes."""
        self._blocked = [0] * len(wants)
        self._behind: list[list[int]] = [[] for _ in wants]
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        for at, (reads, writes) in enumerate(wants):
            before = {writer[key] for key in reads if key in writer}
            for key in writes:
                if key in writer:
                    before.add(writer[key])
                before.update(readers.pop(key, ()))
                writer[key] = at
            for key in reads:
                readers.setdefault(key, []).append(at)
            before.discard(at)
            self._blocked[at] = len(before)
            for one in before:
                self._behind[one].append(at)

    def free(self) -> list[int]:
        """Those that nobody stands before, at the beginning."""
        return [at for at, blocked in enumerate(self._blocked) if not blocked]

    def release(self, at: int) -> list[int]:
        """One has ended: those that may run now."""
        found = []
        for one in self._behind[at]:
            self._blocked[one] -= 1
            if not self._blocked[one]:
                found.append(one)
        return found

    def chain(self, ready: Iterable[int], may: Callable[[int], bool], most: int) -> list[int]:
        """Those of `ready`, before whom nobody stands, and behind them those who have nobody else before them.

        All of them are such that `may` says so, ascending, and not more than `most`.
        """
        heap = [at for at in ready if may(at)]
        heapify(heap)
        found: list[int] = []
        met: dict[int, int] = {}
        while heap and len(found) < most:
            at = heappop(heap)
            found.append(at)
            for one in self._behind[at]:
                met[one] = met.get(one, 0) + 1
                if met[one] == self._blocked[one] and may(one):
                    heappush(heap, one)
        return found
