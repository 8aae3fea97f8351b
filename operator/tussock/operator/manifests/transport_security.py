"""TLS between nodes in their pods: which secret is mounted where, and which name of the service is checked."""

from typing import Any, Literal, NamedTuple

from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = [
    "MOUNT",
    "ROLES",
    "Identity",
    "Mounted",
    "client_identity",
    "client_secret",
    "client_uri",
    "common_name",
    "has_tls",
    "job_common_name",
    "job_identity",
    "job_secret",
    "job_uri",
    "node_identity",
    "role_patterns",
    "role_uri",
    "server_name",
    "service_identity",
    "service_secret",
    "tls_secret",
]

MOUNT = "/etc/tussock/tls"

ROLES = ("reader", "writer", "compactor", "admin")
Identity = Literal["meta", "compactor", "client-reader", "client-writer", "client-admin"]
"""The holders of certificates: the service, and clients by their role."""


class Mounted(NamedTuple):
    """What a pod needs to show its certificate and to check that of its peer."""

    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    env: tuple[dict[str, Any], ...] = ()
    """For clients; the service has it in its configuration."""


def has_tls(store: StoreResource) -> bool:
    """Whether nodes of this store use TLS with each other."""
    return store.spec.tls.mode != "none"


def tls_secret(store: StoreResource, identity: Identity) -> str:
    """The secret of `identity`: `tls.crt`, `tls.key` and `ca.crt`, the certificates that it trusts.

    With `mode: secret` all share the user's.
    """
    if store.spec.tls.mode == "secret":
        return store.spec.tls.secret_name
    return f"{store.name}-{identity}-tls"


def job_secret(store: StoreResource, compute: str) -> str:
    """The same for one job, the `Compute` of that name, which has its own certificate."""
    if store.spec.tls.mode == "secret":
        return store.spec.tls.secret_name
    return f"{compute}-driver-tls"


def service_secret(store: StoreResource, compute: str) -> str:
    """The same for one service, which shows its certificate as a client and as a server."""
    if store.spec.tls.mode == "secret":
        return store.spec.tls.secret_name
    return f"{compute}-service-tls"


def server_name(store: StoreResource) -> str:
    """The name in every meta node's certificate, independent of the address that clients use."""
    return f"{store.name}-meta.{store.namespace}.svc"


def role_patterns(store: StoreResource) -> dict[str, list[str]]:
    """Which certificates have which role, in the form of the meta service's `tls.roles`.

    The URI in a certificate names the store, since an issuer may serve many. A CA made by the operator serves this
    store alone, so the common name counts too: certificates of earlier operators have only that until they are renewed.
    The one certificate of `mode: secret` is known by the name that it must have anyway, and its holder may do
    everything.
    """
    if store.spec.tls.mode == "secret":
        return {role: [f"DNS:{server_name(store)}"] for role in ROLES}
    # Below the role's own name are those of clients that users issue certificates for, to tell them apart.
    found = {role: [f"URI:{role_uri(store, role)}", f"URI:{role_uri(store, role)}/*"] for role in ROLES}
    if store.spec.tls.mode == "managed":
        for role in ROLES:
            found[role].append(f"CN:{common_name(role)}")
    return found


def role_uri(store: StoreResource, role: str) -> str:
    """The name in the certificate of a client that has this role in this store, and in no other."""
    return f"tussock://{store.namespace}/{store.name}/{role}"


def job_uri(store: StoreResource, compute: Compute) -> str:
    """The name by which the meta service knows a job: it has the role of a writer, and its own limits and log lines.

    No pattern of a role fits that of a job in another namespace, so that it counts only while it is declared.
    """
    if compute.is_far:
        return f"tussock://{store.namespace}/{store.name}/job/{compute.namespace}/{compute.name}"
    return f"{role_uri(store, 'writer')}/{compute.name}"


def client_secret(client: str) -> str:
    """The secret of the `StateStoreClient` of that name. No name of another certificate ends so."""
    return f"{client}-client-tls"


def client_uri(store: StoreResource, client: str, version: int, *, is_enough: bool) -> str:
    """The name in the certificate of a declared client: no pattern of a role fits it, so the declaration alone counts.

    One that is not enough to be known by has another name, which no declaration has: it only opens the connection.
    """
    return f"tussock://{store.namespace}/{store.name}/{'client' if is_enough else 'connection'}/{client}/{version}"


def job_common_name(compute: str) -> str:
    """For people, of services too. No pattern fits it, whatever the job is called, so it makes no client an admin."""
    return f"tussock-job-{compute}"


def common_name(role: str) -> str:
    """The name by which people tell certificates of clients apart; the same in all stores."""
    return f"tussock-{role}"


def node_identity(store: StoreResource, identity: Identity) -> Mounted:
    """The certificate of `identity` as files, renewed under a running process; nothing without TLS."""
    return _secret_mount(tls_secret(store, identity)) if has_tls(store) else Mounted()


def client_identity(store: StoreResource, identity: Identity) -> Mounted:
    """The same with the variables in which every client finds it (`docs/security.md`)."""
    return _client_mount(store, tls_secret(store, identity))


def job_identity(store: StoreResource, compute: str) -> Mounted:
    """The same for the job of that name, for its driver and its executors."""
    return _client_mount(store, job_secret(store, compute))


def service_identity(store: StoreResource, compute: str) -> Mounted:
    """The same for the service of that name, for its node and its workers."""
    return _client_mount(store, service_secret(store, compute))


def _secret_mount(name: str) -> Mounted:
    secret = {"secretName": name, "defaultMode": 0o440}
    return Mounted(
        volumes=({"name": "tls", "secret": secret},), mounts=({"name": "tls", "mountPath": MOUNT, "readOnly": True},)
    )


def _client_mount(store: StoreResource, secret: str) -> Mounted:
    if not has_tls(store):
        return Mounted()
    values = {
        "TUSSOCK_TLS_CA": f"{MOUNT}/ca.crt",
        "TUSSOCK_TLS_CERT": f"{MOUNT}/tls.crt",
        "TUSSOCK_TLS_KEY": f"{MOUNT}/tls.key",
        "TUSSOCK_TLS_SERVER_NAME": server_name(store),
    }
    return _secret_mount(secret)._replace(env=tuple({"name": name, "value": value} for name, value in values.items()))
