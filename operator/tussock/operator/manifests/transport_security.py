"""TLS between nodes as pods see it: which secret is mounted where, under which name the service is checked."""

from typing import Any, Literal, NamedTuple

from tussock.operator.resources.store import StoreResource

__all__ = [
    "MOUNT",
    "ROLES",
    "Identity",
    "Mounted",
    "client_identity",
    "common_name",
    "has_tls",
    "job_common_name",
    "job_identity",
    "job_secret",
    "job_uri",
    "mounted",
    "role_patterns",
    "role_uri",
    "server_name",
    "tls_secret",
]

MOUNT = "/etc/tussock/tls"

ROLES = ("reader", "writer", "compactor", "admin")
Identity = Literal["meta", "compactor", "client-reader", "client-writer", "client-admin"]
"""Who shows a certificate: the service, and clients by their role."""


class Mounted(NamedTuple):
    """What a pod needs to show a certificate and to check the other one's."""

    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    env: tuple[dict[str, Any], ...] = ()
    """Of clients; the service is told in its configuration."""


def has_tls(store: StoreResource) -> bool:
    """Whether nodes of this store speak TLS with each other."""
    return store.spec.tls.mode != "none"


def tls_secret(store: StoreResource, identity: Identity) -> str:
    """The secret of `identity`: `tls.crt`, `tls.key` and `ca.crt`, the certificates that it trusts.

    With `mode: secret` all share the one that the user keeps.
    """
    if store.spec.tls.mode == "secret":
        return store.spec.tls.secret_name
    return f"{store.name}-{identity}-tls"


def job_secret(store: StoreResource, compute: str) -> str:
    """The same of one job, the `Compute` called so: it has a certificate of its own."""
    if store.spec.tls.mode == "secret":
        return store.spec.tls.secret_name
    return f"{compute}-driver-tls"


def server_name(store: StoreResource) -> str:
    """The name that every meta node's certificate has, whatever address it is reached at."""
    return f"{store.name}-meta.{store.namespace}.svc"


def role_patterns(store: StoreResource) -> dict[str, list[str]]:
    """Which certificates have which role, as the meta service's `tls.roles` says it.

    The URI in a certificate names the store, since an issuer may serve many. A CA that the operator made serves this
    one alone, so there the common name counts too, which is all that certificates of earlier operators have until
    they are renewed. The one certificate of `mode: secret` is known by the name that it must have anyhow, and whoever
    holds it may do everything.
    """
    if store.spec.tls.mode == "secret":
        return {role: [f"DNS:{server_name(store)}"] for role in ROLES}
    # Below the role's own name stand those of clients that users issue certificates for, to tell them apart.
    found = {role: [f"URI:{role_uri(store, role)}", f"URI:{role_uri(store, role)}/*"] for role in ROLES}
    if store.spec.tls.mode == "managed":
        for role in ROLES:
            found[role].append(f"CN:{common_name(role)}")
    return found


def role_uri(store: StoreResource, role: str) -> str:
    """The name in the certificate of a client that has this role in this store, and in no other."""
    return f"tussock://{store.namespace}/{store.name}/{role}"


def job_uri(store: StoreResource, compute: str) -> str:
    """The name by which the meta service knows a job: it has the role of a writer, and limits and log lines its own."""
    return f"{role_uri(store, 'writer')}/{compute}"


def job_common_name(compute: str) -> str:
    """For people. No pattern fits it, whatever the job is called, so nobody is a job or an admin by a common name."""
    return f"tussock-job-{compute}"


def common_name(role: str) -> str:
    """The name by which people tell certificates of clients apart; the same in all stores."""
    return f"tussock-{role}"


def mounted(store: StoreResource, identity: Identity) -> Mounted:
    """The certificate of `identity` as files, renewed under a running process; nothing without TLS."""
    return _mounted(tls_secret(store, identity)) if has_tls(store) else Mounted()


def client_identity(store: StoreResource, identity: Identity) -> Mounted:
    """The same with the variables by which every client finds it (`docs/security.md`)."""
    return _client(store, tls_secret(store, identity))


def job_identity(store: StoreResource, compute: str) -> Mounted:
    """The same of the job called so, for its driver and its executors."""
    return _client(store, job_secret(store, compute))


def _mounted(name: str) -> Mounted:
    secret = {"secretName": name, "defaultMode": 0o440}
    return Mounted(
        volumes=({"name": "tls", "secret": secret},), mounts=({"name": "tls", "mountPath": MOUNT, "readOnly": True},)
    )


def _client(store: StoreResource, secret: str) -> Mounted:
    if not has_tls(store):
        return Mounted()
    values = {
        "TUSSOCK_TLS_CA": f"{MOUNT}/ca.crt",
        "TUSSOCK_TLS_CERT": f"{MOUNT}/tls.crt",
        "TUSSOCK_TLS_KEY": f"{MOUNT}/tls.key",
        "TUSSOCK_TLS_SERVER_NAME": server_name(store),
    }
    return _mounted(secret)._replace(env=tuple({"name": name, "value": value} for name, value in values.items()))
