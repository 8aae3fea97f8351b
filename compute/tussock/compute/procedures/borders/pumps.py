"""The threads beside the engine: feeders that bring batches, and senders that take outputs away."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.applications.feeds.feed import FedBatch, Source
from tussock.compute.applications.feeds.feeder import Feeder
from tussock.compute.applications.kafka.sender import KafkaSender
from tussock.compute.applications.runner import Runner
from tussock.compute.procedures.borders.fed_inputs import given_of
from tussock.compute.procedures.borders.output import POSITION, SEQUENCE
from tussock.compute.procedures.borders.requests import BatchRequest, Halt, MoveRequest, SentRequest
from tussock.compute.procedures.definitions import Definitions
from tussock.compute.procedures.engine import Engine
from tussock.statestore import StateStore, TussockError, WaitTimeout
from tussock.statestore.base.system import System

__all__ = ["Pumps"]

WAIT_SECONDS = 0.01
SEND_ROWS_MAX = 10_000
"""In one transaction, unless one batch has emitted more."""


class Pumps:
    """All feeders and senders of one run; used by clients' threads."""

    def __init__(self, store: StateStore, definitions: Definitions, engine: Engine, runner: Runner) -> None:
        self._store = store
        self._definitions = definitions
        self._engine = engine
        self._runner = runner
        self._system: System = engine.system
        self._feeders: dict[str, Feeder] = {}
        self._senders: dict[str, KafkaSender] = {}
        self._limits: dict[str, int] = {}
        self._is_stopping = False

    def start(self) -> None:
        """Begin; raises what a topic's absence raises."""
        for stream, output in self._definitions.outputs.items():
            if output.topic is None:
                continue
            begun, sent, _ = self._engine.output(stream)
            name = f"tussock.{self._definitions.application}.{stream}.{self._runner.uid}"
            owner = f"tussock {self._definitions.application} {stream} {self._runner.uid}"
            sender = KafkaSender(self._system, output.topic, owner, name, sent, begun)
            sender.check()
            self._senders[stream] = sender
            self._limits[stream] = output.topic.lag_rows
        for stream, sender in self._senders.items():
            sender.start(_Outbox(self, stream, self._definitions.outputs[stream].table))
        for procedure, source in self._engine.inputs.hand_over().items():
            self._feeders[procedure] = self._feeder(procedure, source)

    def wait_for_room(self) -> None:
        """Return when no output has more unsent rows than it may; raises what the application has failed with."""
        for stream, limit in self._limits.items():
            while self._engine.output(stream)[2] > limit:
                self._runner.check_running()
                if self._is_stopping:
                    raise ApplicationStopped(f"application {self._definitions.application!r} is stopping")
                self._system.sleep(WAIT_SECONDS)

    def drain(self, timeout: float | None) -> None:
        """Return when what the feeds have is durable, and what was emitted is sent; `WaitTimeout`."""
        until = None if timeout is None else self._system.monotonic() + timeout
        for name, waits in [(name, feeder.drained()) for name, feeder in self._feeders.items()]:
            self._await(lambda waits=waits: waits.done(), until, f"feed {name!r} has more")  # type: ignore[misc]
            if waits.cancelled():
                # It has failed, and the application with it, once what was asked for before has run.
                self._runner.submit(self._engine.ask(lambda _: None)).result()
        self._runner.commit_soon()
        for stream, sender in self._senders.items():
            newest = self._newest_of(stream)
            self._await(
                lambda sender=sender, newest=newest: sender.sent >= newest,  # type: ignore[misc]
                until,
                f"the output of stream {stream!r} is not sent",
            )

    def stop(self, seconds: float) -> None:
        """Feed no more; send what was emitted, for some seconds while nothing is wrong with the topics."""
        for feeder in self._feeders.values():
            feeder.end_soon()
        self._is_stopping = True
        for feeder in self._feeders.values():
            feeder.stop()
        if self._senders and self._runner.failure is None:
            until = self._system.monotonic() + seconds
            self._runner.commit_soon()
            for stream, sender in self._senders.items():
                newest = self._newest_of(stream)
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
        for stream in self._definitions.outputs:
            sequence, sent, rows = self._engine.output(stream)
            outputs[stream] = {"sequence": sequence}
            sender = self._senders.get(stream)
            if sender is not None:
                outputs[stream] |= {"sent": max(sent, sender.sent), "lag_rows": rows, "trouble": sender.trouble}
        return {"feeds": feeds, "outputs": outputs}

    def _newest_of(self, stream: str) -> int:
        """After all that was asked for has run."""
        sequence: int = self._runner.submit(self._engine.ask(lambda engine: engine.output(stream)[0])).result()
        return sequence

    def _await(self, is_done: Callable[[], bool], until: float | None, what: str) -> None:
        while not is_done():
            self._runner.check_running()
            if until is not None and self._system.monotonic() > until:
                raise WaitTimeout(f"application {self._definitions.application!r}: {what}; it works on")
            self._system.sleep(WAIT_SECONDS)

    def _feeder(self, procedure: str, source: Source) -> Feeder:
        declared = self._definitions.feeds[procedure]
        return Feeder(self._system, declared.name, source, _Taker(self, procedure, declared.name))

    # --- What the threads do with the application --------------------------------------------------------------------

    def take(self, procedure: str, feed: str, batch: FedBatch) -> "Future[Any]":
        """A batch of a feed."""
        self.wait_for_room()
        return self._runner.submit(BatchRequest(procedure, None, batch.rows, given_of(feed, batch.span), batch))

    def move(self, procedure: str, position: bytes) -> "Future[Any]":
        """A position."""
        return self._runner.submit(MoveRequest(procedure, position))

    def halt(self, error: Exception) -> None:
        """End the application, unless it has ended already."""
        with suppress(TussockError):
            self._runner.submit(Halt(error))

    def committed(self, feed: str) -> bytes | None:
        """A position, the first time that it is asked for."""
        return self._engine.inputs.committed.pop(feed, None)

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
        return self._engine.output(stream)[0]

    def sent(self, stream: str, sequence: int) -> None:
        """Rows are in the topic; what fails here has failed the application."""
        with suppress(TussockError):
            self._runner.submit(SentRequest(stream, sequence))


class _Taker:
    def __init__(self, pumps: Pumps, procedure: str, feed: str) -> None:
        self._pumps = pumps
        self._procedure = procedure
        self._feed = feed

    def take(self, batch: FedBatch) -> "Future[Any]":
        return self._pumps.take(self._procedure, self._feed, batch)

    def move(self, position: bytes) -> "Future[Any]":
        return self._pumps.move(self._procedure, position)

    def halt(self, error: Exception) -> None:
        self._pumps.halt(error)

    def committed(self) -> bytes | None:
        return self._pumps.committed(self._feed)


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
        self._pumps.sent(self._stream, sequence)

    def halt(self, error: Exception) -> None:
        self._pumps.halt(error)
