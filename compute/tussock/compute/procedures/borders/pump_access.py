"""What feeders and senders do with an application of procedures: requests of its runner."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tussock.compute.applications.borders.pumps import OpenFeed
from tussock.compute.applications.feeds.feed import FedBatch
from tussock.compute.applications.runner import Runner
from tussock.compute.procedures.borders.fed_inputs import given_of
from tussock.compute.procedures.borders.requests import Ask, BatchRequest, Halt, MoveRequest, SentRequest
from tussock.compute.procedures.definitions import Definitions
from tussock.compute.procedures.engine import Engine
from tussock.statestore import TussockError

__all__ = ["PumpAccess"]


class PumpAccess:
    """A `PumpHost`; the target of a feed is its border procedure."""

    def __init__(self, definitions: Definitions, engine: Engine, runner: Runner) -> None:
        self._definitions = definitions
        self._engine = engine
        self._runner = runner

    def feeds(self) -> Mapping[str, OpenFeed]:
        """The sources, which are the caller's from now on."""
        return {
            procedure: OpenFeed(self._definitions.feeds[procedure].name, source)
            for procedure, source in self._engine.inputs.hand_over().items()
        }

    def take(self, target: str, batch: FedBatch) -> "Future[Any]":
        """A batch of a feed."""
        given = given_of(self._definitions.feeds[target].name, batch.span)
        return self._runner.submit(BatchRequest(target, None, batch.rows, given, batch))

    def move(self, target: str, position: bytes) -> "Future[Any]":
        """A position."""
        return self._runner.submit(MoveRequest(target, position))

    def committed(self, feed: str) -> bytes | None:
        """A position, the first time that it is asked for."""
        return self._engine.inputs.committed.pop(feed, None)

    def output(self, stream: str) -> tuple[int, int, int]:
        """Sequence of the newest rows, what is sent, and how many rows are not known to be."""
        return self._engine.output(stream)

    def sent(self, stream: str, sequence: int) -> None:
        """Rows are in the topic."""
        with suppress(TussockError):
            self._runner.submit(SentRequest(stream, sequence))

    @property
    def is_idle(self) -> bool:
        """The runner has all requests."""
        return True

    def settle(self) -> "Future[Any]":
        """Ends when all that was asked for has run."""
        return self._runner.submit(Ask(lambda: None))

    def put_off(self) -> Callable[[], bool]:
        """Nothing: a batch has run when it is durable."""
        return lambda: False

    def halt(self, error: Exception) -> None:
        """End the application, unless it has ended already."""
        with suppress(TussockError):
            self._runner.submit(Halt(error))
