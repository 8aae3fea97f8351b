"""The pod that brings a backup to another bucket, or reads it whole; it belongs to the `StateStoreBackup`.

It is `tussock backup copy` or `verify` in the image of nodes, so the operator needs no access to either bucket. For a
copy its variables are for the destination, and a folder of settings for the store (`source.py`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

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
from tussock.operator.manifests.pod.pods import Main, node_template, placement_fields
from tussock.operator.manifests.settings import Defaults, restore_image
from tussock.operator.manifests.transport_security import Mounted
from tussock.operator.resources.backup import StateStoreBackup
from tussock.operator.resources.object_store import bucket_url
from tussock.operator.resources.store import StateStoreSpec, StoreResource

__all__ = ["CopyTask", "copy_manifests", "copy_name", "destination_of", "own_prefix", "task_in"]

_RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""Memory for four SSTs at a time."""
_BACKUP, _DROPS, _VERIFIES = "backup", "delete", "verify"
"""Keys of the ConfigMap, beside those of settings: what the pod is for."""


class CopyTask(NamedTuple):
    """The work of one pod."""

    backup: str
    """Name of the backup to copy or, without a destination, to read."""
    drops: tuple[str, ...] = ()
    """Backups whose copies it then deletes, if they are there."""
    verifies: bool = False
    """It reads the copy, or the backup, whole."""


def own_prefix(backup: StateStoreBackup) -> str:
    """How the names of all backups begin that an object makes, and of no other object's.

    Another object of the same name, after this one was deleted, has another uid.
    """
    return f"{backup.name}-{hashlib.sha256(backup.metadata.uid.encode()).hexdigest()[:8]}"


def copy_name(backup: StateStoreBackup) -> str:
    """The name of the pod that copies for `backup`, and of its ConfigMap."""
    return f"{backup.name}-backup"


def destination_of(backup: StateStoreBackup) -> StoreResource | None:
    """The destination as a store of which only the bucket is known; `None` if there is none."""
    found = backup.spec.destination
    return None if found is None else StoreResource(metadata=backup.metadata, spec=StateStoreSpec(object_store=found))


def task_in(config_map: Mapping[str, Any] | None) -> CopyTask | None:
    """The task of which a ConfigMap of `copy_manifests` says that its pod is for it."""
    data = (config_map or {}).get("data") or {}
    if not data.get(_BACKUP):
        return None
    return CopyTask(data[_BACKUP], tuple(data.get(_DROPS, "").split()), data.get(_VERIFIES) == "true")


def copy_manifests(
    backup: StateStoreBackup, store: StoreResource, task: CopyTask, defaults: Defaults
) -> tuple[Manifest, ...]:
    """The ConfigMap and the pod for a task on a backup of `store`."""
    name, destination = copy_name(backup), destination_of(backup)
    data = {_BACKUP: task.backup, _DROPS: " ".join(task.drops), _VERIFIES: "true" if task.verifies else "false"}
    image = restore_image(store, defaults)
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()
    args: tuple[str, ...]
    if destination is None:
        access = meta_access(store)
        args = ("backup", "verify", task.backup, "--store", bucket_url(store.spec.object_store), "--json")
        account = access.service_account
    else:
        volumes, mounts = source_volumes(name, store)
        # Of a disk that one node alone can mount, the pod has to go there, too.
        access = replace(meta_access(destination), one_node=meta_access(store).one_node)
        args = _copy_arguments(
            task, bucket_url(destination.spec.object_store), source_url(store), _keeps(backup), has_settings(mounts)
        )
        account = access.service_account or meta_access(store).service_account
        data |= settings_of(store)
    main = Main(
        component="backup",
        image=image,
        args=args,
        env=target_env(destination or store, access),
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
    # It can run where the meta nodes run.
    user = store.spec.meta.pod_template.get("spec") or {} if store.spec.meta is not None else {}
    template, _ = node_template(backup, store, main, {"spec": placement_fields(user)})
    about = metadata(backup, name, store.name, "backup")
    return (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata(backup, name, store.name, "backup", image=image),
            "spec": template["spec"],
        },
    )


def _keeps(backup: StateStoreBackup) -> tuple[str, ...]:
    """Arguments by which the copies of this object alone go that the destination's own retention does not keep."""
    rule = backup.spec.destination.retention if backup.spec.destination is not None else None
    if rule is None:
        return ()
    count = () if rule.count is None else ("--keep-count", str(rule.count))
    seconds = () if rule.seconds is None else ("--keep-seconds", f"{rule.seconds:.0f}")
    return ("--keep-of", own_prefix(backup), *count, *seconds)


def _copy_arguments(task: CopyTask, to: str, store: str, keeps: tuple[str, ...], has_folder: bool) -> tuple[str, ...]:
    folder = ("--source-settings", SETTINGS_FOLDER) if has_folder else ()
    drops = tuple(part for name in task.drops for part in ("--delete", name))
    verify = ("--verify",) if task.verifies else ()
    return ("backup", "copy", task.backup, "--to", to, "--store", store, *folder, *drops, *keeps, *verify, "--json")
