"""What a replica counts while it works, for Prometheus; what it is at the moment comes from `metrics.py`.

`docs/metrics.md` lists every metric, and a test compares it with what a real replica answers. Each server has a
separate registry, so two in one process do not mix.
"""

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from tussock.meta.rpc.methods import METHODS, Method
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.ranges import total_bytes

__all__ = ["CallMetrics", "LogMetrics", "ReplicaMetrics"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
EPOCHS = (1, 2, 4, 8, 16, 32, 64, 128)


class CallMetrics:
    """Calls, by method and how they ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            "tussock_meta_calls", "Calls that ended, by gRPC status.", ["method", "code"], registry=registry
        )
        self._seconds = Histogram(
            "tussock_meta_call_seconds",
            "Time from a unary call's arrival to its end.",
            ["method"],
            buckets=SECONDS,
            registry=registry,
        )
        self._open = Gauge(
            "tussock_meta_calls_open", "Calls and subscriptions that have not ended.", ["method"], registry=registry
        )
        # Made beforehand, so that a rate has a beginning and a call costs no search for its labels.
        self._answered = {name: self._calls.labels(name, "OK") for name in METHODS}
        self._open_of = {name: self._open.labels(name) for name in METHODS}
        self._seconds_of = {name: self._seconds.labels(name) for name in METHODS if not METHODS[name].streams}

    def begin(self, method: Method) -> None:
        """Count a call that has come in."""
        self._open_of[method.name].inc()

    def end(self, method: Method, code: str, seconds: float) -> None:
        """Count a call that has ended with that gRPC status."""
        self._open_of[method.name].dec()
        (self._answered[method.name] if code == "OK" else self._calls.labels(method.name, code)).inc()
        if not method.streams:
            self._seconds_of[method.name].observe(seconds)


class LogMetrics:
    """What the entries of the log did, of all writers: every replica reads all of them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._entries = Counter("tussock_meta_log_entries", "Entries of the log that were applied.", registry=registry)
        self._commits = Counter("tussock_meta_commits", "Epochs committed.", registry=registry)
        self._bytes = Counter("tussock_meta_committed_bytes", "Bytes of the SSTs committed.", registry=registry)
        self._group = Histogram(
            "tussock_meta_log_entry_commits",
            "Epochs that one entry of the log commits, of entries that commit any.",
            buckets=EPOCHS,
            registry=registry,
        )
        self._tasks = Counter(
            "tussock_meta_compaction_tasks_ended",
            "Compaction tasks, by how they ended.",
            ["outcome"],
            registry=registry,
        )
        self._claimed = Counter("tussock_meta_compaction_tasks_claimed", "Compaction tasks begun.", registry=registry)
        for outcome in ("reported", "released"):
            self._tasks.labels(outcome)

    def count(self, deltas: Sequence[Delta]) -> None:
        """Count one entry that was applied."""
        self._entries.inc()
        commits = [delta for delta in deltas if isinstance(delta, CommitEpoch)]
        if commits:
            self._commits.inc(len(commits))
            self._group.observe(len(commits))
            runs = [run for delta in commits for table in delta.tables.values() for run in table]
            self._bytes.inc(sum(total_bytes(run.ssts) for run in runs))
        tally = Tally(type(delta) for delta in deltas)
        self._claimed.inc(sum(isinstance(delta, ClaimCompaction) and not delta.is_renewal for delta in deltas))
        self._tasks.labels("reported").inc(tally[ReportCompaction])
        self._tasks.labels("released").inc(tally[ReleaseCompaction])


class ReplicaMetrics:
    """All metrics of one replica."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.calls = CallMetrics(self._registry)
        self.log = LogMetrics(self._registry)
        ProcessCollector(registry=self._registry)

    def register(self, collector: Collector) -> None:
        """Add metrics that are made when somebody asks."""
        self._registry.register(collector)

    def render(self) -> bytes:
        """All of them in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)
