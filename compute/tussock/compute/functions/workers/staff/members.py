"""What a crew knows of its workers, wherever they run; and which of them may work for a program."""

from typing import Any, NamedTuple, Protocol

from tussock.compute.functions.errors import WorkerFault, WorkerLost
from tussock.compute.functions.workers.messages import PROTOCOL, Refused, StillAlive, Welcomed
from tussock.statestore.errors import InvalidOption, ObjectStoreUnavailable

__all__ = [
    "ANSWER_SECONDS",
    "START_SECONDS",
    "Expected",
    "Staff",
    "Worker",
    "WorkerLink",
    "check_shared",
    "check_welcomed",
    "heard",
]

ANSWER_SECONDS = 5.0
"""A worker says ten times in this time that it works; one that does not is ended."""
START_SECONDS = 60.0
"""Until it has imported the program and opened the store."""


class WorkerLink(Protocol):
    """Messages to one worker and from it."""

    def send(self, message: Any, seconds: float | None) -> None:
        """Raises `WorkerLost` if it is gone, or takes nothing for that long, or the message is too large."""

    def receive(self, seconds: float | None) -> Any:
        """The next message; `WorkerLost` if none comes for that long, it is gone, or that is no message."""

    def close(self) -> None:
        """The worker notices."""


class Worker(Protocol):
    """One worker that is ready."""

    link: WorkerLink
    name: str
    """For messages: which process, or where."""
    process: int
    """Its id; 0 of a process elsewhere."""

    @property
    def is_there(self) -> bool:
        """Whether it is not known to be gone."""


class Staff(Protocol):
    """Gives a crew its workers, and takes them back."""

    def hire(self, count: int, seconds: float | None) -> list[Any]:
        """That many more `Worker`s, all or none; in any thread.

        Those that cannot be started are awaited for `seconds`, or for ever. Raises `WorkerLost`, `WorkerFault`, and
        `ObjectStoreUnavailable` where the store does not answer a worker.
        """

    def release(self, worker: Any) -> None:
        """It is not needed any more."""

    def end(self, worker: Any) -> None:
        """It is lost, or of no use."""

    @property
    def waiting(self) -> int:
        """How many are ready beyond those that were hired."""

    def close(self) -> None:
        """End those that wait, and hire no more; those that were hired are for the caller to end."""


class Expected(NamedTuple):
    """What a worker has to be."""

    program: str
    version: str
    fingerprint: str
    way_out: str
    """What to do where it is not."""


def check_shared(url: str) -> None:
    """`InvalidOption` for a store that other processes do not see."""
    if url.startswith("memory:"):
        raise InvalidOption(
            f"the store at {url} is in the memory of this process, where workers do not see it: use one in a folder or "
            "a bucket, or workers=0"
        )


def heard(link: WorkerLink, seconds: float) -> Any:
    """The next message but for those that the worker works, of which one comes at least each that many seconds."""
    while True:
        answer = link.receive(seconds)
        if not isinstance(answer, StillAlive):
            return answer


def check_welcomed(answer: Any, expected: Expected, name: str) -> None:
    """Raises `WorkerFault` unless a worker is of the program, by its answer to the first message.

    `ObjectStoreUnavailable` where the store does not answer it, `WorkerLost` for what is no such answer.
    """
    who = f"program {expected.program!r}: a worker, {name},"
    if isinstance(answer, Refused):
        if answer.is_passing:
            raise ObjectStoreUnavailable(answer.why)
        raise WorkerFault(f"{who} cannot begin: {answer.why}")
    if not isinstance(answer, Welcomed):
        raise WorkerLost(f"it answered {type(answer).__name__} to the first message")
    if (answer.protocol, answer.version) != (PROTOCOL, expected.version):
        raise WorkerFault(
            f"{who} is of version {answer.version}, protocol {answer.protocol}, and the program of "
            f"{expected.version}, protocol {PROTOCOL}: {expected.way_out}"
        )
    if answer.fingerprint != expected.fingerprint:
        raise WorkerFault(
            f"{who} has other functions, {answer.fingerprint}, than the program, {expected.fingerprint}: "
            f"{expected.way_out}"
        )
