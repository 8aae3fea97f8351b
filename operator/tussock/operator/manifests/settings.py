"""What the manifests take from the operator's own settings, and the choice of the image of each pod."""

from typing import NamedTuple

from tussock.operator.resources.common import InvalidResource, Resource
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.object_store import ManagedStore
from tussock.operator.resources.store import StoreResource

__all__ = [
    "IMAGE_ANNOTATION",
    "Defaults",
    "asks_for_approval",
    "image_note",
    "minio_image",
    "node_image",
    "restore_image",
    "served_image",
    "spark_image",
]

IMAGE_ANNOTATION = "tussock.dev/image"
"""On a workload whose changes of image need an approval, or on what is applied with it: the image that it was given."""


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
    upgrade_mode: str = "Automatic"
    """`spec.upgrade.mode` of stores that leave it out."""


def asks_for_approval(store: StoreResource, defaults: Defaults) -> bool:
    """Whether a change of an image of this store waits until somebody approves of it."""
    return (store.spec.upgrade.mode or defaults.upgrade_mode) == "Approve"


def image_note(store: StoreResource, defaults: Defaults, image: str) -> dict[str, str]:
    """The annotation from which a workload's image is known, even if a client has edited that."""
    return {IMAGE_ANNOTATION: image} if asks_for_approval(store, defaults) else {}


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
