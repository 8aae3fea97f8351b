"""The thread that makes groups of records durable, one after the other, and lets their replies go."""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.errors import ApplicationFenced, ApplicationStopped
from tussock.compute.applications.input_log import InputLog
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.records import Record
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import ObjectStoreUnavailable

__all__ = ["LogGroup", "LogWriter", "failure_of", "give"]

log = get_logger("tussock.compute.applications.log_writer")

RETRY_SECONDS = 0.5
GROUPS_MAX = 64
"""That have run, and wait to be durable: the bucket may be away for long."""
GROUPS_BYTES_MAX = 256 << 20
"""The same for bytes."""


class LogGroup(NamedTuple):
    """Records that become durable together, and who waits for that."""

    number: int
    """Of the object; 0 if there are no records, and the replies wait for the groups before it only."""
    records: list[Record]
    replies: "Sequence[tuple[Future[Any], Outcome]]"
    size: int = 0
    """Bytes of the records, roughly."""


def give(reply: "Future[Any]", outcome: Outcome) -> None:
    """The reply to a caller; nobody, if the request was withdrawn before it ran, or has a reply already."""
    if reply.done():
        return
    if not reply.running() and not reply.set_running_or_notify_cancel():
        return
    try:
        if outcome.error is not None:
            reply.set_exception(outcome.error)
        else:
            reply.set_result(outcome.value)
    except BaseException as error:
        # A callback of the future: `Future` itself contains what is an `Exception`. Others wait for this thread, too.
        log.error("a callback of a reply raised", error=cause_of(error), exc_info=error)


def failure_of(error: BaseException) -> Exception:
    """What an application fails with, and its callers hear, if its thread ends with this."""
    if isinstance(error, Exception):
        return error
    stopped = ApplicationStopped(f"a thread of the application was ended by {cause_of(error)}; start it again")
    stopped.__cause__ = error
    return stopped


class LogWriter:
    """Begins with `start`. After a failure it fails all replies that are still to come with the same error."""

    def __init__(
        self, system: System, input_log: InputLog, idle: Callable[[], None], failed: Callable[[Exception], None]
    ) -> None:
        """In its thread the writer calls `idle` when no group is left, and `failed` before callers hear of it."""
        self._system = system
        self._log = input_log
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
        return self._pending < GROUPS_MAX and self._pending_bytes + size <= GROUPS_BYTES_MAX

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
