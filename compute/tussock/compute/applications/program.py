"""What a layer gives the runner: how a request runs, how a record is replayed, and what goes into a commit."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from tussock.compute.applications.durability.troubles import Troubles
from tussock.compute.applications.records import Record
from tussock.statestore.transactions.delta import Delta

__all__ = ["Host", "Outcome", "Program", "Request"]


class Request(NamedTuple):
    """Something that a caller has asked for."""

    what: Any
    """The layer's own."""
    reply: "Future[Any]"
    is_look: bool = False
    """It changes nothing, and is answered while the application is paused, too."""
    size: int = 0
    """Bytes of it, roughly."""


class Outcome(NamedTuple):
    """What running a request gave."""

    records: Sequence[Record] = ()
    """What has to be durable before the reply; none if nothing was changed."""
    value: Any = None
    error: Exception | None = None
    """In place of a value."""
    nbytes: int = 0
    """What the value takes, where it is not small."""


class Host(Protocol):
    """What the runner does for a program while a request runs."""

    troubles: Troubles
    """A request that waits for a state notes it as `STATE`; it is over when the request has run."""

    def write_now(self, record: Record) -> None:
        """Make a record durable, and all before it, before this returns."""

    def wait_committed(self) -> None:
        """Return when what was cut last is committed; raises what its commit has failed with."""

    def commit_now(self) -> None:
        """Commit all there is, and return when it is durable."""

    def give_up(self, why: str) -> None:
        """The thread of requests hangs: refuse all that waits and all that comes. In any thread."""


class Program(Protocol):
    """A layer's part of an application; called by one thread."""

    def load(self, delta: Delta, state: bytes, host: Host) -> None:
        """Begin on these tables; `state` is what `persist` returned for the newest commit, empty for the first."""

    def replay(self, record: Record) -> None:
        """Do again what was recorded; `NotDeterministic` if it has another result."""

    def resume(self, seq: int) -> Sequence[Outcome]:
        """After the replay: run what the records had begun and not ended; `seq` is the next free number."""

    def run(self, what: Any, seq: int) -> Outcome:
        """Run a request in memory; its records are numbered from `seq`."""

    def unload(self) -> None:
        """Nothing runs any more."""

    @property
    def nbytes(self) -> int:
        """Bytes that the next commit holds beside the delta's rows, and what a recovery has to do, counted in bytes."""

    def persist(self) -> bytes:
        """Write what is kept beside the tables into them, for a commit; returns what goes into the progress."""
