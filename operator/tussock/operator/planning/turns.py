"""The order in which an upgrade of the operator changes stores, and jobs: a few at a time.

A new operator may bring other images or another configuration for every store and every job of the cluster. Changes by
users happen at once; changes by the operator alone wait until it is the store's or the job's turn.

A store's turn is for its meta nodes, the server of its managed object store, and its compactors. These follow meta
nodes that have changed, and wait for a turn only if an upgrade changes no meta nodes of their store. Jobs have turns
among themselves (`compute/turns.py`), and a job takes part once the nodes of its store have changed.

Healthy ones come first, in the order of their names; one whose change makes no progress any more (Kubernetes gives a
Deployment five minutes, and the operator a StatefulSet and a driver as long) holds up no other: its own status says
what is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.manifests.minio import SECRET_VERSION
from tussock.operator.planning.words.comparison import APPLIED, mark
from tussock.operator.planning.words.model import Manifest, Ref, ref_of, seconds_since, workload_in

__all__ = [
    "PROGRESS_SECONDS",
    "TURN_SECONDS",
    "Standing",
    "is_asked_by_operator",
    "is_changing",
    "is_pending",
    "is_restarting",
    "predecessors",
    "turn_message",
    "without_nodes",
]

TURN_SECONDS = 3.0
"""The interval of looks while a store or a job waits for others: no event of theirs wakes this one."""
PROGRESS_SECONDS = 300.0
"""A StatefulSet or a driver that is not ready for this long makes no progress; Kubernetes sets no such time for it."""


class Standing(NamedTuple):
    """How far a store or a job is with an upgrade."""

    name: str
    """With its namespace."""
    changing: bool
    """A change is in progress."""
    well: bool
    """It has no problems."""


def predecessors(
    mine: str, standings: Sequence[Standing], has_to_change: Callable[[str], bool], parallel: int
) -> tuple[str, ...]:
    """The stores, or the jobs, to change before `mine`; none if it is its turn. At most `parallel` change at a time.

    `has_to_change` says of a name whether a change is due and has not begun. It is costly, and all that wait ask every
    few seconds, so it is asked only of what comes before `mine`, the nearest first, and until the answer is known. So
    of many predecessors this returns a part, but at least two.
    """
    changing = sorted(one.name for one in standings if one.changing)
    if mine in changing:
        # It may be in the middle of its turn, or an autoscaler changes its compactors meanwhile: the bound holds for
        # both, and the first of those that change never waits.
        first = [name for name in changing if name < mine]
        return tuple(first) if len(first) >= parallel else ()
    own = [one for one in standings if one.name == mine]
    rank = (not own[0].well, mine) if own else (True, mine)
    earlier = sorted((not one.well, one.name) for one in standings if not one.changing)
    ahead: list[str] = []
    for name in [name for ill, name in reversed(earlier) if (ill, name) < rank]:
        if len(changing) + len(ahead) >= max(parallel, 2):
            break
        if has_to_change(name):
            ahead.insert(0, name)
    return (*changing, *ahead) if len(changing) + len(ahead) >= parallel else ()


def turn_message(what: str, kind: str, names: Sequence[str]) -> str:
    """What waits for the turns of other stores or jobs; `kind` is theirs.

    Names a single one; a list of many would change after each, and each change is a write of the status.
    """
    after = f"{kind} {names[0]}" if len(names) == 1 else f"other {_PLURALS[kind]}"
    return f"An upgrade of the operator changes {what} of {after}."


_PLURALS = {"StateStore": "stores", "Compute": "jobs"}


def is_asked_by_operator(wanted: Sequence[Manifest], children: Mapping[Ref, Manifest]) -> bool:
    """Whether a running workload would change although no spec and no secret has changed.

    `wanted` has the workload, and what its users decide (`SPEC_ANNOTATION`) on it or on an object that is applied with
    it. Not if a client has edited the workload: the operator repairs that at once.
    """
    [dated] = [one for one in wanted if SPEC_ANNOTATION in one["metadata"].get("annotations", ())]
    workload = workload_in(wanted)
    held, found = children.get(ref_of(dated)), children.get(ref_of(workload))
    if held is None or found is None or not is_pending(workload, found):
        return False
    if _secret_version(workload) != _secret_version(found):
        return False
    spec = dated["metadata"]["annotations"][SPEC_ANNOTATION]
    # Without the annotation it is from an earlier operator, so the change comes with an upgrade.
    return (held["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, spec) == spec


def without_nodes(wanted: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """What is applied while nodes wait: all but their Deployment, its configuration, and what it was made from."""
    return tuple(one for one in wanted if one["kind"] not in ("ConfigMap", "Deployment", "PodDisruptionBudget"))


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


def is_restarting(found: Manifest | None, owner: Mapping[str, Any], now: datetime) -> bool:
    """Whether Kubernetes is replacing the pods of a StatefulSet, and makes progress; `owner` is its owner's status.

    A server that is not ready yet counts: unlike a Deployment, a StatefulSet has no old one that serves meanwhile.
    """
    status = (found or {}).get("status") or {}
    if found is None or "observedGeneration" not in status:
        return False
    held = owner.get("conditions") or ()
    since = [one.get("lastTransitionTime") for one in held if one["type"] == "Progressing" and one["status"] == "True"]
    if any(seconds_since(began, now) > PROGRESS_SECONDS for began in since):
        return False
    wanted = found["spec"].get("replicas", 1)
    behind = status["observedGeneration"] < found["metadata"].get("generation", 0)
    return behind or min(status.get("updatedReplicas", 0), status.get("readyReplicas", 0)) < wanted
