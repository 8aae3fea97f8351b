"""What became of appends whose answer was lost: entries that may yet turn up in the log, and calls they will answer.

An entry whose create failed can land under one number only. Whatever entry is found there decides: this one, and then
a repetition of each of its calls is answered with the result that the call had; or another one, and then it never will.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

__all__ = ["Outcomes"]

SETTLED_MAX = 1024
"""Results that wait for a repetition of their call; the oldest ones are forgotten, and such a call is decided anew."""


class _Sent(NamedTuple):
    seq: int
    answers: Sequence[tuple[Hashable, object]]


class Outcomes:
    """Entries of this log whose outcome is open, and results of calls that turned out to have happened."""

    def __init__(self) -> None:
        self._open: dict[bytes, _Sent] = {}
        self._settled: dict[Hashable, object] = {}

    @property
    def is_open(self) -> bool:
        """Whether the outcome of some entry is open: only the entry of its number says it."""
        return bool(self._open)

    def begin(self, seq: int, entry_id: bytes, answers: Sequence[tuple[Hashable, object]]) -> None:
        """Note that the create of this entry is about to be sent; `answers` are key and result of each call in it."""
        self._open[entry_id] = _Sent(seq, answers)

    def close(self, entry_id: bytes) -> None:
        """Forget the entry: its fate is known, and its sender tells its callers."""
        self._open.pop(entry_id, None)

    def settle(self, seq: int, entry_id: bytes) -> None:
        """Settle all entries that were sent as `seq` or before: entry `seq` of the log has this id."""
        landed = self._open.pop(entry_id, None)
        if landed is not None:
            self._settled.update((key, result) for key, result in landed.answers if key is not None)
        self._open = {other_id: other for other_id, other in self._open.items() if other.seq > seq}
        while len(self._settled) > SETTLED_MAX:
            self._settled.pop(next(iter(self._settled)))

    def take(self, key: Hashable) -> tuple[object] | None:
        """The result of the call of that key, once, if the log was found to hold it."""
        return (self._settled.pop(key),) if key is not None and key in self._settled else None
