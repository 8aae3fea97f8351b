"""The order in which an upgrade of the operator changes the stores: a few at a time.

A new operator may bring other images or another configuration for every store of the cluster. Changes by users happen
at once; changes by the operator alone wait until it is the store's turn. A store begins with its meta nodes, and
compactors and jobs follow by themselves, so only the meta nodes take turns. Healthy stores come first, in the order of
their names; a store whose change makes no progress any more (Kubernetes gives a Deployment five minutes) holds up no
other: its own status says what is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tussock.operator.manifests.meta import SPEC_ANNOTATION
from tussock.operator.planning.words.comparison import APPLIED, mark
from tussock.operator.planning.words.model import Manifest, Ref

__all__ = ["StoreTurn", "is_asked_by_operator", "is_changing", "is_pending", "predecessors"]


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


def is_asked_by_operator(wanted: Sequence[Manifest], children: Mapping[Ref, Manifest]) -> bool:
    """Whether running meta nodes would change although no spec has changed.

    Not if a client has edited the Deployment: the operator repairs that at once.
    """
    [config] = [one for one in wanted if one["kind"] == "ConfigMap"]
    [workload] = [one for one in wanted if one["kind"] == "Deployment"]
    held = children.get(Ref("ConfigMap", config["metadata"]["name"]))
    found = children.get(Ref("Deployment", workload["metadata"]["name"]))
    if held is None or found is None or not is_pending(workload, found):
        return False
    spec = config["metadata"]["annotations"][SPEC_ANNOTATION]
    # Without the annotation it is from an earlier operator, so the change comes with an upgrade.
    return (held["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, spec) == spec


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
