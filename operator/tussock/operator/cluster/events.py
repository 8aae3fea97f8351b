"""Events about our resources, which people see at the end of `kubectl describe`.

They use the API `events.k8s.io/v1`. Each transition makes one event, which is never counted up, so the operator needs
no memory of earlier ones and repeats none after a restart.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tussock.operator.planning.words.model import Emit, Manifest

__all__ = ["COMPONENT", "event_of"]

COMPONENT = "tussock-operator"
NOTE_CHARACTERS_MAX = 1024
"""Limits of the API."""


def event_of(emit: Emit, about: Mapping[str, Any], instance: str, now: datetime, suffix: str) -> Manifest:
    """The event of `emit`, about the resource with the body `about`.

    `instance` names the replica of the operator; `suffix` makes the name unique.
    """
    metadata = about["metadata"]
    note = emit.message
    if len(note) > NOTE_CHARACTERS_MAX:
        note = note[: NOTE_CHARACTERS_MAX - 3] + "..."
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name'][:200]}.{suffix}", "namespace": metadata["namespace"]},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": emit.type,
        "reason": emit.reason,
        "action": "Reconcile",
        "note": note,
        "reportingController": COMPONENT,
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
    }
