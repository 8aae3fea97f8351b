"""The threads beside an application: feeders that bring batches, and senders that take outputs away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tussock.compute.applications.borders.output import POSITION, SEQUENCE, Output
from tussock.compute.applications.borders.sender import Sender, UnsentRow
from tussock.compute.applications.borders.unsent_rows import keep_unsent
from tussock.compute.applications.errors import ApplicationStopped, Full
from tussock.compute.applications.feeds.feed import FedBatch, Source
from tussock.compute.applications.feeds.feeder import Feeder
from tussock.compute.applications.runner import Runner
from tussock.statestore import StateStore, WaitTimeout
from tussock.statestore.base.system import System

__all__ = ["OpenFeed", "PumpHost", "Pumps"]

WAIT_SECONDS = 0.01
SEND_ROWS_MAX = 10_000
"""In one transaction, unless one batch has emitted more."""


class PumpHost(Protocol):
    """What the threads do with an application."""

    def take(self, target: str, batch: FedBatch) -> "Future[Any]":
        """Run a batch of the feed of `target`; the future ends when that is durable."""

    def move(self, target: str, position: bytes) -> "Future[Any]":
        """The feed of `target` has nothing more before this position."""

    def committed(self, feed: str) -> bytes | None:
        """A position that is committed for certain, the first time that it is asked for."""

    def output(self, stream: str) -> tuple[int, int, int]:
        """Sequence of the newest rows, what is sent, and how many rows are not known to be."""

    def sent(self, stream: str, sequence: int) -> None:
        """Rows are in the topic; what fails here has failed the application."""

    @property
    def is_idle(self) -> bool:
        """Whether `settle` knows of all that was asked for: nothing waits before the queue of the runner."""

    def settle(self) -> "Future[Any]":
        """Ends when all that the runner was asked for has run, or with what the application has failed with."""

    def put_off(self) -> Callable[[], bool]:
        """Whether something of what feeds have given by now still waits, though what they are at is durable."""

    def halt(self, error: Exception) -> None:
        """End the application, unless it has ended already."""


class OpenFeed(NamedTuple):
    """A feed whose source stands where it goes on."""

    name: str
    source: Source


class Pumps:
    """All feeders and senders of one run; used by clients' threads."""

    def __init__(
        self,
        application: str,
        store: StateStore,
        system: System,
        runner: Runner,
        outputs: Mapping[str, Output],
        host: PumpHost,
    ) -> None:
        """`outputs` by stream."""
        self._application = application
        self._store = store
        self._system = system
        self._runner = runner
        self._outputs = outputs
        self._host = host
        self._feeders: dict[str, Feeder] = {}
        self._senders: dict[str, Sender] = {}
        self._limits: dict[str, int] = {}
        self._unsent: dict[str, int] = {}
        """By stream, rows of this run that the topic did not take."""
        self._is_stopping = False

    def start(self, feeds: Callable[[], Mapping[str, OpenFeed]]) -> None:
        """Begin; raises what a topic's absence raises.

        `feeds` is asked after that, and gives by target what is the feeders' from then on.
        """
        for stream, output in self._outputs.items():
            if output.topic is None:
                continue
            begun, sent, _ = self._host.output(stream)
            name = f"tussock.{self._application}.{stream}.{self._runner.uid}"
            owner = f"tussock {self._application} {stream} {self._runner.uid}"
            sender = output.topic.sender(self._system, owner, name, sent, begun)
            sender.check()
            self._senders[stream] = sender
            self._limits[stream] = output.topic.lag_rows
        for stream, sender in self._senders.items():
            sender.start(_Outbox(self, stream, self._outputs[stream].table))
        for target, feed in feeds().items():
            self._feeders[target] = Feeder(self._system, feed.name, feed.source, _Taker(self, target, feed.name))

    def wait_for_room(self) -> None:
        """Return when no output has more unsent rows than it may; raises what the application has failed with.

        `Full` in a callback of a reply, which cannot wait.
        """
        for stream, limit in self._limits.items():
            while self._host.output(stream)[2] > limit:
                self._runner.check_running()
                if self._is_stopping:
                    raise ApplicationStopped(f"application {self._application!r} is stopping")
                if self._runner.nesting.is_in_callback:
                    raise Full(f"the output of stream {stream!r} has {limit:,} rows unsent; nothing was done", 1000)
                self._system.sleep(WAIT_SECONDS)

    @property
    def has_room(self) -> bool:
        """Whether that need not wait."""
        return all(self._host.output(stream)[2] <= limit for stream, limit in self._limits.items())

    def drain(self, timeout: float | None) -> None:
        """Return when what the feeds have is durable, and what was emitted is sent; `WaitTimeout`."""
        until = None if timeout is None else self._system.monotonic() + timeout
        self.drain_feeds(until)
        self.drain_outputs(until)

    def drain_feeds(self, until: float | None) -> None:
        """Return when what the feeds have has run and is durable; `WaitTimeout` at that time of the monotonic clock."""
        for name, waits in [(name, feeder.drained()) for name, feeder in self._feeders.items()]:
            what = f"feed {name!r} has more"
            self._await(lambda waits=waits: waits.done(), until, what, self._feeders[name])  # type: ignore[misc]
            if waits.cancelled():
                # It has failed, and the application with it, once what was asked for before has run.
                self._settle(until)
        is_put_off = self._host.put_off()
        if is_put_off():
            self._await(lambda: not is_put_off(), until, "requests of feeds wait to run again")
            self._run_out(until)

    def drain_outputs(self, until: float | None) -> None:
        """Return when what was emitted is sent; `WaitTimeout` at that time."""
        self._runner.commit_soon()
        if self._senders:
            self._settle(until)
        for stream, sender in self._senders.items():
            sender.hurry()
            newest = self._host.output(stream)[0]
            self._await(
                lambda sender=sender, newest=newest: sender.sent >= newest,  # type: ignore[misc]
                until,
                f"the output of stream {stream!r} is not sent",
                sender,
            )

    def end_feeds(self) -> None:
        """Feed no more, soon."""
        for feeder in self._feeders.values():
            feeder.end_soon()
        self._is_stopping = True

    def stop(self, seconds: float) -> None:
        """Feed no more; send what was emitted, for some seconds while nothing is wrong with the topics."""
        self.end_feeds()
        for feeder in self._feeders.values():
            feeder.stop()
        if self._senders and self._runner.failure is None:
            until = self._system.monotonic() + seconds
            self._runner.commit_soon()
            self._settle(None)
            for stream, sender in self._senders.items():
                sender.hurry()
                newest = self._host.output(stream)[0]
                while sender.sent < newest and self._system.monotonic() < until:
                    if sender.trouble or self._runner.failure is not None:
                        break
                    self._system.sleep(WAIT_SECONDS)
        for sender in self._senders.values():
            sender.stop()

    def stats(self) -> dict[str, Any]:
        """`feeds` and `outputs`, each by name."""
        feeds = {
            name: {"batches": one.batches, "rows": one.rows, "trouble": one.trouble}
            for name, one in self._feeders.items()
        }
        outputs: dict[str, Any] = {}
        for stream in self._outputs:
            sequence, sent, rows = self._host.output(stream)
            outputs[stream] = {"sequence": sequence}
            sender = self._senders.get(stream)
            if sender is not None:
                # Rows that are sent stay in the outbox until a commit takes them away.
                lag = 0 if sender.sent >= sequence else rows
                outputs[stream] |= {"sent": max(sent, sender.sent), "lag_rows": lag, "trouble": sender.trouble}
                outputs[stream]["unsent"] = self._unsent.get(stream, 0)
        return {"feeds": feeds, "outputs": outputs}

    def _settle(self, until: float | None) -> None:
        """Return when all that was asked for has run."""
        self._await(lambda: self._host.is_idle, until, "requests wait")
        self._run_out(until)

    def _run_out(self, until: float | None) -> None:
        """Return when all that the runner has by now has run."""
        settled = self._host.settle()
        self._await(settled.done, until, "requests run")
        settled.result()

    def _await(self, is_done: Callable[[], bool], until: float | None, what: str, pump: Any = None) -> None:
        """`pump`: of a feeder or a sender its trouble is told."""
        while not is_done():
            self._runner.check_running()
            if until is not None and self._system.monotonic() > until:
                trouble = "" if pump is None else pump.trouble
                raise WaitTimeout(
                    f"application {self._application!r}: {what}{trouble and f' ({trouble})'}; it works on"
                )
            self._system.sleep(WAIT_SECONDS)

    # --- What the threads do with the application --------------------------------------------------------------------

    def take(self, target: str, batch: FedBatch) -> "Future[Any]":
        """A batch of a feed, once there is room for what it emits."""
        self.wait_for_room()
        return self._host.take(target, batch)

    def keep_unsent(self, stream: str, rows: Sequence[UnsentRow]) -> None:
        """Into the table of what no topic takes."""
        keep_unsent(self._store, self._application, stream, rows)
        self._unsent[stream] = self._unsent.get(stream, 0) + len(rows)

    @property
    def host(self) -> PumpHost:
        """The application."""
        return self._host

    def read(self, table: str, after: int) -> Iterator[tuple[int, pa.Table]]:
        """Committed rows of an outbox, by sequence."""
        opened = self._store.table(table)
        batches = list(opened.read(between=((after + 1,), ()), limit=SEND_ROWS_MAX))
        rows = pa.Table.from_batches(batches, opened.schema)
        if not rows.num_rows:
            return
        sequences = rows.column(SEQUENCE).to_pylist()
        if rows.num_rows == SEND_ROWS_MAX:
            # The last sequence may go on beyond the limit.
            last = sequences[-1]
            if last == sequences[0]:
                rows = pa.Table.from_batches(list(opened.read(prefix=(last,))), opened.schema)
                yield last, rows.drop_columns([SEQUENCE, POSITION])
                return
            rows = rows.slice(0, sequences.index(last))
            sequences = sequences[: rows.num_rows]
        begin = 0
        for at in range(1, len(sequences) + 1):
            if at == len(sequences) or sequences[at] != sequences[begin]:
                yield sequences[begin], rows.slice(begin, at - begin).drop_columns([SEQUENCE, POSITION])
                begin = at

    def newest(self, stream: str) -> int:
        """The sequence of the newest rows; raises what the application has failed with.

        A sender whose application was taken over must not fence the one of the successor again and again.
        """
        if self._runner.failure is not None:
            raise self._runner.failure
        return self._host.output(stream)[0]


class _Taker:
    def __init__(self, pumps: Pumps, target: str, feed: str) -> None:
        self._pumps = pumps
        self._target = target
        self._feed = feed

    def take(self, batch: FedBatch) -> "Future[Any]":
        return self._pumps.take(self._target, batch)

    def move(self, position: bytes) -> "Future[Any]":
        return self._pumps.host.move(self._target, position)

    def halt(self, error: Exception) -> None:
        self._pumps.host.halt(error)

    def committed(self) -> bytes | None:
        return self._pumps.host.committed(self._feed)


class _Outbox:
    def __init__(self, pumps: Pumps, stream: str, table: str) -> None:
        self._pumps = pumps
        self._stream = stream
        self._table = table

    def newest(self) -> int:
        return self._pumps.newest(self._stream)

    def read(self, after: int) -> Iterator[tuple[int, pa.Table]]:
        return self._pumps.read(self._table, after)

    def sent(self, sequence: int) -> None:
        self._pumps.host.sent(self._stream, sequence)

    def unsent(self, rows: Sequence[UnsentRow]) -> None:
        self._pumps.keep_unsent(self._stream, rows)

    def halt(self, error: Exception) -> None:
        self._pumps.host.halt(error)
