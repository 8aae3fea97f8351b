"""The console for browsers outside of the cluster: a Service before the node that leads, and an Ingress to it.

Only the leader knows all that the console shows, so the Service finds it by the label `tussock.dev/leads`, which the
operator moves (`planning/outside/replicas.py`). Visitors reach the page, its files and the status, and nothing else of
that port. The connection from the Ingress controller to the node is encrypted, and asks for what the node asks of
everybody: a certificate, or the token of a declared client, which the page asks for.
"""

from typing import Any

from tussock.operator.manifests.labels import Manifest, metadata, selector
from tussock.operator.manifests.meta_config import HTTP_PORT
from tussock.operator.manifests.transport_security import has_tls
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.meta import ConsoleIngress, Meta
from tussock.operator.resources.store import StoreResource

__all__ = ["LEADER_LABEL", "console_manifests", "console_name"]

LEADER_LABEL = "tussock.dev/leads"
"""On the pod of the meta node that leads, as far as the operator knows; its value is `true`."""
_PATHS = (("/", "Exact"), ("/static/", "Prefix"), ("/api/status", "Exact"))


def console_name(meta: str) -> str:
    """The name of what leads to the console of the `Meta` of that name."""
    return f"{meta}-meta-console"


def console_manifests(meta: Meta, store: StoreResource) -> tuple[Manifest, ...]:
    """What leads to the console; nothing if the spec does not ask for it. `InvalidResource` without TLS.

    Without it everybody who finds the page would see the store, since nodes ask nobody who they are.
    """
    section = meta.spec.console
    if section is None:
        return ()
    if not has_tls(store):
        raise InvalidResource(
            f"Meta {meta.name}: console needs encryption, but spec.tls.mode of StateStore {store.name} is none. Set "
            "another mode, or leave console out"
        )
    name = console_name(meta.name)
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(meta, name, store.name, "meta"),
        "spec": {
            "type": "ClusterIP",
            "selector": {**selector(meta, "meta"), LEADER_LABEL: "true"},
            # The name and the protocol tell controllers to speak TLS.
            "ports": [
                {
                    "name": "https",
                    "port": HTTP_PORT,
                    "targetPort": "https",
                    "protocol": "TCP",
                    "appProtocol": "https",
                }
            ],
        },
    }
    found = [service]
    if store.spec.network_policy:
        found.append(_policy(meta, store, section.namespace))
    if section.ingress is not None:
        found.append(_ingress(meta, store, section.ingress))
    return tuple(found)


def _policy(meta: Meta, store: StoreResource, namespace: str) -> Manifest:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(meta, console_name(meta.name), store.name, "meta"),
        "spec": {
            "podSelector": {"matchLabels": selector(meta, "meta")},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [peer], "ports": [{"protocol": "TCP", "port": HTTP_PORT}]}],
        },
    }


def _ingress(meta: Meta, store: StoreResource, section: ConsoleIngress) -> Manifest:
    about = metadata(meta, console_name(meta.name), store.name, "meta")
    if section.annotations:
        about["annotations"] = dict(section.annotations)
    backend = {"service": {"name": console_name(meta.name), "port": {"name": "https"}}}
    paths = [{"path": path, "pathType": kind, "backend": backend} for path, kind in _PATHS]
    spec: dict[str, Any] = {
        "tls": [{"hosts": [section.host], "secretName": section.tls_secret}],
        "rules": [{"host": section.host, "http": {"paths": paths}}],
    }
    if section.class_name:
        spec["ingressClassName"] = section.class_name
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": about, "spec": spec}
