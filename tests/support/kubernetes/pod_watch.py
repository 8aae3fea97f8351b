"""The history of a namespace's pods: a watch sees every state, while repeated requests miss some."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from cluster.view.client import Cluster
from support.kubernetes.watches import watch_objects

__all__ = ["PodWatch", "Sight", "watched_pods"]


class Sight(NamedTuple):
    """A pod at one moment."""

    name: str
    component: str
    role: str
    """`driver` or `executor`, for pods of jobs."""
    image: str
    ready: bool
    leaving: bool
    """It was told to end, or is gone."""


class PodWatch:
    """The sights of a watch that has ended, oldest first."""

    def __init__(self) -> None:
        self.sights: list[Sight] = []

    def first(self, what: str, **wanted: object) -> int:
        """The place of the first sight with these fields; fails with `what` in its message if there is none."""
        for place, sight in enumerate(self.sights):
            if all(getattr(sight, name) == value for name, value in wanted.items()):
                return place
        raise AssertionError(f"{what} was not seen in {[tuple(sight) for sight in self.sights]}")

    def fewest_serving(self, component: str, usual: int) -> int:
        """The smallest number of a component's pods that served at once, since the first moment with `usual` of them.

        One serves from when it became ready until it is told to end; that a probe came late does not count.
        """
        serving: dict[str, bool] = {}
        counts = []
        for sight in self.sights:
            if sight.component == component:
                serving[sight.name] = (sight.ready or serving.get(sight.name, False)) and not sight.leaving
                counts.append(sum(serving.values()))
        return min(counts[counts.index(usual) :])


@contextmanager
def watched_pods(cluster: Cluster, namespace: str) -> Iterator[PodWatch]:
    """Watch during the block; the sights are there when it has ended well."""
    found = PodWatch()
    with watch_objects(cluster, namespace, "pods") as events:
        yield found
    found.sights = [_sight(event, body) for event, body in events]


def _sight(event: str, pod: dict[str, Any]) -> Sight:
    meta, status = pod["metadata"], pod.get("status", {})
    labels = meta.get("labels", {})
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))
    return Sight(
        meta["name"],
        labels.get("app.kubernetes.io/component", ""),
        labels.get("tussock.dev/role", ""),
        pod["spec"]["containers"][0]["image"],
        ready,
        event == "DELETED" or "deletionTimestamp" in meta,
    )
