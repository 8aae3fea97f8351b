"""The controller of `StateStore`."""

from collections.abc import Mapping
from typing import Any

from tussock.operator.cluster.seen import key_of
from tussock.operator.handlers.certificates import certificates_fact, issue_certificates
from tussock.operator.handlers.inquiries import bucket_fact, emptied_fact
from tussock.operator.handlers.world import Controller, World, make_once
from tussock.operator.manifests.bucket_access import volume_claim
from tussock.operator.manifests.labels import STORE_LABEL
from tussock.operator.manifests.minio import minio_secret
from tussock.operator.planning.certificates import first_end_of
from tussock.operator.planning.deletion import is_over, leaves_bucket, remaining_pods, untouched_fact
from tussock.operator.planning.store import (
    ISSUE_CERTIFICATES,
    MAKE_MINIO_SECRET,
    StoreFacts,
    is_prefix_held,
    meta_names,
    plan_store,
    resources_of_store,
)
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.model import Manifest, Observed
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.object_store import AzureStore, ManagedStore, S3Store, VolumeStore, bucket_url
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["STATE_STORE"]


def _observe(world: World, store: StoreResource, body: Manifest) -> Observed[StoreFacts]:
    seen, spec = world.seen, body["spec"]
    pods = [
        pod
        for pod in seen.all_of("Pod", store.namespace)
        if (pod["metadata"].get("labels") or {}).get(STORE_LABEL) == store.name
    ]
    others = world.refs(store.namespace, "Meta", "Compactor", "Compute", "Secret", "StateStore", "StateStoreBackup")
    leaving = store.is_being_deleted
    rivals = _rivals(world, store)
    empties = leaving and not leaves_bucket(store) and (not remaining_pods(pods) or is_over(store, world.now()))
    sections = {"Meta": spec.get("meta"), "Compactor": spec.get("compactor")}
    metas = meta_names(store, resources_of_store(others, "Meta", store), sections)
    certificates = None if leaving or rivals else certificates_fact(world, store, metas)
    children = seen.children(key_of(body))
    # A store that starts nothing must not mark the prefix as its own, either.
    bucket = None if leaving or rivals else bucket_fact(world, store)
    if bucket is not None and bucket.reason is None:
        world.holders.add(store.metadata.uid)
    facts = StoreFacts(
        defaults=world.defaults,
        sections=sections,
        pods=pods,
        bucket=bucket,
        rivals=rivals,
        holds_prefix=_holds_prefix(world, store),
        certificates_due=certificates is not None and certificates.due,
        certificates_expire=certificates.expire if certificates is not None else first_end_of(children),
        has_cert_manager=world.has_cert_manager,
        # While another store has the place, not even our own marker justifies touching anything there.
        emptied=None if not empties else untouched_fact(store, rivals) if rivals else emptied_fact(world, store),
    )
    return Observed(facts, children, others)


def _rivals(world: World, store: StoreResource) -> tuple[str, ...]:
    """Stores with an overlapping place that come before this one."""
    stores = list(world.seen.all_of("StateStore"))
    world.holders.intersection_update(body["metadata"]["uid"] for body in stores)
    ours = _place(store)
    found = []
    for body in stores:
        if body["metadata"]["uid"] == store.metadata.uid:
            continue
        try:
            other = parse_store(body)
            overlaps = _do_overlap(ours, _place(other))
        except InvalidResource:
            continue
        if overlaps and not _is_shut_out(world, other) and _turn(world, other) < _turn(world, store):
            found.append(f"{other.namespace}/{other.name}")
    return tuple(sorted(found))


def _turn(world: World, store: StoreResource) -> tuple[bool, str, str]:
    """Orders stores that overlap: the holder of the place comes first, then the older one, then the smaller uid."""
    return not _holds_prefix(world, store), store.metadata.creation_timestamp, store.metadata.uid


def _holds_prefix(world: World, store: StoreResource) -> bool:
    """Whether the store's bucket was usable at some time, so that its marker may be there.

    The status has this before anything starts, so that it outlives this process; `holders` has it from the very pass
    that found it, so that no other pass decides between that and the status.
    """
    return is_prefix_held(store) or store.metadata.uid in world.holders


def _is_shut_out(world: World, store: StoreResource) -> bool:
    """Whether a lasting problem keeps the store from its bucket, where it has never been.

    Such a store must not keep others out: otherwise anyone who may make a StateStore could block a whole bucket
    without a key to it. A prefix in use says nothing about the key. A store that is being deleted may use its bucket
    right now.
    """
    if _holds_prefix(world, store) or store.is_being_deleted:
        return False
    held = {found["type"]: found for found in store.status.get("conditions") or ()}
    is_wrong = "Degraded" in held and held["Degraded"]["status"] == "True"
    return is_wrong and held.get("Ready", {}).get("reason") != Reason.PREFIX_IN_USE


def _place(store: StoreResource) -> tuple[str, str]:
    """Server and path of a store's objects: two stores overlap if one path contains the other."""
    match store.spec.object_store.backend:
        case S3Store(endpoint=endpoint):
            return _server(endpoint), bucket_url(store.spec.object_store)
        case AzureStore(account=account):
            return account, bucket_url(store.spec.object_store)
        case ManagedStore():
            return f"{store.namespace}/{store.name}", "managed"
        case VolumeStore():
            return "claim", f"{store.namespace}/{volume_claim(store)}"
        case _:
            return "", bucket_url(store.spec.object_store)


def _server(endpoint: str) -> str:
    """A server of S3's protocol; empty for Amazon's own, whose bucket names hold in all regions."""
    host = endpoint.lower().rpartition("://")[2].rstrip("/")
    return "" if host.endswith((".amazonaws.com", ".amazonaws.com.cn")) else host


def _do_overlap(left: tuple[str, str], right: tuple[str, str]) -> bool:
    if left[0] != right[0]:
        return False
    shorter, longer = sorted((left[1].rstrip("/") + "/", right[1].rstrip("/") + "/"), key=len)
    return longer.startswith(shorter)


async def _make_minio_secret(world: World, store: StoreResource, _: Mapping[str, Any]) -> None:
    """Draw user and password of a managed object store, once: a second draw would lock all clients out."""
    secret = minio_secret(store, f"tussock-{world.system.random_bytes(4).hex()}", world.system.random_bytes(24).hex())
    await make_once(world, secret, store.namespace)


STATE_STORE = Controller(
    kind="StateStore",
    parse=parse_store,
    observe=_observe,
    plan=plan_store,
    works={MAKE_MINIO_SECRET: _make_minio_secret, ISSUE_CERTIFICATES: issue_certificates},
)
"""The controller of `StateStore`."""
