"""`FlowBorders`: what a flow has declared of feeds and outputs, and both of one run after the other."""

from collections.abc import Callable, Mapping
from typing import Any

from tussock.compute.applications.borders.dead_letters import DEAD_LETTERS_SCHEMA
from tussock.compute.applications.borders.output import Output
from tussock.compute.applications.borders.sender import OutputTarget
from tussock.compute.applications.durability.claims import check_columns
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.changelog.borders.changes_topic import ChangesTopic
from tussock.compute.changelog.borders.fed_streams import FedStreams, FlowFeed, letters_table
from tussock.compute.changelog.borders.parquet_files import ParquetFiles
from tussock.compute.changelog.borders.published_outputs import FlowOutput, PublishedOutputs, output_schema
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import OLD, OP
from tussock.compute.changelog.engine.journal import Journal
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.feeds.file_feed import FileFeed
from tussock.compute.changelog.feeds.kafka_changes import KafkaChanges
from tussock.compute.changelog.plan import FlowPlan
from tussock.compute.changelog.progress import FlowProgress
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore
from tussock.statestore.transactions.delta import Delta

__all__ = ["FlowBorders"]

NAME_MAX = 200


class FlowBorders:
    """Of one flow."""

    def __init__(self, flow: str, store: StateStore) -> None:
        self._flow = flow
        self._store = store
        self.feeds: dict[str, FlowFeed] = {}
        """By stream."""
        self._outputs: dict[str, FlowOutput] = {}
        self.fed = FedStreams(flow, store, {})
        self.published = PublishedOutputs(flow, store, {})

    # --- Declaring ---------------------------------------------------------------------------------------------------

    def add_feed(self, stream: Any, feed: Any, name: str | None) -> None:
        """See `Flow.feed`."""
        what = f"flow {self._flow!r}"
        if stream.inputs:
            raise InvalidOption(f"{what}: stream {stream.name!r} reads other streams: feed one of those")
        if stream.name in self.feeds:
            raise InvalidOption(f"{what}: stream {stream.name!r} has a feed already; union two streams")
        if not isinstance(feed, TableFeed | KafkaChanges | FileFeed):
            raise InvalidOption(f"{what}: feed {feed!r:.100}; expected a TableFeed, KafkaChanges or FileFeed")
        name = _checked_name(stream.name if name is None else name, f"{what}: a feed")
        if any(one.name == name for one in self.feeds.values()):
            raise InvalidOption(f"{what} has a feed {name!r} already; give this one another name=")
        self.feeds[stream.name] = FlowFeed(name, feed)

    def add_output(self, stream: Any, to: Any, keep_rows: int | None, name: str | None, *, blocks: bool) -> None:
        """See `Flow.output`."""
        what = f"flow {self._flow!r}"
        name = _checked_name(stream.name if name is None else name, f"{what}: an output")
        if name in self._outputs:
            raise InvalidOption(f"{what} has an output {name!r} already; give this one another name=")
        taken = [one for one in (OP, OLD, "_time") if one in stream.schema.names]
        if taken:
            raise SchemaMismatch(f"{what}: output {name!r}: columns {taken} are what outputs add")
        if isinstance(to, ChangesTopic | ParquetFiles):
            if keep_rows is not None or (blocks and isinstance(to, ChangesTopic)):
                raise InvalidOption(
                    f"{what}: output {name!r}: keep_rows= is for tables, and blocks= for tables and files; a message "
                    "of a topic has the row before and after"
                )
            target: OutputTarget = to.of(self._flow, stream.name, stream.schema, stream.key)
            output = Output(f"{self._flow}.{name}.outbox", None, target)
        elif isinstance(to, str) and to:
            output = Output(to, keep_rows)
        else:
            raise InvalidOption(
                f"{what}: output {name!r} to {to!r:.100}; expected a table's name, a ChangesTopic or ParquetFiles"
            )
        declared = FlowOutput(stream.name, output, blocks or isinstance(to, ChangesTopic))
        output.check(stream.name, output_schema(declared, stream.schema))
        self._outputs[name] = declared

    def check(self, plan: FlowPlan) -> None:
        """`InvalidOption` if an output, or a feed, has a table that the flow writes otherwise."""
        own = {one.name for one in plan.streams}
        for name, one in self._outputs.items():
            if one.output.table in own:
                raise InvalidOption(
                    f"flow {self._flow!r}: output {name!r} goes to table {one.output.table!r}, which a stream or "
                    "another output writes; name another table"
                )
            own.add(one.output.table)
        for fed in self.feeds.values():
            if isinstance(fed.feed, TableFeed) and fed.feed.table in own:
                raise InvalidOption(
                    f"flow {self._flow!r}: feed {fed.name!r} reads table {fed.feed.table!r}, which the flow itself "
                    "writes: it would never end; let a stream read the other one"
                )

    def check_none(self) -> None:
        """`InvalidOption` if anything is declared: Spark's tasks have what Spark feeds them, and give it the output."""
        if self.feeds or self._outputs:
            raise InvalidOption(
                f"flow {self._flow!r} has feeds or outputs, which are of flows that run by themselves: on Spark the "
                "query feeds the first stream, and the tables of the streams are the output"
            )

    # --- A run -------------------------------------------------------------------------------------------------------

    def begin(self, plan: FlowPlan) -> None:
        """A run begins: make the tables that are not there."""
        self.check(plan)
        self.fed = FedStreams(self._flow, self._store, dict(self.feeds))
        self.published = PublishedOutputs(self._flow, self._store, dict(self._outputs))
        table = letters_table(self._flow)
        if self.feeds:
            check_columns(self._store, self._flow, {table: (DEAD_LETTERS_SCHEMA, ["number"])})
        if self.feeds and table not in self._store.tables():
            self._store.create_table(table, DEAD_LETTERS_SCHEMA, primary_key=["number"], vnodes=1)
        self.published.create_tables({one.name: one.shape for one in plan.streams})

    def load(self, delta: Delta, known: FlowProgress, streams: Mapping[str, RunningStream], journal: Journal) -> None:
        """Open what was declared where the newest commit is."""
        self.published.load(delta, known, journal)
        self.fed.load(delta, known, streams, journal)

    def add(self, stream: str, seq: int, changes: Changes) -> None:
        """A stream has published a transaction."""
        self.published.published(stream, seq, changes)

    def persist(self) -> tuple[dict[str, bytes], int, dict[str, list[int]]]:
        """For a commit: positions, the number of letters, and how far the outputs are."""
        positions, letters = self.fed.persist()
        return positions, letters, self.published.persist()

    def replays(self) -> dict[str, Callable[[str, list[Any], str], None]]:
        """By kind of event, what does it again."""
        return {**self.fed.replays(), **self.published.replays()}


def _checked_name(name: object, what: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise InvalidOption(f"{what} is named {name!r:.100}; expected 1 to {NAME_MAX} characters")
    return name
