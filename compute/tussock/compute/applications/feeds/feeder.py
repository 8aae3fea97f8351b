"""The thread that reads a source and hands its batches to the application, in order and a few ahead."""

from collections import deque
from concurrent.futures import Future
from typing import Any, Protocol

from tussock.compute.applications.errors import ProcedureError
from tussock.compute.applications.feeds.feed import FedBatch, Source
from tussock.compute.applications.replies import failure_of
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable, SessionExpired, WaitTimeout

__all__ = ["Feeder", "Taker"]

log = get_logger("tussock.compute.applications.feeds")

AHEAD_MAX = 8
"""Batches that were handed over and are not durable yet."""
READ_SECONDS = 0.1
RETRY_SECONDS = 0.5
MOVE_SECONDS = 60.0
"""After that time the position moves on past what is no row, while no row comes."""

_PASSING = (ObjectStoreUnavailable, MetaUnavailable, SessionExpired, WaitTimeout)


class Taker(Protocol):
    """What a feeder hands over to; each future ends when that is durable."""

    def take(self, batch: FedBatch) -> "Future[Any]":
        """Run a batch; waits while too much waits."""

    def move(self, position: bytes) -> "Future[Any]":
        """There is nothing more before this position."""

    def halt(self, error: Exception) -> None:
        """The source has failed: end the application with this."""

    def committed(self) -> bytes | None:
        """The newest position that is committed for certain, if there is news."""


class Feeder:
    """Begins at once, and owns the source from then on."""

    def __init__(self, system: System, name: str, source: Source, taker: Taker) -> None:
        self._system = system
        self._name = name
        self._source = source
        self._taker = taker
        self._is_stopping = False
        self._is_over = False
        self._flying: deque[Future[Any]] = deque()
        self._asked: deque[tuple[Any, Future[None]]] = deque()
        """Marks, and who waits until they are reached."""
        self._waits = ""
        self._moved = source.standing()
        self._moved_at = system.monotonic()
        self.batches = 0
        self.rows = 0
        self._task = system.spawn(f"tussock feed {name}", self._work)

    @property
    def trouble(self) -> str:
        """Why nothing comes at present, or empty."""
        return self._waits or self._source.trouble

    def drained(self) -> "Future[None]":
        """Ends when all that the source has now is durable in the application."""
        reached: Future[None] = Future()
        self._asked.append((None, reached))
        if self._is_over:
            self._refuse()
        return reached

    def end_soon(self) -> None:
        """Read no more; what was handed over runs on."""
        self._is_stopping = True

    def stop(self) -> None:
        """The same, and wait until the source is closed."""
        self._is_stopping = True
        self._task.join()

    def _work(self) -> None:
        try:
            while not self._is_stopping:
                try:
                    self._step()
                    self._waits = ""
                except _PASSING as error:
                    if not self._waits:
                        log.warning("a feed waits for its source", feed=self._name, error=str(error))
                    self._waits = str(error)
                    self._system.sleep(RETRY_SECONDS)
        except BaseException as error:  # noqa: BLE001 - the application ends with it
            # What is refused at the end is read again at the next start.
            if not self._is_stopping:
                self._taker.halt(failure_of(error))
        finally:
            self._is_over = True
            self._refuse()
            try:
                self._source.close()
            except Exception as error:  # noqa: BLE001 - nothing depends on it
                log.warning("a feed was not closed in order", feed=self._name, error=str(error))

    def _step(self) -> None:
        while self._flying and (self._flying[0].done() or len(self._flying) >= AHEAD_MAX):
            failure = self._flying.popleft().exception()
            # Of a batch that a procedure refused the application has taken note; else it has ended.
            if failure is not None and not isinstance(failure, ProcedureError):
                raise failure
        committed = self._taker.committed()
        if committed is not None:
            self._source.release(committed)
        self._answer()
        batch = self._source.read(READ_SECONDS)
        if batch is not None:
            self._flying.append(self._taker.take(batch))
            self.batches += 1
            self.rows += batch.rows.num_rows
            self._moved_at = self._system.monotonic()
            self._moved = self._source.standing()
        elif self._system.monotonic() - self._moved_at > MOVE_SECONDS:
            self._move()

    def _move(self) -> None:
        self._moved_at = self._system.monotonic()
        standing = self._source.standing()
        if standing != self._moved:
            self._moved = standing
            self._flying.append(self._taker.move(standing))

    def _answer(self) -> None:
        if not self._asked:
            return
        mark, reached = self._asked[0]
        if mark is None:
            mark = self._source.newest()
            self._asked[0] = mark, reached
        if self._source.has_reached(mark) and not self._flying:
            self._asked.popleft()
            reached.set_result(None)

    def _refuse(self) -> None:
        while self._asked:
            self._asked.popleft()[1].cancel()
