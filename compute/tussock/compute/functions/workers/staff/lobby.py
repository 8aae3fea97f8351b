"""Workers that run elsewhere join a program here, and wait until it needs them.

Those beyond the number that the program wants are spare ones: each takes the place of a lost worker at once.
"""

import threading
from collections import deque
from collections.abc import Callable

import msgspec

from tussock.compute.applications.errors import ServiceUnavailable
from tussock.compute.functions.errors import WorkerFault, WorkerLost
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.workers.messages import PROTOCOL, FromWorker, Meet
from tussock.compute.functions.workers.shipment import fingerprint, program_version
from tussock.compute.functions.workers.staff.joined_worker import JoinedWorker, is_alive
from tussock.compute.functions.workers.staff.members import Expected, check_shared, check_welcomed
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import InvalidOption

__all__ = ["Lobby"]

log = get_logger("tussock.compute.functions")

DIFFERS = "let both run the same Tussock, Python and module"
_decode = msgspec.msgpack.Decoder(FromWorker).decode


class Lobby:
    """A `Staff`, and the `WorkerDoor` of the node's port. Safe to share between threads."""

    def __init__(self, program: str, operators: Operators, url: str) -> None:
        """`url`: of the store; `InvalidOption` for one that other processes do not see."""
        check_shared(url)
        self._program = program
        self._expected = Expected(program, program_version(), fingerprint(operators), DIFFERS)
        self._url = url
        self._changed = threading.Condition()
        self._joined: set[JoinedWorker] = set()
        self._waiting: deque[JoinedWorker] = deque()
        self._is_closed = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when one has come or gone; in any thread."""

    @property
    def joined(self) -> int:
        """How many there are, at work and waiting."""
        return len(self._joined)

    # --- For the port ------------------------------------------------------------------------------------------------

    def question(self) -> bytes:
        """What a worker is asked first; it is told what it has to compare, and no more."""
        return msgspec.msgpack.encode(Meet(PROTOCOL, self._expected.version, self._program, self._url))

    @staticmethod
    def is_alive(message: bytes) -> bool:
        """Whether a worker says no more than that it works."""
        return is_alive(message)

    def enter(self, answer: bytes, peer: str, carry: Callable[[bytes | None], None]) -> JoinedWorker:
        """Let a worker in by its answer.

        Raises `WorkerFault` for one of another version or program, `ObjectStoreUnavailable` where the store does not
        answer it, `InvalidOption` for what is no answer, `ServiceUnavailable` once the program has ended.
        """
        worker = JoinedWorker(peer, carry)
        try:
            check_welcomed(_decode(answer), self._expected, worker.name)
        except UNREADABLE as error:
            raise InvalidOption(f"it sent what is no message: {error}") from None
        except WorkerLost as error:
            raise InvalidOption(str(error)) from None
        with self._changed:
            if self._is_closed:
                raise ServiceUnavailable(f"program {self._program!r} has ended")
            self._joined.add(worker)
            self._waiting.append(worker)
            self._changed.notify_all()
        self.on_change()
        return worker

    def leave(self, line: JoinedWorker, why: str) -> None:
        """It is gone."""
        line.gone(why)
        with self._changed:
            self._joined.discard(line)
            if line in self._waiting:
                self._waiting.remove(line)
        self.on_change()

    # --- For the crew ------------------------------------------------------------------------------------------------

    def hire(self, count: int, seconds: float | None) -> list[JoinedWorker]:
        """That many of those that wait, once there are enough; `WorkerFault` if not in time."""
        if not count:
            return []
        with self._changed:
            if len(self._waiting) < count:
                log.warning(
                    "program waits for workers",
                    program=self._program,
                    missing=count - len(self._waiting),
                    joined=self.joined,
                )
            if not self._changed.wait_for(lambda: len(self._waiting) >= count or self._is_closed, seconds):
                raise WorkerFault(
                    f"program {self._program!r}: {count} more workers were to join, and {len(self._waiting)} have "
                    f"after {seconds:g} s, {self.joined} with those at work: start more by `tussock work`"
                )
            if self._is_closed:
                raise WorkerFault(f"program {self._program!r} has ended, and waits for no more workers")
            return [self._waiting.popleft() for _ in range(count)]

    def release(self, worker: JoinedWorker) -> None:
        """It waits again, unless it is gone."""
        with self._changed:
            if worker in self._joined and worker.is_there:
                self._waiting.append(worker)
                self._changed.notify_all()

    def end(self, worker: JoinedWorker) -> None:
        """Hang up on it; it may join again."""
        worker.close()
        self.leave(worker, "")

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Hang up on those that wait, and let nobody join any more."""
        with self._changed:
            self._is_closed = True
            waiting = [*self._waiting]
            self._changed.notify_all()
        for worker in waiting:
            self.end(worker)
