"""How far all jobs are with an upgrade of the operator, judged by their pods."""

from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.rollouts import settled_parts, store_of
from tussock.operator.handlers.world import World
from tussock.operator.manifests.compute.job import compute_manifests
from tussock.operator.manifests.compute.pods import trial_name
from tussock.operator.manifests.compute.spark_security import spark_secret_name
from tussock.operator.manifests.meta import meta_address
from tussock.operator.planning.compute.gates import gates_of, stores_metas
from tussock.operator.planning.compute.runs import JobRun, runs_of
from tussock.operator.planning.compute.secrets import secret_version
from tussock.operator.planning.compute.turns import inputs_of, is_changing_driver, is_due, is_stuck, running_driver
from tussock.operator.planning.turns import Standing, predecessors
from tussock.operator.planning.words.conditions import is_degraded
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compute import Compute, ConfigMapKey, parse_compute

__all__ = ["jobs_before", "program_subject"]


def program_subject(source: ConfigMapKey) -> tuple[str, str, str]:
    """The subject under which probes keep a digest of a program in a ConfigMap."""
    return ("application", source.name, source.key)


def jobs_before(world: World, compute: Compute, application: str) -> tuple[str, ...]:
    """The jobs that an upgrade changes before `compute`; none if it changes nothing, or may begin.

    `application` is the digest of its present program: another one than before is a user's change.
    """
    if not _has_to_change(world, compute, application, _secret(world, compute)):
        return ()
    jobs = {_name(job): job for job in map(_parsed, world.seen.all_of("Compute")) if job is not None}
    standings = [_standing(world, name, job) for name, job in jobs.items()]
    return predecessors(
        _name(compute), standings, lambda name: _has_to_change_too(world, jobs[name]), world.rollout_parallel
    )


def _has_to_change_too(world: World, compute: Compute) -> bool:
    """Whether a change of another job is due by the upgrade alone, as far as its driver and its specs show."""
    run = running_driver(compute, _runs(world, compute))
    if run is None:
        return False
    held, source = inputs_of(run), compute.spec.application.config_map
    if held is not None:
        return _has_to_change(world, compute, held.application, held.secret)
    known = ("", "") if source is None else world.probes.latest_fact(_key(compute), program_subject(source))
    return known is not None and _has_to_change(world, compute, known[0], _secret(world, compute))


def _has_to_change(world: World, compute: Compute, application: str, secret: str) -> bool:
    """Whether a change of a job's driver is due by the upgrade alone, could begin, and has not begun."""
    run = running_driver(compute, _runs(world, compute))
    store = store_of(world, compute.namespace, compute.spec.store_ref.name)
    if run is None or store is None or store.spec.paused or store.is_being_deleted:
        return False
    if is_stuck(_trial(world, compute), world.now()):
        return False
    others = world.refs(compute.namespace, "StateStore", "Meta", "Compactor")
    addresses = [meta_address(meta, compute.namespace) for meta in stores_metas(compute, others)]
    try:
        job = compute_manifests(compute, store, addresses, world.defaults, application, secret)
    except InvalidResource:
        return False  # its own status says so
    return is_due(run, job) and gates_of(compute, others, settled_parts(world, store)).first is None


def _standing(world: World, name: str, compute: Compute) -> Standing:
    changing = is_changing_driver(compute, _runs(world, compute), _trial(world, compute), world.now())
    return Standing(name, changing, not is_degraded(compute.status))


def _parsed(body: Manifest) -> Compute | None:
    try:
        return parse_compute(body)
    except InvalidResource:
        return None  # its own status says so, and nothing of it is changed


def _runs(world: World, compute: Compute) -> list[JobRun]:
    children = world.seen.children(_key(compute))
    return runs_of(body for ref, body in sorted(children.items()) if ref.kind == "Pod")


def _trial(world: World, compute: Compute) -> Manifest | None:
    return world.seen.get("Pod", compute.namespace, trial_name(compute.name))


def _secret(world: World, compute: Compute) -> str:
    ref = Ref("Secret", spark_secret_name(compute.name))
    body = world.seen.get(ref.kind, compute.namespace, ref.name)
    return (secret_version(compute, {ref: body}) or "") if body is not None else ""


def _key(compute: Compute) -> Key:
    return Key("Compute", compute.namespace, compute.name)


def _name(compute: Compute) -> str:
    return f"{compute.namespace}/{compute.name}"
