"""Names and places of a service's children, which clients, workers and the operator have to know."""

from tussock.operator.manifests.transport_security import server_name
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = [
    "GRPC_PORT",
    "NODE_ROLE",
    "WORKERS_PORT",
    "WORKER_ROLE",
    "client_address",
    "service_host",
    "service_name",
    "service_server_name",
    "workers_address",
    "workers_name",
]

GRPC_PORT = 7380
"""Of the node's container; the Service may have another one."""
WORKERS_PORT = 7382
NODE_ROLE = "node"
WORKER_ROLE = "worker"


def service_name(compute: str) -> str:
    """The node's StatefulSet, and what clients ask: the Service of the `Compute` of that name."""
    return f"{compute}-service"


def workers_name(compute: str) -> str:
    """The Deployment of workers, and the Service where they join."""
    return f"{compute}-workers"


def service_host(compute: Compute) -> str:
    """The host name of the Service for clients."""
    return f"{service_name(compute.name)}.{compute.namespace}.svc"


def client_address(compute: Compute) -> str:
    """The address for clients, `host:port`."""
    return f"{service_host(compute)}:{compute.service.port}"


def workers_address(compute: Compute) -> str:
    """The address at which workers join."""
    return f"{workers_name(compute.name)}.{compute.namespace}.svc:{WORKERS_PORT}"


def service_server_name(compute: Compute, store: StoreResource) -> str:
    """The name in the node's certificate; with `mode: secret` the one that the user's certificate has to have."""
    return server_name(store) if store.spec.tls.mode == "secret" else service_host(compute)
