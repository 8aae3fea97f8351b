"""Which certificates a store's nodes and clients need: names, uses and lifetimes; nothing is issued here.

With `mode: managed` the operator issues them from a CA of the store (`certificates/issue.py`), with `certManager` an
issuer of cert-manager does, into the same secrets. With `secret` the user does, and here is nothing to do.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tussock.operator.manifests.labels import Component, Manifest, encoded, labels, metadata
from tussock.operator.manifests.meta import meta_name
from tussock.operator.manifests.settings import Defaults
from tussock.operator.manifests.transport_security import (
    Identity,
    common_name,
    job_common_name,
    job_secret,
    job_uri,
    role_uri,
    server_name,
    tls_secret,
)
from tussock.operator.resources.common import Resource
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = [
    "CA_SECONDS",
    "LEAF_SECONDS",
    "Certificate",
    "ca_secret",
    "cert_manager_manifests",
    "certificate_secret",
    "desired_certificates",
    "issues_certificates",
    "job_certificate",
]

LEAF_SECONDS = 90 * 86400
"""Short, since renewing costs nothing and a stolen key is of use for as long."""
CA_SECONDS = 3650 * 86400

_CLIENTS: tuple[tuple[Identity, str, Component], ...] = (
    ("compactor", "compactor", "compactor"),
    ("client-reader", "reader", "store"),
    ("client-writer", "writer", "compute"),
    ("client-admin", "admin", "store"),
)


class Certificate(NamedTuple):
    """A certificate that should be in a secret."""

    secret: str
    """Gets `tls.crt`, `tls.key`, and in `ca.crt` what its holder is to trust."""
    component: Component
    common_name: str
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    """Of a client: its store and its role there."""
    is_server: bool
    """For the service, else for a client of it."""
    seconds: int
    """How long it lasts; renewed when two thirds of that are over."""


def ca_secret(store: StoreResource) -> str:
    """The secret of a store's own CA. Only the operator reads it: no pod mounts it."""
    return f"{store.name}-ca"


def issues_certificates(store: StoreResource) -> bool:
    """Whether the operator, or cert-manager for it, makes certificates; else there are none, or the user's one."""
    return store.spec.tls.mode not in ("none", "secret")


def job_certificate(compute: Compute, store: StoreResource) -> Certificate:
    """The certificate of a job of `store`, where certificates are issued. By its URI the service tells jobs apart."""
    return Certificate(
        *(job_secret(store, compute.name), "compute", job_common_name(compute.name)),
        *((), (job_uri(store, compute.name),)),
        is_server=False,
        seconds=LEAF_SECONDS,
    )


def desired_certificates(store: StoreResource, metas: Sequence[str], defaults: Defaults) -> tuple[Certificate, ...]:
    """The certificates of `store`, whose `Meta` objects are called `metas`; none where the operator issues none."""
    if not issues_certificates(store):
        return ()
    server = Certificate(
        tls_secret(store, "meta"), "meta", "tussock-meta", _server_names(store, metas, defaults), (), True, LEAF_SECONDS
    )
    clients = [
        Certificate(
            *(tls_secret(store, identity), component, common_name(role), (), (role_uri(store, role),)),
            is_server=False,
            seconds=LEAF_SECONDS,
        )
        for identity, role, component in _CLIENTS
    ]
    return (server, *clients)


def _server_names(store: StoreResource, metas: Sequence[str], defaults: Defaults) -> tuple[str, ...]:
    """The one name that our clients check, and those under which people reach the Services from wherever they are."""
    names = [server_name(store)]
    for meta in metas:
        service, namespace = meta_name(meta), store.namespace
        names += [service, f"{service}.{namespace}", f"{service}.{namespace}.svc"]
        names.append(f"{service}.{namespace}.svc.{defaults.cluster_domain}")
    return tuple(dict.fromkeys([*names, "localhost"]))


def certificate_secret(owner: Resource, store: str, wanted: Certificate, files: dict[str, str]) -> Manifest:
    """The secret of an issued certificate, of the store called so; `files` are its three, in PEM."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(owner, wanted.secret, store, wanted.component),
        "type": "kubernetes.io/tls",
        "data": encoded(files),
    }


def cert_manager_manifests(
    store: StoreResource, wanted: Sequence[Certificate], owner: Resource | None = None
) -> tuple[Manifest, ...]:
    """`wanted` as requests to cert-manager, of the store's own or of `owner`'s; none unless the store asks for that."""
    issuer = store.spec.tls.issuer_ref
    if store.spec.tls.mode != "certManager" or issuer is None:
        return ()
    reference = {"name": issuer.name, "kind": issuer.kind, "group": issuer.group}
    return tuple(_request(owner or store, store.name, certificate, reference) for certificate in wanted)


def _request(owner: Resource, store: str, wanted: Certificate, issuer: dict[str, str]) -> Manifest:
    spec: dict[str, Any] = {
        "secretName": wanted.secret,
        "commonName": wanted.common_name,
        **{key: list(names) for key, names in (("dnsNames", wanted.dns_names), ("uris", wanted.uris)) if names},
        "duration": f"{wanted.seconds // 3600}h",
        "renewBefore": f"{wanted.seconds // 3 // 3600}h",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        # By its labels a change of the secret is known to be the store's business.
        "secretTemplate": {"labels": labels(owner, store, wanted.component)},
        "usages": ["digital signature", "server auth" if wanted.is_server else "client auth"],
        "issuerRef": issuer,
    }
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(owner, wanted.secret, store, wanted.component),
        "spec": spec,
    }
