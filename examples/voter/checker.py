"""What the voter has to reply, and what its board has to show: plain Python over the whole history of votes.

It knows nothing of Tussock, keeps every vote, and counts anew for each board; it is meant to be right, not fast.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

__all__ = ["Checker"]

COUNTED, NOT_IN, VOTED = 0, 1, 2


class Checker:
    """The show up to the newest batch of votes."""

    def __init__(self, *, contestants: int = 25, votes_per_phone: int = 1, remove_every: int = 1000) -> None:
        self._votes_per_phone = votes_per_phone
        self._remove_every = remove_every
        self._contestants = contestants
        self._left = set(range(1, contestants + 1))
        self._votes: dict[int, list[int]] = {}
        """By phone the contestants it voted for, without votes that were given back."""
        self._recent: deque[int] = deque(maxlen=100)
        self.valid = 0
        """Votes that counted when they came."""

    def batch(self, votes: Iterable[tuple[int, int]]) -> list[int]:
        """Judge pairs of phone and contestant by the contestants that are left before the batch; the replies."""
        replies = [self._vote(phone, contestant) for phone, contestant in votes]
        while self._contestants - len(self._left) < self.valid // self._remove_every and len(self._left) > 1:
            self._remove()
        return replies

    def votes_of(self, contestant: int) -> int | None:
        """The votes of a contestant that is left."""
        return self._counts()[contestant] if contestant in self._left else None

    def votes(self) -> list[tuple[int, int]]:
        """All votes that count, as sorted pairs of phone and contestant."""
        return sorted((phone, contestant) for phone, those in self._votes.items() for contestant in those)

    def board(self) -> dict[str, Any]:
        """As call procedure `board` replies."""
        counts = self._counts()
        ranked = sorted(([one, counts[one]] for one in self._left), key=lambda pair: (-pair[1], pair[0]))
        recent = Counter(one for one in self._recent if one in self._left)
        trending = sorted(([one, votes] for one, votes in recent.items()), key=lambda pair: (-pair[1], pair[0]))
        return {
            "valid": self.valid,
            "left": len(self._left),
            "top": ranked[:3],
            "bottom": ranked[::-1][:3],
            "trending": trending[:3],
        }

    def _vote(self, phone: int, contestant: int) -> int:
        if contestant not in self._left:
            return NOT_IN
        mine = self._votes.setdefault(phone, [])
        if len(mine) >= self._votes_per_phone:
            return VOTED
        mine.append(contestant)
        self._recent.append(contestant)
        self.valid += 1
        return COUNTED

    def _remove(self) -> None:
        counts = self._counts()
        last = min(self._left, key=lambda one: (counts[one], -one))
        self._left.remove(last)
        for phone, those in self._votes.items():
            self._votes[phone] = [one for one in those if one != last]

    def _counts(self) -> Counter[int]:
        return Counter(one for those in self._votes.values() for one in those)
