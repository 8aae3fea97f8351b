"""The children of a service: a StatefulSet of one node, a Deployment of workers, and what they need.

One node runs an application at a time: a second one would shut the first one out, and what that has taken would fail.
So the node is a StatefulSet, which makes the next pod when the one before has gone, also if a machine is drained or a
person deletes it. A Deployment would make it at once then. Pods that are never ready do not stop a StatefulSet
from replacing them by a corrected template, since it manages its pods in parallel.

Workers are replaced all at once: those of another program are refused, and while the node restarts nobody needs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tussock.operator.manifests.bucket_access import client_access
from tussock.operator.manifests.compute.job import TEMPLATE_ANNOTATION
from tussock.operator.manifests.compute.pods import ROLE_LABEL, template_text
from tussock.operator.manifests.labels import (
    SPEC_ANNOTATION,
    STORE_LABEL,
    Manifest,
    digest,
    metadata,
    revision,
    selector,
)
from tussock.operator.manifests.network import CLIENT_LABEL, operator_peer, prometheus_peers
from tussock.operator.manifests.pod.deployments import deployment, service_account
from tussock.operator.manifests.pod.disruption import disruption_budget
from tussock.operator.manifests.service.names import (
    GRPC_PORT,
    NODE_ROLE,
    WORKER_ROLE,
    WORKERS_PORT,
    service_name,
    workers_name,
)
from tussock.operator.manifests.service.pods import WORKERS_FILE, node_pod, page_scheme, worker_pod
from tussock.operator.manifests.settings import Defaults, served_image
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.service import PAGE_PORT
from tussock.operator.resources.store import StoreResource

__all__ = ["WORKERS_ANNOTATION", "ServiceChildren", "service_manifests", "worker_selector"]

WORKERS_ANNOTATION = "tussock.dev/workers"
"""On the node's pods: the newest number of workers. When it changes, the kubelet updates the pod's file at once."""


@dataclass(frozen=True)
class ServiceChildren:
    """All children of a service."""

    around: tuple[Manifest, ...]
    """Those that hold for pods of any template: account, Services, budgets, policies, the number of workers."""
    node: Manifest
    """The StatefulSet, of one pod."""
    workers: Manifest | None
    """The Deployment; none if the node runs the program itself."""
    template: str
    """The digest on the node's pods (`TEMPLATE_ANNOTATION`), by which a pod of a former one is known."""
    image: str
    kept: tuple[str, ...]
    """Paths in pod templates where our value replaced the user's."""


def worker_selector(compute: Compute) -> dict[str, str]:
    """The labels that only the workers of a service have."""
    return {**selector(compute, "compute"), ROLE_LABEL: WORKER_ROLE}


def service_manifests(
    compute: Compute, store: StoreResource, addresses: Sequence[str], defaults: Defaults, code: str = ""
) -> ServiceChildren:
    """The service as manifests; `addresses` are those of the store's meta nodes (`meta_address`).

    `code` is a digest of the ConfigMap with the module; empty if it is in the image. Raises `InvalidResource` if spec
    and store do not fit together.
    """
    name, image = service_name(compute.name), served_image(compute, store, defaults)
    pod, kept = node_pod(compute, store, addresses, image, code)
    told = [f"service: {path}" for path in kept]
    template = digest(template_text(pod))
    pod["metadata"].setdefault("annotations", {})[TEMPLATE_ANNOTATION] = template
    around = [_service(compute, store), disruption_budget(compute, name, store.name, "compute", _role(NODE_ROLE))]
    if not client_access(store).service_account:
        around.insert(0, service_account(compute, name, store.name, "compute"))
    workers: Manifest | None = None
    if compute.service.workers:
        worker, kept = worker_pod(compute, store, addresses, image, code)
        told += [f"worker: {path}" for path in kept]
        around += _around_workers(compute, store)
        workers = _workers(compute, store, image, worker)
    if store.spec.network_policy:
        around += _network_policies(compute, store, defaults)
    made_from = f"{store.metadata.generation}.{revision(compute)}.{len(addresses)}/{code}"
    node = _stateful_set(compute, store, image, pod, made_from)
    return ServiceChildren(tuple(around), node, workers, template, image, tuple(told))


def _role(role: str) -> dict[str, str]:
    return {ROLE_LABEL: role}


def _stateful_set(compute: Compute, store: StoreResource, image: str, pod: Manifest, made_from: str) -> Manifest:
    name = service_name(compute.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            **metadata(compute, name, store.name, "compute", image=image),
            "annotations": {SPEC_ANNOTATION: made_from},
        },
        "spec": {
            "replicas": 0 if compute.spec.suspend else 1,
            "serviceName": name,
            "revisionHistoryLimit": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {**selector(compute, "compute"), **_role(NODE_ROLE)}},
            "template": pod,
        },
    }


def _workers(compute: Compute, store: StoreResource, image: str, pod: Manifest) -> Manifest:
    name, replicas = workers_name(compute.name), 0 if compute.spec.suspend else compute.service.workers
    made = deployment(compute, name, store.name, "compute", image, replicas, pod)
    made["spec"]["strategy"] = {"type": "Recreate"}
    made["spec"]["selector"] = {"matchLabels": worker_selector(compute)}
    return made


def _service(compute: Compute, store: StoreResource) -> Manifest:
    """For clients, and for people and scrapers."""
    page = page_scheme(store)
    ports = [("grpc", compute.service.port), (page, PAGE_PORT)]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(compute, service_name(compute.name), store.name, "compute"),
        "spec": {
            "type": "ClusterIP",
            "selector": {**selector(compute, "compute"), **_role(NODE_ROLE)},
            "ports": [
                {"name": target, "port": number, "targetPort": target, "protocol": "TCP"} for target, number in ports
            ],
        },
    }


def _around_workers(compute: Compute, store: StoreResource) -> list[Manifest]:
    """Their number, which the node follows; where they join; and how many may be away at once."""
    name = workers_name(compute.name)
    meta = metadata(compute, name, store.name, "compute")
    number: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {WORKERS_FILE: f"{compute.service.workers}\n"},
    }
    door: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            # With an address that stays when the node's pod changes: no cache of names has an old one.
            "type": "ClusterIP",
            # The node is ready only when workers have joined.
            "publishNotReadyAddresses": True,
            "selector": {**selector(compute, "compute"), **_role(NODE_ROLE)},
            "ports": [{"name": "workers", "port": WORKERS_PORT, "targetPort": "workers", "protocol": "TCP"}],
        },
    }
    return [number, door, disruption_budget(compute, name, store.name, "compute", _role(WORKER_ROLE))]


def _network_policies(compute: Compute, store: StoreResource, defaults: Defaults) -> list[Manifest]:
    """Clients of the store reach the node, workers its own port, and nobody the workers."""
    own = {"podSelector": {"matchLabels": {STORE_LABEL: store.name}}}
    client = {"podSelector": {"matchLabels": {CLIENT_LABEL: store.name}}}
    workers = {"podSelector": {"matchLabels": worker_selector(compute)}}
    operator = operator_peer(defaults)
    rules: list[tuple[int, list[dict[str, Any]]]] = [
        (GRPC_PORT, [own, client]),
        (PAGE_PORT, [client, operator, *prometheus_peers(defaults)]),
    ]
    if compute.service.workers:
        rules.append((WORKERS_PORT, [workers]))
    node = {**selector(compute, "compute"), **_role(NODE_ROLE)}
    found = [_policy(compute, store, service_name(compute.name), node, rules)]
    if compute.service.workers:
        found.append(_policy(compute, store, workers_name(compute.name), worker_selector(compute), []))
    return found


def _policy(
    compute: Compute,
    store: StoreResource,
    name: str,
    pods: dict[str, str],
    rules: Sequence[tuple[int, list[dict[str, Any]]]],
) -> Manifest:
    ingress = [{"from": peers, "ports": [{"protocol": "TCP", "port": port}]} for port, peers in rules]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(compute, name, store.name, "compute"),
        "spec": {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": ingress},
    }
