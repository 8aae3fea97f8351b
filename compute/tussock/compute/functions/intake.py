"""Requests that wait for their epoch: filled by callers, emptied by the thread that runs epochs."""

import math
from collections import deque
from collections.abc import Callable, Sequence

from tussock.compute.applications.errors import ApplicationStopped, Full
from tussock.compute.applications.request_queue import Nesting
from tussock.compute.applications.runner import Runner
from tussock.compute.functions.feeds.fed_epochs import Waiting
from tussock.statestore.base.system import System

__all__ = ["EPOCH_BYTES_MAX", "RequestIntake"]

WAITING_MAX = 50_000
"""Requests; a caller that sends more waits."""
WAITING_BYTES_MAX = 256 << 20
EPOCH_BYTES_MAX = 16 << 20
"""Of the arguments of an epoch's requests; a request that is larger is alone in its own."""
WAIT_SECONDS = 60.0
SWEEP_SECONDS = 0.25
"""Between two looks for requests that were withdrawn, while there is no room."""


class RequestIntake:
    """A queue that gives what belongs into one epoch."""

    def __init__(
        self,
        system: System,
        epoch_seconds: float,
        epoch_max: int,
        begin: Callable[[], None],
        begun: Callable[[Sequence[Waiting]], object],
        nesting: Nesting,
    ) -> None:
        """`begin` asks for an epoch; called when requests come and none was asked for.

        `begun` hears of requests that do not wait any more, since their callers have withdrawn them. By `nesting` those
        are known who cannot wait for room.
        """
        self._system = system
        self._epoch_seconds = epoch_seconds
        self.epoch_max = epoch_max
        """Requests of an epoch."""
        self._most = epoch_max
        """Of the next epoch: fewer after one that ended early, so that what will not run may still be withdrawn."""
        self._taken = 0
        self._begin = begin
        self._begun = begun
        self._nesting = nesting
        self._swept_at = -math.inf
        self._changed = system.condition()
        self._requests: deque[Waiting] = deque()
        self._nbytes = 0
        self._is_asked = False
        self._is_awaited = False
        self._is_closed = False
        self._is_held = False

    @property
    def waiting(self) -> int:
        """Requests that are in no epoch yet."""
        return len(self._requests)

    @property
    def room(self) -> int:
        """How many more can wait."""
        if not self._has_room():
            with self._changed:
                self._sweep()
        return WAITING_MAX - len(self._requests) if self._nbytes < WAITING_BYTES_MAX else 0

    def put(self, *requests: Waiting) -> None:
        """Let requests wait for their epochs, all or none; `Full` if there is no room for a minute.

        In a callback of a reply at once. All of them are taken where there is room for one: their caller has them in
        memory, and one that was told `Full` amid them could not send the others without sending some twice.
        """
        with self._changed:
            which = "this one" if len(requests) == 1 else f"none of these {len(requests):,}"
            if not self._has_room() and not self._wait_for_room():
                told = f"{len(self._requests):,} requests of {self._nbytes:,} bytes wait already"
                raise Full(f"{told}; {which} {'did not begin' if len(requests) == 1 else 'began'}", 1000)
            if self._is_closed:
                told = "this request did not begin" if len(requests) == 1 else f"{which} requests began"
                raise ApplicationStopped(f"the program is being stopped; {told}")
            self._requests.extend(requests)
            self._nbytes += sum([one.size for one in requests])
            if self._is_awaited and len(self._requests) >= self.epoch_max:
                self._changed.notify_all()
            is_first, self._is_asked = not self._is_asked, True
        if is_first:
            self._begin()

    def take(self) -> list[Waiting] | None:
        """An epoch's requests: as many as it may have, or those that came until the first has waited long enough.

        `None` where a pause has begun: they wait on.
        """
        with self._changed:
            requests, most = self._requests, self._most
            if requests and len(requests) < most:
                left = requests[0].began + self._epoch_seconds - self._system.monotonic()
                if left > 0:
                    self._is_awaited = True
                    self._changed.wait_for(lambda: len(requests) >= most or self._is_held or self._is_closed, left)
                    self._is_awaited = False
            if self._is_held:
                return None
            was_full = not self._has_room()
            taken: list[Waiting] = []
            left_bytes = EPOCH_BYTES_MAX
            while requests and len(taken) < most:
                one = requests[0]
                if taken and (one.size > left_bytes or one.is_alone):
                    break
                taken.append(requests.popleft())
                left_bytes -= one.size
                self._nbytes -= one.size
                if one.is_alone:
                    break
            if was_full:
                self._changed.notify_all()
            self._taken = len(taken)
            self._most = min(2 * most, self.epoch_max)
            return taken

    def put_back(self, requests: Sequence[Waiting]) -> None:
        """Let those wait again, before all others, that were taken last and did not run."""
        with self._changed:
            for one in requests:
                if one.reply is not None:
                    one.reply.put_back()
                self._nbytes += one.size
            self._requests.extendleft(reversed(requests))
            self._most = max(self._taken - len(requests), 1)

    def hold(self) -> None:
        """From now on no epoch begins, not even the one for which requests are being gathered."""
        with self._changed:
            self._is_held = not self._is_closed
            self._changed.notify_all()

    def go_on(self) -> None:
        """Epochs begin again."""
        with self._changed:
            self._is_held = False

    def ended(self, has_deferred: bool) -> None:
        """An epoch has run, and another one begins at once if one has to follow.

        Replies leave when they are durable, and the next epoch does not wait for that; nor does a stop wait for the
        epoch that runs, where the log has failed.
        """
        with self._changed:
            self._is_asked = is_next = bool(self._requests) or has_deferred
        if is_next:
            self._begin()

    def _has_room(self) -> bool:
        return self._is_closed or (len(self._requests) < WAITING_MAX and self._nbytes < WAITING_BYTES_MAX)

    def _wait_for_room(self) -> bool:
        """Whether there is some, within a minute; in a thread that gives replies at once, as room waits for it."""
        until = self._system.monotonic() + (0.0 if self._nesting.is_in_callback else WAIT_SECONDS)
        while True:
            # Nobody tells of requests that are withdrawn.
            self._sweep()
            left = until - self._system.monotonic()
            if self._changed.wait_for(self._has_room, max(0.0, min(left, SWEEP_SECONDS))):
                return True
            if left <= 0:
                return False

    def _sweep(self) -> None:
        """Drop what was withdrawn; seldom, as all that waits is looked at."""
        if self._system.monotonic() < self._swept_at + SWEEP_SECONDS:
            return
        self._swept_at = self._system.monotonic()
        gone: list[Waiting] = []
        kept: list[Waiting] = []
        for one in self._requests:
            (gone if one.reply is not None and one.reply.cancelled() else kept).append(one)
        if gone:
            self._requests.clear()
            self._requests.extend(kept)
            self._nbytes = sum(one.size for one in kept)
            self._begun(gone)
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more requests, and let those that wait run."""
        with self._changed:
            self._is_closed, self._is_held = True, False
            self._changed.notify_all()

    def run_out(self, runner: Runner) -> None:
        """Take no more requests, and return once those that wait have run, or the program has failed."""
        self.close()
        if runner.failure is None and runner.is_paused:
            runner.resume()
        while runner.failure is None and not self.is_idle:
            self._system.sleep(0.001)

    @property
    def is_idle(self) -> bool:
        """Whether no epoch is asked for."""
        return not self._is_asked
