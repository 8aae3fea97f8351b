"""The plan of a `Compute`: its children, at most one driver at a time, and its status.

The driver is a bare pod with a fixed name, and this plan is its controller: unlike a Deployment, it starts no second
driver before the first one has gone, unless the first one's node is lost. A pod never changes except for annotations;
for another template the plan stops it and, when it has gone, makes the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tussock.operator.manifests.certificates import job_certificate
from tussock.operator.manifests.compute.job import (
    EXECUTORS_ANNOTATION,
    TEMPLATE_ANNOTATION,
    Job,
    compute_manifests,
    executor_selector,
)
from tussock.operator.manifests.compute.pods import DRAIN_SECONDS, ROLE_LABEL, checkpoint_claim, trial_name
from tussock.operator.manifests.compute.spark_security import spark_secret_name
from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.transport_security import has_tls, job_secret
from tussock.operator.planning.clients.certificates import (
    OwnCertificate,
    certificate_deletes,
    foreign_secret_verdict,
    plan_certificate,
)
from tussock.operator.planning.clients.grants import LOOK_SECONDS, parting_of
from tussock.operator.planning.compute.drivers import Driving, drive, stop
from tussock.operator.planning.compute.facts import PROGRAM_SECONDS, ComputeFacts
from tussock.operator.planning.compute.far import exclusion, gated, wait_of
from tussock.operator.planning.compute.gates import Gates, gates_of, stores_metas, writer_conflict
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.compute.image_trials import try_image
from tussock.operator.planning.compute.runs import JobRun, has_ended, runs_of
from tussock.operator.planning.compute.scheduled.timetable import drive_by_schedule
from tussock.operator.planning.compute.secrets import DRAW_SPARK_SECRET, secret_version
from tussock.operator.planning.compute.volumes import checkpoint_used, volume_verdict
from tussock.operator.planning.service.plan import plan_service
from tussock.operator.planning.turns import turn_message
from tussock.operator.planning.words.comparison import applies, prunes
from tussock.operator.planning.words.components import stamps, status_conditions
from tussock.operator.planning.words.conditions import Reason, Verdict, problem_verdict, progress_verdict
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.planning.words.model import (
    Action,
    Annotate,
    Apply,
    Delete,
    Emit,
    Hold,
    Manifest,
    Observed,
    Plan,
    Ref,
    Release,
    Work,
    ref_of,
    seconds_since,
    stamp,
)
from tussock.operator.planning.words.ownership import holder_of, own_child
from tussock.operator.resources.compute import Compute
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["plan_compute"]

_DELETION_SECONDS = 120.0
"""If the store, which has the deadline, is gone: seconds until a deletion gives up on a driver that does not end."""


def plan_compute(compute: Compute, observed: Observed[ComputeFacts], now: datetime) -> Plan:
    """The plan for a job, or for a service. Raises `InvalidResource` if its spec is invalid."""
    if compute.is_service:
        return plan_service(compute, observed, now)
    runs = sorted(runs_of(observed.pods(), holder_of(compute)), key=lambda run: run.has_ended)
    store = _store(compute, observed)
    if compute.is_being_deleted:
        return _plan_deletion(compute, observed, store, runs, now)
    if (outside := exclusion(compute, observed)) is not None:
        stops = _stops(runs) if outside.stops else ()
        driving = Driving(outside.verdict, again_seconds=outside.again_seconds)
        return _plan(compute, observed, (Hold(), *stops), driving, None, now)
    gates = gates_of(compute, observed.others, observed.facts.settled)
    if store is not None and store.is_being_deleted:
        verdict = progress_verdict(Reason.DELETING, f"StateStore {store.name} is being deleted, so the driver stops.")
        return _plan(compute, observed, _stops(runs), Driving(verdict), None, now)
    if store is not None and store.spec.paused:
        told = f"StateStore {store.name} is paused: the operator changes nothing until spec.paused is false."
        paused = Verdict(Reason.PAUSED, told, ready=_is_serving(runs), progressing=False, degraded=False)
        return _plan(compute, observed, (), Driving(paused), None, now)
    metas = stores_metas(compute, observed.others)
    if store is None or not metas:
        assert gates.first is not None
        return _plan(compute, observed, (Hold(),), Driving(gates.first), None, now)
    facts = observed.facts
    if facts.application is None:
        # Without the digest, the program of a running driver would seem changed.
        return Plan((Hold(),), compute.status, PROGRAM_SECONDS)
    wait = wait_of(compute, store, observed)
    gates = gated(gates, wait)
    addresses = [meta_address(meta, store.namespace) for meta in metas]
    secret = secret_version(compute, observed.others)
    job = compute_manifests(compute, store, addresses, facts.defaults, facts.application, secret or "")
    own, has_cert_manager = job_certificate(compute, store), facts.has_cert_manager
    certificate = plan_certificate(
        compute, store, own, observed, now, due=facts.certificate_due, has_cert_manager=has_cert_manager
    )
    driving = _plan_driver(compute, store, job, observed, gates, certificate, runs, now)
    if wait is not None:
        driving = replace(driving, again_seconds=min(wait.again_seconds, driving.again_seconds or wait.again_seconds))
    wanted = [*job.manifests, *certificate.manifests]
    applied = applies(wanted, observed.children)
    actions: list[Action] = [
        Hold(),
        *applied,
        *_lost_claim_event(compute, applied, observed.children),
        *certificate.actions,
    ]
    if secret is None:
        # Only once the secret exists: the driver's pod is made from it, and a running driver continues with the old
        # one.
        actions.append(Work(DRAW_SPARK_SECRET, {}))
        told = "The operator is creating the secret that driver and executors share."
        driving = Driving(progress_verdict(Reason.RECONCILING, told, serving=_is_serving(runs)))
    actions += [*prunes([*wanted, *observed.pods()], observed.children, holder_of(compute)), *driving.actions]
    actions += _refreshes(compute, job, store, observed, driving)
    if job.kept and any(isinstance(action, Apply) and action.manifest["kind"] == "Pod" for action in actions):
        told = ", ".join(job.kept)
        actions.append(
            Emit(
                "Warning",
                "PodTemplateKept",
                f"The operator sets or forbids, and so ignored, these fields of the pod templates: {told}.",
            )
        )
    return _plan(compute, observed, tuple(actions), driving, job, now)


def _store(compute: Compute, observed: Observed[ComputeFacts]) -> StoreResource | None:
    """The store of a job; `None` if there is none. Raises `InvalidResource` for an invalid one beside the job."""
    if compute.is_far:
        return observed.facts.admission.store
    body = observed.others.get(Ref("StateStore", compute.spec.store_ref.name))
    return parse_store(body) if body is not None else None


def _plan_driver(
    compute: Compute,
    store: StoreResource,
    job: Job,
    observed: Observed[ComputeFacts],
    gates: Gates,
    certificate: OwnCertificate,
    runs: Sequence[JobRun],
    now: datetime,
) -> Driving:
    """What to do with the driver."""
    foreign = foreign_secret_verdict(compute, spark_secret_name(compute.name), observed.others) or certificate.foreign
    conflict = writer_conflict(compute, observed.others, observed.facts.elsewhere) or foreign
    if conflict is not None:
        return Driving(conflict, _stops([run for run in runs if not run.has_ended]))
    if certificate.missing is not None:
        gates = Gates(gates.first or certificate.missing, gates.again or certificate.missing)
    if observed.facts.missing:
        missing = problem_verdict(Reason.INVALID_SPEC, observed.facts.missing)
        gates = Gates(missing, missing)
    if observed.facts.before:
        gates = gates._replace(turn=turn_message("its driver after that", "Compute", observed.facts.before))
    executors = _executors(observed)
    if compute.spec.schedule:
        driver = observed.facts.driver
        return drive_by_schedule(compute, store.name, job, runs, gates, now, executors, driver)
    trial = own_child(observed.children, Ref("Pod", trial_name(compute.name)), holder_of(compute))
    trying = None
    if gates.first is None and not gates.turn and not compute.spec.suspend:
        trying = try_image(compute, store, job, runs, trial, now)
    if trying is not None:
        return trying
    found = drive(compute, store.name, job, runs, gates, now, executors)
    # A trial that has ended while others change is not made again.
    if trial is not None and not gates.turn and not trial["metadata"].get("deletionTimestamp"):
        found = replace(found, actions=(*found.actions, Delete(ref_of(trial))))
    return found


def _lost_claim_event(compute: Compute, applied: Sequence[Apply], children: Mapping[Ref, Manifest]) -> tuple[Emit, ...]:
    """An event if the checkpoint of a job that has run is made anew, so that all its progress is gone."""
    claim = Ref("PersistentVolumeClaim", checkpoint_claim(compute))
    if "startTime" not in compute.status or claim in children or claim not in {ref_of(one.manifest) for one in applied}:
        return ()
    told = (
        f"PersistentVolumeClaim {claim.name} with the job's checkpoint is gone, so the operator creates an empty "
        f"one. The store refuses a query that starts again under writer {compute.writer_id!r}: restore the checkpoint, "
        "or delete this Compute and create one with another writerId."
    )
    return (Emit("Warning", str(Reason.CHECKPOINT_LOST), told),)


def _stops(runs: Sequence[JobRun]) -> tuple[Delete, ...]:
    return tuple(stop(run) for run in runs if not run.is_leaving)


def _refreshes(
    compute: Compute, job: Job, store: StoreResource, observed: Observed[ComputeFacts], driving: Driving
) -> list[Action]:
    """Annotations that make kubelets fetch changed files of running pods; by themselves they take a minute or two.

    And what users have decided by now about a driver whose template is up to date.
    """
    stopping = {action.ref.name for action in driving.actions if isinstance(action, Delete)}
    pods = [pod for pod in observed.pods() if not has_ended(pod) and pod["metadata"]["name"] not in stopping]
    secrets = [job_secret(store, compute.name)] if has_tls(store) else []
    found: list[Action] = list(stamps(pods, secrets, observed.others))
    for pod in pods:
        if _role(pod) != "driver" or pod["metadata"].get("deletionTimestamp"):
            continue
        held, wanted = pod["metadata"].get("annotations") or {}, dict[str, str | None]()
        if job.executors is not None:
            wanted[EXECUTORS_ANNOTATION] = job.executors
        if held.get(TEMPLATE_ANNOTATION) == job.template_hash:
            # A spec that has changed without a change of the template: what differs later is not its doing.
            wanted[SPEC_ANNOTATION] = job.inputs.text()
        if not wanted.items() <= held.items():
            found.append(Annotate(ref_of(pod), wanted))
    return found


def _plan_deletion(
    compute: Compute,
    observed: Observed[ComputeFacts],
    store: StoreResource | None,
    runs: Sequence[JobRun],
    now: datetime,
) -> Plan:
    """The plan that lets drivers end in order, then releases; executors go with them, by their owner references."""
    if not runs:
        return _plan_end(compute, observed, now)
    deadline = store.spec.deletion_deadline_seconds if store else _DELETION_SECONDS
    # A driver may use its whole time for the end, whatever the deadline is.
    left = max(deadline, DRAIN_SECONDS + 10) - seconds_since(compute.metadata.deletion_timestamp, now)
    if left <= 0:
        pod = f"Pod {runs[0].name} has not ended after {deadline:g} s; its node may be lost."
        told = f"{pod} The operator deletes this Compute without waiting for it."
        end = Emit("Warning", str(Reason.DELETION_GAVE_UP), told)
        give_up: tuple[Action, ...] = (end, *certificate_deletes(compute, observed), Release())
        return _plan(compute, observed, give_up, Driving(problem_verdict(Reason.DELETION_GAVE_UP, told)), None, now)
    verdict = progress_verdict(Reason.DRAINING, f"Waiting for pod {runs[0].name} to end its batch and stop.")
    return _plan(compute, observed, _stops(runs), Driving(verdict, again_seconds=left), None, now)


def _plan_end(compute: Compute, observed: Observed[ComputeFacts], now: datetime) -> Plan:
    """The plan that releases a job without drivers; one in another namespace when its store lets it in no more."""
    end: tuple[Action, ...] = (*certificate_deletes(compute, observed), Release())
    parting = parting_of(compute, observed.facts.admission, now, DRAIN_SECONDS + 10) if compute.is_far else None
    if parting is None:
        told = "The driver has ended; Kubernetes deletes the other children with this Compute."
        return _plan(compute, observed, end, Driving(progress_verdict(Reason.DELETING, told)), None, now)
    if not parting.gives_up:
        again = min(LOOK_SECONDS, parting.left_seconds)
        return _plan(compute, observed, (), Driving(parting.verdict, again_seconds=again), None, now)
    event = Emit("Warning", str(parting.verdict.reason), parting.verdict.message)
    return _plan(compute, observed, (event, *end), Driving(parting.verdict), None, now)


def _plan(
    compute: Compute,
    observed: Observed[ComputeFacts],
    actions: tuple[Action, ...],
    driving: Driving,
    job: Job | None,
    now: datetime,
) -> Plan:
    old = compute.status
    executors = _executors(observed)
    used = checkpoint_used(compute, observed.facts)
    verdict = volume_verdict(compute, driving.verdict, used)
    status: dict[str, Any] = {
        "observedGeneration": compute.metadata.generation,
        "conditions": status_conditions(compute, verdict, now),
        "replicas": len(executors),
        "readyReplicas": sum(is_ready_pod(pod) for pod in executors),
        "selector": ",".join(f"{key}={value}" for key, value in sorted(executor_selector(compute).items())),
        "writerId": compute.writer_id,
        "restarts": old.get("restarts", 0),
        "failures": old.get("failures", 0),
    }
    if job is not None:
        status["image"] = job.image
    elif "image" in old:
        status["image"] = old["image"]
    remembered = ("startTime", "completionTime", "lastExitCode", "lastFailure", "lastScheduleTime")
    status.update({name: old[name] for name in remembered if name in old})
    program = observed.facts.driver.program_sha256 if observed.facts.driver is not None else ""
    if program or "programSha256" in old:
        status["programSha256"] = program or old["programSha256"]
    if used is not None:
        status["checkpointUsedPercent"] = used
    if (scaling := _scaling(compute, observed.facts.driver)) is not None:
        status["scaling"] = scaling
    if compute.spec.schedule and "runs" in old:
        status["runs"] = old["runs"]
    committed = ("committedEpoch", "committedBatch", "committedTime")
    status.update({name: old[name] for name in committed if name in old})
    if observed.facts.certificate_expires:
        status["certificatesExpireTime"] = observed.facts.certificate_expires
    if (found := _newest_commit(compute, observed)) is not None:
        when = datetime.fromtimestamp(found.committed_ms // 1000, UTC)
        status.update(zip(committed, (found.committed_epoch, found.committed_batch, stamp(when)), strict=True))
    for name, value in driving.status.items():
        if value is None:
            status.pop(name, None)
        else:
            status[name] = value
    again = driving.again_seconds
    if compute.program.config_map is not None and not compute.is_being_deleted:
        again = PROGRAM_SECONDS if again is None else min(again, PROGRAM_SECONDS)
    return Plan(actions, status, again)


def _scaling(compute: Compute, driver: DriverFact | None) -> dict[str, Any] | None:
    """What the driver says of its choice of executors, or has said last; `None` where it has none."""
    if compute.spec.executor.target_lag_seconds is None:
        return None
    if driver is None or driver.executors_wanted is None:
        return compute.status.get("scaling")
    return {"wanted": driver.executors_wanted, "message": driver.scaling}


def _newest_commit(compute: Compute, observed: Observed[ComputeFacts]) -> DriverFact | None:
    """What the running driver reports; or else what one has said at its end, if the status does not have it yet."""
    found = observed.facts.driver
    if found is not None and found.committed_epoch:
        return found
    said = [run.committed for run in runs_of(observed.pods(), holder_of(compute)) if run.committed is not None]
    newest = max(said, key=lambda fact: fact.committed_epoch, default=None)
    if newest is None or newest.committed_epoch <= compute.status.get("committedEpoch", 0):
        return None
    return newest


def _executors(observed: Observed[ComputeFacts]) -> list[Manifest]:
    return [pod for pod in observed.pods() if _role(pod) == "executor" and not has_ended(pod)]


def _role(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))


def _is_serving(runs: Sequence[JobRun]) -> bool:
    return any(is_ready_pod(run.body) and not run.is_leaving for run in runs)
