"""The plan of a `Meta`: its children, its leader, and the progress of a rollout.

The Deployment itself rolls a change out: one pod more, then one old pod less, each only when the new one is ready. The
deletion cost, an annotation that the operator puts on the leader's pod, decides which old pod goes first, so that
leadership changes hands once, at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tussock.operator.manifests.bucket_access import secrets_of_bucket
from tussock.operator.manifests.labels import selector
from tussock.operator.manifests.meta import meta_address, meta_manifests, meta_name
from tussock.operator.manifests.meta_config import clients_file
from tussock.operator.manifests.settings import Defaults, node_image
from tussock.operator.manifests.transport_security import has_tls, tls_secret
from tussock.operator.planning.outside.addresses import (
    missing_address,
    outside_endpoint,
    outside_file,
    with_address,
)
from tussock.operator.planning.outside.replicas import marked_leader, numbered
from tussock.operator.planning.turns import NO_WAIT, UpgradeTurn, begins, passes, with_turn, without_nodes
from tussock.operator.planning.words.approvals import approval_status, approved_nodes, with_approval
from tussock.operator.planning.words.comparison import applies, prunes
from tussock.operator.planning.words.components import (
    image_of,
    last_verdict,
    stamps,
    status_conditions,
    store_wait_verdict,
    workload_deletes,
)
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.facts import LASTING_TIMES, PlatformFact
from tussock.operator.planning.words.model import (
    Action,
    Annotate,
    Apply,
    Emit,
    Manifest,
    Observed,
    Plan,
    Ref,
    ref_of,
    stamp,
)
from tussock.operator.planning.words.ownership import holder_of
from tussock.operator.planning.words.releases import downgrade_refusal
from tussock.operator.planning.words.rollout import Rollout, rollout, verdict_of
from tussock.operator.resources.meta import Meta
from tussock.operator.resources.store import StoreResource

__all__ = ["DELETION_COST", "MetaFacts", "plan_meta"]

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Pods with a lower cost are deleted first when a ReplicaSet shrinks."""
LEADER_COST = "100"
FRESH_SECONDS = 15.0
"""The interval of status updates: of the newest epoch while epochs are committed, and of pods while they start."""


@dataclass(frozen=True)
class MetaFacts:
    """What the plan of a `Meta` needs beside its children."""

    store: StoreResource | None
    defaults: Defaults
    platform: PlatformFact | None
    """`None` before the first answer of the meta nodes."""
    turn: UpgradeTurn = NO_WAIT
    """What an upgrade of the operator waits for before it changes these nodes (`turns.py`)."""
    clients: Sequence[str] = ()
    """The entries of the store's declared clients."""


def plan_meta(meta: Meta, observed: Observed[MetaFacts], now: datetime) -> Plan:
    """The plan for a `Meta`."""
    store, store_name = observed.facts.store, meta.spec.store_ref.name
    workload = observed.children.get(Ref("Deployment", meta_name(meta.name)))
    store_body = observed.others.get(Ref("StateStore", store_name))
    waits = store_wait_verdict(store_body, store_name)
    if store is None or (waits and workload is None):
        return Plan((), _status(meta, store, observed, workload, waits or _invalid_store_verdict(store_name), now))
    if meta.is_being_deleted or store.is_being_deleted:
        verdict = progress_verdict(
            Reason.DELETING, "The meta nodes stop, because this Meta or its StateStore is being deleted."
        )
        return Plan(
            workload_deletes(store_body, workload, holder_of(meta)),
            _status(meta, store, observed, workload, verdict, now),
        )
    found = rollout(workload, observed.pods(), now, meta.spec.replicas)
    if store.spec.paused:
        verdict = Verdict(
            Reason.PAUSED,
            f"StateStore {store_name} is paused: the operator changes nothing until spec.paused is false.",
            ready=found.ready > 0,
            progressing=False,
            degraded=False,
        )
        return Plan((), _status(meta, store, observed, workload, verdict, now))
    note = observed.children.get(Ref("PodDisruptionBudget", meta_name(meta.name)))
    meta, pending = approved_nodes(meta, store, observed.facts.defaults, workload, note)
    outside = outside_file(meta, observed.children, observed.pods()) if meta.spec.outside else ""
    rendered = meta_manifests(meta, store, observed.facts.defaults, observed.facts.clients, outside)
    image = node_image(meta, store, observed.facts.defaults)
    refused = _downgrade_refusal(meta, image, observed.facts.platform, workload)
    turn = observed.facts.turn
    wanted = without_nodes(rendered.manifests) if turn.waits or refused else rendered.manifests
    applied = applies(wanted, observed.children)
    actions: list[Action] = [*begins(applied, wanted, turn), *applied, *_kept_event(applied, rendered.kept)]
    actions += prunes(rendered.manifests, observed.children, holder_of(meta))
    actions += numbered(observed.pods(), meta.spec.replicas if meta.spec.outside else 0)
    if meta.spec.console is None or (observed.facts.platform is not None and observed.facts.platform.leader):
        # While nobody is known to lead, the console stays where it was: that node tells what is wrong.
        actions += marked_leader(observed.pods(), _leader_ip(observed.facts.platform) if meta.spec.console else "")
    # Kubelets look at a ConfigMap about once a minute otherwise; a revocation is urgent, and clients need addresses.
    named = observed.facts.clients or (meta.spec.config.get("tls") or {}).get("revoked")
    known = clients_file(meta, observed.facts.clients) if named else ""
    actions += stamps(observed.pods(), _secrets(store), observed.others, *filter(None, (known, outside)))
    actions += _deletion_costs(observed.pods(), observed.facts.platform)
    changes = [action.manifest for action in applied if action.manifest["kind"] == "Deployment"]
    verdict = _verdict(
        meta, found, image, observed.facts.platform, store_body, _change_message(changes, workload, image)
    )
    actions += passes(workload, note, serves=found.done and not changes and verdict.reason is Reason.READY)
    # Not before that: an upgrade of others does not wait for somebody's load balancer.
    verdict = with_address(verdict, missing_address(meta, observed.children))
    waiting = approval_status(pending, meta.status, now)
    verdict = with_approval(with_turn(verdict, turn, "them after those"), waiting, store_name)
    if refused:
        # Also while others come first: a turn would not change it, and the verdict must not come and go with turns.
        verdict = problem_verdict(Reason.DOWNGRADE_REFUSED, refused, serving=found.ready > 0)
    status = _status(meta, store, observed, workload, verdict, now) | waiting
    fresh = status.get("committedEpoch") != meta.status.get("committedEpoch")
    # No event reports the election of a leader: the operator has to ask.
    again = FRESH_SECONDS if fresh or verdict.reason is not Reason.READY else None
    return Plan(tuple(actions), status, turn.again_seconds if turn.waits and not refused else again)


def _invalid_store_verdict(store_name: str) -> Verdict:
    return progress_verdict(Reason.WAITING_FOR_STORE, f"StateStore {store_name} is invalid; see its status.")


def _downgrade_refusal(meta: Meta, image: str, platform: PlatformFact | None, workload: Manifest | None) -> str:
    """Why the image of the spec is not taken, if its release cannot read the store; empty if it is, or runs already."""
    running = image_of(workload)
    return "" if running == image else downgrade_refusal(image, _log_format(meta, platform), running)


def _log_format(meta: Meta, platform: PlatformFact | None) -> int:
    """The newest format in which the store's log was ever written, as far as is known; it never becomes older."""
    held = meta.status.get("logFormat")
    return max(platform.log_format if platform is not None else 0, held if isinstance(held, int) else 0)


def _verdict(
    meta: Meta, found: Rollout, image: str, platform: PlatformFact | None, store: Manifest | None, changing: str
) -> Verdict:
    if bucket := _bucket_obstacle(found, platform, store):
        return bucket
    if changing and found.done:
        return progress_verdict(Reason.ROLLING_OUT, changing, serving=True)
    verdict = verdict_of(found, "meta nodes", image)
    if verdict.ready and verdict.reason is not Reason.READY and platform is not None and _is_out(meta, platform):
        if verdict.reason in (Reason.ROLLING_OUT, Reason.PROBE_FAILED):
            return _silence_verdict(meta, verdict, platform) if platform.problem else _no_leader_verdict(meta, platform)
        return verdict_of(found._replace(ready=0), "meta nodes", image)
    if verdict.reason is not Reason.READY:
        return verdict
    if platform is None:
        last = last_verdict(meta)
        return last if last is not None and last.reason in _ASKED else verdict
    if platform.problem and platform.is_blind:
        return verdict._replace(message=f"{verdict.message} The operator could not ask them: {platform.problem}")
    if platform.problem:
        return _silence_verdict(meta, verdict, platform)
    return verdict if platform.leader else _no_leader_verdict(meta, platform)


_ASKED = (Reason.READY, Reason.PROBE_FAILED, Reason.NO_LEADER)
"""Reasons that hold until the nodes have been asked again: the first pass of an operator knows nothing newer."""
_OF_BUCKET = (
    Reason.BUCKET_UNREACHABLE,
    Reason.BUCKET_NOT_FOUND,
    Reason.BUCKET_ACCESS_DENIED,
    Reason.BUCKET_NOT_WRITABLE,
    Reason.READERS_MAY_WRITE,
    Reason.SECRET_NOT_FOUND,
    Reason.SECRET_KEY_MISSING,
)


def _bucket_obstacle(found: Rollout, platform: PlatformFact | None, store: Manifest | None) -> Verdict | None:
    """The store's problem with its bucket, if there is no leader: it is the cause.

    It comes before what the pods report, whose readiness comes and goes meanwhile. Nodes with a leader have their
    bucket, whatever the operator sees of it.
    """
    status = (store or {}).get("status") or {}
    held = [one for one in status.get("conditions") or () if one["type"] == "Ready" and one["reason"] in _OF_BUCKET]
    if not held or not status.get("obstacle"):
        return None
    unknown = found.ready > 0 if platform is None else platform.is_blind
    if unknown or (platform is not None and platform.leader and found.ready > 0):
        return None
    return problem_verdict(
        Reason(held[0]["reason"]), f"No meta node leads, because of the bucket: {status['obstacle']}"
    )


def _is_out(meta: Meta, platform: PlatformFact) -> bool:
    """Whether there is no leader although pods are ready: without a bucket their readiness comes and goes.

    If the leader is missed for the first time, leadership may be changing hands, as at the end of a rollout. But a
    `Meta` that was not `Ready` becomes `Ready` only with a leader.
    """
    if platform.is_blind or (platform.leader and not platform.problem):
        return False
    return platform.times >= LASTING_TIMES or not _was_ready(meta)


def _was_ready(meta: Meta) -> bool:
    held = meta.status.get("conditions") or ()
    return any(found["type"] == "Ready" and found["status"] == "True" for found in held)


def _silence_verdict(meta: Meta, verdict: Verdict, platform: PlatformFact) -> Verdict:
    """The verdict on nodes that run and do not answer; for a moment the network may be the cause."""
    if platform.times >= LASTING_TIMES:
        told = f"The meta nodes run but do not answer: {platform.problem} Clients cannot use them either."
        return problem_verdict(Reason.PROBE_FAILED, told)
    if "term" in meta.status and _was_ready(meta):
        return verdict
    told = f"The meta nodes run but have not answered yet: {platform.problem}"
    return progress_verdict(Reason.ROLLING_OUT, told)


def _no_leader_verdict(meta: Meta, platform: PlatformFact) -> Verdict:
    if platform.times >= LASTING_TIMES:
        told = "The meta nodes run but none of them leads, so no epoch is committed. Their logs say why: kubectl logs"
        return problem_verdict(Reason.NO_LEADER, f"{told} deployment/{meta_name(meta.name)}.")
    if "term" in meta.status:
        return progress_verdict(Reason.NO_LEADER, "The leader is gone; the meta nodes elect another one.")
    return progress_verdict(Reason.ROLLING_OUT, "The meta nodes run and elect a leader.")


def _change_message(changes: Sequence[Manifest], workload: Manifest | None, image: str) -> str:
    """A message about the change that an apply of the Deployment makes; empty without one."""
    if not changes:
        return ""
    if image_of(workload) != image:
        return f"The operator is changing the meta nodes to image {image}."
    return "The operator is changing the meta nodes to match their spec."


def _changes_workload(applied: Sequence[Apply]) -> bool:
    return any(action.manifest["kind"] == "Deployment" for action in applied)


def _kept_event(applied: Sequence[Apply], kept: Sequence[str]) -> tuple[Emit, ...]:
    """An event about the parts of a pod template that could not hold, each time the template is applied."""
    if not kept or not _changes_workload(applied):
        return ()
    told = ", ".join(kept)
    return (
        Emit(
            "Warning",
            "PodTemplateKept",
            f"The operator sets or forbids, and so ignored, these fields of spec.podTemplate: {told}.",
        ),
    )


def _secrets(store: StoreResource) -> list[str]:
    """The secrets that meta nodes mount."""
    names = [secret.name for secret in secrets_of_bucket(store)]
    return [*names, tls_secret(store, "meta")] if has_tls(store) else names


def _deletion_costs(pods: Sequence[Manifest], platform: PlatformFact | None) -> list[Annotate]:
    if platform is None or not platform.leader or len(pods) < 2:
        return []
    found = []
    for pod in pods:
        cost = (pod["metadata"].get("annotations") or {}).get(DELETION_COST)
        wanted = LEADER_COST if _ip(pod) == platform.leader_ip else None
        if cost != wanted:
            found.append(Annotate(ref_of(pod), {DELETION_COST: wanted}))
    return found


def _leader_ip(platform: PlatformFact | None) -> str:
    return platform.leader_ip if platform is not None else ""


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _ip(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("podIP", ""))


def _status(
    meta: Meta,
    store: StoreResource | None,
    observed: Observed[MetaFacts],
    workload: Manifest | None,
    verdict: Verdict,
    now: datetime,
) -> dict[str, Any]:
    numbers = (workload or {}).get("status") or {}
    status: dict[str, Any] = {
        "observedGeneration": meta.metadata.generation,
        "conditions": status_conditions(meta, verdict, now),
        "replicas": numbers.get("replicas", 0),
        "readyReplicas": numbers.get("readyReplicas", 0),
        "updatedReplicas": numbers.get("updatedReplicas", 0),
        "selector": ",".join(f"{name}={value}" for name, value in sorted(selector(meta, "meta").items())),
        "endpoint": f"tussock://{meta_address(meta.name, meta.namespace)}",
    }
    if image := image_of(workload):
        status["image"] = image
    if outside := outside_endpoint(meta, observed.children):
        status["outsideEndpoint"] = outside
    if store is None:
        return status
    platform = observed.facts.platform
    if platform is None or platform.problem:
        # The last known values are better than none, except a leader whose pod is gone.
        kept = ["term", "version", "committedEpoch", "committedTime", "quarantinedSsts", "lostRows", "logFormat"]
        kept += ["leader"] if meta.status.get("leader") in [_name(pod) for pod in observed.pods()] else []
        return {**status, **{name: meta.status[name] for name in kept if name in meta.status}}
    leader = [_name(pod) for pod in observed.pods() if platform.leader and _ip(pod) == platform.leader_ip]
    told = {
        "leader": leader[0] if leader else "",
        "term": platform.term,
        "version": platform.version,
        "committedEpoch": platform.committed_epoch,
        "committedTime": _time(platform.committed_ms),
        # A store that has lost nothing says nothing of it.
        "quarantinedSsts": platform.quarantined_ssts or None,
        "lostRows": platform.lost_rows or None,
        "logFormat": _log_format(meta, platform) or None,
    }
    return {**status, **{name: value for name, value in told.items() if value not in ("", None)}}


def _time(milliseconds: int) -> str | None:
    if not milliseconds:
        return None
    return stamp(datetime.fromtimestamp(milliseconds // 1000, UTC))
