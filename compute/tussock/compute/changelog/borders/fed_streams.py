"""The feeds of one run: their sources, positions and dead letters, as the engine sees them.

The log has a span for each batch that came in, and a replay reads it again; the position is in the epoch of the state,
as are transactions that wait in the queue. So each is taken once, whenever the flow dies.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tussock.compute.applications.borders.dead_letters import DeadLetters
from tussock.compute.applications.feeds.feed import FedBatch, Source
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.engine.journal import Journal
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.feeds.stream_feed import StreamFeed
from tussock.compute.changelog.feeds.table_changes import TableChanges
from tussock.compute.changelog.progress import FlowProgress
from tussock.statestore import StateStore
from tussock.statestore.base.system import System
from tussock.statestore.errors import CorruptLog, InvalidOption
from tussock.statestore.transactions.delta import Delta

__all__ = ["FedStreams", "FlowFeed", "letters_table"]


class FlowFeed(NamedTuple):
    """What feeds a stream."""

    name: str
    """Under which its position is kept."""
    feed: StreamFeed | TableFeed


def letters_table(flow: str) -> str:
    """The name of a flow's table of dead letters."""
    return f"{flow}.dead_letters"


class FedStreams:
    """Used by the thread of requests; the feeders look at `committed` beside it."""

    def __init__(self, flow: str, store: StateStore, feeds: Mapping[str, FlowFeed]) -> None:
        """`feeds` by stream."""
        self._flow = flow
        self._store = store
        self._feeds = feeds
        self._sources: dict[str, Source] = {}
        """By stream; those that no feeder has taken over."""
        self._opened: Mapping[str, Source] = {}
        self._positions: dict[str, bytes] = {}
        self._cut: dict[str, bytes] = {}
        self.committed: dict[str, bytes] = {}
        """By feed, positions that a commit holds for certain."""

    def load(self, delta: Delta, known: FlowProgress, streams: Mapping[str, RunningStream], journal: Journal) -> None:
        """Open all sources where the state is; raises what they raise."""
        self._streams = streams
        self._journal = journal
        self._positions = dict(known.feeds)
        self._letters = DeadLetters(letters_table(self._flow), delta, known.letters)
        for stream, declared in self._feeds.items():
            what = f"feed {declared.name!r} of flow {self._flow!r}"
            source = self._sources[stream] = self._open(declared, delta.system, what, streams[stream].plan.shape)
            position = self._positions.get(declared.name)
            if position is not None:
                # A replay reads what comes after it, which must not go meanwhile.
                source.seek(position)
        self._opened = dict(self._sources)

    def _open(self, declared: FlowFeed, system: System, what: str, shape: StreamShape) -> Source:
        feed = declared.feed
        if isinstance(feed, TableFeed):
            return TableChanges(feed, self._store, system, what, shape)
        return feed.open_changes(self._store, system, what, shape)

    def resume(self) -> None:
        """After the replay, be ready to read on; new feeds begin."""
        for stream, source in self._sources.items():
            name = self._feeds[stream].name
            if name not in self._positions:
                self.move(stream, source.begin())
            source.seek(self._positions[name])

    def hand_over(self) -> dict[str, Source]:
        """The sources by stream, for feeders that close them."""
        sources, self._sources = self._sources, {}
        return sources

    def unload(self) -> None:
        """Close what no feeder has."""
        for source in self.hand_over().values():
            source.close()

    def persist(self) -> tuple[dict[str, bytes], int]:
        """For a commit: positions, and the number of letters."""
        # The commit before this one has ended.
        self.committed, self._cut = self._cut, dict(self._positions)
        return self._positions, self._letters.persist()

    # --- What comes in -----------------------------------------------------------------------------------------------

    def take(self, stream: str, batch: FedBatch, time: int) -> int:
        """A batch joins the queue of its stream as a transaction, unless it is empty; returns how many did."""
        name = self._feeds[stream].name
        running = self._streams[stream]
        changes = Changes.of_batch(running.plan.shape, batch.rows, time)
        self._journal.note_event("feed", stream, name, batch.span, time)
        self._positions[name] = self._opened[stream].after(self._positions[name], batch.span)
        if len(changes):
            running.take_in(changes)
        for bad in batch.bad:
            self._letters.add(name, running.pushed, bad.origin, bad.cause, bad.data)
        return int(len(changes) > 0)

    def move(self, stream: str, position: bytes) -> None:
        """The feed of a stream has nothing more before this position."""
        name = self._feeds[stream].name
        self._journal.note_event("moved", stream, name, position)
        self._positions[name] = position

    def replays(self) -> Mapping[str, Callable[[str, list[Any], str], None]]:
        """By kind of event, what does it again."""
        return {"feed": self._take_again, "moved": self._move_again}

    def _take_again(self, stream: str, given: list[Any], what: str) -> None:
        name, span, time = given
        source, declared = self._opened.get(stream), self._feeds.get(stream)
        if source is None or declared is None or declared.name != name:
            found = "has no feed" if declared is None else f"has feed {declared.name!r}"
            raise InvalidOption(
                f"{what} has a batch of feed {name!r} for stream {stream!r}, which {found} now: start with the former "
                "feed, stop in order, then change it"
            )
        if name not in self._positions:
            raise CorruptLog(f"{what}: feed {name!r} has never begun")
        self.take(stream, source.again(span), time)

    def _move_again(self, stream: str, given: list[Any], what: str) -> None:  # noqa: ARG002 - as the others have it
        name, position = given
        is_new = name not in self._positions
        self._positions[name] = position
        source, declared = self._opened.get(stream), self._feeds.get(stream)
        if is_new and source is not None and declared is not None and declared.name == name:
            source.seek(position)
