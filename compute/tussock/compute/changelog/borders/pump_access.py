"""What feeders and senders do with a flow: requests of its runner."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tussock.compute.applications.borders.pumps import OpenFeed
from tussock.compute.applications.feeds.feed import FedBatch
from tussock.compute.applications.runner import Runner
from tussock.compute.changelog.borders.flow_borders import FlowBorders
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.changelog.engine.requests import FlowAct, FlowHalt, FlowLook
from tussock.statestore import TussockError

__all__ = ["FlowAccess"]


class FlowAccess:
    """A `PumpHost`; the target of a feed is its stream."""

    def __init__(
        self,
        borders: FlowBorders,
        engine: FlowEngine,
        runner: Runner,
        reserve: Callable[[str, int], None],
        ended: Callable[["Future[Any]"], None],
    ) -> None:
        """`reserve` waits for a place in a stream's queue; `ended` hears of each request that has."""
        self._borders = borders
        self._engine = engine
        self._runner = runner
        self._reserve = reserve
        self._ended = ended

    def feeds(self) -> Mapping[str, OpenFeed]:
        """The sources, which are the caller's from now on."""
        return {
            stream: OpenFeed(self._borders.feeds[stream].name, source)
            for stream, source in self._borders.fed.hand_over().items()
        }

    def take(self, target: str, batch: FedBatch) -> "Future[Any]":
        """A batch of a feed, once its stream's queue has room."""
        nbytes = batch.rows.nbytes
        self._reserve(target, nbytes)
        time = self._engine.system.now_ms()
        size = nbytes + sum(len(bad.data) for bad in batch.bad)

        def act() -> int:
            try:
                return self._borders.fed.take(target, batch, time)
            finally:
                self._engine.arrived(target, nbytes)

        try:
            return self._submit(FlowAct(act), size)
        except BaseException:
            self._engine.arrived(target, nbytes)
            raise

    def move(self, target: str, position: bytes) -> "Future[Any]":
        """A position."""
        return self._submit(FlowAct(lambda: self._borders.fed.move(target, position)))

    def committed(self, feed: str) -> bytes | None:
        """A position, the first time that it is asked for."""
        return self._borders.fed.committed.pop(feed, None)

    def output(self, stream: str) -> tuple[int, int, int]:
        """Of an output by its name: sequence of the newest rows, what is sent, and how many are not known to be."""
        return self._borders.published.of(stream)

    def sent(self, stream: str, sequence: int) -> None:
        """Rows of an output are where they go."""
        with suppress(TussockError):
            self._submit(FlowAct(lambda: self._borders.published.sent(stream, sequence)))

    @property
    def is_idle(self) -> bool:
        """The runner has all requests."""
        return True

    def settle(self) -> "Future[Any]":
        """Ends when all that was asked for has run."""
        return self._submit(FlowLook(lambda: None))

    def put_off(self) -> Callable[[], bool]:
        """Nothing: a transaction has run when it is durable."""
        return lambda: False

    def halt(self, error: Exception) -> None:
        """End the flow, unless it has ended already."""
        with suppress(TussockError):
            self._submit(FlowHalt(error))

    def _submit(self, what: Any, size: int = 0) -> "Future[Any]":
        asked = self._runner.submit(what, size)
        asked.add_done_callback(self._ended)
        return asked
