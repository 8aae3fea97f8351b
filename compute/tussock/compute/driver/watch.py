"""Looks at Spark every second, beside the application: scales executors, and keeps the status for probes."""

import threading

import msgspec

from tussock.compute.driver.context import SPARK_GONE, Executors, active_queries, running_context
from tussock.compute.driver.disk import DiskWatch
from tussock.compute.driver.lag import Delays, batch_of
from tussock.compute.driver.scale import Scaler
from tussock.compute.spark.batches.commits import latest_commit
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System

__all__ = ["Query", "Status", "Watch"]

log = get_logger("tussock.compute")

_LOOK_SECONDS = 1.0
_STALLED_SECONDS = 60.0
"""A JVM that does not answer within this time is not just collecting garbage."""


class Query(msgspec.Struct, frozen=True, rename="camel"):
    """A stream that runs."""

    id: str
    name: str
    batch_id: int
    """Of the newest batch that ended; -1: none has yet."""
    input_rows_per_second: float
    behind_seconds: float | None = None
    """As `lag.Delays` says."""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the driver."""

    is_started: bool = False
    """Spark runs."""
    is_draining: bool = False
    executors: int = 0
    """Executors that take tasks."""
    executors_wanted: int | None = None
    """`None`: Spark decides."""
    scaling: str = ""
    """Why there are as many, where the driver decides."""
    queries: tuple[Query, ...] = ()
    committed_epoch: int = 0
    """The newest epoch that this driver or one of its sinks has committed; 0: none yet."""
    committed_batch: int = 0
    committed_ms: int = 0
    """Unix time of that commit."""
    program_sha256: str = ""
    """Digest of the program's file, as it was when it began."""
    checkpoint_used_percent: int | None = None
    """How full the checkpoint's volume is; `None`: not known."""


class Watch:
    """The latest `Status`, updated by its own thread."""

    def __init__(self, scaler: Scaler, system: System, *, is_stream: bool, disk: DiskWatch | None = None) -> None:
        self._disk = disk
        self._scaler = scaler
        self._system = system
        self._is_stream = is_stream
        self._seen = system.monotonic()
        self._draining = threading.Event()
        self._delays = Delays()
        self.program_sha256 = ""
        """Digest of the program that runs; empty before it begins."""
        self.has_seen_spark = False
        """Whether Spark has ever run; the application may have stopped it since then."""
        self.status = Status()

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            try:
                self.step()
            except SPARK_GONE as error:
                # The application may stop Spark at any time; if Spark stopped otherwise, the application fails, too.
                log.info("Spark does not answer", error=str(error).splitlines()[0][:200] if str(error) else "")
                self.status = self._without_spark()
            except ValueError as error:
                log.warning("executors stay as they are", error=str(error))
            self._seen = self._system.monotonic()
            self._system.sleep(_LOOK_SECONDS)

    def step(self) -> None:
        """Look once."""
        context = running_context()
        if context is None:
            self.status = self._without_spark()
            return
        self.has_seen_spark = True
        executors, queries = Executors(context), self._queries()
        if not self._draining.is_set():
            known = [query.behind_seconds for query in queries if query.behind_seconds is not None]
            batches = sum(query.batch_id for query in queries)
            leaving = self._scaler.step(executors, max(known, default=None), batches, self._system.monotonic())
            if leaving:
                log.info("decommissioning executors", executors=leaving, wanted=self._scaler.requested)
        commit = latest_commit()
        self.status = Status(
            is_started=True,
            is_draining=self._draining.is_set(),
            executors=len(executors.active()),
            executors_wanted=self._scaler.requested,
            scaling=self._scaler.why,
            queries=queries,
            committed_epoch=commit.epoch if commit else 0,
            committed_batch=commit.batch_id if commit else 0,
            committed_ms=commit.noted_ms if commit else 0,
            program_sha256=self.program_sha256,
            checkpoint_used_percent=self._disk.used_percent if self._disk else None,
        )

    def _queries(self) -> tuple[Query, ...]:
        streams = [(str(one.id), one.name or "", one.lastProgress or {}, one.status) for one in active_queries()]
        behind = self._delays.look([(id_, done, now) for id_, _, done, now in streams], self._system.monotonic())
        return tuple(
            Query(id_, name, batch_of(done), float(done.get("inputRowsPerSecond") or 0.0), late)
            for (id_, name, done, _), late in zip(streams, behind, strict=True)
        )

    def _without_spark(self) -> Status:
        return Status(
            is_draining=self._draining.is_set(),
            program_sha256=self.program_sha256,
            checkpoint_used_percent=self._disk.used_percent if self._disk else None,
        )

    def drain(self) -> None:
        """Note that the driver is about to end: it is not ready, and asks for no more executors."""
        self._draining.set()

    @property
    def is_alive(self) -> bool:
        """Whether Spark answered lately."""
        return self._system.monotonic() - self._seen < _STALLED_SECONDS

    @property
    def is_ready(self) -> bool:
        """Whether the job does its work: Spark runs and, in a streaming job, a stream."""
        status = self.status
        return status.is_started and not status.is_draining and (bool(status.queries) or not self._is_stream)
