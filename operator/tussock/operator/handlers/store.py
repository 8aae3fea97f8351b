"""The controller of `StateStore`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tussock.operator.cluster.kinds import FINALIZER
from tussock.operator.cluster.seen import Key, key_of
from tussock.operator.handlers.certificates import certificates_end, certificates_fact, issue_certificates
from tussock.operator.handlers.clients.admissions import far_jobs
from tussock.operator.handlers.inquiries import bucket_fact, disk_fact, emptied_fact, returned_fact
from tussock.operator.handlers.turns import turn_of_server
from tussock.operator.handlers.world import Controller, World, make_once
from tussock.operator.manifests.bucket_access import volume_claim
from tussock.operator.manifests.labels import STORE_LABEL
from tussock.operator.manifests.minio import minio_secret
from tussock.operator.planning.deletion import EmptiedFact, is_over, leaves_bucket, remaining_pods, untouched_fact
from tussock.operator.planning.outside.addresses import hosts_outside
from tussock.operator.planning.parts import resources_of_store
from tussock.operator.planning.precedence import Claim, keeps_out
from tussock.operator.planning.store import (
    ISSUE_CERTIFICATES,
    MAKE_MINIO_SECRET,
    StoreFacts,
    is_prefix_held,
    meta_names,
    plan_store,
)
from tussock.operator.planning.turns import NO_WAIT
from tussock.operator.planning.words.model import Manifest, Observed
from tussock.operator.planning.words.ownership import holder_of, own_child
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.object_store import AzureStore, ManagedStore, S3Store, VolumeStore, bucket_url
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["STATE_STORE"]


def _observe(world: World, store: StoreResource, body: Manifest) -> Observed[StoreFacts]:
    seen, spec = world.seen, body["spec"]
    pods = list(_pods(world, store))
    others = world.refs(store.namespace, "Meta", "Compactor", "Compute", "Secret", "StateStore", "StateStoreBackup")
    leaving, has_let_go = store.is_being_deleted, _has_let_go(world, store)
    rivals = () if has_let_go else _rivals(world, store)
    empties = leaving and not leaves_bucket(store) and (not remaining_pods(store, pods) or is_over(store, world.now()))
    empties = empties and not has_let_go
    sections = {"Meta": spec.get("meta"), "Compactor": spec.get("compactor")}
    nodes = resources_of_store(others, "Meta", store)
    names, hosts = meta_names(store, nodes, sections), hosts_outside(nodes)
    certificates = None if leaving or rivals else certificates_fact(world, store, names, hosts)
    children = seen.children(key_of(body))
    # A store that starts nothing must not mark the prefix as its own, either.
    waits = leaving or rivals or (store.spec.paused and not _holds_prefix(world, store))
    bucket = None if waits else bucket_fact(world, store)
    if bucket is not None and bucket.reason is None:
        world.holders.add(store.metadata.uid)
    facts = StoreFacts(
        defaults=world.defaults,
        sections=sections,
        pods=pods,
        bucket=bucket,
        rivals=rivals,
        holds_prefix=_holds_prefix(world, store),
        has_let_go=has_let_go,
        certificates_due=certificates is not None and certificates.due,
        certificates_expire=certificates_end(store, certificates, store.status, children),
        has_cert_manager=world.has_cert_manager,
        emptied=_empty_bucket(world, store, rivals) if empties else None,
        disk_used_percent=None if waits else disk_fact(world, store),
        elsewhere=list(far_jobs(world, store)),
        turn=NO_WAIT if leaving or store.spec.paused else turn_of_server(world, store, children),
    )
    return Observed(facts, children, others)


def _empty_bucket(world: World, store: StoreResource, rivals: tuple[str, ...]) -> EmptiedFact | None:
    """Clean up in the bucket. While another store has the place, nothing there is touched but a marker of our own."""
    if not rivals:
        return emptied_fact(world, store)
    # A refused store may have no key to the bucket either, so any answer ends the wait.
    return untouched_fact(store, rivals) if returned_fact(world, store) is not None else None


def _pods(world: World, store: StoreResource) -> Iterator[Manifest]:
    """The pods of the store, and those of its jobs elsewhere."""
    for pod in world.seen.all_of("Pod", store.namespace):
        if (pod["metadata"].get("labels") or {}).get(STORE_LABEL) == store.name:
            yield pod
    # Not by labels alone, which anybody in any namespace may set: nobody there is to keep the store.
    for job in far_jobs(world, store):
        yield from (body for ref, body in sorted(world.seen.children(key_of(job)).items()) if ref.kind == "Pod")


def _rivals(world: World, store: StoreResource) -> tuple[str, ...]:
    """Stores with an overlapping place that keep this one out, by `precedence`."""
    stores = list(world.seen.all_of("StateStore"))
    world.holders.intersection_update(body["metadata"]["uid"] for body in stores)
    ours, mine = _place(store), _claim(world, store)
    found = []
    for body in stores:
        if body["metadata"]["uid"] == store.metadata.uid:
            continue
        try:
            other = parse_store(body)
            overlaps = _do_overlap(ours, _place(other))
        except InvalidResource:
            continue
        if overlaps and keeps_out(_claim(world, other), mine):
            found.append(f"{other.namespace}/{other.name}")
    return tuple(sorted(found))


def _claim(world: World, store: StoreResource) -> Claim:
    return Claim(_holds_prefix(world, store), store.metadata.creation_timestamp, store.metadata.uid)


def _holds_prefix(world: World, store: StoreResource) -> bool:
    """Whether the store's bucket was usable at some time, so that its marker may be there, and it has not let it go.

    The status has this before anything starts, so that it outlives this process; `holders` has it from the very pass
    that found it, so that no other pass decides between that and the status.
    """
    return (is_prefix_held(store) or store.metadata.uid in world.holders) and not _has_let_go(world, store)


def _has_let_go(world: World, store: StoreResource) -> bool:
    """Whether the operator is done with a deleted store: without its finalizer, and without nodes that could write."""
    if not store.is_being_deleted or FINALIZER in store.metadata.finalizers:
        return False
    children = world.seen.children(Key("StateStore", store.namespace, store.name))
    nodes = any(ref.kind in ("Meta", "Compactor") and own_child(children, ref, holder_of(store)) for ref in children)
    return not nodes and not remaining_pods(store, list(_pods(world, store)))


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


_AMAZON = re.compile(
    r"s3(?:-fips)?(?:\.dualstack)?(?:[.-][a-z]{2}(?:-[a-z]+)+-[0-9]+)?\.amazonaws\.com(?:\.cn)?(?::443)?"
    r"|s3-external-1\.amazonaws\.com(?::443)?"
)
"""Endpoints of Amazon's S3. Other hosts of this domain are those of Amazon's customers, such as load balancers."""


def _server(endpoint: str) -> str:
    """A server of S3's protocol; empty for Amazon's own, whose bucket names hold in all regions."""
    host = endpoint.lower().rpartition("://")[2].rstrip("/")
    return "" if not host or _AMAZON.fullmatch(host) else host


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
