"""The content of a table at every epoch, by dictionaries: the one model of the store's semantics.

A commit puts rows and deletes keys at an epoch; a read at an epoch sees, for each key, the newest of what was committed
up to it. The model knows nothing of SSTs, runs, caches or logs.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["TableHistory", "apply_batch"]

K = TypeVar("K")
V = TypeVar("V")


def apply_batch(rows: Mapping[K, V], batch: Mapping[K, V | None]) -> dict[K, V]:
    """The rows with a batch on top; `None` deletes."""
    merged: dict[K, Any] = {**rows, **batch}
    return {key: value for key, value in merged.items() if value is not None}


class TableHistory(Generic[K, V]):
    """One table: every commit to it, oldest first, and its rows after each."""

    def __init__(self, kept: int | None = None, ttl_ms: int | None = None) -> None:
        """Keeps the newest `kept` commits, all of them for `None`.

        With `ttl_ms` a row expires that long after the time in its epoch, by the time in a reader's.
        """
        self._kept = kept
        self.ttl_ms = ttl_ms
        self._written: list[dict[K, int]] = []
        """For each state the epoch of each of its rows."""
        self._epochs: list[int] = []
        self._batches: list[dict[K, V | None]] = []
        self._states: list[dict[K, V]] = []

    @property
    def epochs(self) -> list[int]:
        """The epochs of the kept commits, ascending."""
        return self._epochs

    @property
    def last_epoch(self) -> int:
        """The newest epoch that wrote to the table; 0 if none has."""
        return self._epochs[-1] if self._epochs else 0

    @property
    def newest(self) -> dict[K, V]:
        """The rows after the last commit."""
        return self._states[-1] if self._states else {}

    def commit(self, epoch: int, batch: Mapping[K, V | None]) -> None:
        """Put and delete at a new epoch; an empty batch is no commit to this table."""
        if not batch:
            return
        assert epoch > self.last_epoch, "a commit has to be newer than all before it"
        written = {**(self._written[-1] if self._written else {}), **dict.fromkeys(batch, epoch)}
        self._written.append(written)
        self._states.append(apply_batch(self.newest, batch))
        self._batches.append(dict(batch))
        self._epochs.append(epoch)
        if self._kept is not None and len(self._epochs) > self._kept:
            for remembered in (self._epochs, self._batches, self._states, self._written):
                del remembered[0]

    def lose(self, lost: Collection[tuple[int, K]]) -> None:
        """These rows, by (epoch, key), were never written: what they hid is seen again."""
        batches, epochs = self._batches, self._epochs
        self._states, state = [], dict[K, V]()
        for at, epoch in enumerate(epochs):
            batches[at] = {key: value for key, value in batches[at].items() if (epoch, key) not in lost}
            state = apply_batch(state, batches[at])
            self._states.append(state)

    def at(self, epoch: int) -> dict[K, V]:
        """The rows that a reader at `epoch` has to see."""
        index = bisect_right(self._epochs, epoch)
        state = self._states[index - 1] if index else {}
        if self.ttl_ms is None or not index:
            return state
        written = self._written[index - 1]
        return {key: value for key, value in state.items() if (written[key] >> 16) + self.ttl_ms > epoch >> 16}

    def since(self, floor: int) -> Iterator[tuple[int, dict[K, V]]]:
        """`floor` with the rows at it, then each later commit's epoch with the rows after it."""
        index = bisect_right(self._epochs, floor)
        yield floor, self.at(floor)
        yield from zip(self._epochs[index:], self._states[index:], strict=True)

    def changes(self, after: int, until: int) -> list[tuple[int, K, V | None]]:
        """The operations of (after, until], by epoch, then by key."""
        first, last = bisect_right(self._epochs, after), bisect_right(self._epochs, until)
        found = zip(self._epochs[first:last], self._batches[first:last], strict=True)
        return [(epoch, key, batch[key]) for epoch, batch in found for key in sorted(batch)]  # type: ignore[type-var]
