"""How a store is taken down: jobs drain, nodes go, then what is the operator's in the bucket, and all of it in time.

| step | waits for |
|---|---|
| drivers of the store's computes are told to stop (their own plans see that the store goes) | their pods have gone |
| `Compactor` and `Meta` objects of the store are deleted | pods of meta nodes and compactors have gone |
| `Retain`: the owner's marker is removed; `Delete`: all objects below the prefix, the marker last | the bucket |
| the finalizer is taken off; the garbage collector takes the rest | |

A bucket that is gone, or a node that never answers, must not keep a namespace alive: after
`deletionDeadlineSeconds` the store goes anyhow, and an event tells what was left. It goes at once where waiting is of
no use: with a namespace that is deleted go the credentials, and nobody can put them back.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.labels import COMPONENT_LABEL
from tussock.operator.manifests.restoring import restore_name
from tussock.operator.planning.conditions import Reason, Verdict, progressing, wrong
from tussock.operator.planning.model import Action, Delete, Manifest, Ref, Release, seconds_since
from tussock.operator.resources.object_store import ManagedStore, VolumeStore
from tussock.operator.resources.store import StateStore

__all__ = ["Departure", "EmptiedFact", "depart", "leaves_bucket", "remaining"]

POLL_SECONDS = 5.0
"""Pods that end wake the plan; the bucket and the deadline are looked at so often."""


class EmptiedFact(NamedTuple):
    """What came of cleaning up in the bucket."""

    done: bool
    message: str = ""
    """What was left and why, if it is not done."""
    stuck: bool = False
    """It did not get on; somebody may put that right until the deadline."""
    hopeless: bool = False
    """It never will: nobody can put right what is in the way."""


class Departure(NamedTuple):
    """The next step of a deletion."""

    actions: tuple[Action, ...]
    verdict: Verdict


def leaves_bucket(store: StateStore) -> bool:
    """Whether there is nothing to clean up in the bucket.

    A volume is no bucket that the operator reaches: its claim goes or stays by its owner reference. So does the disk of
    a managed object store whose data are to go.
    """
    backend = store.spec.object_store.backend
    if isinstance(backend, VolumeStore):
        return True
    return isinstance(backend, ManagedStore) and (backend.ephemeral or store.spec.deletion_policy == "Delete")


def remaining(pods: Sequence[Manifest]) -> dict[str, list[str]]:
    """The names of pods that have not gone, by component; those of the object store come last by themselves."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        component = (pod["metadata"].get("labels") or {}).get(COMPONENT_LABEL, "")
        if component in ("meta", "compactor", "compute", "restore"):
            found.setdefault(component, []).append(pod["metadata"]["name"])
    return found


def depart(
    store: StateStore,
    pods: Sequence[Manifest],
    children: Mapping[Ref, Manifest],
    emptied: EmptiedFact | None,
    now: datetime,
) -> Departure:
    """The next step of the deletion of `store`; `pods` are all that belong to it, whoever owns them."""
    over = seconds_since(store.metadata.deletion_timestamp, now) >= store.spec.deletion_deadline_seconds
    left = remaining(pods)
    if not over and (jobs := left.get("compute")):
        return Departure((), progressing(Reason.DRAINING, f"Waiting until pods of jobs have ended: {_told(jobs)}."))
    nodes: tuple[Action, ...] = tuple(Delete(ref) for ref in sorted(children) if ref in _nodes(store, children))
    if not over and (others := [name for names in left.values() for name in names]):
        return Departure(nodes, progressing(Reason.DELETING, f"Waiting until pods have ended: {_told(others)}."))
    if leaves_bucket(store) or (emptied is not None and emptied.done):
        return Departure((*nodes, Release()), progressing(Reason.DELETING, "Everything is cleaned up."))
    problem = emptied.message if emptied is not None else ""
    if emptied is not None and emptied.hopeless:
        told = f"The deletion ends without cleaning up: {problem}"
        return Departure((*nodes, Release()), wrong(Reason.DELETION_GAVE_UP, told))
    stuck = left or (emptied is not None and emptied.stuck)
    if over and stuck:
        still = sorted(name for names in left.values() for name in names)
        what = f"pods have not ended: {_told(still)}. {problem}" if still else problem
        told = (
            f"The deletion has taken more than {store.spec.deletion_deadline_seconds:g} s and ends without cleaning "
            f"up: {what}".strip()
        )
        return Departure((*nodes, Release()), wrong(Reason.DELETION_GAVE_UP, told))
    policy = "Removing the store's objects" if store.spec.deletion_policy == "Delete" else "Giving the prefix back"
    return Departure(nodes, progressing(Reason.DELETING, f"{policy}. {problem}".strip()))


def _nodes(store: StateStore, children: Mapping[Ref, Manifest]) -> set[Ref]:
    """Who writes into the bucket: the nodes, by their resources, and a pod that restores."""
    restores = Ref("Pod", restore_name(store))
    return {ref for ref in children if ref.kind in ("Compactor", "Meta") or ref == restores}


def _told(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
