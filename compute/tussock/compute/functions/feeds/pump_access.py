"""What feeders and senders do with a running program: requests and marks among those that wait for their epochs."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from tussock.compute.applications.borders.pumps import OpenFeed
from tussock.compute.applications.errors import BadInput, Full
from tussock.compute.applications.feeds.feed import BadMessage, FedBatch, Source
from tussock.compute.applications.program import Outcome
from tussock.compute.applications.runner import Runner
from tussock.compute.functions.engine import FunctionEngine
from tussock.compute.functions.epochs.request_records import FeedPlace
from tussock.compute.functions.feeds.columns_rows import ColumnsRows
from tussock.compute.functions.feeds.fed_epochs import FeedMark, Waiting
from tussock.compute.functions.feeds.request_feed import RequestFeed, RequestRows
from tussock.compute.functions.intake import RequestIntake
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.questions import Act, Look
from tussock.statestore import StateStore, TussockError
from tussock.statestore.base.system import System

__all__ = ["ProgramAccess"]


class ProgramAccess:
    """A `PumpHost`; the target of a feed is its name."""

    def __init__(
        self,
        program: str,
        operators: Operators,
        feeds: Mapping[str, RequestFeed],
        engine: FunctionEngine,
        runner: Runner,
        intake: RequestIntake,
        put: Callable[[Waiting], None],
    ) -> None:
        """`put` lets something wait for its epoch."""
        self._program = program
        self._operators = operators
        self._feeds = feeds
        self._engine = engine
        self._runner = runner
        self._intake = intake
        self._put_one = put
        self._sources: dict[str, Source] = {}
        self._rows: dict[str, RequestRows | ColumnsRows] = {}
        self._positions: dict[str, bytes] = {}
        """Behind what was put."""
        self._after: dict[str, Callable[[bytes, bytes], bytes]] = {}

    def open(self, store: StateStore, system: System) -> None:
        """Open all sources; raises what they raise, and `SchemaMismatch`. Before the program has started."""
        for name, declared in self._feeds.items():
            what = self._what(name)
            source = self._sources[name] = declared.feed.open(store, system, what)
            self._after[name] = source.after
            is_batch = self._operators.function(declared.operator, declared.function)[1].is_batch
            self._rows[name] = (
                ColumnsRows(self._operators, declared, source.schema, what, self._intake.epoch_max)
                if is_batch
                else RequestRows(self._operators, declared, source.schema, what)
            )

    def feeds(self) -> Mapping[str, OpenFeed]:
        """The sources where the program goes on, which are the caller's from now on."""
        for name, source in self._sources.items():
            place = self._engine.fed.places.get(name)
            if place is None:
                self._positions[name] = source.begin()
                # Where it begins is durable before a start returns.
                self._mark(name, FeedPlace(self._positions[name])).result()
                source.seek(self._positions[name])
                continue
            self._positions[name] = place.position
            source.seek(place.position)
            if place.span:
                self._put_batch(name, source.again(place.span), place.taken)
                source.seek(self._positions[name])
        sources, self._sources = self._sources, {}
        return {name: OpenFeed(name, source) for name, source in sources.items()}

    def close(self) -> None:
        """Close what no feeder has."""
        for source in self._sources.values():
            source.close()

    # --- As a host of pumps ------------------------------------------------------------------------------------------

    def take(self, target: str, batch: FedBatch) -> "Future[Any]":
        """The rows of a batch."""
        if batch.bad:
            self._mark(target, FeedPlace(b"", batch.span), batch.bad)
        return self._put_batch(target, batch, 0)

    def move(self, target: str, position: bytes) -> "Future[Any]":
        """A position."""
        self._positions[target] = position
        return self._mark(target, FeedPlace(position))

    def committed(self, feed: str) -> bytes | None:
        """A position, the first time that it is asked for."""
        return self._engine.fed.committed.pop(feed, None)

    def output(self, stream: str) -> tuple[int, int, int]:
        """Sequence of the newest rows, what is sent, and how many rows are not known to be."""
        return self._engine.fed.output(stream)

    def sent(self, stream: str, sequence: int) -> None:
        """Rows are in the topic."""
        with suppress(TussockError):
            self._runner.submit(Act(lambda seq: self._engine.fed.sent(stream, sequence, seq)))

    @property
    def is_idle(self) -> bool:
        """Whether no request waits for its epoch."""
        return self._intake.is_idle

    def settle(self) -> "Future[Any]":
        """Ends when all that the runner has was run."""
        return self._runner.submit(Look(lambda: None))

    def put_off(self) -> Callable[[], bool]:
        """Transactions that have lost, and run again in a later epoch."""
        newest = self._engine.stats()["tid"]
        return lambda: any(one.tid <= newest for one in self._engine.deferred)

    def halt(self, error: Exception) -> None:
        """End the program, unless it has ended already."""

        def fail(_: int) -> Outcome:
            raise error

        with suppress(TussockError):
            self._runner.submit(Act(fail))

    # --- Within ------------------------------------------------------------------------------------------------------

    def _put_batch(self, name: str, batch: FedBatch, taken: int) -> "Future[Any]":
        """All rows but those that were taken; the future ends when the last one is durable."""
        system, declared = self._engine.system, self._feeds[name]
        for row in self._rows[name].rows(batch, taken, system.monotonic()):
            if row.request is not None:
                self._put(row.request)
                continue
            if declared.feed.on_bad == "stop":
                first = row.bad[0]
                raise BadInput(
                    f"{self._what(name)}: {first.origin}, cannot be a request: {first.cause}; the program stops, "
                    "and meets the row again when it starts: mend the function, or declare the feed with "
                    "on_bad='skip'",
                    name,
                )
            self._mark(name, FeedPlace(b"", batch.span, row.number), row.bad)
        self._positions[name] = self._after[name](self._positions[name], batch.span)
        return self._mark(name, FeedPlace(self._positions[name]))

    def _mark(self, name: str, place: FeedPlace, bad: tuple[BadMessage, ...] = ()) -> "Future[Any]":
        mark = FeedMark(name, place, bad, self._engine.system.monotonic())
        self._put(mark)
        return mark.reply

    def _put(self, one: Waiting) -> None:
        while True:
            try:
                self._put_one(one)
            except Full:
                # A caller would hear of it; a feed has time.
                self._runner.check_running()
            else:
                return

    def _what(self, name: str) -> str:
        return f"feed {name!r} of program {self._program!r}"
