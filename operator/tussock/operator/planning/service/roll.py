"""Which workloads of a service are applied now, and what a change of them waits for.

| the node | its template | is applied |
|---|---|---|
| none | | when the platform is ready, with the workers |
| there | as wanted | at once, as far as something differs |
| there | another one | when the platform has rolled, in its turn, and after a trial of another image |

The Deployment of workers follows the node. Its pods change when no pod of the node's former template is left: until
then that needs them, for what it has taken, and would refuse others. A smaller number holds once the node has been
scaled to it, so that no worker goes that is at work. More workers wait for nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tussock.operator.manifests.compute.pods import image_trial
from tussock.operator.manifests.service.children import ServiceChildren
from tussock.operator.planning.compute.gates import Gates
from tussock.operator.planning.compute.image_trials import step_of_trial
from tussock.operator.planning.service.parts import ServiceParts
from tussock.operator.planning.turns import TURN_SECONDS
from tussock.operator.planning.words.comparison import differences
from tussock.operator.planning.words.components import image_of
from tussock.operator.planning.words.conditions import Verdict
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.planning.words.model import Action, Delete, Manifest, ref_of
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource

__all__ = ["Roll", "roll", "with_replicas"]


class Roll(NamedTuple):
    """What to apply of the workloads."""

    wanted: tuple[Manifest, ...] = ()
    verdict: Verdict | None = None
    """Why something waits; `None`: the verdict is that of the pods."""
    turn: str = ""
    """What a change waits for, while all else is well."""
    actions: tuple[Action, ...] = ()
    again_seconds: float | None = None
    keeps_workers: bool = False
    """The workers' objects are needed, though the spec has none any more."""
    changes_node: bool = False
    """The node's pod gives way to another one."""


def roll(
    compute: Compute,
    store: StoreResource,
    made: ServiceChildren,
    parts: ServiceParts,
    gates: Gates,
    node: NodeFact | None,
    now: datetime,
    *,
    stops: bool,
) -> Roll:
    """What to apply now; `stops`: no node is to run, as in a suspension."""
    if parts.node is None and (gates.first is not None or stops):
        return Roll((), None if stops else gates.first)
    is_current = parts.node is not None and not _differs(made.node, parts.node)
    trying = None
    if parts.node is not None and not is_current and not stops:
        if gates.first is not None:
            return Roll((), gates.first._replace(ready=parts.is_serving), keeps_workers=True)
        if gates.turn:
            return Roll((), None, gates.turn, again_seconds=TURN_SECONDS, keeps_workers=True)
        if parts.is_serving:
            pod = image_trial(compute, store, made.node["spec"]["template"], made.image)
            trying = step_of_trial(pod, "node", image_of(parts.node), parts.trial, now)
    if trying is not None:
        return Roll((), trying.verdict, "", trying.actions, trying.again_seconds, keeps_workers=True)
    found = [with_replicas(made.node, 0) if stops else made.node]
    former = parts.former_pods(made.template)
    keeps = bool(former) or not (is_current or parts.node is None)
    workers = made.workers
    if workers is not None:
        replicas = _replicas(workers["spec"]["replicas"], parts, node, stops=stops)
        waits = parts.workers is not None and _differs(workers, parts.workers) and keeps
        found += [] if waits else [with_replicas(workers, replicas)]
    return Roll(
        tuple(found),
        actions=_without_trial(parts),
        keeps_workers=keeps and bool(parts.node_pods),
        changes_node=parts.node is not None and not is_current,
    )


def with_replicas(workload: Manifest, replicas: int) -> Manifest:
    """A copy of a workload with that many pods."""
    return {**workload, "spec": {**workload["spec"], "replicas": replicas}}


def _differs(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return bool(differences(wanted["spec"]["template"], found["spec"]["template"]))


def _replicas(wanted: int, parts: ServiceParts, node: NodeFact | None, *, stops: bool) -> int:
    """How many workers there are to be now."""
    has = 0 if parts.workers is None else int(parts.workers["spec"].get("replicas", 1))
    if not parts.node_pods:
        return 0 if stops else wanted
    if stops or has <= wanted:
        return has if stops else wanted
    if node is None or node.problem:
        return has  # it may still have work for all
    return max(wanted, min(has, node.workers))


def _without_trial(parts: ServiceParts) -> tuple[Action, ...]:
    if parts.trial is None or parts.trial["metadata"].get("deletionTimestamp"):
        return ()
    return (Delete(ref_of(parts.trial)),)
