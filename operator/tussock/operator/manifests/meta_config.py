"""The configuration file of meta nodes: the store's part, the user's part, and settings that must hold.

`docs/meta-service.md` lists the settings. The file is in a ConfigMap, which every user of the namespace may read, so a
secret in it is refused; credentials come as files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tussock.operator.manifests.bucket_access import READER_FOLDER, bucket_secret, minio_endpoint, reader_secret
from tussock.operator.manifests.clients import token_audience, with_entries
from tussock.operator.manifests.pod.strategic_merge import strategic_merge
from tussock.operator.manifests.transport_security import MOUNT, has_tls, role_patterns
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.object_store import ManagedStore, S3Store, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = [
    "CLIENTS_FILE",
    "CONFIG_FOLDER",
    "GRPC_PORT",
    "HTTP_PORT",
    "OUTSIDE_FILE",
    "OUTSIDE_PORT",
    "clients_file",
    "meta_config",
    "to_toml",
]

CONFIG_FOLDER = "/etc/tussock/meta"
CLIENTS_FILE = "clients.toml"
"""What may change under running nodes, which read it again."""

OUTSIDE_FILE = "outside.toml"
"""The addresses outside, which change with pods: the nodes read this again, too."""

GRPC_PORT = 7370
HTTP_PORT = 7371
OUTSIDE_PORT = 7373
"""In a pod: where callers from outside of the cluster come in. Their own port is `GRPC_PORT`, or a node port."""

_SECRETS = ("access_key_id", "secret_access_key", "reader_access_key_id", "reader_secret_access_key")


def meta_config(meta: Meta, store: StoreResource) -> dict[str, Any]:
    """All settings that differ from the service's defaults; `InvalidResource` if the user's part is not usable."""
    given = {name: value for name, value in meta.spec.config.items() if name != "tls"}
    _check_credentials(meta, store)
    # If the service can, it hands credentials out: then no other process needs a secret.
    suggested = {"credentials": {"mode": _credentials_mode(store)}, "drain_seconds": 10.0}
    return strategic_merge(strategic_merge(suggested, given), _fixed_config(store) | _outside_config(meta))


def clients_file(meta: Meta, entries: Sequence[str] = ()) -> str:
    """The clients file of the service: the certificates that are revoked, and the entries of declared clients."""
    return with_entries(to_toml({"revoked": (meta.spec.config.get("tls") or {}).get("revoked") or []}), entries)


def _check_credentials(meta: Meta, store: StoreResource) -> None:
    """Refuse secrets in a ConfigMap, and handing out credentials if there are none."""
    given = meta.spec.config.get("credentials") or {}
    for name in _SECRETS:
        if name in given:
            raise InvalidResource(
                f"Meta {meta.name}: config.credentials.{name} does not belong in a ConfigMap; name a secret in "
                f"objectStore of StateStore {store.name}"
            )
    has_pair = isinstance(store.spec.object_store.backend, S3Store | ManagedStore) and bucket_secret(store)
    if given.get("mode", "none") != "none" and not has_pair:
        raise InvalidResource(
            f"Meta {meta.name}: config.credentials.mode is {given['mode']!r}, but there is no key pair to hand out: "
            "only objectStore.managed, and s3 with a credentialsSecret, have one. Leave the mode out"
        )
    if meta.spec.config.get("tls") and not has_tls(store):
        raise InvalidResource(
            f"Meta {meta.name}: config.tls.revoked is about certificates, but spec.tls.mode of StateStore {store.name} "
            "is none. Leave it out"
        )
    mode = given.get("mode", "static")
    if mode != "static" and reader_secret(store):
        raise InvalidResource(
            f"Meta {meta.name}: config.credentials.mode is {mode!r}, but only the mode static hands out the pair of "
            f"objectStore.s3.readerCredentialsSecret of StateStore {store.name}. Leave one of the two out"
        )


def _credentials_mode(store: StoreResource) -> str:
    """Our own MinIO gives each client just what its role needs; other servers may lack an STS."""
    backend = store.spec.object_store.backend
    if isinstance(backend, ManagedStore):
        return "assume-role"
    return "static" if isinstance(backend, S3Store) and bucket_secret(store) else "none"


def _fixed_config(store: StoreResource) -> dict[str, Any]:
    config: dict[str, Any] = {
        "store": bucket_url(store.spec.object_store),
        "listen": f"0.0.0.0:{GRPC_PORT}",
        "http_listen": f"0.0.0.0:{HTTP_PORT}",
        "bucket": _bucket(store),
        "versions": {
            "retention_seconds": store.spec.retention_seconds,
            "gc_grace_seconds": store.spec.gc_grace_seconds,
            "max_clock_ahead_seconds": store.spec.max_clock_ahead_seconds,
        },
        "compaction": {name: getattr(store.spec.compaction, name) for name in store.spec.compaction.__struct_fields__},
    }
    if has_tls(store):
        config["tls"] = {
            "certificate": f"{MOUNT}/tls.crt",
            "key": f"{MOUNT}/tls.key",
            "client_ca": f"{MOUNT}/ca.crt",
            "roles": role_patterns(store),
        }
        # Also while nobody is revoked: to name the file then would restart the nodes.
        config["clients"] = {"file": f"{CONFIG_FOLDER}/{CLIENTS_FILE}"}
        if store.spec.token_reviews:
            config["accounts"] = {"audience": token_audience(store)}
    if reader_secret(store):
        config["credentials"] = {"reader_folder": READER_FOLDER}
    return _without_empty(config)


def _outside_config(meta: Meta) -> dict[str, Any]:
    if meta.spec.outside is None:
        return {}
    return {"outside": {"listen": f"0.0.0.0:{OUTSIDE_PORT}", "file": f"{CONFIG_FOLDER}/{OUTSIDE_FILE}"}}


def _bucket(store: StoreResource) -> dict[str, Any]:
    match store.spec.object_store.backend:
        case S3Store(endpoint=endpoint, region=region, allow_http=allow_http):
            return {"endpoint": endpoint or None, "region": region or None, "allow_http": allow_http or None}
        case ManagedStore():
            return {"endpoint": minio_endpoint(store), "region": "us-east-1", "allow_http": True}
    return {}


def _without_empty(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`tree` without empty options, and without groups in which none is left."""
    cleaned = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in tree.items()}
    return {name: value for name, value in cleaned.items() if value is not None and value != {}}


def to_toml(tree: Mapping[str, Any], group: str = "", *, quoted: bool = False) -> str:
    """Numbers, booleans, strings, lists of strings and nested groups as TOML text, names ascending.

    The same tree gives the same bytes, in whatever order it was built. `quoted` for names that are any text.
    """
    lines = [
        f"{_value(name) if quoted else name} = {_value(tree[name])}"
        for name in sorted(tree)
        if not isinstance(tree[name], Mapping)
    ]
    blocks = ["\n".join(lines) + "\n"] if lines else []
    if lines and group:
        blocks = [f"[{group}]\n{blocks[0]}"]
    for name in sorted(tree):
        if isinstance(tree[name], Mapping):
            blocks.append(to_toml(tree[name], f"{group}.{name}" if group else name, quoted=quoted))
    return "\n".join(block for block in blocks if block)


def _value(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        # 10 and 10.0 are the same setting, and must give the same file.
        return str(int(value))
    # JSON's form of text, numbers and booleans is also TOML.
    return msgspec.json.encode(value).decode()
