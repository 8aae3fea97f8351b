"""What the voter has to reply, and what its board has to show: plain Python over the whole history of votes.

It knows nothing of Tussock, keeps every vote that counts, and sorts anew for each board.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Checker"]

COUNTED, NOT_IN, VOTED = 0, 1, 2


class Checker:
    """The show up to the newest batch of votes."""

    def __init__(self, *, contestants: int = 25, votes_per_phone: int = 1, remove_every: int = 1000) -> None:
        self._votes_per_phone = votes_per_phone
        self._remove_every = remove_every
        self._contestants = contestants
        self._phones: dict[int, list[int]] = {number: [] for number in range(1, contestants + 1)}
        """By contestant that is left, the phones that voted for it."""
        self._used: Counter[int] = Counter()
        """By phone the votes that it has not got back."""
        self._recent: deque[int] = deque(maxlen=100)
        self.valid = 0
        """Votes that counted when they came."""

    def batch(self, votes: Iterable[tuple[int, int]]) -> list[int]:
        """Judge pairs of phone and contestant by the contestants that are left before the batch; the replies."""
        replies = [self._vote(phone, contestant) for phone, contestant in votes]
        while self._contestants - len(self._phones) < self.valid // self._remove_every and len(self._phones) > 1:
            self._remove()
        return replies

    def votes_of(self, contestant: int) -> int | None:
        """The votes of a contestant that is left."""
        return len(self._phones[contestant]) if contestant in self._phones else None

    def votes(self) -> list[tuple[int, int]]:
        """All votes that count, as sorted pairs of phone and contestant."""
        return sorted((phone, contestant) for contestant, phones in self._phones.items() for phone in phones)

    def board(self) -> dict[str, Any]:
        """As call procedure `board` replies."""
        ranked = _ranked({one: len(phones) for one, phones in self._phones.items()})
        recent = Counter(one for one in self._recent if one in self._phones)
        return {
            "valid": self.valid,
            "left": len(self._phones),
            "top": ranked[:3],
            "bottom": ranked[::-1][:3],
            "trending": _ranked(recent)[:3],
        }

    def _vote(self, phone: int, contestant: int) -> int:
        if contestant not in self._phones:
            return NOT_IN
        if self._used[phone] >= self._votes_per_phone:
            return VOTED
        self._used[phone] += 1
        self._phones[contestant].append(phone)
        self._recent.append(contestant)
        self.valid += 1
        return COUNTED

    def _remove(self) -> None:
        last = min(self._phones, key=lambda one: (len(self._phones[one]), -one))
        for phone in self._phones.pop(last):
            self._used[phone] -= 1


def _ranked(votes: Mapping[int, int]) -> list[list[int]]:
    """Pairs of contestant and votes, most votes first; of equally many the smaller number first."""
    return [[one, votes[one]] for one in sorted(votes, key=lambda one: (-votes[one], one))]
