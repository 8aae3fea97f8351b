"""The order in which an upgrade of the operator changes the stores: a few at a time.

A new operator may bring other images or another configuration for every store of the cluster. Changes by users happen
at once; changes by the operator alone wait until it is the store's turn. A store begins with its meta nodes and the
server of its managed object store; compactors and jobs follow the meta nodes by themselves, and take no turns. Healthy
stores come first, in the order of their names; a store whose change makes no progress any more (Kubernetes gives a
Deployment five minutes, and the operator a StatefulSet as long) holds up no other: its own status says what is wrong.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.manifests.minio import SECRET_VERSION
from tussock.operator.planning.words.comparison import APPLIED, mark
from tussock.operator.planning.words.model import Manifest, Ref, ref_of, seconds_since

__all__ = [
    "TURN_SECONDS",
    "StoreTurn",
    "is_asked_by_operator",
    "is_changing",
    "is_pending",
    "is_restarting",
    "predecessors",
    "turn_message",
]

TURN_SECONDS = 3.0
"""The interval of looks while a store waits for others: no event of theirs wakes this one."""
PROGRESS_SECONDS = 300.0
"""A StatefulSet that is not ready for this long makes no progress; Kubernetes sets no such time for it."""


class StoreTurn(NamedTuple):
    """How far a store is with an upgrade."""

    name: str
    """With its namespace."""
    pending: bool
    """A change is due and has not begun."""
    changing: bool
    """A change is in progress."""
    well: bool
    """It has no problems."""


def predecessors(mine: str, stores: Sequence[StoreTurn], parallel: int) -> tuple[str, ...]:
    """The stores to change before `mine`; none if it is its turn. At most `parallel` change at a time."""
    own = [store for store in stores if store.name == mine]
    if any(store.changing for store in own):
        return ()
    changing = sorted(store.name for store in stores if store.changing)
    waiting = sorted(
        (not store.well, store.name) for store in stores if store.pending and not store.changing and store.name != mine
    )
    rank = (not own[0].well, mine) if own else (True, mine)
    ahead = [name for ill, name in waiting if (ill, name) < rank]
    return () if len(changing) + len(ahead) < parallel else (*changing, *ahead)


def turn_message(what: str, stores: Sequence[str]) -> str:
    """What waits for the turns of other stores.

    Names a single store; a list of many would change after each, and each change is a write of the status.
    """
    after = f"StateStore {stores[0]}" if len(stores) == 1 else "other stores"
    return f"An upgrade of the operator changes {what} of {after}."


def is_asked_by_operator(wanted: Sequence[Manifest], children: Mapping[Ref, Manifest]) -> bool:
    """Whether a running workload would change although no spec and no secret has changed.

    `wanted` has the workload, and the generations of the specs on it or on its ConfigMap. Not if a client has edited
    the workload: the operator repairs that at once.
    """
    [dated] = [one for one in wanted if SPEC_ANNOTATION in one["metadata"].get("annotations", ())]
    [workload] = [one for one in wanted if one["kind"] in ("Deployment", "StatefulSet")]
    held, found = children.get(ref_of(dated)), children.get(ref_of(workload))
    if held is None or found is None or not is_pending(workload, found):
        return False
    if _secret_version(workload) != _secret_version(found):
        return False
    spec = dated["metadata"]["annotations"][SPEC_ANNOTATION]
    # Without the annotation it is from an earlier operator, so the change comes with an upgrade.
    return (held["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, spec) == spec


def _secret_version(workload: Manifest) -> str:
    """The version of the secret with which a server of an object store was started; empty for other workloads."""
    template = (workload.get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(SECRET_VERSION, ""))


def is_pending(wanted: Manifest, found: Manifest | None) -> bool:
    """Whether an existing workload was made from something else than the wanted one."""
    if found is None:
        return False
    digest = mark(wanted)["metadata"]["annotations"][APPLIED]
    return bool((found["metadata"].get("annotations") or {}).get(APPLIED) != digest)


def is_changing(found: Manifest | None) -> bool:
    """Whether Kubernetes is replacing the pods of a Deployment, and makes progress."""
    status = (found or {}).get("status") or {}
    if found is None or "observedGeneration" not in status:
        return False
    stalled = any(
        one.get("type") == "Progressing" and one.get("status") == "False" for one in status.get("conditions") or ()
    )
    wanted, updated = found["spec"].get("replicas", 1), status.get("updatedReplicas", 0)
    behind = status["observedGeneration"] < found["metadata"].get("generation", 0)
    return behind or (not stalled and (updated < wanted or status.get("replicas", 0) > updated))


def is_restarting(found: Manifest | None, store: Manifest, now: datetime) -> bool:
    """Whether Kubernetes is replacing the pods of a StatefulSet, and makes progress; `store` is the body of its owner.

    A server that is not ready yet counts: unlike a Deployment, a StatefulSet has no old one that serves meanwhile.
    """
    status = (found or {}).get("status") or {}
    if found is None or "observedGeneration" not in status:
        return False
    held = (store.get("status") or {}).get("conditions") or ()
    since = [one.get("lastTransitionTime") for one in held if one["type"] == "Progressing" and one["status"] == "True"]
    if any(seconds_since(began, now) > PROGRESS_SECONDS for began in since):
        return False
    wanted = found["spec"].get("replicas", 1)
    behind = status["observedGeneration"] < found["metadata"].get("generation", 0)
    return behind or min(status.get("updatedReplicas", 0), status.get("readyReplicas", 0)) < wanted
