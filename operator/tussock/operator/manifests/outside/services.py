"""A Service for each meta node, by which clients outside of the cluster reach that very one.

Clients follow the leader, so one Service before all nodes would not do: a client has to choose the node that it
connects to. A Service finds its node by the label `tussock.dev/replica`, which the operator gives to one pod at a time
(`planning/outside/replicas.py`), and leads to a port that only callers from outside come to, so that the node knows
which addresses are of use to them.
"""

from typing import Any

from tussock.operator.manifests.labels import Manifest, metadata, selector
from tussock.operator.manifests.meta_config import GRPC_PORT, OUTSIDE_PORT
from tussock.operator.manifests.transport_security import has_tls
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.meta import Meta, OutsideSection
from tussock.operator.resources.store import StoreResource

__all__ = ["REPLICA_LABEL", "host_of", "outside_manifests", "outside_service"]

REPLICA_LABEL = "tussock.dev/replica"
"""On a pod: the number of the meta node, from 0, by which its Service outside finds it. No template has it."""
_NUMBER = "{replica}"


def outside_service(meta: str, replica: int) -> str:
    """The name of the Service outside of the replica of that number, of the `Meta` of that name."""
    return f"{meta}-meta-outside-{replica}"


def host_of(section: OutsideSection, replica: int) -> str:
    """The host that the spec gives to a replica; empty if it leaves that to the load balancer."""
    return section.host.replace(_NUMBER, str(replica))


def outside_manifests(meta: Meta, store: StoreResource) -> tuple[Manifest, ...]:
    """The Services of all replicas, and who may come to their port; none if the spec asks for none.

    Raises `InvalidResource` without TLS: rows, tokens and commits would travel readable for everybody on the way.
    """
    section = meta.spec.outside
    if section is None:
        return ()
    if not has_tls(store):
        raise InvalidResource(
            f"Meta {meta.name}: outside needs encryption, but spec.tls.mode of StateStore {store.name} is none. Set "
            "another mode, or leave outside out"
        )
    found = [_service(meta, store, section, replica) for replica in range(meta.spec.replicas)]
    return (*found, *([_policy(meta, store)] if store.spec.network_policy else []))


def _service(meta: Meta, store: StoreResource, section: OutsideSection, replica: int) -> Manifest:
    about = metadata(meta, outside_service(meta.name, replica), store.name, "meta")
    if section.annotations:
        about["annotations"] = {
            name: value.replace(_NUMBER, str(replica)) for name, value in section.annotations.items()
        }
    spec: dict[str, Any] = {
        "type": section.type,
        "selector": {**selector(meta, "meta"), REPLICA_LABEL: str(replica)},
        "ports": [{"name": "grpc", "port": GRPC_PORT, "targetPort": "outside", "protocol": "TCP"}],
        # A load balancer sends connections to the pod's machine, so nodes see the clients' own addresses, by which
        # they limit them. A node port is to work at every machine, wherever the pod is.
        "externalTrafficPolicy": "Local" if section.type == "LoadBalancer" else "Cluster",
    }
    if section.load_balancer_source_ranges:
        spec["loadBalancerSourceRanges"] = list(section.load_balancer_source_ranges)
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def _policy(meta: Meta, store: StoreResource) -> Manifest:
    """Lets everybody come to the port for callers from outside, whose addresses nobody knows before they come."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(meta, f"{meta.name}-meta-outside", store.name, "meta"),
        "spec": {
            "podSelector": {"matchLabels": selector(meta, "meta")},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": OUTSIDE_PORT}]}],
        },
    }
