"""How many pods of a component may be away at once when a node is drained."""

from collections.abc import Mapping
from typing import Any

from tussock.operator.manifests.labels import Component, Manifest, metadata, selector
from tussock.operator.resources.common import Resource

__all__ = ["disruption_budget"]


def disruption_budget(
    owner: Resource, name: str, store: str, component: Component, role: Mapping[str, str] | None = None
) -> Manifest:
    """One pod at a time. A single pod may go too: a drain that waits for ever does not help, and nothing is lost.

    `role` are the labels of a part of the component's pods, if it is for these.
    """
    spec: dict[str, Any] = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": {**selector(owner, component), **(role or {})}},
        # A pod that is not ready serves no client, so it need not be spared.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(owner, name, store, component),
        "spec": spec,
    }
