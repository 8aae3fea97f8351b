"""The store's own children: its disk or object store, its network policies, its requests for certificates."""

from collections.abc import Sequence

from tussock.operator.manifests.certificates import cert_manager_manifests, desired_certificates
from tussock.operator.manifests.labels import Manifest
from tussock.operator.manifests.minio import minio_manifests
from tussock.operator.manifests.network import network_policies
from tussock.operator.manifests.pod.pods import Rendered
from tussock.operator.manifests.pod.volumes import store_claim
from tussock.operator.manifests.settings import Defaults
from tussock.operator.resources.object_store import ManagedStore, VolumeStore
from tussock.operator.resources.store import StoreResource

__all__ = ["store_manifests"]


def store_manifests(
    store: StoreResource, metas: Sequence[str], defaults: Defaults, secret_version: str, hosts: Sequence[str] = ()
) -> Rendered:
    """The children of `store`; `metas` are the names of its `Meta` objects, and `hosts` theirs outside of the cluster.

    `secret_version` is that of the secret of a managed object store. The `Meta` and `Compactor` are not among the
    children, nor are the secrets whose content is drawn or issued.
    """
    found: list[Manifest] = []
    kept: tuple[str, ...] = ()
    match store.spec.object_store.backend:
        case VolumeStore() as volume:
            found += store_claim(store, volume)
        case ManagedStore() as managed:
            made, kept = minio_manifests(store, managed, defaults, secret_version)
            found += made
    found += network_policies(store, defaults)
    found += cert_manager_manifests(store, desired_certificates(store, metas, defaults, hosts))
    return Rendered(tuple(found), kept)
