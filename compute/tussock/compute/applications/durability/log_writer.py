"""The thread that makes groups of records durable, one after the other, and lets their replies go."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.errors import ApplicationFenced
from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.records import Record
from tussock.compute.applications.replies import failure_of, give
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import ObjectStoreUnavailable

__all__ = ["LogGroup", "LogWriter"]

log = get_logger("tussock.compute.applications.log_writer")

RETRY_SECONDS = 0.5


class LogGroup(NamedTuple):
    """Records that become durable together, and who waits for that."""

    number: int
    """Of the object; 0 if there are no records, and the replies wait for the groups before it only."""
    records: list[Record]
    replies: "Sequence[tuple[Future[Any], Outcome]]"
    size: int = 0
    """Bytes of the records, roughly."""


class LogWriter:
    """Begins with `start`. After a failure it fails all replies that are still to come with the same error."""

    def __init__(
        self,
        system: System,
        input_log: InputLog,
        limits: ApplicationLimits,
        idle: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """In its thread the writer calls `idle` when no group is left, and `failed` before callers hear of it."""
        self._system = system
        self._log = input_log
        self._limits = limits
        self._idle = idle
        self._failed = failed
        self._groups: queue.SimpleQueue[LogGroup | None] = queue.SimpleQueue()
        self._changed = system.condition()
        self._durable = input_log.next - 1
        self._pending = 0
        self._pending_bytes = 0
        self.failure: Exception | None = None
        self.writes = 0
        """Objects that were written."""
        self._task = system.spawn("tussock input log", self._work)

    @property
    def is_busy(self) -> bool:
        """Whether a group waits."""
        return not self._groups.empty()

    def put(self, group: LogGroup) -> None:
        """Take a group; in order, and as soon as not too many wait."""
        if group.number:
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
        while (group := self._groups.get()) is not None:
            if self.failure is None:
                self._write(group)
            for reply, outcome in group.replies:
                give(reply, outcome if self.failure is None else Outcome(error=self.failure))
            if self._groups.empty():
                self._idle()

    def _write(self, group: LogGroup) -> None:
        if not group.number:
            return
        try:
            self._append(group)
            self.writes += 1
        except BaseException as error:
            if not isinstance(error, ApplicationFenced):
                log.error("input log cannot be written", error=str(error), exc_info=True)
            self.failure = failure_of(error)
            self._failed(self.failure)
        with self._changed:
            self._pending -= 1
            self._pending_bytes -= group.size
            if self.failure is None:
                self._durable = group.number
            self._changed.notify_all()

    def _append(self, group: LogGroup) -> None:
        while True:
            try:
                self._log.append(group.number, group.records)
                return
            except ObjectStoreUnavailable as error:
                # Nothing was promised: the callers wait, and so does what comes.
                log.warning("input log waits for its bucket", error=str(error))
                self._system.sleep(RETRY_SECONDS)
