"""The certificates that a store's nodes and clients need: names, uses and lifetimes; this module issues nothing.

With `mode: managed` the operator issues them from a CA of the store (`certificates/issue.py`); with `certManager` an
issuer of cert-manager does, into the same secrets. With `secret` the user brings them, and there is nothing to do.
"""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple

from tussock.operator.manifests.clients import client_name
from tussock.operator.manifests.labels import Component, Manifest, labels, metadata, secret_data
from tussock.operator.manifests.meta import meta_name
from tussock.operator.manifests.service.names import service_host, service_name
from tussock.operator.manifests.settings import Defaults
from tussock.operator.manifests.transport_security import (
    Identity,
    client_secret,
    client_uri,
    common_name,
    job_common_name,
    job_secret,
    job_uri,
    role_uri,
    server_name,
    service_secret,
    tls_secret,
)
from tussock.operator.resources.client import StateStoreClient
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
    "client_certificate",
    "desired_certificates",
    "issues_certificates",
    "job_certificate",
]

LEAF_SECONDS = 90 * 86400
"""Short, since renewal costs nothing and a stolen key is useful for that long."""
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
    """Gets `tls.crt`, `tls.key`, and in `ca.crt` the CAs that its holder trusts."""
    component: Component
    common_name: str
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    """For a client: its store and its role there."""
    is_server: bool
    """A certificate of the service; otherwise of a client."""
    seconds: int
    """Its lifetime; it is renewed when two thirds of that are over."""
    is_both: bool = False
    """A server's that is shown to other servers, too."""
    ip_addresses: tuple[str, ...] = ()
    """In the form of `ipaddress`, so that they compare."""


def ca_secret(store: StoreResource) -> str:
    """The secret of a store's own CA. Only the operator reads it: no pod mounts it."""
    return f"{store.name}-ca"


def issues_certificates(store: StoreResource) -> bool:
    """Whether the operator makes certificates, or cert-manager for it; otherwise there are none, or the user's one."""
    return store.spec.tls.mode not in ("none", "secret")


def job_certificate(compute: Compute, store: StoreResource) -> Certificate:
    """The certificate of a job of `store`, if certificates are issued. By its URI the meta service tells jobs apart.

    A service shows it to its clients, too.
    """
    if compute.is_service:
        name, uris = service_name(compute.name), (job_uri(store, compute),)
        hosts = (name, f"{name}.{compute.namespace}", service_host(compute), "localhost")
        return Certificate(
            *(service_secret(store, compute.name), "compute", job_common_name(compute.name), hosts, uris),
            is_server=True,
            seconds=LEAF_SECONDS,
            is_both=True,
        )
    return Certificate(
        *(job_secret(store, compute.name), "compute", job_common_name(compute.name)),
        *((), (job_uri(store, compute),)),
        is_server=False,
        seconds=LEAF_SECONDS,
    )


def client_certificate(client: StateStoreClient, store: StoreResource) -> Certificate:
    """The certificate of a declared client of `store`, if certificates are issued."""
    spec, is_enough = client.spec, client.is_known_by_certificate
    uri = client_uri(store, client_name(client), spec.certificate_version, is_enough=is_enough)
    return Certificate(
        *(client_secret(client.name), "client", f"tussock-client-{client.name}", (), (uri,)),
        is_server=False,
        seconds=LEAF_SECONDS,
    )


def desired_certificates(
    store: StoreResource, metas: Sequence[str], defaults: Defaults, hosts: Sequence[str] = ()
) -> tuple[Certificate, ...]:
    """The certificates of `store`, whose `Meta` objects have the names `metas`; none if the operator issues none.

    `hosts`: names and addresses by which clients outside of the cluster reach its nodes.
    """
    if not issues_certificates(store):
        return ()
    ips = {host: str(ip) for host in hosts if (ip := _ip_of(host)) is not None}
    names = _server_names(store, metas, defaults, [host for host in hosts if host not in ips])
    server = Certificate(
        *(tls_secret(store, "meta"), "meta", "tussock-meta", names, ()),
        is_server=True,
        seconds=LEAF_SECONDS,
        ip_addresses=tuple(ips.values()),
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


def _ip_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _server_names(
    store: StoreResource, metas: Sequence[str], defaults: Defaults, outside: Sequence[str]
) -> tuple[str, ...]:
    """The name that our clients check, and the names under which people reach the Services from elsewhere."""
    names = [server_name(store)]
    for meta in metas:
        service, namespace = meta_name(meta), store.namespace
        names += [service, f"{service}.{namespace}", f"{service}.{namespace}.svc"]
        names.append(f"{service}.{namespace}.svc.{defaults.cluster_domain}")
    return tuple(dict.fromkeys([*names, "localhost", *outside]))


def certificate_secret(owner: Resource, store: str, wanted: Certificate, files: dict[str, str]) -> Manifest:
    """The secret of an issued certificate, for the store of that name; `files` are its three, in PEM."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(owner, wanted.secret, store, wanted.component),
        "type": "kubernetes.io/tls",
        "data": secret_data(files),
    }


def cert_manager_manifests(
    store: StoreResource, wanted: Sequence[Certificate], owner: Resource | None = None
) -> tuple[Manifest, ...]:
    """Requests to cert-manager for `wanted`, for the store or for `owner`; none unless the store asks for that."""
    issuer = store.spec.tls.issuer_ref
    if store.spec.tls.mode != "certManager" or issuer is None:
        return ()
    reference = {"name": issuer.name, "kind": issuer.kind, "group": issuer.group}
    return tuple(_request(owner or store, store.name, certificate, reference) for certificate in wanted)


def _uses(wanted: Certificate) -> list[str]:
    if wanted.is_both:
        return ["server auth", "client auth"]
    return ["server auth" if wanted.is_server else "client auth"]


def _request(owner: Resource, store: str, wanted: Certificate, issuer: dict[str, str]) -> Manifest:
    alternatives = {"dnsNames": wanted.dns_names, "ipAddresses": wanted.ip_addresses, "uris": wanted.uris}
    spec: dict[str, Any] = {
        "secretName": wanted.secret,
        "commonName": wanted.common_name,
        **{key: list(names) for key, names in alternatives.items() if names},
        "duration": f"{wanted.seconds // 3600}h",
        "renewBefore": f"{wanted.seconds // 3 // 3600}h",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        # Its labels tell the operator that a change of the secret concerns the store.
        "secretTemplate": {"labels": labels(owner, store, wanted.component)},
        "usages": ["digital signature", *_uses(wanted)],
        "issuerRef": issuer,
    }
    return {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": metadata(owner, wanted.secret, store, wanted.component),
        "spec": spec,
    }
