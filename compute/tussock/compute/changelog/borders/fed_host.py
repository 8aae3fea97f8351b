"""`FedHost`: the half of `FlowHost` that has feeds and outputs, and runs their threads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.borders.pumps import Pumps
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.applications.runner import Runner
from tussock.compute.changelog.borders.flow_borders import FlowBorders
from tussock.compute.changelog.borders.pump_access import FlowAccess
from tussock.compute.changelog.engine.queue_room import QueueRoom
from tussock.compute.changelog.engine.tables.flow_tables import create_flow_tables
from tussock.compute.changelog.plan import FlowPlan
from tussock.statestore import InvalidOption, StateStore

if TYPE_CHECKING:
    from tussock.compute.changelog.engine.flow_engine import FlowEngine
    from tussock.compute.changelog.stream import Stream

__all__ = ["FedHost"]

STOP_SECONDS = 30.0
"""For which a stop sends what was published, while nothing is wrong with where it goes."""


class FedHost(ABC):
    """A flow that can be fed, and whose streams can go somewhere."""

    def __init__(self, name: str, store: StateStore, streams: Sequence["Stream"]) -> None:
        self.name = name
        self.store = store
        self.streams = {one.name: one for one in streams}
        self._borders = FlowBorders(name, store)
        self._pumps: Pumps | None = None
        self.place: str | None = None
        """The URL of the input log, if it is not in the store's bucket."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it has started, and not stopped."""

    @abstractmethod
    def check_asked(self, *, waits: bool = False) -> None:
        """`InvalidOption` in a function that the flow runs; if what is asked `waits` for it, in a callback as well."""

    def feed(self, stream: "Stream | str", feed: Any, name: str | None) -> None:
        """See `Flow.feed`."""
        self._check_declaring()
        self._borders.add_feed(self._stream_of(stream), feed, name)

    def output(self, stream: "Stream | str", to: Any, keep_rows: int | None, name: str | None, *, blocks: bool) -> None:
        """See `Flow.output`."""
        self._check_declaring()
        self._borders.add_output(self._stream_of(stream), to, keep_rows, name, blocks=blocks)

    def pump_stats(self) -> dict[str, Any]:
        """`feeds` and `outputs` by name; nothing if none run."""
        return {} if self._pumps is None else self._pumps.stats()

    # --- Running -----------------------------------------------------------------------------------------------------

    def _make_tables(self, plan: FlowPlan, *, for_tasks: bool = False) -> Mapping[str, int]:
        """Of streams, feeds and outputs, those that are not there; returns and raises as `create_flow_tables`."""
        outputs = {one.table for one in self._borders.published.outputs.values()}
        touched = create_flow_tables(self.store, plan, outputs, for_tasks=for_tasks, place=self.place)
        self._borders.begin(plan)
        return touched

    def _start_pumps(
        self, engine: "FlowEngine", runner: Runner, room: QueueRoom, ended: Callable[["Future[Any]"], None]
    ) -> None:
        """Begin to feed and to send; raises what a topic's absence raises, and then nothing runs."""

        def reserve(stream: str, nbytes: int) -> None:
            room.reserve(stream, nbytes, wait=True, timeout=None)
            if not self.is_running:
                raise ApplicationStopped(f"flow {self.name!r} is stopping")

        access = FlowAccess(self._borders, engine, runner, reserve, ended)
        pumps = Pumps(self.name, self.store, engine.system, runner, self._borders.published.outputs, access)
        try:
            pumps.start(access.feeds)
        except BaseException:
            pumps.stop(0)
            runner.stop()
            raise
        self._pumps = pumps

    def _end_feeds(self) -> None:
        """Feed no more, soon."""
        if self._pumps is not None:
            self._pumps.end_feeds()

    def _stop_pumps(self, runner: Runner) -> None:
        """Feed no more, send what was published, and end the run."""
        pumps, self._pumps = self._pumps, None
        try:
            if pumps is not None:
                pumps.stop(STOP_SECONDS)
        finally:
            runner.stop()

    def _check_pushed(self, stream: "Stream") -> None:
        """`InvalidOption` for a stream that has a feed."""
        if stream.name in self._borders.feeds:
            raise InvalidOption(f"stream {stream.name!r} has a feed, and takes nothing from others")

    def _wait_for_outputs(self) -> None:
        """Return when no output has more unsent rows than it may."""
        if self._pumps is not None:
            self._pumps.wait_for_room()

    def _outputs_have_room(self) -> bool:
        """Whether that is so now."""
        return self._pumps is None or self._pumps.has_room

    def _drain_feeds(self, until: float | None) -> None:
        """Return when all that feeds have now is durable."""
        if self._pumps is not None:
            self._pumps.drain_feeds(until)

    def _drain_outputs(self, until: float | None) -> None:
        """Return when all that was published is where it goes."""
        if self._pumps is not None:
            self._pumps.drain_outputs(until)

    # --- Within ------------------------------------------------------------------------------------------------------

    def name_of(self, stream: "Stream | str") -> str:
        """The name of a stream of the flow; `InvalidOption` for any other."""
        name = stream if isinstance(stream, str) else getattr(stream, "name", stream)
        if name not in self.streams or not (isinstance(stream, str) or self.streams[name] is stream):
            raise InvalidOption(f"flow {self.name!r} has no stream {clean_text(str(name))!r:.100}")
        return str(name)

    def _stream_of(self, stream: "Stream | str") -> "Stream":
        return self.streams[self.name_of(stream)]

    def _check_declaring(self) -> None:
        self.check_asked()
        if self.is_running:
            raise InvalidOption(f"flow {self.name!r} runs: stop it first, then declare feeds and outputs")
