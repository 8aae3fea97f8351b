"""The plan of a `StateStore`: its bucket first, then its meta nodes and compactors, and its status.

Obstacles are looked for in the order in which a user would have to remove them: the secret, another store on the same
prefix, the bucket, the certificates. Nothing starts on a store with such an obstacle; running nodes continue, since a
bucket that the operator cannot reach may be in reach of the nodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tussock.operator.manifests.bucket_access import managed_name, secrets_of_bucket
from tussock.operator.manifests.labels import STORE_GENERATION, Component, metadata
from tussock.operator.manifests.settings import Defaults, minio_image
from tussock.operator.manifests.store import store_manifests
from tussock.operator.planning.certificates import certificate_obstacle, foreign_secrets, writes_into
from tussock.operator.planning.deletion import POLL_SECONDS, EmptiedFact, depart, lost_backups_event
from tussock.operator.planning.disk import bucket_verdict, disk_used, disk_verdict
from tussock.operator.planning.outside.addresses import hosts_outside
from tussock.operator.planning.parts import (
    endpoint_of,
    images_that_wait,
    numbers_of,
    resources_of_store,
    verdict_of_parts,
)
from tussock.operator.planning.restore import plan_restore
from tussock.operator.planning.turns import NO_WAIT, UpgradeTurn, begins, passes, with_turn
from tussock.operator.planning.words.approvals import approval_status, approved_server, with_approval
from tussock.operator.planning.words.comparison import applies, prunes
from tussock.operator.planning.words.components import last_verdict, loss_event, named, status_conditions
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    is_serving,
    problem_verdict,
    progress_verdict,
)
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import (
    Action,
    Apply,
    Emit,
    Hold,
    Manifest,
    Observed,
    Plan,
    Ref,
    Release,
    Work,
)
from tussock.operator.planning.words.ownership import foreign_object_verdict, holder_of
from tussock.operator.planning.words.rollout import rollout, verdict_of
from tussock.operator.resources.common import API_VERSION
from tussock.operator.resources.object_store import ManagedStore, bucket_url
from tussock.operator.resources.store import StoreResource

__all__ = [
    "ISSUE_CERTIFICATES",
    "MAKE_MINIO_SECRET",
    "StoreFacts",
    "is_prefix_held",
    "meta_names",
    "plan_store",
]

ISSUE_CERTIFICATES = "issue-certificates"
MAKE_MINIO_SECRET = "make-minio-secret"  # noqa: S105 - the name of a piece of work
RETRY_SECONDS = 10.0
"""The interval of looks at an obstacle outside the cluster."""
OWN_RETRY_SECONDS = 2.0
"""The same for a bucket whose server the operator runs."""


@dataclass(frozen=True)
class StoreFacts:
    """What the plan of a `StateStore` needs beside its children."""

    defaults: Defaults
    sections: Mapping[str, Mapping[str, Any] | None]
    """The spec's parts for `Meta` and `Compactor` as the user wrote them: other managers own omitted fields."""
    pods: Sequence[Manifest] = ()
    """All pods of the store, whatever their owner."""
    bucket: BucketFact | None = None
    """`None` before the first probe."""
    rivals: Sequence[str] = ()
    """Other stores of this cluster whose prefix overlaps, and that come before this one."""
    holds_prefix: bool = False
    """The bucket was usable at some time, so later stores that overlap are refused."""
    has_let_go: bool = False
    """Deleted and cleaned up, or given up: only somebody else's finalizer keeps the object."""
    certificates_due: bool = False
    """A certificate that the operator issues is missing or has to be renewed."""
    certificates_expire: str = ""
    """When the first of them expires (RFC 3339)."""
    has_cert_manager: bool = False
    """Whether cert-manager is in the cluster."""
    emptied: EmptiedFact | None = None
    disk_used_percent: int | None = None
    """How full the disk of a managed object store is; `None`: not known."""
    elsewhere: Sequence[Manifest] = ()
    """The jobs of the store in other namespaces that it allows."""
    turn: UpgradeTurn = NO_WAIT
    """What an upgrade of the operator waits for before it changes the managed object store (`turns.py`)."""


def plan_store(store: StoreResource, observed: Observed[StoreFacts], now: datetime) -> Plan:
    """The plan for a `StateStore`."""
    facts = observed.facts
    if store.is_being_deleted:
        return _plan_deletion(store, observed, now)
    metas, compactors = (
        resources_of_store(observed.others, "Meta", store),
        resources_of_store(observed.others, "Compactor", store),
    )
    serving = bool(metas) and all(map(is_serving, metas))
    if store.spec.paused:
        status = _status(store, observed, _paused_verdict(serving=serving), now, store.status.get("obstacle"))
        return Plan((Hold(), *loss_event(store, status)), status)
    names = meta_names(store, metas, facts.sections)
    managed = isinstance(store.spec.object_store.backend, ManagedStore)
    secret = observed.others.get(Ref("Secret", managed_name(store))) if managed else None
    server = observed.children.get(Ref("StatefulSet", managed_name(store)))
    store, pending = approved_server(store, facts.defaults, server)
    version = str(secret["metadata"].get("resourceVersion", "")) if secret is not None else ""
    wanted, kept = store_manifests(store, names, facts.defaults, version, hosts_outside(metas))
    if not facts.has_cert_manager:
        wanted = tuple(manifest for manifest in wanted if manifest["kind"] != "Certificate")
    actions: list[Action] = [Hold()]
    obstacle = _rivalry(store, facts)
    has_store = facts.bucket is not None and facts.bucket.has_store
    restoring = plan_restore(store, observed.children, observed.others, facts.defaults, now, has_store=has_store)
    if obstacle is None:
        actions += _works(store, observed, names, hosts_outside(metas))
        obstacle = _obstacle(store, observed, now)
        if obstacle is None and not is_prefix_held(store):
            # The status first, so that it is known if the operator dies now and another store wants the prefix.
            obstacle = progress_verdict(Reason.RECONCILING, "The operator is reserving the prefix for this store.")
        if obstacle is None:
            actions += restoring.actions
            obstacle = restoring.obstacle
        started = [manifest for manifest in _sections(store, facts) if _may_start(manifest, observed, obstacle)]
        # It cannot start without its secret, and a running one restarts once, with the new secret.
        held = {"StatefulSet"} if managed and (secret is None or facts.turn.waits) else ()
        foreign = foreign_secrets(store, observed.others, names, facts.defaults)
        due = [
            manifest
            for manifest in wanted
            if manifest["kind"] not in held and not any(writes_into(manifest, ref) for ref in foreign)
        ]
        applied = applies([*due, *started], observed.children)
        actions += [*begins(applied, due, facts.turn), *applied]
        if obstacle is None and not _changes_server(applied):
            # Without an obstacle the server is ready, and the bucket can be used.
            actions += passes(server, server, serves=True)
        actions += _kept_event(kept, applied)
    spared = {ref: child for ref, child in observed.children.items() if ref not in restoring.keeps}
    actions += prunes([*wanted, *_sections(store, facts)], spared, holder_of(store))
    if obstacle is not None:
        verdict = obstacle._replace(ready=serving)
    elif not metas and facts.sections.get("Meta") is not None:
        verdict = progress_verdict(Reason.WAITING_FOR_META, f"The operator is creating Meta {store.name}.")
    else:
        serves = verdict_of_parts(store, metas, compactors, serving=serving)
        verdict = with_turn(serves, facts.turn, "its object store after that")
    waiting = approval_status(images_that_wait([*metas, *compactors], pending), store.status, now)
    verdict = disk_verdict(store, with_approval(verdict, waiting, store.name), facts.disk_used_percent)
    again = (OWN_RETRY_SECONDS if managed else RETRY_SECONDS) if obstacle else None
    if obstacle is None and not serving:
        # Meanwhile the bucket is probed, and nothing else may happen that needs the result.
        again = RETRY_SECONDS
    again = facts.turn.again_seconds if facts.turn.waits else again
    status = _status(store, observed, verdict, now, obstacle.message if obstacle is not None else "") | waiting
    if restoring.done:
        status["restoredFrom" if store.spec.clone_from is None else "clonedFrom"] = restoring.done
    return Plan((*actions, *loss_event(store, status)), status, again)


def _paused_verdict(*, serving: bool) -> Verdict:
    told = "This store is paused: the operator changes nothing until spec.paused is false; running pods continue."
    return Verdict(Reason.PAUSED, told, ready=serving, progressing=False, degraded=False)


def _plan_deletion(store: StoreResource, observed: Observed[StoreFacts], now: datetime) -> Plan:
    facts = observed.facts
    if facts.has_let_go:
        # The last word on the deletion stays. The place may be another store's by now.
        return Plan((), dict(store.status))
    step = depart(store, facts.pods, observed.children, facts.emptied, now)
    lost = lost_backups_event(store, observed.others) if Release() in step.actions else ()
    status = _status(store, observed, step.verdict, now, step.verdict.message)
    return Plan((*lost, *step.actions), status, POLL_SECONDS)


def is_prefix_held(store: StoreResource) -> bool:
    """Whether the status says that the prefix belongs to this store.

    For a store of an earlier operator, the version that its meta nodes have reported shows it.
    """
    return bool(store.status.get("prefixHeld")) or "version" in store.status


def meta_names(
    store: StoreResource, metas: Sequence[Manifest], sections: Mapping[str, Mapping[str, Any] | None]
) -> list[str]:
    """The names of a store's `Meta` objects, including those that are about to be made."""
    section = [store.name] if sections.get("Meta") is not None else []
    return sorted({*section, *(body["metadata"]["name"] for body in metas)})


def _works(
    store: StoreResource, observed: Observed[StoreFacts], metas: Sequence[str], hosts: Sequence[str]
) -> list[Action]:
    """Work for secrets whose content has to be drawn or issued."""
    found: list[Action] = []
    managed = isinstance(store.spec.object_store.backend, ManagedStore)
    if managed and Ref("Secret", managed_name(store)) not in observed.others:
        found.append(Work(MAKE_MINIO_SECRET, {}))
    if observed.facts.certificates_due and not foreign_secrets(store, observed.others, metas, observed.facts.defaults):
        found.append(Work(ISSUE_CERTIFICATES, {"metas": list(metas), "hosts": list(hosts)}))
    return found


def _kept_event(kept: Sequence[str], applied: Sequence[Apply]) -> list[Action]:
    """An event about the parts of the server's pod template that could not hold, each time the template is applied."""
    if not kept or not _changes_server(applied):
        return []
    fields = f"these fields of objectStore.managed.podTemplate: {', '.join(kept)}"
    return [Emit("Warning", "PodTemplateKept", f"The operator sets or forbids, and so ignored, {fields}.")]


def _changes_server(applied: Sequence[Apply]) -> bool:
    return any(action.manifest["kind"] == "StatefulSet" for action in applied)


def _rivalry(store: StoreResource, facts: StoreFacts) -> Verdict | None:
    if not facts.rivals:
        return None
    return problem_verdict(
        Reason.PREFIX_IN_USE,
        f"{bucket_url(store.spec.object_store)} belongs to StateStore {named(facts.rivals)}, whose prefix is the "
        "same, lies within this one or contains it. Create a StateStore of another name with another prefix. This one "
        "starts nothing, and its deletion touches nothing there.",
    )


def _obstacle(store: StoreResource, observed: Observed[StoreFacts], now: datetime) -> Verdict | None:
    """The first obstacle to starting anything; `None` if there is none."""
    facts = observed.facts
    metas = meta_names(store, resources_of_store(observed.others, "Meta", store), facts.sections)
    if foreign := foreign_secrets(store, observed.others, metas, facts.defaults):
        return foreign_object_verdict(foreign[0], observed.others[foreign[0]], store.namespace, holder_of(store))
    if isinstance(store.spec.object_store.backend, ManagedStore):
        name = managed_name(store)
        pods = [pod for pod in observed.pods() if pod["metadata"]["name"].startswith(f"{name}-")]
        found = rollout(observed.children.get(Ref("StatefulSet", name)), pods, now)
        if not found.done:
            image = minio_image(store.spec.object_store.backend, store, facts.defaults)
            return verdict_of(found, "servers of the managed object store", image)._replace(ready=False)
    elif missing := _missing_secret(store, observed):
        return missing
    if facts.bucket is None:
        known = store.status.get("obstacle")
        if known is None:
            return progress_verdict(Reason.RECONCILING, "The operator is checking the bucket for the first time.")
        # The operator has just started, or the secret has changed: until the next probe, the last verdict holds.
        if known:
            return (last_verdict(store) or progress_verdict(Reason.RECONCILING, known))._replace(message=known)
    elif facts.bucket.reason is not None:
        return bucket_verdict(store, facts.bucket)
    return certificate_obstacle(
        store,
        observed.children,
        observed.others,
        facts.defaults,
        now,
        has_cert_manager=facts.has_cert_manager,
    )


def _missing_secret(store: StoreResource, observed: Observed[StoreFacts]) -> Verdict | None:
    for field, name, keys in secrets_of_bucket(store):
        secret = observed.others.get(Ref("Secret", name))
        if secret is None:
            return problem_verdict(
                Reason.SECRET_NOT_FOUND,
                f"There is no Secret {name} in namespace {store.namespace}, which {field} names. Create it with the "
                f"keys {', '.join(sorted(keys.values()))}.",
            )
        absent = sorted(key for key in keys.values() if key not in (secret.get("data") or {}))
        if absent:
            return problem_verdict(
                Reason.SECRET_KEY_MISSING,
                f"Secret {name} has no key {', '.join(absent)}. Add it, or name the key that it has in {field}.",
            )
    return None


def _sections(store: StoreResource, facts: StoreFacts) -> list[Manifest]:
    """The `Meta` and the `Compactor` that the store's spec asks for."""
    components: dict[str, Component] = {"Meta": "meta", "Compactor": "compactor"}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {
                **metadata(store, store.name, store.name, component),
                "annotations": {STORE_GENERATION: str(store.metadata.generation)},
            },
            "spec": {**section, "storeRef": {"name": store.name}},
        }
        for kind, component in components.items()
        if (section := facts.sections.get(kind)) is not None
    ]


def _may_start(manifest: Manifest, observed: Observed[StoreFacts], obstacle: Verdict | None) -> bool:
    exists = Ref(manifest["kind"], manifest["metadata"]["name"]) in observed.children
    return obstacle is None or exists


def _status(
    store: StoreResource, observed: Observed[StoreFacts], verdict: Verdict, now: datetime, obstacle: str | None
) -> dict[str, Any]:
    """The status; `obstacle` keeps all others from starting: empty for none, `None` before the first probe."""
    metas, compactors = (
        resources_of_store(observed.others, "Meta", store),
        resources_of_store(observed.others, "Compactor", store),
    )
    computes = [*resources_of_store(observed.others, "Compute", store), *observed.facts.elsewhere]
    status: dict[str, Any] = {
        "observedGeneration": store.metadata.generation,
        "conditions": status_conditions(store, verdict, now),
        "url": bucket_url(store.spec.object_store),
        "meta": numbers_of(metas),
        "compactor": numbers_of(compactors),
        "compute": {"total": len(computes), "ready": sum(map(is_serving, computes))},
    }
    if obstacle is not None:
        status["obstacle"] = obstacle
    if (used := disk_used(store, observed.facts.disk_used_percent)) is not None:
        status["diskUsedPercent"] = used
    if observed.facts.holds_prefix or is_prefix_held(store):
        status["prefixHeld"] = True
    if metas:
        status["endpoint"] = endpoint_of(store, metas)
        first = metas[0].get("status") or {}
        told = (
            "outsideEndpoint",
            "version",
            "leader",
            "committedEpoch",
            "committedTime",
            "quarantinedSsts",
            "lostRows",
        )
        status |= {name: first[name] for name in told if name in first}
    if observed.facts.certificates_expire:
        status["certificatesExpireTime"] = observed.facts.certificates_expire
    return status | {name: store.status[name] for name in ("restoredFrom", "clonedFrom") if name in store.status}
