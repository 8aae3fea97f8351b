"""Rate limits: a token bucket a caller.

A bucket holds up to `burst` calls and fills by `rate` a second; a call takes one out. So a caller may be quick after a
pause, and does `rate` calls a second in the long run. What keeps a session alive has other buckets: a client that
commits too fast is slowed down, and does not lose its pins for it.
"""

import threading
from dataclasses import dataclass

from tussock.meta.rpc.methods import KEEPING_ALIVE
from tussock.statestore.base.system import System
from tussock.statestore.errors import RateLimited

__all__ = ["ClientRates", "RateLimits", "TokenBucket"]

Who = tuple[str, str]
"""An identity, empty where the service asks for none, and the host that it calls from."""

CALLERS_MAX = 10_000


@dataclass
class TokenBucket:
    """The calls that one caller may still make; times are seconds on any clock that only moves forward."""

    rate: float
    burst: float
    calls: float
    at: float
    burst_in_flood: float = float("inf")
    """What it holds at most since a call was refused, until as much time has gone by as an empty one takes to fill."""
    flood_ends_at: float = float("-inf")

    def wait(self, now: float, calls: int = 1) -> float:
        """In how many seconds there will be `calls` to take, 0 if there are; a caller that has to wait is refused.

        Of more than it ever holds all that it holds will do: what is taken beyond is owed.
        """
        most = self.burst if now >= self.flood_ends_at else min(self.burst, self.burst_in_flood)
        self.calls = min(most, self.calls + (now - self.at) * self.rate)
        self.at = now
        wanted = min(calls, most)
        if self.calls >= wanted:
            return 0.0
        self.flood_ends_at = now + self.burst / self.rate
        return (wanted - self.calls) / self.rate

    def take(self, now: float, calls: int = 1) -> float:
        """Take calls out; returns 0, or in how many seconds there will be as many to take."""
        wait = self.wait(now, calls)
        if not wait:
            self.calls -= calls
        return wait

    def is_full(self, now: float) -> bool:
        """Whether a fresh bucket would be the same."""
        return self.calls + (now - self.at) * self.rate >= self.burst


class RateLimits:
    """The buckets of all callers. Safe to share between threads."""

    def __init__(
        self, system: System, calls_per_second: float, burst: int, *, burst_in_flood: int | None = None
    ) -> None:
        """No limit if `calls_per_second` is 0.

        With `burst_in_flood` a caller that goes on after a refusal gets its calls one by one, and not, after each
        pause, as many as have come together in it.
        """
        self._system = system
        self._rate = calls_per_second
        self._burst = burst
        self._burst_in_flood = burst if burst_in_flood is None else burst_in_flood
        self._lock = threading.Lock()
        self._buckets: dict[tuple[Who | str, bool], TokenBucket] = {}

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self._rate > 0

    def check(self, who: Who | str, method: str, calls: int = 1) -> None:
        """Count a call, or what stands for several; `RateLimited` says how many milliseconds to wait."""
        if not self._rate:
            return
        now = self._system.monotonic()
        key = (who, method in KEEPING_ALIVE)
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None:
                self._make_room(now)
                full = TokenBucket(self._rate, self._burst, self._burst, now, self._burst_in_flood)
                bucket = self._buckets[key] = full
            wait = bucket.take(now, calls)
        if wait:
            wait_ms = max(1, round(wait * 1000))
            name = who if isinstance(who, str) else " at ".join(part for part in who if part)
            raise RateLimited(
                f"{name!r} makes more than {self._rate:g} calls a second; wait {wait_ms} ms", wait_ms, name
            )

    def wait_ms(self, who: Who | str) -> int:
        """In how many milliseconds this caller's next call would be let through, 0 if it is now; counts none."""
        if not self._rate:
            return 0
        now = self._system.monotonic()
        with self._lock:
            bucket = self._buckets.get((who, False))
            wait = 0.0 if bucket is None else bucket.wait(now)
        return max(1, round(wait * 1000)) if wait else 0

    def _make_room(self, now: float) -> None:
        """Forget callers whose buckets are full; if that is not enough, those that came first."""
        if len(self._buckets) < CALLERS_MAX:
            return
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if not bucket.is_full(now)}
        for key in list(self._buckets)[: len(self._buckets) - CALLERS_MAX + 1]:
            del self._buckets[key]


class ClientRates:
    """The buckets of declared clients, each of which has a rate and one bucket, wherever it calls from.

    Safe to share between threads.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._buckets: dict[str, TokenBucket] = {}

    def check(self, identity: str, rate: float, calls: int = 1) -> None:
        """Count calls of a client with a rate; `RateLimited` says how many milliseconds to wait.

        After a pause it may make the calls of two seconds at once.
        """
        now, burst = self._system.monotonic(), max(2 * rate, 1.0)
        with self._lock:
            bucket = self._buckets.get(identity)
            if bucket is None or bucket.rate != rate:
                if len(self._buckets) >= CALLERS_MAX:
                    self._buckets = {key: one for key, one in self._buckets.items() if not one.is_full(now)}
                # Of a client whose rate was changed a full one, too: at most a burst more.
                bucket = self._buckets[identity] = TokenBucket(rate, burst, burst, now)
            wait = bucket.take(now, calls)
        if wait:
            wait_ms = max(1, round(wait * 1000))
            raise RateLimited(
                f"{identity!r} makes more than {rate:g} calls a second, its rate in the service's clients file; wait "
                f"{wait_ms} ms",
                wait_ms,
                identity,
            )
