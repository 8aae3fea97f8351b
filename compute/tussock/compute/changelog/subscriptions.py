"""Subscribers: each reads what a stream publishes from some number on, once it is durable, and misses nothing.

A stream waits in OUTPUT for subscribers that are `buffer` transactions behind; none is dropped.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from tussock.compute.applications.errors import HistoryGone
from tussock.compute.changelog.changes.transaction import StreamTransaction, published
from tussock.compute.changelog.histories import History
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["Subscribers", "Subscription"]

BUFFER_MAX = 100_000
SUBSCRIBERS_MAX = 1000
"""Of one flow."""


class Subscribers:
    """All of one run of a flow; used by any thread."""

    def __init__(self, nudge: Callable[[], None]) -> None:
        """`nudge` lets streams that wait for room look again."""
        self._nudge = nudge
        self._changed = threading.Condition()
        self._durable: dict[str, int] = {}
        self._open: dict[str, list[Subscription]] = {}
        self._is_over = False
        self._failure: Exception | None = None
        self._waits_for_room = False
        self.on_news: Callable[[], None] = lambda: None
        """Called when something has become durable, and at the end; in any thread."""

    def has_room(self, stream: str, seq: int) -> bool:
        """Whether all subscribers of a stream can take the transaction of this number."""
        with self._changed:
            full = any(seq - one.next >= one.buffer for one in self._open.get(stream, ()))
            self._waits_for_room = self._waits_for_room or full
            return not full

    def needed(self, stream: str, seq: int) -> int:
        """The number of the oldest transaction that one of them has not read; else `seq`."""
        with self._changed:
            return min((one.next for one in self._open.get(stream, ())), default=seq)

    def readers(self, stream: str) -> list[int]:
        """Of each subscriber of a stream the number that it reads next."""
        with self._changed:
            return [one.next for one in self._open.get(stream, ())]

    def durable(self, marks: Any) -> None:
        """Transactions up to these numbers are."""
        with self._changed:
            is_news = False
            for stream, seq in marks.items():
                if seq > self._durable.get(stream, 0):
                    self._durable[stream] = seq
                    is_news = True
            if is_news:
                self._changed.notify_all()
        if is_news:
            self.on_news()

    def newest(self, stream: str) -> int:
        """The number of the newest durable transaction of a stream. Raises what the flow has failed with."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return self._durable.get(stream, 0)

    def end(self, failure: Exception | None) -> None:
        """Nothing more comes."""
        with self._changed:
            self._is_over, self._failure = True, failure
            self._changed.notify_all()
        self.on_news()

    def add(self, one: "Subscription") -> None:
        """One more; `InvalidOption` if there are too many."""
        with self._changed:
            if sum(map(len, self._open.values())) >= SUBSCRIBERS_MAX:
                raise InvalidOption(f"the flow has {SUBSCRIBERS_MAX:,} subscriptions already; close some")
            self._open.setdefault(one.stream, []).append(one)

    def remove(self, one: "Subscription") -> None:
        """One is closed."""
        with self._changed:
            others = self._open.get(one.stream, [])
            if one in others:
                others.remove(one)
            self._changed.notify_all()
        self._look_again()

    def wait(self, one: "Subscription", timeout: float | None) -> bool:
        """Return once the next transaction of a subscription is durable; `False` if none will come.

        Raises `WaitTimeout`, and what the flow has failed with.
        """
        with self._changed:
            is_there = self._changed.wait_for(
                lambda: one.is_closed or self._is_over or self._durable.get(one.stream, 0) >= one.next, timeout
            )
            if not is_there:
                raise WaitTimeout(f"stream {one.stream!r} published nothing for {timeout:g} s")
            if not one.is_closed and self._durable.get(one.stream, 0) >= one.next:
                return True
            if self._failure is not None and not one.is_closed:
                raise self._failure
            return False

    def took(self) -> None:
        """Somebody has read on."""
        with self._changed:
            if not self._waits_for_room:
                return
            self._waits_for_room = False
        self._nudge()

    def _look_again(self) -> None:
        if not self._is_over:
            self._nudge()


class Subscription:
    """An iterator over the transactions of a stream; it ends when the flow stops, or `close` is called."""

    def __init__(
        self,
        stream: str,
        history: History,
        subscribers: Subscribers,
        *,
        from_seq: int | None,
        blocks: bool,
        buffer: int,
        timeout: float | None,
    ) -> None:
        """Made in the flow's thread, so that nothing is published meanwhile. Raises `HistoryGone`, `InvalidOption`."""
        self.stream = stream
        self.buffer = buffer
        self.is_closed = False
        self._history = history
        self._subscribers = subscribers
        self._blocks = blocks
        self._timeout = timeout
        oldest = history.oldest
        self.next = history.seq + 1 if from_seq is None else max(from_seq, 1)
        """The number of the transaction that comes next."""
        if self.next < oldest:
            raise HistoryGone(
                f"stream {stream!r}: its transactions from {self.next} on are asked for, and the oldest that is kept "
                f"is {oldest}: begin with the rows of snapshot(), and subscribe from the number behind its; or let the "
                "stream keep more history",
                oldest,
            )
        if self.next > history.seq + 1:
            raise InvalidOption(
                f"stream {stream!r}: from_seq={from_seq}, and the newest transaction is {history.seq}; expected at "
                f"most {history.seq + 1}"
            )
        subscribers.add(self)

    def __iter__(self) -> Iterator[StreamTransaction]:
        return self

    def __next__(self) -> StreamTransaction:
        """The next transaction, once it is durable. Raises `WaitTimeout`, and what the flow has failed with."""
        if not self._subscribers.wait(self, self._timeout):
            raise StopIteration
        one = self._history.find(self.next)
        assert one is not None, "what a subscriber has not read is kept"
        self.next += 1
        self._subscribers.took()
        return published(one, blocks=self._blocks)

    def read_until(self, seq: int) -> None:
        """All before this number is read; nothing, if it was before."""
        if seq > self.next:
            self.next = seq
            self._subscribers.took()

    def close(self) -> None:
        """End; a second call is no error."""
        if not self.is_closed:
            self.is_closed = True
            self._subscribers.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
