"""The pod that copies a backup into the place of a new store, before anything else of the store exists.

It is `tussock backup restore` in the image of nodes. It reaches the new store's bucket as meta nodes do; the source has
a separate folder of settings, with its secret's keys beside settings that are not secret, so that the two buckets may
be on different servers with different credentials.
"""

from typing import Any

from tussock.operator.manifests.bucket_access import bucket_secret, meta_access, minio_endpoint, volume_claim
from tussock.operator.manifests.labels import Manifest, metadata
from tussock.operator.manifests.network import CLIENT_LABEL
from tussock.operator.manifests.pod.pods import Main, node_template, placement_fields
from tussock.operator.manifests.settings import Defaults, restore_image
from tussock.operator.manifests.transport_security import Mounted
from tussock.operator.resources.object_store import AzureStore, ManagedStore, S3Store, VolumeStore, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = ["BACKUP_KEY", "restore_manifests", "restore_name"]

BACKUP_KEY = "backup"
"""On the ConfigMap: the name of the backup, so that a restore that starts again takes the same one."""
_SETTINGS = "/etc/tussock/source"
_VOLUME = "/var/lib/tussock/source"
_RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""Memory for four SSTs at a time."""
_REGION = "us-east-1"


def restore_name(store: StoreResource) -> str:
    """The name of the pod that restores into `store`, and of its ConfigMap."""
    return f"{store.name}-restore"


def restore_manifests(
    store: StoreResource, source: StoreResource, backup: str, defaults: Defaults
) -> tuple[Manifest, ...]:
    """The ConfigMap and the pod that copy the backup of that name from `source` into the empty place of `store`."""
    name, settings = restore_name(store), _settings(source)
    image = restore_image(store, defaults)
    volumes, mounts = _source_volumes(name, source, settings)
    url = f"file://{_VOLUME}" if isinstance(source.spec.object_store.backend, VolumeStore) else _url(source)
    folder = ("--source-settings", _SETTINGS) if any(mount["mountPath"] == _SETTINGS for mount in mounts) else ()
    access = meta_access(store)
    main = Main(
        component="restore",
        image=image,
        args=("backup", "restore", backup, _url(store), "--store", url, *folder, "--json"),
        env=tuple(
            {"name": key, "value": value}
            for key, value in _settings(store).items()
            if key not in _variable_names(access)
        ),
        ports={},
        probes={},
        resources=_RESOURCES,
        drain_seconds=0.0,
        access=access,
        tls=Mounted(),
        volumes=volumes,
        mounts=mounts,
        service_account=access.service_account or meta_access(source).service_account,
    )
    # It can run where the meta nodes will run.
    user = store.spec.meta.pod_template.get("spec") or {} if store.spec.meta is not None else {}
    template, _ = node_template(store, store, main, {"spec": placement_fields(user)})
    return (
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(store, name, store.name, "restore"),
            "data": {BACKUP_KEY: backup, **settings},
        },
        _pod(store, source, name, image, template["spec"]),
    )


def _pod(store: StoreResource, source: StoreResource, name: str, image: str, spec: Manifest) -> Manifest:
    about = metadata(store, name, store.name, "restore", image=image)
    if isinstance(source.spec.object_store.backend, ManagedStore):
        # The label that the network policy of the other store's MinIO lets in.
        about["labels"][CLIENT_LABEL] = source.name
    (container,) = spec["containers"]
    # The pod's status then says what went wrong.
    container = {**container, "terminationMessagePolicy": "FallbackToLogsOnError"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {**spec, "containers": [container], "restartPolicy": "OnFailure"},
    }


def _url(store: StoreResource) -> str:
    return bucket_url(store.spec.object_store)


def _variable_names(access: Any) -> set[str]:
    return {variable["name"] for variable in access.env}


def _settings(store: StoreResource) -> dict[str, str]:
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


def _source_volumes(
    name: str, source: StoreResource, settings: dict[str, str]
) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    if isinstance(source.spec.object_store.backend, VolumeStore):
        claim = {"name": "source", "persistentVolumeClaim": {"claimName": volume_claim(source)}}
        return (claim,), ({"name": "source", "mountPath": _VOLUME},)
    parts: list[Manifest] = []
    if settings:
        items = [{"key": key, "path": key} for key in settings]
        parts.append({"configMap": {"name": name, "items": items}})
    secret = bucket_secret(source)
    if secret is not None:
        items = [{"key": key, "path": setting} for setting, key in secret[1].items()]
        parts.append({"secret": {"name": secret[0], "items": items}})
    if not parts:
        return (), ()
    volume = {"name": "source", "projected": {"sources": parts, "defaultMode": 0o440}}
    return (volume,), ({"name": "source", "mountPath": _SETTINGS, "readOnly": True},)
