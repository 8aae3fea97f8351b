"""What the operator counts, for Prometheus. `docs/operator/reconciliation.md` lists every metric; a test compares.

Metrics of resources are made elsewhere, and shown with these (`showing`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

__all__ = ["OperatorMetrics"]

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30)
WRITES = ("apply", "patch", "create", "update", "delete")


class OperatorMetrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.passes = Histogram(
            "tussock_operator_reconcile_seconds",
            "Time of one pass over one resource.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self.errors = Counter(
            "tussock_operator_reconcile_errors", "Passes that failed and are repeated.", ["kind"], registry=registry
        )
        self.queue = Gauge("tussock_operator_queue", "Resources that wait for a pass.", registry=registry)
        self.requests = Counter(
            "tussock_operator_api_requests",
            "Requests to the API server, watches aside.",
            ["verb", "kind", "code"],
            registry=registry,
        )
        self.writes = Counter(
            "tussock_operator_api_writes", "Those of them that change something.", ["verb", "kind"], registry=registry
        )
        self.leader = Gauge("tussock_operator_leader", "1 while this replica does the work.", registry=registry)
        ProcessCollector(registry=registry)

    def request(self, verb: str, kind: str, status: int) -> None:
        """A request to the API server has ended; status 0 stands for no answer."""
        self.requests.labels(verb, kind, str(status or "none")).inc()
        if verb in WRITES and kind not in ("Lease", "Event"):
            # Leases are renewed for ever and events report changes: neither means that a resource was written.
            self.writes.labels(verb, kind).inc()

    @contextmanager
    def showing(self, collector: Collector) -> Iterator[None]:
        """Show what a collector makes as well, inside the block."""
        self._registry.register(collector)
        try:
            yield
        finally:
            self._registry.unregister(collector)

    def render(self) -> bytes:
        """All of them in Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)
