"""`TussockListener`: one log line for each micro-batch of a session's streams, and metrics of them.

What a batch did comes from Spark's own progress, which names each step and its milliseconds, and from the notes of its
tasks and its commit (`batch_work`). Metrics are kept if `prometheus-client` is installed; the driver that the operator
starts serves them at `/metrics`.
"""

import importlib.util
from typing import Any

import msgspec
from msgspec.structs import asdict
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from tussock.compute.spark.batches.batch_work import BatchWork, batch_work
from tussock.compute.spark.batches.task_times import TimeSpent
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.logs import get_logger

__all__ = ["TussockListener", "metrics_text"]

log = get_logger("tussock.compute.streams")

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

_shared: "Metrics | None" = None


class Metrics:
    """Counters of batches in their own registry; needs `prometheus-client`."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"labelnames": ["query"], "registry": self.registry}
        self._batches = Counter("tussock_stream_batches", "Micro-batches that ended.", **named)
        self._input = Counter("tussock_stream_input_rows", "Rows that micro-batches read.", **named)
        self._output = Counter("tussock_stream_output_rows", "Rows that micro-batches wrote, where known.", **named)
        self._epoch = Gauge("tussock_stream_read_epoch", "The epoch up to which a change stream has read.", **named)
        self._rows = Counter("tussock_stream_written_rows", "Rows and deletes in the SSTs of batches.", **named)
        self._bytes = Counter("tussock_stream_written_bytes", "Size of the SSTs of micro-batches.", **named)
        self._written = Gauge("tussock_stream_written_epoch", "The epoch of the newest batch in the store.", **named)
        self._repeated = Counter("tussock_stream_repeated_batches", "Batches that were in the store already.", **named)
        named["buckets"] = _SECONDS
        self._slowest = Histogram("tussock_stream_slowest_task_seconds", "Time of a batch's slowest task.", **named)
        named["labelnames"] = ["query", "step"]
        self._seconds = Histogram(
            "tussock_stream_step_seconds",
            "Time of a micro-batch's steps, as Spark names them; triggerExecution is the whole.",
            **named,
        )
        self._work = Histogram(
            "tussock_stream_write_seconds",
            "Time of read, function, encode and upload in all tasks of a micro-batch together, and of its commit.",
            **named,
        )

    def count(self, query: str, told: dict[str, Any], work: BatchWork | None) -> None:
        """Count a batch, as the log has it, and what it wrote."""
        self._batches.labels(query).inc()
        self._input.labels(query).inc(told["input_rows"])
        self._output.labels(query).inc(told["output_rows"] or 0)
        if told["read_epoch"] is not None:
            self._epoch.labels(query).set(told["read_epoch"])
        for step, milliseconds in told["steps_ms"].items():
            self._seconds.labels(query, step).observe(milliseconds / 1000)
        if work is None:
            return
        self._written.labels(query).set(work.epoch)
        self._repeated.labels(query).inc(work.repeated)
        if work.tasks:
            self._rows.labels(query).inc(work.rows)
            self._bytes.labels(query).inc(work.bytes)
            self._slowest.labels(query).observe(work.slowest.total)
            for step, seconds in (*asdict(work.spent).items(), ("commit", work.commit)):
                self._work.labels(query, step).observe(seconds)


def metrics_text() -> bytes | None:
    """What all listeners of this process have counted, in the format of Prometheus; `None` if nothing counts."""
    if _shared is None:
        return None
    from prometheus_client import generate_latest

    text: bytes = generate_latest(_shared.registry)
    return text


def _metrics() -> Metrics | None:
    """The one set of metrics of this process, which all its listeners share."""
    global _shared
    if _shared is None and importlib.util.find_spec("prometheus_client") is not None:
        _shared = Metrics()
    return _shared


class TussockListener(StreamingQueryListener):  # type: ignore[misc]
    """Logs and counts each micro-batch of a session: `spark.streams.addListener(TussockListener())`."""

    def __init__(self) -> None:
        self._metrics = _metrics()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """One line, so that a log names the query before its first batch."""
        log.info("stream started", query=str(event.id), run=str(event.runId), name=event.name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """One line a batch."""
        told = _progress_fields(event.progress)
        work = batch_work(told["query"], told["batch"])
        log.info("batch", **told, **({} if work is None else _write_fields(work)))
        if self._metrics is not None:
            self._metrics.count(told["name"] or told["query"], told, work)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: an idle stream has no news."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """One line, with the first line of the error if it failed."""
        if event.exception is None:
            log.info("stream ended", query=str(event.id), run=str(event.runId))
        else:
            log.error("stream failed", query=str(event.id), run=str(event.runId), error=event.exception.splitlines()[0])


def _progress_fields(progress: StreamingQueryProgress) -> dict[str, Any]:
    """The log's fields for a batch: rows, Spark's steps in milliseconds, and how far change streams have read."""
    written = progress.sink.numOutputRows
    epochs = [epoch for source in progress.sources if (epoch := _epoch(source)) is not None]
    return {
        "query": str(progress.id),
        "run": str(progress.runId),
        "name": progress.name,
        "batch": progress.batchId,
        "input_rows": progress.numInputRows,
        # Spark reports -1 for a sink that does not count.
        "output_rows": written if written >= 0 else None,
        "read_epoch": min(epochs, default=None),
        "steps_ms": dict(progress.durationMs),
    }


def _write_fields(work: BatchWork) -> dict[str, Any]:
    """The log's fields for what a batch wrote; for one that was in the store already, only that and its epoch."""
    told: dict[str, Any] = {"written_epoch": work.epoch, "repeated": work.repeated}
    if not work.tasks:
        return told
    return {
        **told,
        "written_rows": work.rows,
        "written_bytes": work.bytes,
        "tasks": work.tasks,
        **{f"{step}_ms": milliseconds for step, milliseconds in _milliseconds(work.spent).items()},
        "commit_ms": round(work.commit * 1000, 1),
        "slowest_task_ms": _milliseconds(work.slowest),
    }


def _milliseconds(spent: TimeSpent) -> dict[str, float]:
    return {step: round(seconds * 1000, 1) for step, seconds in asdict(spent).items()}


def _epoch(source: SourceProgress) -> int | None:
    """The epoch up to which a source has read; `None` if it is not a source of changes."""
    try:
        offset = msgspec.json.decode(source.endOffset or "null")
    except UNREADABLE:
        return None
    is_ours = isinstance(offset, dict) and {"epoch", "start", "snapshot", "initial"} == set(offset)
    return int(offset["epoch"]) if is_ours else None
