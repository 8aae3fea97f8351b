"""Which stores are changed first, when an upgrade of the operator changes all of them: a few at a time.

A new operator may bring other images or another configuration for every store of the cluster. What its users ask for
is done at once; what only the operator asks for waits until it is the store's turn. A store begins with its meta
nodes, and compactors and jobs follow by themselves, so the turn is asked for there. Stores that are well come first,
by their names; who is being changed and makes no progress any more (Kubernetes gives a Deployment ten minutes) holds
up nobody: it says itself what is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tussock.operator.manifests.meta import SPEC_ANNOTATION
from tussock.operator.planning.words.comparison import APPLIED, marked
from tussock.operator.planning.words.model import Manifest, Ref

__all__ = ["StoreTurn", "asked_by_operator", "before", "is_changing", "is_pending"]


class StoreTurn(NamedTuple):
    """How far a store is with what an upgrade asks for."""

    name: str
    """With its namespace."""
    pending: bool
    """Something is to be changed and has not begun."""
    changing: bool
    """Something is being changed."""
    well: bool
    """It has nothing to complain about."""


def before(mine: str, stores: Sequence[StoreTurn], parallel: int) -> tuple[str, ...]:
    """The stores that are to be changed before `mine`; none if it is its turn. `parallel` may be changed at a time."""
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


def asked_by_operator(wanted: Sequence[Manifest], children: Mapping[Ref, Manifest]) -> bool:
    """Whether meta nodes that run are to become others although nobody has changed a spec.

    Not where somebody has edited the Deployment by hand: that is put right at once.
    """
    [config] = [one for one in wanted if one["kind"] == "ConfigMap"]
    [workload] = [one for one in wanted if one["kind"] == "Deployment"]
    held = children.get(Ref("ConfigMap", config["metadata"]["name"]))
    found = children.get(Ref("Deployment", workload["metadata"]["name"]))
    if held is None or found is None or not is_pending(workload, found):
        return False
    spec = config["metadata"]["annotations"][SPEC_ANNOTATION]
    # Without the annotation an earlier operator made it, and this one comes with an upgrade.
    return (held["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, spec) == spec


def is_pending(wanted: Manifest, found: Manifest | None) -> bool:
    """Whether a workload that is there was made of something else than what is wanted."""
    if found is None:
        return False
    mark = marked(wanted)["metadata"]["annotations"][APPLIED]
    return bool((found["metadata"].get("annotations") or {}).get(APPLIED) != mark)


def is_changing(found: Manifest | None) -> bool:
    """Whether Kubernetes replaces the pods of a Deployment, and gets on with it."""
    status = (found or {}).get("status") or {}
    if found is None or "observedGeneration" not in status:
        return False
    stalled = any(
        one.get("type") == "Progressing" and one.get("status") == "False" for one in status.get("conditions") or ()
    )
    wanted, updated = found["spec"].get("replicas", 1), status.get("updatedReplicas", 0)
    behind = status["observedGeneration"] < found["metadata"].get("generation", 0)
    return behind or (not stalled and (updated < wanted or status.get("replicas", 0) > updated))
