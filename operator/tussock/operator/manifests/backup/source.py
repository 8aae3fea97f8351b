"""How a pod reaches the bucket that it copies from: a folder of settings, with a secret's keys beside the endpoint.

The variables of the pod are for the bucket that it copies to, so the two may be on different servers with different
credentials.
"""

from typing import Any

from tussock.operator.manifests.bucket_access import BucketAccess, bucket_secret, minio_endpoint, volume_claim
from tussock.operator.manifests.labels import Manifest
from tussock.operator.resources.object_store import AzureStore, ManagedStore, S3Store, VolumeStore, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = ["SETTINGS_FOLDER", "has_settings", "settings_of", "source_url", "source_volumes", "target_env"]

SETTINGS_FOLDER = "/etc/tussock/source"
_VOLUME = "/var/lib/tussock/source"
_REGION = "us-east-1"


def source_url(source: StoreResource) -> str:
    """The URL by which the pod finds the source: a volume is mounted elsewhere than in the store's pods."""
    if isinstance(source.spec.object_store.backend, VolumeStore):
        return f"file://{_VOLUME}"
    return bucket_url(source.spec.object_store)


def settings_of(store: StoreResource) -> dict[str, str]:
    """The settings for reaching a bucket that are not secret, by the names of variables; always all of them.

    The source would inherit from the target what it left out.
    """
    match store.spec.object_store.backend:
        case S3Store(endpoint=endpoint, region=region, allow_http=allow_http):
            where = endpoint or f"https://s3.{region or _REGION}.amazonaws.com"
            return {
                "AWS_ENDPOINT_URL": where,
                "AWS_REGION": region or _REGION,
                "AWS_ALLOW_HTTP": "true" if allow_http else "false",
            }
        case ManagedStore():
            return {"AWS_ENDPOINT_URL": minio_endpoint(store), "AWS_REGION": _REGION, "AWS_ALLOW_HTTP": "true"}
        case AzureStore(account=account):
            return {"AZURE_STORAGE_ACCOUNT_NAME": account}
    return {}


def target_env(target: StoreResource, access: BucketAccess) -> tuple[Manifest, ...]:
    """The variables by which the pod reaches the bucket that it copies to, beside those of `access`."""
    given = {variable["name"] for variable in access.env}
    return tuple({"name": key, "value": value} for key, value in settings_of(target).items() if key not in given)


def source_volumes(config_map: str, source: StoreResource) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """Volumes and mounts for the source; `config_map` has its settings, by their names."""
    if isinstance(source.spec.object_store.backend, VolumeStore):
        claim = {"name": "source", "persistentVolumeClaim": {"claimName": volume_claim(source)}}
        return (claim,), ({"name": "source", "mountPath": _VOLUME},)
    parts: list[Any] = []
    settings = settings_of(source)
    if settings:
        items = [{"key": key, "path": key} for key in settings]
        parts.append({"configMap": {"name": config_map, "items": items}})
    secret = bucket_secret(source)
    if secret is not None:
        items = [{"key": key, "path": setting} for setting, key in secret[1].items()]
        parts.append({"secret": {"name": secret[0], "items": items}})
    if not parts:
        return (), ()
    volume = {"name": "source", "projected": {"sources": parts, "defaultMode": 0o440}}
    return (volume,), ({"name": "source", "mountPath": SETTINGS_FOLDER, "readOnly": True},)


def has_settings(mounts: tuple[Manifest, ...]) -> bool:
    """Whether the mounts have a folder of settings, which the command is then told of."""
    return any(mount["mountPath"] == SETTINGS_FOLDER for mount in mounts)
