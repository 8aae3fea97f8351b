"""What the node counts, and what the application is when somebody asks; `docs/metrics.md` lists it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import metadata
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

__all__ = ["ApplicationMetrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ApplicationMetrics:
    """All metrics of one node."""

    def __init__(self, kinds: Collection[str]) -> None:
        """`kinds` of requests that the node answers."""
        self._registry = CollectorRegistry()
        self._ended = Counter(
            "tussock_application_requests",
            "Requests that ended, by gRPC status.",
            ["kind", "code"],
            registry=self._registry,
        )
        self._took = Histogram(
            "tussock_application_request_seconds",
            "Time from a request's arrival to its reply.",
            ["kind"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._refused = Counter(
            "tussock_application_calls_refused",
            "Calls and conversations that ended with an error of the node.",
            ["code"],
            registry=self._registry,
        )
        # Made beforehand, so that a rate has a beginning and a request costs no search for its labels.
        self._well = {kind: self._ended.labels(kind, "OK") for kind in kinds}
        self._seconds = {kind: self._took.labels(kind) for kind in kinds}
        ProcessCollector(registry=self._registry)

    def end(self, kind: str, code: str, seconds: float) -> None:
        """Count a request that has ended with that gRPC status."""
        is_quick = code == "OK" and kind in self._well
        (self._well[kind] if is_quick else self._ended.labels(kind, code)).inc()
        (self._seconds[kind] if kind in self._seconds else self._took.labels(kind)).observe(seconds)

    def refuse(self, code: str) -> None:
        """Count a caller who was turned away."""
        self._refused.labels(code).inc()

    def watch(self, status: Callable[[], dict[str, Any]]) -> None:
        """Tell of the application's status, too; asked at each scrape."""
        self._registry.register(_StatusMetrics(status))

    def render(self) -> bytes:
        """All of them in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)


_GAUGES = {
    "ready": "1 while requests are taken.",
    "paused": "1 while requests are taken and none is run.",
    "waiting": "Requests that have not begun to run.",
    "outstanding": "Requests that wait for their replies.",
    "outstanding_bytes": "Bytes of these requests and their replies.",
    "conversations": "Conversations that are open.",
}
_WHILE_RUNNING = {
    "uncommitted": "Records that no committed epoch holds yet.",
    "workers": "Of functions: workers that the program wants.",
    "workers_joined": "Of functions: workers that are there, and those that wait to take the place of one.",
}
"""0 before the application runs; and of workers where it has none."""
_COUNTERS = {
    "records": "Records of the input log.",
    "log_writes": "Objects of the input log.",
    "commits": "Store epochs committed.",
    "epochs": "Epochs of functions.",
    "deferrals": "How often a transaction of functions had to wait for the next epoch.",
    "stopped": "Calls of functions that the time limit ended.",
}
_PHASES = ("lock_free", "locked", "batched", "aborted")


class _StatusMetrics(Collector):
    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def describe(self) -> Iterator[Metric]:
        """Nothing: the registry would ask for the status before there is one."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The status in figures."""
        found = self._status()
        info = GaugeMetricFamily(
            "tussock_application_info", "The application.", labels=["application", "layer", "version"]
        )
        info.add_metric([found["application"], found["layer"], metadata.version("tussock")], 1)
        yield info
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"tussock_application_{name}", text, value=float(found[name]))
        for name, text in _WHILE_RUNNING.items():
            yield GaugeMetricFamily(f"tussock_application_{name}", text, value=float(found.get(name, 0)))
        yield GaugeMetricFamily(
            "tussock_application_troubles",
            "Things that the application waits for, feeds whose newest batch failed, and certificates that end soon.",
            value=len(found["trouble"]),
        )
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"tussock_application_{name}", text, value=float(found.get(name, 0)))
        transactions = CounterMetricFamily(
            "tussock_application_transactions", "Transactions of functions that ended.", labels=["phase"]
        )
        for phase in _PHASES:
            transactions.add_metric([phase], float(found.get(phase, 0)))
        yield transactions
        batches = GaugeMetricFamily(
            "tussock_application_last_batch", "Id of the newest batch of a border procedure.", labels=["procedure"]
        )
        for procedure in found.get("procedures", ()):
            if procedure["border"]:
                batches.add_metric([procedure["name"]], procedure["last_batch"])
        yield batches
        tuples = GaugeMetricFamily(
            "tussock_application_window_tuples",
            "Tuples, or batches, of a window: visible or staged.",
            labels=["window", "state"],
        )
        for window in found.get("windows", ()):
            for state in ("visible", "staged"):
                tuples.add_metric([window["name"], state], window[state])
        yield tuples
        if found["layer"] == "changelog":
            yield from _stream_metrics(found.get("streams", ()))


_OF_STREAMS: tuple[tuple[str, type[Metric], str, str], ...] = (
    ("rows_taken", CounterMetricFamily, "Of flows: records that a stream has taken, of this run.", "rows_in"),
    ("rows_published", CounterMetricFamily, "Of flows: records that it has published, of this run.", "rows_out"),
    ("bad", CounterMetricFamily, "Of flows: transactions that were bad, of this run.", "bad"),
    ("held_back", GaugeMetricFamily, "Of flows: records that an operator holds back.", "held_back"),
    ("taken", GaugeMetricFamily, "Of flows: the number of the newest transaction taken.", "taken"),
    ("published", GaugeMetricFamily, "Of flows: the number of the newest transaction published.", "published"),
    ("queued", GaugeMetricFamily, "Of flows: transactions that wait for a stream.", "queued"),
    ("subscribers", GaugeMetricFamily, "Of flows: subscribers of a stream.", "subscribers"),
    ("subscriber_lag", GaugeMetricFamily, "Of flows: transactions that the slowest has not read.", "subscriber_lag"),
)


def _stream_metrics(streams: Sequence[dict[str, Any]]) -> Iterator[Metric]:
    """Of a flow; names of streams are few, and the program's own."""
    for name, kind, text, field in _OF_STREAMS:
        family: Any = kind(f"tussock_application_stream_{name}", text, labels=["stream"])  # type: ignore[call-arg]
        for one in streams:
            family.add_metric([one["name"]], one[field])
        yield family
