"""Claims of volumes that hold a store's data."""

from collections.abc import Sequence
from typing import Any

from tussock.operator.manifests.bucket_access import volume_claim
from tussock.operator.manifests.labels import Component, Manifest, metadata
from tussock.operator.resources.object_store import VolumeStore
from tussock.operator.resources.store import StoreResource

__all__ = ["claim", "store_claim"]


def claim(
    store: StoreResource, name: str, component: Component, size: str, storage_class: str | None, modes: Sequence[str]
) -> Manifest:
    """A claim for data of `store`. With `deletionPolicy: Retain` it has no owner, so that it outlives the store."""
    spec: dict[str, Any] = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    owned = store.spec.deletion_policy == "Delete"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(store, name, store.name, component, owned=owned),
        "spec": spec,
    }


def store_claim(store: StoreResource, volume: VolumeStore) -> tuple[Manifest, ...]:
    """The claim of a store on a volume; none if the user brings one."""
    if volume.claim_name:
        return ()
    name = volume_claim(store)
    return (claim(store, name, "store", volume.size, volume.storage_class_name, volume.access_modes),)
