"""Who may open connections to whom, as NetworkPolicies of one store.

| to | on | from |
|---|---|---|
| meta | gRPC | pods of the store, pods with the label `tussock.dev/client: STORE`, the operator |
| meta | HTTP | the operator, Prometheus, pods with that label (for the console) |
| compactor | | nobody: it asks, and is never asked |
| minio | S3 | pods of the store, pods with that label, the operator |

Only what comes in is limited. Where the bucket, its STS and the issuers of identities are is not known here, and a
rule for what goes out that is too narrow stops a store for good. Kubelets may always probe the pods of their node. A
pod is of the store by its label `tussock.dev/store`, which those of computes carry too.
"""

from collections.abc import Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import MINIO_PORT
from tussock.operator.manifests.labels import COMPONENT_LABEL, STORE_LABEL, Component, Manifest, metadata
from tussock.operator.manifests.meta_config import GRPC_PORT, HTTP_PORT
from tussock.operator.manifests.settings import Defaults
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StateStore

__all__ = ["CLIENT_LABEL", "network_policies"]

CLIENT_LABEL = "tussock.dev/client"
"""On a pod that is not the operator's: its value names the store that it is a client of."""

Peer = dict[str, Any]


def network_policies(store: StateStore, defaults: Defaults) -> tuple[Manifest, ...]:
    """The policies of a store; none if it wants none."""
    if not store.spec.network_policy:
        return ()
    own: Peer = {"podSelector": {"matchLabels": {STORE_LABEL: store.name}}}
    client: Peer = {"podSelector": {"matchLabels": {CLIENT_LABEL: store.name}}}
    # Without a namespace of its own to name (an operator outside the cluster), wherever its label is.
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": defaults.namespace}} if defaults.namespace else {}
    operator = _elsewhere(namespace, "tussock-operator")
    prometheus = _elsewhere({}, "prometheus")
    grpc, http = _rule(GRPC_PORT, own, client, operator), _rule(HTTP_PORT, client, operator, prometheus)
    found = [_policy(store, "meta", [grpc, http]), _policy(store, "compactor", [])]
    if isinstance(store.spec.object_store.backend, ManagedStore):
        found.append(_policy(store, "minio", [_rule(MINIO_PORT, own, client, operator)]))
    return tuple(found)


def _elsewhere(namespace: dict[str, Any], name: str) -> Peer:
    return {
        "namespaceSelector": namespace,
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": name}},
    }


def _rule(port: int, *peers: Peer) -> dict[str, Any]:
    return {"from": list(peers), "ports": [{"protocol": "TCP", "port": port}]}


def _policy(store: StateStore, component: Component, ingress: Sequence[dict[str, Any]]) -> Manifest:
    pods = {"matchLabels": {STORE_LABEL: store.name, COMPONENT_LABEL: component}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(store, f"{store.name}-{component}", store.name, component),
        "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": list(ingress)},
    }
