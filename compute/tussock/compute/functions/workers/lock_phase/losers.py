"""Which losers of an epoch run next, and how: in a chain from what is cached, or as a token.

Those of a chain run in one exchange, each behind all lower ones with which it shares an entity, as if these will
commit. What did not come so runs again, so that a chain costs time where it fails, and never another result.
"""

from collections.abc import Collection, Sequence

from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.workers.lock_phase.locks import LockQueue

__all__ = ["CachedGuess", "Losers"]

SCORE_MAX = 8
TRIES_EVERY = 64
"""Epochs after which a function is tried again whose calls change."""
CHAIN_MIN = 16
"""Losers of a chain, if most of the one before did not end."""


class CachedGuess:
    """Whether losers of a function call the same again, as far as one can tell from those before."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}
        """By functions of requests, from `-SCORE_MAX` to `SCORE_MAX`."""

    def is_likely(self, one: FunctionTransaction, epoch: int) -> bool:
        """Whether to try it."""
        return self._scores.get(_name(one), 0) > -SCORE_MAX or epoch % TRIES_EVERY == 0

    def note(self, one: FunctionTransaction, *, is_same: bool) -> None:
        """How it went."""
        score = self._scores.get(_name(one), 0) + (1 if is_same else -1)
        self._scores[_name(one)] = max(-SCORE_MAX, min(SCORE_MAX, score))


class Losers:
    """By their places in the order of the numbers."""

    def __init__(
        self,
        losers: Sequence[FunctionTransaction],
        wants: Sequence[tuple[Collection[int], Collection[int]]],
        guess: CachedGuess,
        epoch: int,
    ) -> None:
        """`wants`: what each read and wrote in its first run."""
        self._losers = losers
        self._places = {one.tid: at for at, one in enumerate(losers)}
        self._locks = LockQueue(wants)
        self._guess = guess
        self._epoch = epoch
        self._ready = set(self._locks.free())
        """Before them nobody stands, and they have not begun, or only in a chain."""
        self._changed: set[int] = set()
        """Numbers of those that did something else than in their first run."""
        self._chain_max = len(losers)
        self._ended: dict[int, bool] = {}

    @property
    def is_over(self) -> bool:
        """Whether all have ended."""
        return len(self._ended) == len(self._losers)

    def next(self) -> tuple[list[FunctionTransaction], list[FunctionTransaction]]:
        """Those that begin as tokens, and the chain; both ascend by number."""
        moving = sorted([at for at in self._ready if not self._is_cached(at)])
        self._ready.difference_update(moving)
        chain = self._locks.chain(self._ready, self._is_cached, self._chain_max)
        return [self._losers[at] for at in moving], [self._losers[at] for at in chain]

    def note(self, one: FunctionTransaction, *, is_same: bool) -> None:
        """What came of it in a chain; what did something else moves from now on."""
        self._guess.note(one, is_same=is_same)
        if not is_same:
            self._changed.add(one.tid)

    def end(self, one: FunctionTransaction, *, is_ended: bool) -> None:
        """It has committed or aborted; else it waits for the next epoch."""
        at = self._places[one.tid]
        self._ended[at] = is_ended
        self._ready.discard(at)
        self._ready.update(self._locks.release(at))

    def end_chain(self, ended: int, count: int) -> None:
        """Of `count` losers of a chain `ended` have ended: the next one has a length that should end."""
        self._chain_max = max(CHAIN_MIN, 2 * (ended if ended < count else self._chain_max))

    def which(self, *, is_ended: bool) -> list[FunctionTransaction]:
        """Those that have ended, or wait for the next epoch."""
        return [one for at, one in enumerate(self._losers) if self._ended[at] == is_ended]

    def _is_cached(self, at: int) -> bool:
        one = self._losers[at]
        # What was drawn moves along with a token.
        return one.draws is None and one.tid not in self._changed and self._guess.is_likely(one, self._epoch)


def _name(one: FunctionTransaction) -> str:
    function = one.request.target.function
    return f"{function.operator}.{function.name}"
