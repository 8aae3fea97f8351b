"""The bucket's clock, as one process reckons it, and how far ahead of it the times in the log may be.

Epochs and the timeline only grow, so one commit by a clock that is years ahead would end retention for years. A process
that appends to the log therefore has to be at most `max_ahead_ms` ahead of the bucket's clock, and so has an epoch that
is committed. Clocks that lag do no harm and are not asked about.

The bucket's clock is the one that stamps its objects. Any object that is seen says that it is at least so late; from
then on this machine's monotonic clock goes with it, which may stand still, but never runs ahead. So as a rule no
request is made: only what would be refused by that is asked of the bucket, by an object that is written, listed and
deleted. An answer serves all that is asked in the next seconds: a client that is ahead, and asks on and on, holds up
nobody else.
"""

import math
import re
from collections.abc import Sequence

from tussock.meta.log.marker_check import Moment
from tussock.meta.version.deltas.delta import TIMED, Delta
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.epochs import SERIAL_BITS, epoch_ms
from tussock.statestore.errors import ClockAhead

__all__ = ["MAX_AHEAD_MS", "BucketClock", "bucket_now_ms", "is_clock_path"]

MAX_AHEAD_MS = 3_600_000
ANSWER_SECONDS = 10.0
"""Seconds for which this machine's clocks go on from the bucket's time before it is asked again."""
SLACK_MS = 1000
"""More than what clocks drift meanwhile, and what an answer takes to come."""
JUDGED_SECONDS = 3600.0
"""Seconds for which the bucket's time is reckoned by this machine's monotonic clock, where it is only for judging."""
ROUNDED_MS = 2000
"""Buckets stamp objects by the second; clocks that are no further apart are taken for equal."""
FOLLOWING_EPOCHS = 1 << SERIAL_BITS
"""Epochs above the newest committed one that are taken whatever the clock says: the store is that far ahead already."""

_PATH = re.compile(r"tmp/clock-[0-9a-f]{16}")


def is_clock_path(path: str) -> bool:
    """Whether a path is one of those that `bucket_now_ms` writes; what else lies under `tmp/` is foreign."""
    return _PATH.fullmatch(path) is not None


def bucket_now_ms(bucket: ObjectStore, system: System) -> int:
    """The bucket's own time, by an object that it stamps: three requests."""
    path = f"tmp/clock-{system.random_bytes(8).hex()}"
    bucket.put(path, b"")
    stamps = [info.modified_ms for info in bucket.list("tmp/") if info.path == path]
    bucket.delete([path])
    return stamps[0] if stamps else system.now_ms()


class BucketClock:
    """What one process knows of its bucket's clock. Safe to share: two threads that miss at once both ask."""

    def __init__(self, bucket: ObjectStore, system: System, owner: str) -> None:
        """`owner`: host and process, for people."""
        self.max_ahead_ms: float = MAX_AHEAD_MS
        self._owner = owner
        self._bucket = bucket
        self._system = system
        self._ahead_of_monotonic: float | None = None
        """Milliseconds by the bucket's clock less those by the monotonic one, at least."""
        self._answered: Moment | None = None
        """When the bucket was asked for the last time."""

    def heard(self, modified_ms: int) -> None:
        """The bucket has an object that was stamped so."""
        # One from the future says nothing: somebody has set the time of a file.
        least = min(modified_ms, self._system.now_ms()) - self._monotonic_ms()
        if self._ahead_of_monotonic is None or least > self._ahead_of_monotonic:
            self._ahead_of_monotonic = least

    def check(self, deltas: Sequence[Delta]) -> None:
        """Raise `ClockAhead` if this machine's clock is too far ahead to append these."""
        if self._ahead_of_monotonic is None:
            self._ask(self._system.now_ms())
        if any(isinstance(delta, TIMED) for delta in deltas):
            self.own_ms()

    def own_ms(self) -> int:
        """This machine's time, in milliseconds since 1970; `ClockAhead` if it is too far ahead to store anything by it.

        So is what follows from it, such as whose pins have expired: that is stored later, when the clock may be right.
        """
        now_ms = self._system.now_ms()
        if not self._is_ahead(now_ms):
            return now_ms
        bucket_ms = self._ask(now_ms)
        if now_ms - bucket_ms > self.max_ahead_ms:
            raise ClockAhead(
                f"the clock of {self._owner} is {_span(now_ms - bucket_ms)} ahead of that of {self._bucket.url}; at "
                f"most {_span(self.max_ahead_ms)} (max_clock_ahead) is allowed, because epochs and retention would "
                "stay ahead with it: nothing was stored; set the clock right, then do it again",
                now_ms,
                bucket_ms,
            )
        return now_ms

    def judging_ms(self) -> int:
        """The time by which to judge what has ended, such as retention: not this machine's where that one is ahead.

        In milliseconds since 1970; raises `ClockAhead` as `own_ms` does. The bucket is asked where it might be so, once
        an hour at most: objects that were seen long after they were stamped say too little.
        """
        now_ms = self.own_ms()
        if self._beyond(now_ms) > ROUNDED_MS:
            if self._answered is None or not self._answered.is_within(JUDGED_SECONDS, self._system):
                self._ask(now_ms)
            now_ms -= max(0, int(self._beyond(now_ms)))
        return now_ms

    def check_epoch(self, epoch: int, newest: int) -> None:
        """Raise `ClockAhead` if the epoch is too far ahead; one next to the `newest` committed one never is."""
        if epoch <= newest + FOLLOWING_EPOCHS or not self._is_ahead(epoch_ms(epoch)):
            return
        bucket_ms = self._ask(epoch_ms(epoch))
        if epoch_ms(epoch) - bucket_ms > self.max_ahead_ms:
            raise ClockAhead(
                f"epoch {epoch} is of a time {_span(epoch_ms(epoch) - bucket_ms)} ahead of the clock of "
                f"{self._bucket.url}; at most {_span(self.max_ahead_ms)} (max_clock_ahead) is allowed, because epochs "
                "only grow and retention would stay ahead with it: nothing was stored; its rows are kept until "
                "abort_epoch(). If it came from new_epoch(), set this machine's clock right; else write them at one "
                "that does",
                epoch,
                bucket_ms,
            )

    def _is_ahead(self, ms: int) -> bool:
        """Whether that time is too far ahead of what the bucket's clock shows at least."""
        return self._beyond(ms) > self.max_ahead_ms

    def _beyond(self, ms: int) -> float:
        """Milliseconds by which that time is ahead of what the bucket's clock shows at least."""
        if self._ahead_of_monotonic is None:
            return math.inf
        return ms - self._monotonic_ms() - self._ahead_of_monotonic

    def _ask(self, about_ms: float) -> int:
        """The bucket's time. What is beyond the limit by a second and more is so by an answer from before, too."""
        if self._ahead_of_monotonic is not None and self._answered is not None:
            reckoned_ms = self._monotonic_ms() + self._ahead_of_monotonic
            is_far = about_ms - reckoned_ms > self.max_ahead_ms + SLACK_MS
            if is_far and self._answered.is_within(ANSWER_SECONDS, self._system):
                return int(reckoned_ms)
        bucket_ms = bucket_now_ms(self._bucket, self._system)
        self._ahead_of_monotonic = bucket_ms - self._monotonic_ms()
        self._answered = Moment.now(self._system)
        return bucket_ms

    def _monotonic_ms(self) -> float:
        return self._system.monotonic() * 1000


def _span(ms: float) -> str:
    seconds = ms / 1000
    for size, name in ((365 * 86400, "years"), (86400, "days"), (3600, "hours")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} s"
