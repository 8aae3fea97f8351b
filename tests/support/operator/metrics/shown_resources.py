"""What one operator has seen, put there by hand, and the metrics that it shows of it."""

from datetime import UTC, datetime
from itertools import count
from typing import Any

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tussock.operator.cluster.seen import Seen
from tussock.operator.metrics import OperatorMetrics
from tussock.operator.planning.words.conditions import Verdict, conditions, ready_verdict
from tussock.operator.planning.words.model import stamp
from tussock.operator.resource_metrics import ResourceCollector

__all__ = ["START", "ShownResources"]

START = datetime(2026, 11, 27, tzinfo=UTC)
READY = ready_verdict("well")


class ShownResources:
    """What one operator has seen, and what it shows; the clock is moved by hand."""

    def __init__(self) -> None:
        self.now = START
        self.seen = Seen()
        self.metrics = OperatorMetrics()
        self.collector = ResourceCollector(self.seen, lambda: self.now)
        self._versions = count(1)

    def put(
        self,
        kind: str,
        name: str,
        verdict: Verdict = READY,
        *,
        spec: dict[str, Any] | None = None,
        generation: int = 1,
        **status: Any,
    ) -> dict[str, Any]:
        """See a resource; its status is about generation 1."""
        held = {"observedGeneration": 1, "conditions": conditions((), verdict, 1, START), **status}
        metadata = {"generation": generation, "creationTimestamp": stamp(START)}
        return self.see({"kind": kind, "metadata": {**metadata, "name": name}, "spec": spec or {}, "status": held})

    def put_pod(self, owner: tuple[str, str], name: str, *restarts: int) -> None:
        """See a pod of a resource, with the restarts of its containers."""
        labels = {
            "app.kubernetes.io/managed-by": "tussock-operator",
            "tussock.dev/owner-kind": owner[0],
            "tussock.dev/owner": owner[1],
        }
        told = {"containerStatuses": [{"restartCount": found} for found in restarts]}
        self.see({"kind": "Pod", "metadata": {"name": name, "labels": labels}, "status": told})

    def see(self, body: dict[str, Any]) -> dict[str, Any]:
        """See an object of the namespace `data`; returns it as it was seen."""
        name = body["metadata"]["name"]
        placed = {"namespace": "data", "uid": f"{body['kind']}-{name}", "resourceVersion": str(next(self._versions))}
        body["metadata"].update(placed)
        self.seen.put(body["kind"], body)
        return body

    def scrape(self) -> dict[str, Metric]:
        """The families of a scrape by name, those of resources only."""
        with self.metrics.showing(self.collector):
            text = self.metrics.render().decode()
        found = {family.name: family for family in text_string_to_metric_families(text)}
        return {name: family for name, family in found.items() if name.startswith("tussock_resource_")}

    def values(self, metric: str) -> dict[tuple[str, ...], float]:
        """The values of a metric by kind and name, and by the reason if it has one."""
        samples = self.scrape()[f"tussock_resource_{metric}"].samples
        assert all(one.labels["namespace"] == "data" for one in samples)
        names = ("kind", "name", "reason")
        return {tuple(one.labels[label] for label in names if label in one.labels): one.value for one in samples}
