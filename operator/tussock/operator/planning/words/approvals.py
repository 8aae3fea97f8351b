"""Changes of image that wait until somebody approves of them (`spec.upgrade.mode: Approve`).

Until then the store is as one whose spec names the image that it has: all else of it changes as usual, and its part of
an upgrade of the operator is over. An approval names the image, so it holds for no later one. It is an annotation of
the `StateStore` and makes no new generation: what it allows takes its turn among stores (`planning/turns.py`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from tussock.operator.manifests.settings import IMAGE_ANNOTATION, Defaults, asks_for_approval, minio_image, node_image
from tussock.operator.planning.words.components import image_of
from tussock.operator.planning.words.conditions import Reason, Verdict
from tussock.operator.planning.words.model import Manifest, stamp
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.store import StoreResource

__all__ = ["APPROVED", "approval_status", "approved_nodes", "approved_server", "joined", "with_approval"]

APPROVED = "tussock.dev/approved-image"
"""On a `StateStore`: the images that its pods may change to, as `status.pendingImage` has them."""

Nodes = TypeVar("Nodes", Meta, Compactor)


def approved_nodes(
    nodes: Nodes, store: StoreResource, defaults: Defaults, workload: Manifest | None, note: Manifest | None
) -> tuple[Nodes, str]:
    """The resource with the image that its nodes may have, and the image that waits; empty if none does.

    `note` is applied after their Deployment, and has `IMAGE_ANNOTATION`.
    """
    if not asks_for_approval(store, defaults):
        return nodes, ""
    wanted, held = node_image(nodes, store, defaults), _held_image(workload, note)
    if not _waits(wanted, held, store):
        return nodes, ""
    return replace(nodes, spec=replace(nodes.spec, image=held)), wanted


def approved_server(store: StoreResource, defaults: Defaults, server: Manifest | None) -> tuple[StoreResource, str]:
    """The same of the server of a managed object store."""
    managed = store.spec.object_store.managed
    if managed is None or not asks_for_approval(store, defaults):
        return store, ""
    wanted, held = minio_image(managed, store, defaults), _held_image(server, server)
    if not _waits(wanted, held, store):
        return store, ""
    place = replace(store.spec.object_store, managed=replace(managed, image=held))
    return replace(store, spec=replace(store.spec, object_store=place)), wanted


def joined(images: Iterable[str]) -> str:
    """Images as a status and an approval have them: each once, with commas, which are in no image's name."""
    return ",".join(sorted({one for image in images for one in image.split(",") if one}))


def approval_status(pending: str, status: Mapping[str, Any], now: datetime) -> dict[str, str]:
    """What a status says of the images that wait, and since when; `status` is the one before."""
    if not pending:
        return {}
    known = status.get("pendingImageTime") if status.get("pendingImage") == pending else None
    return {"pendingImage": pending, "pendingImageTime": str(known or stamp(now))}


def with_approval(verdict: Verdict, status: Mapping[str, str], store: str) -> Verdict:
    """The verdict on something that serves, with the images that wait; others have worse to tell."""
    if verdict.reason is not Reason.READY or "pendingImage" not in status:
        return verdict
    image = status["pendingImage"]
    told = (
        f"{verdict.message} A change to image {image} has waited for approval since {status['pendingImageTime']}. To "
        f"approve of it: kubectl tussock approve {store}, or give the StateStore the annotation {APPROVED}: {image}"
    )
    return verdict._replace(reason=Reason.WAITING_FOR_APPROVAL, message=told)


def _held_image(workload: Manifest | None, note: Manifest | None) -> str:
    """The image that a workload was given, even if a client has edited or deleted it since; empty for a new one."""
    noted = ((note or {}).get("metadata") or {}).get("annotations") or {}
    return str(noted.get(IMAGE_ANNOTATION) or image_of(workload))


def _waits(wanted: str, held: str, store: StoreResource) -> bool:
    if held in ("", wanted):
        return False
    return wanted not in [one.strip() for one in store.metadata.annotations.get(APPROVED, "").split(",")]
