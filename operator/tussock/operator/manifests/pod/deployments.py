"""Deployments and accounts of nodes without a disk: meta and compactor nodes."""

from typing import Any

from tussock.operator.manifests.labels import Component, Manifest, metadata, selector
from tussock.operator.resources.common import Resource

__all__ = ["deployment", "service_account"]


def deployment(
    owner: Resource, name: str, store: str, component: Component, image: str, replicas: int, template: Manifest
) -> Manifest:
    """`replicas` pods, replaced one by one: the next only when the one before is ready.

    No old pod goes before a new one serves, so an image that does not work stops the rollout with all old pods running.
    """
    spec: dict[str, Any] = {
        "replicas": replicas,
        "revisionHistoryLimit": 3,
        "progressDeadlineSeconds": 300,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "selector": {"matchLabels": selector(owner, component)},
        "template": template,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(owner, name, store, component, image=image),
        "spec": spec,
    }


def service_account(owner: Resource, name: str, store: str, component: Component) -> Manifest:
    """A separate account for pods that never call the API: it has no rights, and no token is mounted."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(owner, name, store, component),
        "automountServiceAccountToken": False,
    }
