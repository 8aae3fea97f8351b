"""A commit beside the work."""

from tussock.compute.applications.durability.input_log import InputLog
from tussock.compute.applications.durability.log_writer import LogWriter
from tussock.compute.applications.durability.troubles import COMMIT, Troubles
from tussock.compute.applications.errors import ApplicationFenced
from tussock.compute.applications.replies import failure_of
from tussock.statestore import Conflict, Fenced
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable, SessionExpired, WriteStalled
from tussock.statestore.transactions.delta import Delta, Frozen

__all__ = ["BackgroundCommit", "TableCheck", "taken_over"]

log = get_logger("tussock.compute.applications.background")

RETRY_SECONDS = 0.5

_PASSING = (ObjectStoreUnavailable, MetaUnavailable, SessionExpired, WriteStalled)


def taken_over(application: str, error: Fenced) -> ApplicationFenced:
    """What a commit is told whose writer is another runner's."""
    return ApplicationFenced(
        f"application {application!r}: another runner has taken it over, or something else commits under its name "
        f"({error}); this one ends, and what it had not replied is not done"
    )


def _fenced(application: str, error: Conflict) -> ApplicationFenced:
    """What an application ends with when somebody else has committed to its tables."""
    # Without its advice to repeat the commit, which is for those that can read again.
    found = str(error).partition(";")[0]
    return ApplicationFenced(
        f"application {application!r}: somebody else has committed to a table of it: {found}; so what it has in memory "
        "does not hold, and this one ends: start it again, and write to such tables through the application only"
    )


class BackgroundCommit:
    """Runs in its own thread from the start; what it fails with is kept for the one that asks."""

    def __init__(
        self,
        system: System,
        application: str,
        frozen: Frozen,
        writer: LogWriter,
        input_log: InputLog,
        next_object: int,
        troubles: Troubles,
    ) -> None:
        """Commits `frozen` once the log is durable below `next_object`, and then deletes the log below it."""
        self.failure: Exception | None = None
        self._system = system
        self._application = application
        self._frozen = frozen
        self._writer = writer
        self._log = input_log
        self._next_object = next_object
        self._troubles = troubles
        self._task = system.spawn("tussock application commit", self._run)

    @property
    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._task.is_alive()

    def wait(self) -> None:
        """Return when it has ended; raises what it failed with."""
        self._task.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._writer.wait_durable(self._next_object - 1)
            self._commit()
            self._truncate()
        except BaseException as error:  # noqa: BLE001 - the thread of requests raises it
            self.failure = failure_of(error)

    def _commit(self) -> None:
        name = self._application
        while True:
            try:
                self._frozen.commit()
                self._troubles.end(COMMIT)
                return
            except _PASSING as error:
                self._troubles.note(COMMIT, error)
                log.warning("commit waits", application=name, error=str(error))
                self._system.sleep(RETRY_SECONDS)
            except Fenced as error:
                raise taken_over(name, error) from error
            except Conflict as error:
                raise _fenced(name, error) from error

    def _truncate(self) -> None:
        try:
            self._log.truncate(self._next_object)
        except ObjectStoreUnavailable as error:
            log.warning("input log is not truncated yet", application=self._application, error=str(error))


class TableCheck:
    """Where nothing is to be committed, no commit tells that somebody else has written to the tables."""

    def __init__(self, delta: Delta, application: str, seconds: float) -> None:
        """`seconds`: between two looks."""
        self._delta = delta
        self._application = application
        self._seconds = seconds
        self._looked_at = 0.0

    def look(self, not_before: float) -> None:
        """Look, if it is time; `ApplicationFenced` if somebody has."""
        now = self._delta.system.monotonic()
        if now >= max(not_before, self._looked_at + self._seconds):
            self._looked_at = now
            try:
                self._delta.check_tables()
            except Conflict as error:
                raise _fenced(self._application, error) from error
