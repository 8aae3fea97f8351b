"""What the node needs of a layer: the calls that its applications have, and how they are."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from tussock.compute.service.rpc import application_pb2 as pb

__all__ = ["Servable", "ServedLayer", "WorkerDoor", "WorkerLine"]


class WorkerLine(Protocol):
    """One worker that has joined."""

    def take(self, message: bytes) -> None:
        """What has come of it; raises a `TussockError` for what nobody has asked for."""


class WorkerDoor(Protocol):
    """Where workers of an application join that run elsewhere. Used by the event loop; it knows the messages."""

    def question(self) -> bytes:
        """What each worker is asked first."""

    def is_alive(self, message: bytes) -> bool:
        """Whether a message says no more than that the worker works; `InvalidOption` for none of the protocol."""

    def enter(self, answer: bytes, peer: str, carry: Callable[[bytes | None], None]) -> WorkerLine:
        """Let it in by its answer. `carry`, in any thread, sends a message, and hangs up for `None`.

        Raises a `TussockError` that says why it may not join.
        """

    def leave(self, line: Any, why: str) -> None:
        """It is gone."""

    def close(self) -> None:
        """Nobody joins any more, and nobody waits for one who does."""


class ServedLayer(Protocol):
    """An application of a layer, as the node sees it. Calls may come from any thread."""

    name: str
    layer: str
    """`procedures` or `functions`."""
    store_url: str
    kinds: frozenset[str]
    """What `begin` answers."""

    def begin_with(self, workers: int) -> None:
        """Have that many processes run it, before the start; `InvalidOption` where a layer cannot."""

    def scale(self, workers: int) -> None:
        """Go on with that many workers; waits until they work. `InvalidOption` where a layer, or a program, has none.

        Raises what hinders it, and then all is as it was.
        """

    def take_workers(self) -> WorkerDoor:
        """Let its workers be those that join, in place of processes here, before the start.

        `InvalidOption` where a layer has none.
        """

    def workers(self) -> dict[str, int]:
        """How many workers it wants and how many have joined, at any time; empty where none can join."""

    def start(self) -> None:
        """Recover, and begin to take requests; raises what hinders it."""

    def stop(self) -> None:
        """Run what was taken, commit, end; raises what the application has failed with."""

    def begin(self, kind: str, request: pb.Request) -> "Future[Any]":
        """Ask for something; the future gets plain values or an Arrow table, and `cancel` withdraws what waits.

        Does not wait for the application. Raises a `TussockError` for a request that cannot work.
        """

    def schemas(self) -> dict[str, bytes]:
        """For `Hello.schemas`."""

    def pause(self) -> None:
        """Take requests, and run none."""

    def resume(self) -> None:
        """Run requests again."""

    def status(self) -> dict[str, Any]:
        """How the application is, as JSON can say it; without waiting for what runs."""

    @property
    def failure(self) -> Exception | None:
        """What has ended the application."""


@runtime_checkable
class Servable(Protocol):
    """An object that `tussock serve` takes."""

    def served(self) -> ServedLayer:
        """It as a node sees it."""
