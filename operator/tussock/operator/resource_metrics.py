"""Metrics of each resource, made at the moment of a scrape out of what the operator has seen.

Nothing is kept between two scrapes, so no figure is older than the operator's knowledge, and the series of a resource
end with it. Only the leading replica has seen anything; the others have no such series. Labels are bounded: a resource
has one series of each metric, and a reason is one of the closed list in `planning/words/conditions.py`.

`docs/metrics.md` lists every metric; a test compares.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.planning.words.conditions import Reason, is_degraded, is_ready
from tussock.operator.planning.words.model import Manifest, moment_of

__all__ = ["UNKNOWN_REASON", "ResourceCollector"]

LABELS = ("kind", "namespace", "name")
REASONS = frozenset(map(str, Reason))
UNKNOWN_REASON = "Unknown"
"""The label of a reason that is not in this release's list: of another release, or written by hand."""


class ResourceCollector(Collector):
    """Makes the metrics of all resources that are seen; `now` returns the time in UTC."""

    def __init__(self, seen: Seen, now: Callable[[], datetime]) -> None:
        self._seen = seen
        self._now = now

    def describe(self) -> Iterable[Metric]:
        """Nothing: a registry would otherwise make all of them as soon as it learns of this."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The metrics at this moment; their number grows with that of resources, and of their pods for restarts."""
        now, made = self._now(), _Families()
        for key in self._seen.resources():
            body = self._seen.get(*key)
            if body is not None:
                _describe(made, key, body, self._seen, now)
        return made.all()


class _Families:
    """The families of one scrape."""

    def __init__(self) -> None:
        self.ready = _gauge("ready", "1 while the resource serves as its present spec asks, otherwise 0.")
        self.degraded = _gauge(
            "degraded", "1 while something is wrong with the resource; no series otherwise.", "reason"
        )
        self.lag = _gauge(
            "lag_seconds",
            "Time since a streaming job last committed, or since its object was created; none while it is suspended.",
        )
        self.backup_age = _gauge(
            "backup_age_seconds",
            "Age of a schedule's newest backup, or of its object before the first; none while it is suspended.",
        )
        self.copy_age = _gauge(
            "copy_age_seconds",
            "Age of a schedule's newest backup that is in its destination too, or of its object before the first; none "
            "without a destination, and while it is suspended.",
        )
        self.certificate_end = _gauge(
            "certificate_end_timestamp_seconds", "When the first of the resource's certificates ends."
        )
        self.checkpoint_used = _gauge(
            "checkpoint_used_ratio", "How full the volume of a job's checkpoint is, of bytes or of files, from 0 to 1."
        )
        self.disk_used = _gauge(
            "disk_used_ratio", "How full the disk of a managed object store is, of bytes or of files, from 0 to 1."
        )
        self.container_restarts = _gauge(
            "container_restarts", "Restarts of the containers of the pods that the resource has now."
        )
        self.restarts = CounterMetricFamily(
            "tussock_resource_restarts", "How often the driver of a job was started again.", labels=LABELS
        )

    def all(self) -> Iterable[Metric]:
        return vars(self).values()


def _gauge(name: str, help_text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"tussock_resource_{name}", help_text, labels=(*LABELS, *labels))


def _describe(made: _Families, key: Key, body: Manifest, seen: Seen, now: datetime) -> None:
    """Add the samples of one resource."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    made.ready.add_metric(key, is_ready(body))
    if is_degraded(status):
        made.degraded.add_metric((*key, _reason(status)), 1)
    if _is_stream(key, spec):
        made.lag.add_metric(key, _age(status.get("committedTime"), body, now))
    if key.kind == "StateStoreBackup" and spec.get("schedule") and not spec.get("suspend"):
        made.backup_age.add_metric(key, _age(status.get("lastBackupTime"), body, now))
        if spec.get("destination"):
            copied = (one.get("time") for one in status.get("backups") or () if one.get("copied"))
            made.copy_age.add_metric(key, _age(next(copied, None), body, now))
    ends = moment_of(status.get("certificatesExpireTime"))
    if ends is not None:
        made.certificate_end.add_metric(key, ends.timestamp())
    if "checkpointUsedPercent" in status:
        made.checkpoint_used.add_metric(key, status["checkpointUsedPercent"] / 100)
    if "diskUsedPercent" in status:
        made.disk_used.add_metric(key, status["diskUsedPercent"] / 100)
    if "restarts" in status:
        made.restarts.add_metric(key, status["restarts"])
    pods = [pod for ref, pod in seen.children(key).items() if ref.kind == "Pod"]
    if pods:
        made.container_restarts.add_metric(key, sum(map(_container_restarts, pods)))


def _reason(status: Mapping[str, Any]) -> str:
    """Why the resource is degraded, from the closed list."""
    [reason] = [one.get("reason") for one in status["conditions"] if one["type"] == "Degraded"]
    return reason if reason in REASONS else UNKNOWN_REASON


def _is_stream(key: Key, spec: Mapping[str, Any]) -> bool:
    is_job = key.kind == "Compute" and spec.get("application") is not None
    return is_job and spec.get("mode", "Streaming") == "Streaming" and not spec.get("suspend")


def _age(timestamp: Any, body: Manifest, now: datetime) -> float:
    """Seconds since a time in the status; before there is one, since the object was created.

    So what never commits, or never is backed up, is found like what has stopped. Clocks differ a little: not below 0.
    """
    since = moment_of(timestamp) or moment_of(body["metadata"].get("creationTimestamp"))
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _container_restarts(pod: Manifest) -> int:
    status = pod.get("status") or {}
    parts = ("initContainerStatuses", "containerStatuses")
    return sum(one.get("restartCount", 0) for part in parts for one in status.get(part) or ())
