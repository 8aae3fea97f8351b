"""A pod's access to the bucket: variables, and volumes with the secret's files.

No secret is ever a variable. Its keys are mounted as files named after the settings (`AWS_ACCESS_KEY_ID` and so on), in
the folder that `TUSSOCK_BUCKET_CREDENTIALS` names; the processes read them again when they change, so a rotation
restarts nothing (`docs/security.md`). Only meta nodes have the secret of an S3 bucket: they hand credentials out to all
other processes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tussock.operator.resources.object_store import (
    VOLUME_PATH,
    AzureStore,
    GcsStore,
    ManagedStore,
    S3Credentials,
    S3Store,
    VolumeStore,
)
from tussock.operator.resources.store import StoreResource

__all__ = [
    "MINIO_PORT",
    "READER_FOLDER",
    "BucketAccess",
    "BucketSecret",
    "bucket_secret",
    "client_access",
    "managed_name",
    "meta_access",
    "minio_endpoint",
    "operator_looks_into",
    "reader_secret",
    "reader_volume",
    "secret_of_clients",
    "secrets_of_bucket",
    "volume_claim",
]

_FOLDER = "/etc/tussock/bucket"
READER_FOLDER = "/etc/tussock/readers"
"""The folder, in meta nodes, of the key pair that they hand to readers."""
MINIO_PORT = 9000


@dataclass(frozen=True)
class BucketAccess:
    """What a pod needs to reach the bucket, to be merged into its template."""

    env: tuple[Mapping[str, Any], ...] = ()
    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    service_account: str = ""
    """The account of a workload identity, under which the pod has to run; empty if there is none."""
    one_node: bool = False
    """All pods of the store share a volume that only one node can mount."""


def managed_name(store: StoreResource) -> str:
    """The name of all children of a managed object store: StatefulSet, Service, claim and secret."""
    return f"{store.name}-minio"


def minio_endpoint(store: StoreResource) -> str:
    """The address of a managed object store inside the cluster."""
    return f"http://{managed_name(store)}.{store.namespace}.svc:{MINIO_PORT}"


def volume_claim(store: StoreResource) -> str:
    """The claim of a store on a volume, or of the disk of a managed one."""
    backend = store.spec.object_store.backend
    if isinstance(backend, VolumeStore):
        return backend.claim_name or f"{store.name}-store"
    return managed_name(store)


def bucket_secret(store: StoreResource) -> tuple[str, dict[str, str]] | None:
    """The secret with the bucket's credentials: its name, and its keys by setting.

    `None` if there is none: a volume, a workload identity, or a public bucket.
    """
    match store.spec.object_store.backend:
        case S3Store(credentials_secret=found) if found is not None:
            return found.name, _pair_in(found)
        case GcsStore(credentials_secret=found) if found is not None:
            return found.name, {"GOOGLE_SERVICE_ACCOUNT_KEY": found.key}
        case AzureStore(credentials_secret=found) if found is not None:
            return found.name, {"AZURE_STORAGE_ACCOUNT_KEY": found.key}
        case ManagedStore():
            return managed_name(store), {
                "AWS_ACCESS_KEY_ID": "access-key-id",
                "AWS_SECRET_ACCESS_KEY": "secret-access-key",
            }
    return None


def secret_of_clients(store: StoreResource) -> tuple[str, dict[str, str]] | None:
    """The same of what compactors and computes mount; `None` if meta nodes hand credentials out, or need none."""
    handed_out = isinstance(store.spec.object_store.backend, S3Store | ManagedStore)
    return None if handed_out else bucket_secret(store)


def operator_looks_into(store: StoreResource) -> bool:
    """Whether the operator looks into the bucket: not on a volume, nor with credentials that only pods get.

    An S3 bucket that needs no credentials is asked without.
    """
    backend = store.spec.object_store.backend
    if isinstance(backend, S3Store | ManagedStore):
        return isinstance(backend, ManagedStore) or not backend.service_account
    return bucket_secret(store) is not None


def reader_secret(store: StoreResource) -> tuple[str, dict[str, str]] | None:
    """The same for the key pair of readers; `None` if the user gives none."""
    backend = store.spec.object_store.backend
    found = backend.reader_credentials_secret if isinstance(backend, S3Store) else None
    return None if found is None else (found.name, _pair_in(found))


class BucketSecret(NamedTuple):
    """A secret that meta nodes mount to reach the bucket, or to hand out."""

    field: str
    """The field of the `StateStore` that names it; for a managed object store, the one that asks for that."""
    name: str
    keys: dict[str, str]
    """By setting."""


def secrets_of_bucket(store: StoreResource) -> list[BucketSecret]:
    """All secrets that meta nodes mount for the bucket, that of the bucket itself first."""
    by_field = {
        "spec.objectStore": bucket_secret(store),
        "spec.objectStore.s3.readerCredentialsSecret": reader_secret(store),
    }
    return [BucketSecret(field, *secret) for field, secret in by_field.items() if secret is not None]


def _pair_in(secret: S3Credentials) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": secret.access_key_id_key, "AWS_SECRET_ACCESS_KEY": secret.secret_access_key_key}


def meta_access(store: StoreResource) -> BucketAccess:
    """What a meta node needs: everything."""
    return _access(store, with_secret=True)


def client_access(store: StoreResource) -> BucketAccess:
    """What compactors and computes need: not the secret of an S3 bucket, since meta nodes hand credentials out."""
    return _access(store, with_secret=secret_of_clients(store) is not None)


def _access(store: StoreResource, *, with_secret: bool) -> BucketAccess:
    backend = store.spec.object_store.backend
    if isinstance(backend, VolumeStore):
        claim = {"name": "store", "persistentVolumeClaim": {"claimName": volume_claim(store)}}
        return BucketAccess(
            volumes=(claim,),
            mounts=({"name": "store", "mountPath": VOLUME_PATH},),
            one_node="ReadWriteMany" not in backend.access_modes,
        )
    env: tuple[Mapping[str, Any], ...] = ()
    if isinstance(backend, AzureStore):
        env = ({"name": "AZURE_STORAGE_ACCOUNT_NAME", "value": backend.account},)
    account = "" if isinstance(backend, ManagedStore) else backend.service_account
    secret = bucket_secret(store)
    if secret is None or not with_secret:
        return BucketAccess(env=env, service_account=account)
    volume, mount = _files("bucket", secret, _FOLDER)
    return BucketAccess(
        env=(*env, {"name": "TUSSOCK_BUCKET_CREDENTIALS", "value": _FOLDER}),
        volumes=(volume,),
        mounts=(mount,),
        service_account=account,
    )


def reader_volume(store: StoreResource) -> tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
    """Volumes and mounts of a meta node with the key pair for readers; empty without one."""
    secret = reader_secret(store)
    if secret is None:
        return (), ()
    volume, mount = _files("readers", secret, READER_FOLDER)
    return (volume,), (mount,)


def _files(volume: str, secret: tuple[str, dict[str, str]], folder: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The volume of a secret, with files named after the settings of its keys, and its mount."""
    items = [{"key": key, "path": setting} for setting, key in secret[1].items()]
    # 0440: for the volume's group, which is that of our processes.
    source = {"secretName": secret[0], "items": items, "defaultMode": 0o440}
    return {"name": volume, "secret": source}, {"name": volume, "mountPath": folder, "readOnly": True}
