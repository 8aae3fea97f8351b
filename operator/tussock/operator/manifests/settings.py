"""What the manifests take from the operator's own settings, and the choice of the image of each pod."""

from typing import NamedTuple

from tussock.operator.resources.common import InvalidResource, Resource
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource

__all__ = ["Defaults", "minio_image", "node_image", "restore_image", "served_image", "spark_image"]


class Defaults(NamedTuple):
    """The operator's defaults for fields that a resource leaves out."""

    node_image: str = ""
    spark_image: str = ""
    minio_image: str = ""
    namespace: str = ""
    """The operator's namespace, from which network policies let it in."""
    prometheus_namespace: str = ""
    """The namespace of Prometheus, from which network policies let it in; `*`: anywhere, empty: nowhere."""
    cluster_domain: str = "cluster.local"


def node_image(resource: Meta | Compactor, store: StoreResource, defaults: Defaults) -> str:
    """The image of meta or compactor nodes; `InvalidResource` if no image is configured."""
    image = resource.spec.image or store.spec.images.node or defaults.node_image
    return image or _refuse_missing_image(resource, "spec.image, or spec.images.node of its StateStore", "node")


def spark_image(compute: Compute, store: StoreResource, defaults: Defaults) -> str:
    """The image of a job's driver and executors; `InvalidResource` if no image is configured."""
    image = compute.spec.image or store.spec.images.spark or defaults.spark_image
    return image or _refuse_missing_image(compute, "spec.image, or spec.images.spark of its StateStore", "spark")


def served_image(compute: Compute, store: StoreResource, defaults: Defaults) -> str:
    """The image of a service and its workers; `InvalidResource` if no image is configured."""
    image = compute.spec.image or store.spec.images.node or defaults.node_image
    return image or _refuse_missing_image(compute, "spec.image, or spec.images.node of its StateStore", "node")


def minio_image(managed: ManagedStore, store: StoreResource, defaults: Defaults) -> str:
    """The image of a managed object store; `InvalidResource` if no image is configured."""
    image = managed.image or store.spec.images.minio or defaults.minio_image
    return image or _refuse_missing_image(store, "spec.objectStore.managed.image, or spec.images.minio", "minio")


def restore_image(store: StoreResource, defaults: Defaults) -> str:
    """The image of the pod that restores into a store; `InvalidResource` if no image is configured."""
    image = store.spec.images.node or defaults.node_image
    return image or _refuse_missing_image(store, "spec.images.node", "node")


def _refuse_missing_image(resource: Resource, fields: str, which: str) -> str:
    of_server = " of MinIO" if which == "minio" else ""
    raise InvalidResource(
        f"{resource.kind} {resource.name} has no image{of_server}: set {fields}, or the operator's --{which}-image"
    )
