"""`Flow`: runs streams on a store, and lets their work be paused, gone through step by step, and drained."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tussock.compute.applications.arguments import check_seconds, is_name
from tussock.compute.applications.feeds.table_feed import TableFeed
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.compute.changelog.borders.changes_topic import ChangesTopic
from tussock.compute.changelog.borders.parquet_files import ParquetFiles
from tussock.compute.changelog.debugging.flow_looks import FlowLooks
from tussock.compute.changelog.engine.anew.stream_repairs import forget_stream, rebuild_stream
from tussock.compute.changelog.feeds.file_feed import FileFeed
from tussock.compute.changelog.feeds.kafka_changes import KafkaChanges
from tussock.compute.changelog.flow_host import FlowHost
from tussock.compute.changelog.partitions.flow_program import FlowProgram
from tussock.compute.changelog.plan import FlowPlan
from tussock.compute.changelog.stream import Stream, join_flow, plan_of
from tussock.statestore import InvalidOption, StateStore

if TYPE_CHECKING:
    from tussock.compute.changelog.remote.served_flow import ServedFlow

__all__ = ["Flow", "host_of"]


class Flow(FlowLooks):
    """One flow: streams that are fed by clients or by each other. Clients may be in any thread."""

    def __init__(
        self,
        store: StateStore,
        streams: Sequence[Stream],
        *,
        name: str | None = None,
        group_commit: float | None = 0.010,
        checkpoint: float = 1.0,
        timeout: float = 30.0,
        input: str | None = None,  # noqa: A002 - the public API's name
        limits: ApplicationLimits = DEFAULT_APPLICATION_LIMITS,
    ) -> None:
        """`name`, by default the first stream's, tells the flow from other applications of the store.

        Subscribers and callers hear of a transaction once its record is durable, at most `group_commit` seconds after
        it ran; `None`: each record alone. State is committed every `checkpoint` seconds; 0: for each request. A
        transaction whose compute function takes `timeout` seconds for a batch, or a few hundred records, is bad.
        `input`: the URL of another place for the input log than the store's bucket. Raises `InvalidOption`.
        """
        streams = list(streams) if isinstance(streams, Iterable) else [streams]
        if not streams or not all(isinstance(one, Stream) for one in streams):
            raise InvalidOption(f"a flow of {streams!r:.100}; expected streams")
        name = streams[0].name if name is None else name
        if not is_name(name):
            raise InvalidOption(
                f"a flow is named {name!r:.120}; expected at most 100 letters, digits, '_' and '-', beginning with a "
                "letter or '_'"
            )
        check_seconds(group_commit, f"flow {name!r}: group_commit", none=True)
        check_seconds(checkpoint, f"flow {name!r}: checkpoint", none=False)
        check_seconds(timeout, f"flow {name!r}: timeout", none=False)
        if not timeout:
            raise InvalidOption(f"flow {name!r}: timeout={timeout!r}; expected more than 0 s")
        for one in streams:
            if one.store is not store:
                raise InvalidOption(f"flow {name!r}: stream {one.name!r} is of another store")
            if one.flow is not None:
                raise InvalidOption(f"flow {name!r}: stream {one.name!r} is part of flow {one.flow.name!r} already")
        FlowPlan(name, [plan_of(one) for one in streams])
        host = FlowHost(
            name,
            store,
            streams,
            group_commit=group_commit,
            checkpoint=checkpoint,
            timeout=timeout,
            place=input,
            limits=limits,
        )
        super().__init__(host)
        for one in streams:
            join_flow(one, self, host)

    @property
    def streams(self) -> Mapping[str, Stream]:
        """Its streams, by name."""
        return MappingProxyType(self._host.streams)

    def stream(self, name: str) -> Stream:
        """A stream of the flow; `InvalidOption` if it has none of that name."""
        return self._host.streams[self._host.name_of(name)]

    # --- Feeds and outputs -------------------------------------------------------------------------------------------

    def feed(self, stream: Stream | str, feed: TableFeed | KafkaChanges | FileFeed, *, name: str | None = None) -> None:
        """Let a stream without inputs get its transactions from a feed, and from nobody else.

        Its position is kept under `name`, the stream's by default: under another name it begins anew. Raises
        `InvalidOption`.
        """
        self._host.feed(stream, feed, name)

    def output(
        self,
        stream: Stream | str,
        to: str | ChangesTopic | ParquetFiles,
        *,
        keep_rows: int | None = None,
        blocks: bool = False,
        name: str | None = None,
    ) -> None:
        """Put what a stream publishes from now on into a table, a topic of Kafka or files, each transaction once.

        A table has a row for each record, with `_sequence`, the number of its transaction, and `_position` as its key,
        and `_op`; files have the same, and `_time`. With `blocks` an update is two rows, the second with `_old`. A
        table is created if it is not there; of its newest rows at least `keep_rows` stay, by default all. Another
        output of the same stream needs a `name`. Raises `InvalidOption`, `SchemaMismatch`.
        """
        self._host.output(stream, to, keep_rows, name, blocks=blocks)

    # --- Running -----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it has started, and not stopped."""
        return self._host.is_running

    def start(self) -> None:
        """Recover, and begin to take transactions. A second runner of the same flow shuts the first one out.

        Raises `NotDeterministic`, `CorruptLog`, `StreamChanged`, `InvalidOption`, and what opening tables raises.
        """
        self._host.start()

    def stop(self, timeout: float | None = None) -> None:
        """Commit what there is, and end; what waits in queues is there at the next start. Again: nothing.

        Raises what the flow has failed with, and `WaitTimeout` after `timeout` seconds: then it goes on ending.
        """
        check_seconds(timeout, f"flow {self.name!r}: stop(timeout)", none=True)
        self._host.stop(timeout, self.stop_auto_step)

    def _leave(self) -> None:
        self._host.leave(self.stop_auto_step)

    def drain(self, timeout: float | None = None) -> None:
        """Wait until all that feeds have now is there, and nothing is queued or worked on, and commit.

        Then the tables of the store have it all, and outputs what was published. Raises `WaitTimeout` after `timeout`
        seconds, such as in a pause, and what the flow has failed with.
        """
        self._host.drain(timeout)

    # --- Streams made anew -------------------------------------------------------------------------------------------

    def rebuild(self, stream: Stream | str) -> None:
        """While the flow does not run: let the next start make a stream anew from the rows of its inputs.

        It publishes what differs from what it had, so that subscribers and the streams behind it are right, too. One
        that reads no others goes on from the rows that it has, also if others have written them. Raises `InvalidOption`
        if the flow runs, has never run, or was not stopped in order.
        """
        self._check_stopped("rebuild()")
        rebuild_stream(self._host.store, self._host.name, self._host.name_of(stream), place=self._host.place)

    def forget(self, stream: Stream | str) -> list[str]:
        """While the flow does not run: drop a stream's table, histories, bad transactions and its feed's position.

        It is empty at the next start and begins anew, with the number behind its last one; what reads it is made anew.
        A stream may be named that the flow no longer has. Returns the tables that were dropped. Raises `InvalidOption`
        as `rebuild`.
        """
        self._check_stopped("forget()")
        name = stream.name if isinstance(stream, Stream) else stream
        return forget_stream(self._host.store, self._host.name, name, place=self._host.place)

    # --- Elsewhere ---------------------------------------------------------------------------------------------------

    def served(self) -> "ServedFlow":
        """The flow as `tussock serve` sees it (extra `service`)."""
        from tussock.compute.changelog.remote.served_flow import ServedFlow

        self._host.check_asked()
        return ServedFlow(self, self._host)

    def partitioned_program(self, procedure: str | None = None) -> FlowProgram:
        """What Spark's tasks run; `InvalidOption` says why it cannot be. Makes the tables that are not there."""
        return self._host.partitioned_program(procedure)

    def _check_stopped(self, what: str) -> None:
        self._host.check_asked()
        if self._host.is_running:
            raise InvalidOption(f"flow {self.name!r} runs; stop it before {what}")


def host_of(flow: Flow) -> FlowHost:
    """The machinery of a flow, which is no part of what users see."""
    return flow._host  # noqa: SLF001 - of this module
