"""`TussockListener`: one line in the log for each micro-batch of a session's streams, and metrics of them.

What a batch did comes from Spark's own progress, which names each step and its milliseconds. Metrics are kept where
`prometheus-client` is installed; the driver that the operator starts answers them at `/metrics`.
"""

import importlib.util
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from tussock.statestore.logs import get_logger

__all__ = ["TussockListener", "metrics_text"]

log = get_logger("tussock.compute.streams")

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

_shared: "Metrics | None" = None


class Metrics:
    """Counters of batches in a registry of their own; needs `prometheus-client`."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        named: dict[str, Any] = {"labelnames": ["query"], "registry": self.registry}
        self._batches = Counter("tussock_stream_batches", "Micro-batches that ended.", **named)
        self._input = Counter("tussock_stream_input_rows", "Rows that micro-batches read.", **named)
        self._output = Counter("tussock_stream_output_rows", "Rows that micro-batches wrote, where known.", **named)
        self._epoch = Gauge("tussock_stream_read_epoch", "The epoch up to which a change stream has read.", **named)
        self._seconds = Histogram(
            "tussock_stream_step_seconds",
            "Time of a micro-batch's steps, as Spark names them; triggerExecution is the whole.",
            labelnames=["query", "step"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def count(self, query: str, told: dict[str, Any]) -> None:
        """Count a batch, as the log tells it."""
        self._batches.labels(query).inc()
        self._input.labels(query).inc(told["input_rows"])
        self._output.labels(query).inc(told["output_rows"] or 0)
        if told["read_epoch"] is not None:
            self._epoch.labels(query).set(told["read_epoch"])
        for step, milliseconds in told["steps_ms"].items():
            self._seconds.labels(query, step).observe(milliseconds / 1000)


def metrics_text() -> bytes | None:
    """What all listeners of this process have counted, as Prometheus reads it; `None` if nothing counts."""
    if _shared is None:
        return None
    from prometheus_client import generate_latest

    text: bytes = generate_latest(_shared.registry)
    return text


def _metrics() -> Metrics | None:
    """The one set of metrics of this process: several listeners add to it."""
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
        told = _told(event.progress)
        log.info("batch", **told)
        if self._metrics is not None:
            self._metrics.count(told["name"] or told["query"], told)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: an idle stream has nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """One line, with the first line of what it failed of."""
        if event.exception is None:
            log.info("stream ended", query=str(event.id), run=str(event.runId))
        else:
            log.error("stream failed", query=str(event.id), run=str(event.runId), error=event.exception.splitlines()[0])


def _told(progress: StreamingQueryProgress) -> dict[str, Any]:
    """What the log says of a batch: rows, Spark's steps in milliseconds, and how far change streams have read."""
    written = progress.sink.numOutputRows
    epochs = [epoch for source in progress.sources if (epoch := _epoch(source)) is not None]
    return {
        "query": str(progress.id),
        "run": str(progress.runId),
        "name": progress.name,
        "batch": progress.batchId,
        "input_rows": progress.numInputRows,
        # Spark says -1 where the sink does not tell.
        "output_rows": written if written >= 0 else None,
        "read_epoch": min(epochs, default=None),
        "steps_ms": dict(progress.durationMs),
    }


def _epoch(source: SourceProgress) -> int | None:
    """Up to which epoch a source has read; `None` if it is not one of changes."""
    try:
        offset = msgspec.json.decode(source.endOffset or "null")
    except msgspec.DecodeError:
        return None
    is_ours = isinstance(offset, dict) and {"epoch", "start", "snapshot", "initial"} == set(offset)
    return int(offset["epoch"]) if is_ours else None
