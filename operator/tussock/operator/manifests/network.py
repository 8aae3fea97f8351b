"""NetworkPolicies of one store: which pods may connect to which.

| to | on | from |
|---|---|---|
| meta | gRPC | pods of the store, jobs of it elsewhere, pods with the label `tussock.dev/client: STORE`, the operator |
| meta | HTTP | the operator, Prometheus if its namespace is known, pods with that label (for the console) |
| compactor | | no pod: it opens connections itself, and accepts none |
| minio | S3 | pods of the store, jobs of it elsewhere, pods with that label, the operator |

Pods with that label count in the namespaces that the store allows, too; jobs elsewhere are in these.

Only incoming traffic is limited. The addresses of the bucket, its STS and the issuers of identities are not known here,
and a rule for outgoing traffic that is too narrow stops a store for good. Kubelets may always probe the pods of their
node. A pod belongs to the store by its label `tussock.dev/store`, which those of computes carry too.
"""

from collections.abc import Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import MINIO_PORT
from tussock.operator.manifests.labels import COMPONENT_LABEL, STORE_LABEL, Component, Manifest, far_labels, metadata
from tussock.operator.manifests.meta_config import GRPC_PORT, HTTP_PORT
from tussock.operator.manifests.settings import Defaults
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource

__all__ = ["CLIENT_LABEL", "network_policies", "operator_peer", "prometheus_peers"]

CLIENT_LABEL = "tussock.dev/client"
"""On a pod that is not the operator's: names the store that it is a client of."""

ANY_NAMESPACE = "*"

Peer = dict[str, Any]


def network_policies(store: StoreResource, defaults: Defaults) -> tuple[Manifest, ...]:
    """The policies of a store; none if it wants none."""
    if not store.spec.network_policy:
        return ()
    own: Peer = {"podSelector": {"matchLabels": {STORE_LABEL: store.name}}}
    clients = _client_peers(store)
    operator = operator_peer(defaults)
    jobs = _far_job_peers(store)
    grpc = _rule(GRPC_PORT, own, *clients, *jobs, operator)
    http = _rule(HTTP_PORT, *clients, operator, *prometheus_peers(defaults))
    found = [_policy(store, "meta", [grpc, http]), _policy(store, "compactor", [])]
    if isinstance(store.spec.object_store.backend, ManagedStore):
        found.append(_policy(store, "minio", [_rule(MINIO_PORT, own, *clients, *jobs, operator)]))
    return tuple(found)


def _client_peers(store: StoreResource) -> tuple[Peer, ...]:
    """Pods with the label of clients, of the store's namespace and of those that it allows."""
    pods = {"podSelector": {"matchLabels": {CLIENT_LABEL: store.name}}}
    return (pods, *_allowed(store, pods))


def _far_job_peers(store: StoreResource) -> tuple[Peer, ...]:
    """Pods of the store's jobs in the namespaces that it allows."""
    return _allowed(store, {"podSelector": {"matchLabels": far_labels(store.namespace, store.name)}})


def _allowed(store: StoreResource, pods: Peer) -> tuple[Peer, ...]:
    """Such pods of the namespaces that the store allows; nothing if it allows none."""
    allowed = sorted(set(store.spec.allowed_namespaces))
    if not allowed:
        return ()
    there = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": allowed}]}
    return ({"namespaceSelector": there, **pods},)


def operator_peer(defaults: Defaults) -> Peer:
    """The operator's pods: in its namespace; anywhere with its label if it runs outside the cluster and names none."""
    return _peer(defaults.namespace or ANY_NAMESPACE, "tussock-operator")


def prometheus_peers(defaults: Defaults) -> tuple[Peer, ...]:
    """The pods of Prometheus, if their namespace is configured: anybody may set a label."""
    namespace = defaults.prometheus_namespace
    return (_peer(namespace, "prometheus"),) if namespace else ()


def _peer(namespace: str, name: str) -> Peer:
    where = {} if namespace == ANY_NAMESPACE else {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {"namespaceSelector": where, "podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}


def _rule(port: int, *peers: Peer) -> dict[str, Any]:
    return {"from": list(peers), "ports": [{"protocol": "TCP", "port": port}]}


def _policy(store: StoreResource, component: Component, ingress: Sequence[dict[str, Any]]) -> Manifest:
    pods = {"matchLabels": {STORE_LABEL: store.name, COMPONENT_LABEL: component}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(store, f"{store.name}-{component}", store.name, component),
        "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": list(ingress)},
    }
