"""The plan of a `Compactor`: its children, after the meta nodes of its store.

It starts when a meta service of the store exists, and rolls a new pod template out only after the meta nodes have
rolled: a new compactor may send what an old meta node does not understand, never the other way round. If an upgrade of
the operator asks for it, it also waits for its store's turn (`turns.py`). A new number of replicas waits for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tussock.operator.manifests.compactor import compactor_manifests, compactor_name
from tussock.operator.manifests.labels import selector
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.settings import Defaults, node_image
from tussock.operator.manifests.transport_security import has_tls, tls_secret
from tussock.operator.planning.turns import NO_WAIT, UpgradeTurn, begins, passes, with_turn, without_nodes
from tussock.operator.planning.words.approvals import approval_status, approved_nodes, with_approval
from tussock.operator.planning.words.comparison import applies, differences, prunes
from tussock.operator.planning.words.components import (
    image_of,
    match_message,
    no_meta_message,
    stamps,
    status_conditions,
    store_wait_verdict,
    workload_deletes,
)
from tussock.operator.planning.words.conditions import Reason, Verdict, progress_verdict
from tussock.operator.planning.words.facts import PlatformFact
from tussock.operator.planning.words.model import Action, Emit, Manifest, Observed, Plan, Ref, workload_in
from tussock.operator.planning.words.ownership import holder_of
from tussock.operator.planning.words.rollout import rollout, verdict_of
from tussock.operator.resources.compactor import Compactor
from tussock.operator.resources.store import StoreResource

__all__ = ["CompactorFacts", "plan_compactor"]


ROLLING_SECONDS = 15.0
"""The interval of looks while pods start: only the passing of time shows that a pod finds no node."""


@dataclass(frozen=True)
class CompactorFacts:
    """What the plan of a `Compactor` needs beside its children."""

    store: StoreResource | None
    defaults: Defaults
    metas: Mapping[str, bool]
    """The names of the store's `Meta` objects, and whether each has rolled out its current spec."""
    platform: PlatformFact | None
    templates: str = ""
    """A digest of what the pods of all these are to be made from."""
    turn: UpgradeTurn = NO_WAIT
    """What an upgrade of the operator waits for before it changes these nodes (`turns.py`)."""


def plan_compactor(compactor: Compactor, observed: Observed[CompactorFacts], now: datetime) -> Plan:
    """The plan for a `Compactor`."""
    facts, store_name = observed.facts, compactor.spec.store_ref.name
    store = facts.store
    workload = observed.children.get(Ref("Deployment", compactor_name(compactor.name)))
    store_body = observed.others.get(Ref("StateStore", store_name))
    waits = store_wait_verdict(store_body, store_name)
    if store is None or (waits and workload is None):
        missing = progress_verdict(Reason.WAITING_FOR_STORE, f"StateStore {store_name} is invalid; see its status.")
        return Plan((), _status(compactor, observed, workload, waits or missing, now))
    if compactor.is_being_deleted or store.is_being_deleted:
        verdict = progress_verdict(
            Reason.DELETING, "The compactors stop, because this Compactor or its StateStore is being deleted."
        )
        return Plan(
            workload_deletes(store_body, workload, holder_of(compactor)),
            _status(compactor, observed, workload, verdict, now),
        )
    found = rollout(workload, observed.pods(), now, compactor.spec.replicas)
    if store.spec.paused:
        verdict = Verdict(
            Reason.PAUSED,
            f"StateStore {store_name} is paused: the operator changes nothing until spec.paused is false.",
            ready=found.done,
            progressing=False,
            degraded=False,
        )
        return Plan((), _status(compactor, observed, workload, verdict, now))
    settled = bool(facts.metas) and all(facts.metas.values())
    if workload is None and not settled:
        return Plan((), _status(compactor, observed, workload, _meta_wait_verdict(facts, store_body, store_name), now))
    addresses = [meta_address(name, compactor.namespace) for name in sorted(facts.metas)]
    note = observed.children.get(Ref("PodDisruptionBudget", compactor_name(compactor.name)))
    compactor, pending = approved_nodes(compactor, store, facts.defaults, workload, note)
    rendered = compactor_manifests(compactor, store, addresses, facts.defaults, facts.templates)
    wanted, held = _hold_back(rendered.manifests, workload, settled=settled)
    if facts.turn.waits:
        wanted = without_nodes(wanted)
    applied = applies(wanted, observed.children)
    changes = any(action.manifest["kind"] == "Deployment" for action in applied)
    actions: list[Action] = [*begins(applied, wanted, facts.turn), *applied]
    actions += [*prunes(rendered.manifests, observed.children, holder_of(compactor))]
    if rendered.kept and changes:
        told = ", ".join(rendered.kept)
        actions.append(
            Emit(
                "Warning",
                "PodTemplateKept",
                f"The operator sets or forbids, and so ignored, these fields of spec.podTemplate: {told}.",
            )
        )
    secrets = [tls_secret(store, "compactor")] if has_tls(store) else []
    actions += stamps(observed.pods(), secrets, observed.others)
    image = node_image(compactor, store, facts.defaults)
    verdict = verdict_of(found, "compactors", image)
    actions += passes(workload, note, serves=found.done and not changes and verdict.reason is Reason.READY)
    if verdict.reason is Reason.READY and held:
        verdict = _meta_wait_verdict(facts, store_body, store_name)._replace(ready=True)
    elif facts.turn.waits:
        verdict = with_turn(verdict, facts.turn, "them after those")
    elif verdict.reason is Reason.READY and changes:
        verdict = progress_verdict(
            Reason.ROLLING_OUT, f"The operator is changing the compactors to image {image}.", serving=True
        )
    waiting = approval_status(pending, compactor.status, now)
    verdict = with_approval(verdict, waiting, store_name)
    again = facts.turn.again_seconds if facts.turn.waits else None if found.done else ROLLING_SECONDS
    return Plan(tuple(actions), _status(compactor, observed, workload, verdict, now) | waiting, again)


def _hold_back(
    wanted: tuple[Manifest, ...], workload: Manifest | None, *, settled: bool
) -> tuple[tuple[Manifest, ...], bool]:
    """Hold back a new pod template until the meta nodes have rolled; returns what to apply, and whether it waits."""
    if settled or workload is None:
        return wanted, False
    held = bool(differences(workload_in(wanted)["spec"]["template"], workload["spec"]["template"]))
    return (without_nodes(wanted) if held else wanted), held


def _meta_wait_verdict(facts: CompactorFacts, store: Manifest | None, store_name: str) -> Verdict:
    if not facts.metas:
        text = no_meta_message(store, store_name)
    else:
        text = match_message("Meta", [name for name, settled in sorted(facts.metas.items()) if not settled])
    return progress_verdict(Reason.WAITING_FOR_META, text)


def _status(
    compactor: Compactor,
    observed: Observed[CompactorFacts],
    workload: Manifest | None,
    verdict: Verdict,
    now: datetime,
) -> dict[str, Any]:
    numbers, platform = (workload or {}).get("status") or {}, observed.facts.platform
    status: dict[str, Any] = {
        "observedGeneration": compactor.metadata.generation,
        "conditions": status_conditions(compactor, verdict, now),
        "replicas": numbers.get("replicas", 0),
        "readyReplicas": numbers.get("readyReplicas", 0),
        "updatedReplicas": numbers.get("updatedReplicas", 0),
        "selector": ",".join(f"{name}={value}" for name, value in sorted(selector(compactor, "compactor").items())),
    }
    if image := image_of(workload):
        status["image"] = image
    told = ("connectedSlots", "runningTasks")
    if platform is not None and platform.leader:
        status |= zip(told, (platform.slots, platform.tasks), strict=True)
    else:  # only the leader knows; the last known number holds until a leader can be asked
        status |= {name: compactor.status[name] for name in told if name in compactor.status}
    return status
