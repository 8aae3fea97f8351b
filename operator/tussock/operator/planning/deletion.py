"""The deletion of a store: jobs drain, nodes go, then the operator's objects in the bucket, all before a deadline.

| step | waits for |
|---|---|
| drivers of the store's computes stop (their own plans see that the store goes) | their pods are gone |
| `Compactor` and `Meta` objects of the store are deleted | pods of meta nodes and compactors are gone |
| `Retain`: the owner's marker is removed; `Delete`: all objects of the store, the marker last | the bucket |
| the finalizer is removed; the garbage collector deletes the rest | |

A bucket that is gone, or a node that never answers, must not keep a namespace alive. After `deletionDeadlineSeconds`
the plan waits for no more pods: the bucket is cleaned up, since a pod on a lost node writes nothing, and then the store
goes, with an event that names what was left. It goes at once if waiting is useless: when a namespace is deleted, the
credentials go with it, and no user can put them back.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.backup.restore import restore_name
from tussock.operator.manifests.labels import COMPONENT_LABEL
from tussock.operator.planning.words.components import named
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Action, Emit, Manifest, Ref, Release, seconds_since
from tussock.operator.planning.words.ownership import deletes, holder_of
from tussock.operator.resources.object_store import ManagedStore, VolumeStore, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = [
    "Departure",
    "EmptiedFact",
    "depart",
    "is_over",
    "leaves_bucket",
    "lost_backups_event",
    "remaining_pods",
    "untouched_fact",
]

POLL_SECONDS = 5.0
"""Ending pods wake the plan; the bucket and the deadline are checked at this interval."""
_LOOK_SECONDS = 60.0
"""Extra time after the deadline for a bucket that was not checked before; a slow one is given up then."""


class EmptiedFact(NamedTuple):
    """The result of cleaning up in the bucket."""

    done: bool
    message: str = ""
    """If it is not done: what was left and why."""
    stuck: bool = False
    """It made no progress; a user may repair that before the deadline."""
    hopeless: bool = False
    """It can never be done: no user can remove the obstacle."""


class Departure(NamedTuple):
    """The next step of a deletion."""

    actions: tuple[Action, ...]
    verdict: Verdict


def leaves_bucket(store: StoreResource) -> bool:
    """Whether the bucket needs no cleaning up.

    A volume is not a bucket that the operator reaches: its owner reference decides whether its claim goes or stays. The
    same holds for the disk of a managed object store whose data are to go.
    """
    backend = store.spec.object_store.backend
    if isinstance(backend, VolumeStore):
        return True
    return isinstance(backend, ManagedStore) and (backend.ephemeral or store.spec.deletion_policy == "Delete")


def lost_backups_event(store: StoreResource, others: Mapping[Ref, Manifest]) -> tuple[Emit, ...]:
    """The event that names the backups that go with a store's disk; none if the disk stays, or holds none."""
    backend = store.spec.object_store.backend
    goes = store.spec.deletion_policy == "Delete" or (isinstance(backend, ManagedStore) and backend.ephemeral)
    if not goes or not (isinstance(backend, ManagedStore) or (isinstance(backend, VolumeStore) and backend.size)):
        return ()
    found = [
        f"{found['name']} (StateStoreBackup {ref.name})"
        for ref, body in sorted(others.items(), key=lambda item: item[0])
        if ref.kind == "StateStoreBackup" and body["spec"]["storeRef"]["name"] == store.name
        for found in (body.get("status") or {}).get("backups") or ()
    ]
    told = f"The disk of this store is deleted, and with it these backups: {_first_names(found)}."
    return (Emit("Warning", "BackupsGo", told),) if found else ()


def remaining_pods(store: StoreResource, pods: Sequence[Manifest]) -> dict[str, list[str]]:
    """The names of the remaining pods, by component; those of the object store are last of all, by themselves.

    Before the name of one in another namespace stands that.
    """
    found: dict[str, list[str]] = {}
    for pod in pods:
        component = (pod["metadata"].get("labels") or {}).get(COMPONENT_LABEL, "")
        if component in ("meta", "compactor", "compute", "restore"):
            name, namespace = pod["metadata"]["name"], pod["metadata"].get("namespace", store.namespace)
            found.setdefault(component, []).append(name if namespace == store.namespace else f"{namespace}/{name}")
    return found


def is_over(store: StoreResource, now: datetime) -> bool:
    """Whether a deletion has exceeded its deadline, so that it waits for nothing more."""
    return seconds_since(store.metadata.deletion_timestamp, now) >= store.spec.deletion_deadline_seconds


def untouched_fact(store: StoreResource, rivals: Sequence[str]) -> EmptiedFact:
    """The result of a deletion in a place that other stores had before."""
    if store.spec.deletion_policy == "Retain":
        return EmptiedFact(done=True)
    owner = f"{bucket_url(store.spec.object_store)} belongs to StateStore {named(rivals)}"
    told = f"{owner}, and the operator changed nothing there."
    return EmptiedFact(done=False, message=told, hopeless=True)


def depart(
    store: StoreResource,
    pods: Sequence[Manifest],
    children: Mapping[Ref, Manifest],
    emptied: EmptiedFact | None,
    now: datetime,
) -> Departure:
    """The next step of the deletion of `store`; `pods` are all that belong to it, whatever their owner."""
    over = is_over(store, now)
    left = remaining_pods(store, pods)
    if not over and (jobs := left.get("compute")):
        return Departure(
            (), progress_verdict(Reason.DRAINING, f"Waiting until pods of jobs have ended: {_first_names(jobs)}.")
        )
    nodes: tuple[Action, ...] = deletes(children, _nodes(store, children), holder_of(store))
    if not over and (others := [name for names in left.values() for name in names]):
        return Departure(
            nodes, progress_verdict(Reason.DELETING, f"Waiting until pods have ended: {_first_names(others)}.")
        )
    if leaves_bucket(store):
        emptied = EmptiedFact(done=True)
    if emptied is None and seconds_since(store.metadata.deletion_timestamp, now) >= _blind_seconds(store):
        emptied = EmptiedFact(done=False, message="the operator could not check the bucket.", stuck=True)
    if emptied is None or not (emptied.done or emptied.hopeless or (over and emptied.stuck)):
        url, problem = bucket_url(store.spec.object_store), emptied.message if emptied is not None else ""
        policy = (
            "Deleting the objects of this store in"
            if store.spec.deletion_policy == "Delete"
            else "Removing the marker from"
        )
        return Departure(nodes, progress_verdict(Reason.DELETING, f"{policy} {url}. {problem}".strip()))
    return Departure((*nodes, Release()), _end_verdict(store, left, emptied))


def _blind_seconds(store: StoreResource) -> float:
    """Seconds after which a store goes even if no check of its bucket has ended."""
    return store.spec.deletion_deadline_seconds + _LOOK_SECONDS


def _end_verdict(store: StoreResource, left: Mapping[str, Sequence[str]], emptied: EmptiedFact) -> Verdict:
    """The verdict at the end of a deletion."""
    still = sorted(name for names in left.values() for name in names)
    if emptied.done and not still:
        return progress_verdict(Reason.DELETING, "The cleanup is complete.")
    told = "" if emptied.done else f" It ends without cleaning up: {emptied.message}"
    if still:
        told = (
            f" Pods have not ended: {_first_names(still)}; if their nodes come back, they may still write to "
            f"{bucket_url(store.spec.object_store)}.{told}"
        )
    if emptied.hopeless and not still:
        return problem_verdict(Reason.DELETION_GAVE_UP, f"The deletion ends without cleaning up: {emptied.message}")
    after = f"The deletion has taken more than {store.spec.deletion_deadline_seconds:g} s."
    return problem_verdict(Reason.DELETION_GAVE_UP, f"{after}{told}")


def _nodes(store: StoreResource, children: Mapping[Ref, Manifest]) -> list[Ref]:
    """The writers to the bucket: the nodes, by their resources, and a pod that restores."""
    restores = Ref("Pod", restore_name(store))
    return [ref for ref in sorted(children) if ref.kind in ("Compactor", "Meta") or ref == restores]


def _first_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
