"""Groups of records, and the thread that makes them durable, one after the other, and lets their replies go."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.troubles import INPUT_LOG, Troubles
from tussock.compute.applications.errors import ApplicationFenced
from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.records import Record
from tussock.compute.applications.replies import failure_of, give
from tussock.compute.applications.request_queue import Nesting
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import ObjectStoreUnavailable

__all__ = ["LogGroup", "LogWriter", "OpenGroup"]

log = get_logger("tussock.compute.applications.log_writer")

RETRY_SECONDS = 0.5
GROUP_RECORDS_MAX = 10_000
GROUP_BYTES_MAX = 16 << 20
"""Of one object of the input log, as far as the requests say, and of the replies that wait for it; what is larger is
alone in its own."""


class LogGroup(NamedTuple):
    """Records that become durable together, and who waits for that."""

    number: int
    """Of the object; 0 if there are no records, and the replies wait for the groups before it only."""
    records: list[Record]
    replies: "Sequence[tuple[Future[Any], Outcome]]"
    size: int = 0
    """Bytes of the records and of the replies, roughly."""


class OpenGroup:
    """The group that grows; for one thread."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.replies: list[tuple[Future[Any], Outcome]] = []
        self._nbytes = 0
        self._began = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to hand over."""
        return not self.records and not self.replies

    def add(self, records: Sequence[Record], now: float) -> None:
        """Records that ran at that time."""
        self._begin(now)
        self.records.extend(records)
        for record in records:
            self._nbytes += len(record.given)

    def promise(self, reply: "Future[Any]", outcome: Outcome, now: float) -> None:
        """Somebody gets that outcome when the group is durable."""
        self._begin(now)
        self.replies.append((reply, outcome))
        self._nbytes += outcome.nbytes

    def is_ripe(self, now: float, seconds: float) -> bool:
        """Whether it has waited that long, or is full."""
        if self.is_empty:
            return False
        is_full = len(self.records) >= GROUP_RECORDS_MAX or self._nbytes >= GROUP_BYTES_MAX
        return is_full or now - self._began >= seconds

    def take(self, number: int) -> LogGroup:
        """Its content, under the number of an object; then the next one grows."""
        taken = LogGroup(number, self.records, self.replies, self._nbytes)
        self.records, self.replies, self._nbytes = [], [], 0
        return taken

    def _begin(self, now: float) -> None:
        if self.is_empty:
            self._began = now


class LogWriter:
    """After a failure it fails all replies that are still to come with the same error."""

    def __init__(
        self,
        system: System,
        limits: ApplicationLimits,
        idle: Callable[[], None],
        nesting: Nesting,
        troubles: Troubles,
    ) -> None:
        """In its thread, which gives replies, the writer calls `idle` when no group is left."""
        self._system = system
        self._troubles = troubles
        self._limits = limits
        self._idle = idle
        self._nesting = nesting
        self._groups: queue.SimpleQueue[LogGroup | None] = queue.SimpleQueue()
        self._changed = system.condition()
        self._durable = 0
        self._pending = 0
        self._pending_bytes = 0
        self.failure: Exception | None = None
        """Set before callers hear of it."""
        self.writes = 0
        """Objects that were written."""
        self.records = 0
        """In these."""

    def begin(self, input_log: InputLog) -> None:
        """Take groups from now on, for the objects behind those that the log has."""
        self._log = input_log
        self._durable = input_log.next - 1
        self._task = self._system.spawn("tussock input log", self._work)

    @property
    def is_busy(self) -> bool:
        """Whether a group waits."""
        return not self._groups.empty()

    def put(self, group: LogGroup) -> None:
        """Take a group; in order, and as soon as not too many wait."""
        if group.number or group.size:
            with self._changed:
                self._changed.wait_for(lambda: self.failure is not None or self._has_room(group.size))
                self._pending += 1
                self._pending_bytes += group.size
        self._groups.put(group)

    def wait_durable(self, number: int) -> None:
        """Return when the object of that number is durable; raises what the writer has failed with."""
        with self._changed:
            self._changed.wait_for(lambda: self._durable >= number or self.failure is not None)
            if self._durable < number and self.failure is not None:
                raise self.failure

    def stop(self) -> None:
        """Write what is left, and end."""
        self._groups.put(None)
        self._task.join()

    def _has_room(self, size: int) -> bool:
        if not self._pending:
            return True
        limits = self._limits
        return self._pending < limits.log_groups and self._pending_bytes + size <= limits.log_bytes

    def _work(self) -> None:
        with self._nesting.giving():
            # No name here keeps a group, whose replies may be large, until the next one comes.
            while self._end(self._groups.get()):
                if self._groups.empty():
                    self._idle()

    def _end(self, group: LogGroup | None) -> bool:
        """Make a group durable and let its replies go; `False` if there is none."""
        if group is None:
            return False
        if self.failure is None:
            self._write(group)
        for reply, outcome in group.replies:
            give(reply, outcome if self.failure is None else Outcome(error=self.failure))
        if group.number or group.size:
            with self._changed:
                self._pending -= 1
                self._pending_bytes -= group.size
                self._changed.notify_all()
        return True

    def _write(self, group: LogGroup) -> None:
        if not group.number:
            return
        try:
            self._append(group)
            self.writes += 1
            self.records += len(group.records)
        except BaseException as error:
            if not isinstance(error, ApplicationFenced):
                log.error("input log cannot be written", error=str(error), exc_info=True)
            self.failure = failure_of(error)
        with self._changed:
            if self.failure is None:
                self._durable = group.number
            self._changed.notify_all()

    def _append(self, group: LogGroup) -> None:
        while True:
            try:
                self._log.append(group.number, group.records)
                self._troubles.end(INPUT_LOG)
                return
            except ObjectStoreUnavailable as error:
                self._troubles.note(INPUT_LOG, error)
                # Nothing was promised: the callers wait, and so does what comes.
                log.warning("input log waits for its bucket", error=str(error))
                self._system.sleep(RETRY_SECONDS)
