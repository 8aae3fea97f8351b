"""Subscribers elsewhere: each asks again and again for what its stream publishes from a number on.

The stream waits for one that is behind, as for a subscriber in this process, but no longer than for `LEASE_SECONDS`:
one that reads on by nothing for that time though there is something, or does not ask, is forgotten. It may come back,
and goes on where it was unless that has gone from the history meanwhile.

One thread answers all of them, when something has become durable or their time is up.
"""

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.replies import give
from tussock.compute.changelog.changes.transaction import published
from tussock.compute.changelog.engine.requests import FlowLook
from tussock.compute.changelog.remote.wire import as_bytes, as_text
from tussock.compute.changelog.subscriptions import BUFFER_MAX, Subscription
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption, TussockError

if TYPE_CHECKING:
    from tussock.compute.changelog.flow_host import FlowHost

__all__ = ["LEASE_SECONDS", "PollDesk"]

log = get_logger("tussock.compute.changelog.remote")

LEASE_SECONDS = 30.0
WAIT_MS_MAX = 2000
"""Of one poll; a node that ends waits for it."""
BUFFER = 1024
REPLY_BYTES_MAX = 1 << 20
"""A reply with more transactions than one has no more bytes than this before the last of them, about."""
MANY_MAX = 10_000
"""Transactions of one reply."""
TEXT_RECORDS_MAX = 10_000
"""Of one reply as text."""
SWEEP_SECONDS = 1.0
NAME_MAX = 64

Who = tuple[str, str]
"""Stream and subscriber."""


class _Lease:
    """A subscriber that the stream waits for."""

    def __init__(self, subscription: Subscription, until: float) -> None:
        self.subscription = subscription
        self.until = until


class _Poll:
    """One that waits for its answer."""

    def __init__(self, asked: pb.Subscribe, until: float) -> None:
        self.asked = asked
        self.until = until
        self.who: Who = (asked.stream, asked.subscriber)
        self.answer: Future[Any] = Future()


class PollDesk:
    """Of one run of a flow. In any thread."""

    def __init__(self, flow: "FlowHost", system: System, lease_seconds: float) -> None:
        self._flow = flow
        self._system = system
        self._lease_seconds = lease_seconds
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._leases: dict[Who, _Lease] = {}
        self._polls: dict[Who, _Poll] = {}
        """Those that wait, one of each subscriber."""
        self._is_over = False
        flow.subscribers.on_news = self._news.set
        self._thread = threading.Thread(target=self._work, name=f"tussock flow {flow.name} polls", daemon=True)
        self._thread.start()

    def poll(self, asked: pb.Subscribe) -> "Future[Any]":
        """A future of what there is, or of an empty list after some time. Raises `InvalidOption`."""
        stream = self._flow.name_of(asked.stream)
        name = asked.subscriber
        if not 1 <= len(name) <= NAME_MAX or not all(one.isascii() and (one.isalnum() or one in "_-") for one in name):
            raise InvalidOption(
                f"stream {stream!r}: a subscriber is named {clean_text(name)!r:.100}; expected 1 to {NAME_MAX} "
                "letters, digits, '_' and '-'"
            )
        if asked.wait_ms > WAIT_MS_MAX or asked.buffer > BUFFER_MAX or asked.max > MANY_MAX:
            raise InvalidOption(
                f"stream {stream!r}: a poll waits at most {WAIT_MS_MAX} ms, for at most {MANY_MAX:,} transactions, of "
                f"a subscriber at most {BUFFER_MAX:,} behind"
            )
        now = self._system.monotonic()
        poll = _Poll(asked, now + asked.wait_ms / 1000)
        if asked.close:
            self._forget(poll.who)
            poll.answer.set_result(None)
            return poll.answer
        with self._lock:
            if self._is_over:
                raise ApplicationStopped(f"flow {self._flow.name!r} is ending")
            lease = self._leases.get(poll.who)
            goes_on = lease is not None and not asked.newest and asked.from_seq >= lease.subscription.next
            if lease is not None and goes_on:
                if asked.from_seq > lease.subscription.next:
                    self._check_known(poll)
                    lease.until = now + self._lease_seconds
                    lease.subscription.read_until(asked.from_seq)
                self._wait(poll)
                return poll.answer
        # A new one, or one that goes back: made between two transactions, so that none goes meanwhile.
        made = self._flow.ask(FlowLook(lambda: self._attached(poll)))
        made.add_done_callback(lambda found: self._begun(poll, found))
        return poll.answer

    def stop(self) -> None:
        """Answer all, and end."""
        self._is_over = True
        self._news.set()
        self._thread.join()

    # --- Subscribers -------------------------------------------------------------------------------------------------

    def _check_known(self, poll: _Poll) -> None:
        newest = self._flow.subscribers.newest(poll.asked.stream)
        if poll.asked.from_seq > newest + 1:
            raise InvalidOption(
                f"stream {poll.asked.stream!r}: from_seq={poll.asked.from_seq}, and the newest transaction is {newest}"
            )

    def _attached(self, poll: _Poll) -> None:
        """In the flow's thread."""
        asked = poll.asked
        self._forget(poll.who)
        subscription = Subscription(
            asked.stream,
            self._flow.started().streams[asked.stream].history,
            self._flow.subscribers,
            from_seq=None if asked.newest else asked.from_seq,
            blocks=asked.blocks,
            buffer=asked.buffer or BUFFER,
            timeout=0,
        )
        with self._lock:
            self._leases[poll.who] = _Lease(subscription, self._system.monotonic() + self._lease_seconds)

    def _begun(self, poll: _Poll, made: "Future[Any]") -> None:
        try:
            made.result()
        except Exception as error:  # noqa: BLE001 - it is the caller's
            give(poll.answer, Outcome(error=error))
            return
        with self._lock:
            self._wait(poll)

    def _wait(self, poll: _Poll) -> None:
        """Holding the lock. Of two polls of a subscriber the client has given the older one up."""
        older = self._polls.pop(poll.who, None)
        if older is not None:
            give(older.answer, Outcome(value={"next": older.asked.from_seq, "transactions": []}))
        self._polls[poll.who] = poll
        self._news.set()

    def _forget(self, who: Who) -> None:
        with self._lock:
            lease = self._leases.pop(who, None)
        if lease is not None:
            lease.subscription.close()

    # --- The thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        swept = self._system.monotonic()
        while not self._is_over:
            self._news.wait(self._rest())
            self._news.clear()
            now = self._system.monotonic()
            with self._lock:
                polls = list(self._polls.values())
            for one in polls:
                self._look_at(one, now)
            if now - swept >= SWEEP_SECONDS:
                swept = now
                self._sweep(now)
        with self._lock:
            left, self._polls = list(self._polls.values()), {}
        error = self._flow.failure or ApplicationStopped(f"flow {self._flow.name!r} has ended")
        for one in left:
            give(one.answer, Outcome(error=error))

    def _rest(self) -> float:
        """Seconds until a poll has waited long enough, or leases are looked at."""
        now = self._system.monotonic()
        with self._lock:
            first = min((one.until for one in self._polls.values()), default=now + SWEEP_SECONDS)
        return min(max(first - now, 0.001), SWEEP_SECONDS)

    def _look_at(self, poll: _Poll, now: float) -> None:
        """Answer it, if there is something or its time is up."""
        if poll.answer.done():
            self._done(poll)
            return
        with self._lock:
            lease = self._leases.get(poll.who)
        try:
            newest = self._flow.subscribers.newest(poll.asked.stream)
            if lease is None:
                # Forgotten this moment: the client asks again.
                found: dict[str, Any] = {"next": poll.asked.from_seq, "transactions": []}
            elif newest >= lease.subscription.next:
                found = self._found(poll.asked, lease.subscription, newest)
            else:
                # There is nothing that it could have read.
                lease.until = now + self._lease_seconds
                if now < poll.until:
                    return
                found = {"next": lease.subscription.next, "transactions": []}
        except TussockError as error:
            self._done(poll)
            give(poll.answer, Outcome(error=error))
            return
        self._done(poll)
        give(poll.answer, Outcome(value=found))

    def _found(self, asked: pb.Subscribe, subscription: Subscription, newest: int) -> dict[str, Any]:
        history = self._flow.started().streams[asked.stream].history
        found: list[dict[str, Any]] = []
        seq, nbytes, records = subscription.next, 0, 0
        while seq <= newest and len(found) < (asked.max or MANY_MAX) and nbytes < REPLY_BYTES_MAX:
            one = history.find(seq)
            if one is None:
                break  # it was closed this moment
            # Of blocks the client makes two records by itself.
            shown = one if asked.blocks else published(one, blocks=False)
            if asked.as_text:
                if found and records + len(shown) > TEXT_RECORDS_MAX:
                    break
                found.append(as_text(shown, TEXT_RECORDS_MAX))
                records += len(shown)
            else:
                found.append(as_bytes(shown))
            nbytes += len(found[-1].get("data", b"")) or shown.changes.nbytes
            seq += 1
        return {"next": seq, "transactions": found}

    def _done(self, poll: _Poll) -> None:
        with self._lock:
            if self._polls.get(poll.who) is poll:
                del self._polls[poll.who]

    def _sweep(self, now: float) -> None:
        with self._lock:
            gone = [who for who, lease in self._leases.items() if now > lease.until]
        for stream, subscriber in gone:
            log.warning("a subscriber is gone", flow=self._flow.name, stream=stream, subscriber=subscriber)
            self._forget((stream, subscriber))
