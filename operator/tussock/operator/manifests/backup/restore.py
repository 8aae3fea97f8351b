"""The pod that copies a backup into the place of a new store, or makes that a clone, before anything else of it exists.

It is `tussock backup restore` in the image of nodes. It reaches the new store's bucket as meta nodes do, and the source
by a separate folder of settings (`source.py`). The source may be a destination of copies.
"""

from tussock.operator.manifests.backup.source import (
    SETTINGS_FOLDER,
    has_settings,
    settings_of,
    source_url,
    source_volumes,
    target_env,
)
from tussock.operator.manifests.bucket_access import meta_access
from tussock.operator.manifests.labels import Manifest, metadata
from tussock.operator.manifests.network import CLIENT_LABEL
from tussock.operator.manifests.pod.pods import Main, node_template, placement_fields
from tussock.operator.manifests.settings import Defaults, restore_image
from tussock.operator.manifests.transport_security import Mounted
from tussock.operator.resources.object_store import ManagedStore, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = ["BACKUP_KEY", "clone_manifests", "restore_manifests", "restore_name"]

BACKUP_KEY = "backup"
"""On the ConfigMap: the name of the backup, so that a restore that starts again takes the same one; or the clone's."""
_RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""Memory for four SSTs at a time."""


def restore_name(store: StoreResource) -> str:
    """The name of the pod that restores into `store`, and of its ConfigMap."""
    return f"{store.name}-restore"


def restore_manifests(
    store: StoreResource, source: StoreResource, backup: str, defaults: Defaults
) -> tuple[Manifest, ...]:
    """The ConfigMap and the pod that copy the backup of that name from `source` into the empty place of `store`."""
    name, target = restore_name(store), bucket_url(store.spec.object_store)
    volumes, mounts = source_volumes(name, source)
    folder = ("--source-settings", SETTINGS_FOLDER) if has_settings(mounts) else ()
    args = ("backup", "restore", backup, target, "--store", source_url(source), *folder, "--json")
    account = meta_access(store).service_account or meta_access(source).service_account
    main = _main(store, args, defaults, account, volumes, mounts)
    return _config_map(store, {BACKUP_KEY: backup, **settings_of(source)}), _pod(store, source, main)


def clone_manifests(
    store: StoreResource, source: StoreResource, backup: str, defaults: Defaults
) -> tuple[Manifest, ...]:
    """The same, to make `store` a clone of `source`, or of its backup of that name; empty: of its newest version.

    It reaches both buckets as meta nodes of `store` do, which will read SSTs of `source`.
    """
    target = bucket_url(store.spec.object_store)
    of = ("--backup", backup) if backup else ()
    args = ("clone", bucket_url(source.spec.object_store), target, *of, "--json")
    main = _main(store, args, defaults, meta_access(store).service_account)
    begun = f"{source.name}, backup {backup}" if backup else source.name
    return _config_map(store, {BACKUP_KEY: begun}), _pod(store, source, main)


def _main(
    store: StoreResource,
    args: tuple[str, ...],
    defaults: Defaults,
    account: str,
    volumes: tuple[Manifest, ...] = (),
    mounts: tuple[Manifest, ...] = (),
) -> Main:
    access = meta_access(store)
    return Main(
        component="restore",
        image=restore_image(store, defaults),
        args=args,
        env=target_env(store, access),
        ports={},
        probes={},
        resources=_RESOURCES,
        drain_seconds=0.0,
        access=access,
        tls=Mounted(),
        volumes=volumes,
        mounts=mounts,
        service_account=account,
        # Its status then says what went wrong.
        container={"terminationMessagePolicy": "FallbackToLogsOnError"},
        restart="OnFailure",
    )


def _config_map(store: StoreResource, data: dict[str, str]) -> Manifest:
    about = metadata(store, restore_name(store), store.name, "restore")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


def _pod(store: StoreResource, source: StoreResource, main: Main) -> Manifest:
    # It can run where the meta nodes will run.
    user = store.spec.meta.pod_template.get("spec") or {} if store.spec.meta is not None else {}
    spec = node_template(store, store, main, {"spec": placement_fields(user)})[0]["spec"]
    about = metadata(store, restore_name(store), store.name, "restore", image=main.image)
    if isinstance(source.spec.object_store.backend, ManagedStore):
        # The label that the network policy of the other store's MinIO lets in.
        about["labels"][CLIENT_LABEL] = source.name
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec}
