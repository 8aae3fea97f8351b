"""The pods of a service: its node, and the workers that join it.

Both have the same image, code and environment, since a worker whose functions differ is refused. They show the same
certificate: as clients of the meta nodes, the node as a server too, and a worker to the node, where it counts as an
admin, because it computes the replies.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import client_access
from tussock.operator.manifests.compute.pods import ROLE_LABEL, environment, users_template
from tussock.operator.manifests.labels import Manifest, digest
from tussock.operator.manifests.pod.pods import Main, http_probe, node_template, requirements
from tussock.operator.manifests.service.names import (
    GRPC_PORT,
    NODE_ROLE,
    WORKER_ROLE,
    WORKERS_PORT,
    service_name,
    service_server_name,
    workers_address,
    workers_name,
)
from tussock.operator.manifests.transport_security import MOUNT, has_tls, job_uri, role_patterns, service_identity
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.service import PAGE_PORT
from tussock.operator.resources.store import StoreResource

__all__ = ["CODE_ANNOTATION", "WORKERS_FILE", "node_pod", "page_scheme", "worker_pod"]

CODE_ANNOTATION = "tussock.dev/code-hash"
"""On the pods: a digest of the ConfigMap with the module; another one makes other pods."""
WORKERS_FILE = "workers"
"""The key, and the file, with the number of workers, which a running node follows."""

_CODE_FOLDER = "/etc/tussock/application"
_WORKERS_FOLDER = "/etc/tussock/workers"
_RESOURCES = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}}
_WORKER_DRAIN_SECONDS = 5.0
"""A worker hangs up at once; the program gives its part to another one."""
_ROLES = ("reader", "writer", "admin")


def page_scheme(store: StoreResource) -> str:
    """The protocol of the page and the metrics, and the name of their port."""
    return "https" if has_tls(store) else "http"


def node_pod(
    compute: Compute, store: StoreResource, addresses: Sequence[str], image: str, code: str
) -> tuple[Manifest, tuple[str, ...]]:
    """The template of the node's pod, and the paths kept against the user's template.

    `addresses` are those of the store's meta nodes, `code` is a digest of the ConfigMap with the module.
    """
    service = compute.service
    values = {
        **_store_values(addresses),
        "TUSSOCK_SERVE_STORE": _store_url(addresses),
        "TUSSOCK_SERVE_LISTEN": f"0.0.0.0:{GRPC_PORT}",
        "TUSSOCK_SERVE_HTTP_LISTEN": f"0.0.0.0:{PAGE_PORT}",
        "TUSSOCK_SERVE_DRAIN_SECONDS": str(service.drain_seconds),
        **(_tls_values(compute, store) if has_tls(store) else {}),
    }
    ports = {"grpc": GRPC_PORT, page_scheme(store): PAGE_PORT}
    volumes, mounts = _code(compute)
    if service.workers:
        values["TUSSOCK_SERVE_WORKERS_FILE"] = f"{_WORKERS_FOLDER}/{WORKERS_FILE}"
        values["TUSSOCK_SERVE_WORKERS_LISTEN"] = f"0.0.0.0:{WORKERS_PORT}"
        ports["workers"] = WORKERS_PORT
        volumes += ({"name": "workers", "configMap": {"name": workers_name(compute.name)}},)
        mounts += ({"name": "workers", "mountPath": _WORKERS_FOLDER, "readOnly": True},)
    main = Main(
        **_shared(compute, store, image, code),
        args=("serve", service.module),
        env=environment(compute, values),
        ports=ports,
        probes=_probes(store),
        resources=requirements(service.resources, _RESOURCES),
        # For requests taken, and as long again for the state.
        drain_seconds=2.0 * service.drain_seconds,
        volumes=volumes,
        mounts=mounts,
        role={ROLE_LABEL: NODE_ROLE},
    )
    return node_template(compute, store, main, users_template(compute, service.pod_template))


def worker_pod(
    compute: Compute, store: StoreResource, addresses: Sequence[str], image: str, code: str
) -> tuple[Manifest, tuple[str, ...]]:
    """The template of the pods of workers, in the same way."""
    service = compute.service
    args = ["work", service.module, "--program", workers_address(compute)]
    if has_tls(store):
        # The variable names the meta nodes' certificate.
        args += ["--tls-server-name", service_server_name(compute, store)]
    volumes, mounts = _code(compute)
    main = Main(
        **_shared(compute, store, image, code),
        args=args,
        env=environment(compute, _store_values(addresses)),
        ports={},
        # It answers no port: one that cannot join ends, and the node tells how many have joined.
        probes={},
        resources=requirements(service.worker.resources, _RESOURCES),
        drain_seconds=_WORKER_DRAIN_SECONDS,
        volumes=volumes,
        mounts=mounts,
        role={ROLE_LABEL: WORKER_ROLE},
    )
    return node_template(compute, store, main, users_template(compute, service.worker.pod_template))


def _shared(compute: Compute, store: StoreResource, image: str, code: str) -> dict[str, Any]:
    """What the pods of nodes and of workers have in common."""
    access = client_access(store)
    return {
        "component": "compute",
        "image": image,
        "access": access,
        "tls": service_identity(store, compute.name),
        "annotations": _annotations(code),
        "service_account": access.service_account or service_name(compute.name),
        "container": _container(compute),
        # A StatefulSet makes no other one before it is gone: an eviction would only end one that comes back.
        "leaves_lost_nodes": False,
    }


def _store_url(addresses: Sequence[str]) -> str:
    return f"tussock://{','.join(addresses)}"


def _store_values(addresses: Sequence[str]) -> dict[str, str]:
    return {"TUSSOCK_STORE": _store_url(addresses)}


def _tls_values(compute: Compute, store: StoreResource) -> dict[str, str]:
    """The node's own certificate, and whose certificates have which role: as at the meta nodes, and its workers."""
    roles = role_patterns(store)
    if store.spec.tls.mode != "secret":
        roles["admin"].append(f"URI:{job_uri(store, compute)}")
    return {
        "TUSSOCK_SERVE_TLS__CERTIFICATE": f"{MOUNT}/tls.crt",
        "TUSSOCK_SERVE_TLS__KEY": f"{MOUNT}/tls.key",
        "TUSSOCK_SERVE_TLS__CLIENT_CA": f"{MOUNT}/ca.crt",
        **{f"TUSSOCK_SERVE_TLS__ROLES__{role.upper()}": ",".join(roles[role]) for role in _ROLES},
    }


def _code(compute: Compute) -> tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
    """Volume and mount of the ConfigMap with the module; none if it is installed in the image."""
    source = compute.service.config_map
    if source is None:
        return (), ()
    volume = {"name": "application", "configMap": {"name": source.name}}
    return (volume,), ({"name": "application", "mountPath": _CODE_FOLDER, "readOnly": True},)


def _container(compute: Compute) -> dict[str, Any]:
    """Modules are imported from the working folder, too. A node that ends without a message leaves its log's end."""
    found = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    return found if compute.service.config_map is None else {**found, "workingDir": _CODE_FOLDER}


def _annotations(code: str) -> dict[str, str] | None:
    return {CODE_ANNOTATION: digest(code)} if code else None


def _probes(store: StoreResource) -> dict[str, Any]:
    def probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return http_probe(path, tls=has_tls(store), period=period, failures=failures, port=page_scheme(store))

    return {
        # The page answers once the module is imported; a recovery, or the wait for workers, comes after that.
        "startupProbe": probe("/healthz", 1, 300),
        # Often, since clients wait from the end of one node to the readiness of the next.
        "readinessProbe": probe("/readyz", 1, 2),
        "livenessProbe": probe("/healthz", 10, 6),
    }
