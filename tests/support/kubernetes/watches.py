"""The history of the objects of a kind: a watch sees every state, while repeated requests miss some."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cluster.view.client import Cluster

__all__ = ["ReadyCondition", "ReadyWatch", "watch_objects", "watched_readiness"]

Event = tuple[str, dict[str, Any]]
"""`ADDED`, `MODIFIED` or `DELETED`, and the object."""


@contextmanager
def watch_objects(cluster: Cluster, namespace: str, kind: str) -> Iterator[list[Event]]:
    """Watch all objects of a kind during the block; the events are in the list when it has ended well."""
    found: list[Event] = []
    where = f"--namespace={namespace}"
    with tempfile.NamedTemporaryFile("r+") as output:

        def read_output() -> str:
            return Path(output.name).read_text()

        watch = ["kubectl", "get", kind, where, "--watch", "--output-watch-events", "--output=json"]
        with cluster.running(*watch, output=output):  # type: ignore[arg-type]
            cluster.wait_for("first sight", read_output)
            yield found
            # What has happened by now has to be told, too.
            last = [one["metadata"]["resourceVersion"] for one in cluster.list(kind, namespace)]
            cluster.wait_for("last sights", lambda: all(f'"{one}"' in read_output() for one in last))
            text = read_output()
    found.extend(_events(text))


def _events(text: str) -> Iterator[Event]:
    """The events of a watch, JSON objects one after the other, of which the last may be half."""
    decoder, place = json.JSONDecoder(), 0
    while start := text.find("{", place) + 1:
        try:
            event, place = decoder.raw_decode(text, start - 1)
        except json.JSONDecodeError:
            return
        yield event["type"], event["object"]


class ReadyCondition(NamedTuple):
    """The condition `Ready` after one write of a status."""

    status: str
    reason: str
    message: str


class ReadyWatch:
    """The conditions `Ready` of the resources of a namespace with one in each kind, by kind; oldest first."""

    def __init__(self) -> None:
        self.seen: dict[str, list[ReadyCondition]] = {}

    def turns(self, kind: str) -> int:
        """How often the status changed."""
        return sum(before.status != after.status for before, after in pairwise(self.seen[kind]))

    def messages(self) -> set[str]:
        """All messages in it."""
        return {one.message for seen in self.seen.values() for one in seen}


@contextmanager
def watched_readiness(cluster: Cluster, namespace: str, kinds: Sequence[str]) -> Iterator[ReadyWatch]:
    """Watch during the block; all writes are there when it has ended well."""
    found = ReadyWatch()
    with ExitStack() as watches:
        events = {kind: watches.enter_context(watch_objects(cluster, namespace, kind)) for kind in kinds}
        yield found
    for kind, told in events.items():
        conditions = [one for _, body in told for one in body.get("status", {}).get("conditions", ())]
        found.seen[kind] = [
            ReadyCondition(one["status"], one["reason"], one["message"]) for one in conditions if one["type"] == "Ready"
        ]
