"""Meta nodes: a Deployment behind a Service, with a configuration file."""

from collections.abc import Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import meta_access, reader_volume
from tussock.operator.manifests.labels import (
    CONFIG_HASH,
    SPEC_ANNOTATION,
    Manifest,
    digest,
    generations,
    metadata,
    selector,
)
from tussock.operator.manifests.meta_config import (
    CLIENTS_FILE,
    CONFIG_FOLDER,
    GRPC_PORT,
    HTTP_PORT,
    OUTSIDE_FILE,
    OUTSIDE_PORT,
    clients_file,
    meta_config,
    to_toml,
)
from tussock.operator.manifests.outside.console import console_manifests
from tussock.operator.manifests.outside.services import outside_manifests
from tussock.operator.manifests.pod.deployments import deployment, service_account
from tussock.operator.manifests.pod.disruption import disruption_budget
from tussock.operator.manifests.pod.pods import Main, Rendered, http_probe, node_template, requirements
from tussock.operator.manifests.settings import Defaults, image_note, node_image
from tussock.operator.manifests.transport_security import has_tls, node_identity
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.store import StoreResource

__all__ = ["meta_address", "meta_manifests", "meta_name", "web_port"]

_CONFIG_FILE = "meta.toml"
_RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}


def meta_name(meta: str) -> str:
    """The name of the children of the `Meta` of that name: Deployment, Service, ConfigMap and the rest."""
    return f"{meta}-meta"


def meta_address(meta: str, namespace: str) -> str:
    """The address of the `Meta` of that name for clients: `host:port` of its Service."""
    return f"{meta_name(meta)}.{namespace}.svc:{GRPC_PORT}"


def meta_manifests(
    meta: Meta, store: StoreResource, defaults: Defaults, clients: Sequence[str] = (), outside: str = ""
) -> Rendered:
    """The children of `meta`, with the entries of the store's declared clients.

    `InvalidResource` if its spec and its store's do not fit together. `outside` is the file with the addresses of its
    nodes outside of the cluster, if it asks for that.
    """
    name, image = meta_name(meta.name), node_image(meta, store, defaults)
    access = meta_access(store)
    config = meta_config(meta, store)
    text = to_toml(config)
    volumes, mounts = reader_volume(store)
    main = Main(
        component="meta",
        image=image,
        args=("meta", "serve", "--advertise", f"$(POD_IP):{GRPC_PORT}"),
        env=(
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TUSSOCK_META_CONFIG", "value": f"{CONFIG_FOLDER}/{_CONFIG_FILE}"},
        ),
        ports={"grpc": GRPC_PORT, web_port(store): HTTP_PORT}
        | ({"outside": OUTSIDE_PORT} if meta.spec.outside else {}),
        probes=_probes(store),
        resources=requirements(meta.spec.resources, _RESOURCES),
        drain_seconds=float(config["drain_seconds"]),
        access=access,
        tls=node_identity(store, "meta"),
        volumes=({"name": "config", "configMap": {"name": name}}, *volumes),
        mounts=({"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}, *mounts),
        annotations={CONFIG_HASH: digest(text)},
        service_account=access.service_account or name,
        # By it the nodes ask whose the tokens of clients are.
        has_token=store.spec.token_reviews,
        # A node that cannot read the log says so in its last line, and ends: the operator finds it in the pod's status.
        container={"terminationMessagePolicy": "FallbackToLogsOnError"},
    )
    template, kept = node_template(meta, store, main, meta.spec.pod_template)
    budget = disruption_budget(meta, name, store.name, "meta")
    # After the Deployment, as for compactors, so that this never seems made from a spec that came later.
    budget["metadata"]["annotations"] = {
        SPEC_ANNOTATION: generations(store, meta),
        **image_note(store, defaults, image),
    }
    found: list[Manifest] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(meta, name, store.name, "meta"),
            # Not in the hash: what it says holds without a restart.
            "data": {
                _CONFIG_FILE: text,
                **({CLIENTS_FILE: clients_file(meta, clients)} if has_tls(store) else {}),
                **({OUTSIDE_FILE: outside} if meta.spec.outside else {}),
            },
        },
        _service(meta, store, name, {"type": "ClusterIP"}),
        # For clients that have to reach a certain replica, even one that does not serve yet.
        _service(meta, store, f"{name}-peers", {"clusterIP": "None", "publishNotReadyAddresses": True}),
        deployment(meta, name, store.name, "meta", image, meta.spec.replicas, template),
        budget,
        *outside_manifests(meta, store),
        *console_manifests(meta, store),
    ]
    if not access.service_account:
        found.insert(0, service_account(meta, name, store.name, "meta"))
    return Rendered(tuple(found), kept)


def web_port(store: StoreResource) -> str:
    """The name of the port of console and metrics: it names the protocol, for scrapers of many stores."""
    return "https" if has_tls(store) else "http"


def _probes(store: StoreResource) -> dict[str, Any]:
    def probe(path: str, period: int, failures: int) -> dict[str, Any]:
        return http_probe(path, tls=has_tls(store), period=period, failures=failures, port=web_port(store))

    return {
        # A replica answers when it has read the log to its tail, which takes a while with a slow bucket.
        "startupProbe": probe("/healthz", 1, 300),
        "readinessProbe": probe("/readyz", 2, 3),
        "livenessProbe": probe("/healthz", 10, 6),
    }


def _service(meta: Meta, store: StoreResource, name: str, spec: dict[str, Any]) -> Manifest:
    ports = [
        {"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"},
        {"name": web_port(store), "port": HTTP_PORT, "targetPort": web_port(store), "protocol": "TCP"},
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(meta, name, store.name, "meta"),
        "spec": {**spec, "selector": selector(meta, "meta"), "ports": ports},
    }
