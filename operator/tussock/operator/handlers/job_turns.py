"""How far all jobs are with an upgrade of the operator, judged by their pods."""

from collections.abc import Mapping, Sequence

from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.clients.admissions import granted_store
from tussock.operator.handlers.rollouts import settled_parts
from tussock.operator.handlers.world import World
from tussock.operator.manifests.compute.job import compute_manifests
from tussock.operator.manifests.compute.pods import trial_name
from tussock.operator.manifests.compute.spark_security import spark_secret_name
from tussock.operator.manifests.meta import meta_address
from tussock.operator.planning.compute.gates import gates_of, stores_metas
from tussock.operator.planning.compute.runs import JobRun, runs_of
from tussock.operator.planning.compute.secrets import secret_version
from tussock.operator.planning.compute.turns import (
    DriverTemplate,
    inputs_of,
    is_changing_driver,
    is_due,
    is_held_back,
    is_stuck,
    running_driver,
)
from tussock.operator.planning.turns import Standing, predecessors
from tussock.operator.planning.words.conditions import is_degraded
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.planning.words.ownership import holder_of, own_child
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.store import StoreResource

__all__ = ["jobs_before", "program_subject"]

TEMPLATES_MAX = 4096
"""Templates that are kept, of jobs and of states of their specs; then all are made anew."""


def program_subject(config_map: str, key: str) -> tuple[str, str, str]:
    """The subject under which probes keep a digest of a program in a key of a ConfigMap."""
    return ("application", config_map, key)


def jobs_before(world: World, compute: Compute, application: str, settled: Mapping[Ref, bool]) -> tuple[str, ...]:
    """The jobs that an upgrade changes before `compute`; none if it changes nothing, or may begin.

    `application` is the digest of its present program: another one than before is a user's change. `settled` are the
    parts of its store, as `settled_parts` returns them.
    """
    if not _has_to_change(world, compute, application, _secret(world, compute), settled):
        return ()
    jobs, standings = _all_jobs(world)
    return predecessors(
        _name(compute),
        standings,
        lambda name: _has_to_change_too(world, jobs[name]),
        world.max_unavailable.of(len(jobs)),
    )


def _all_jobs(world: World) -> tuple[dict[str, Compute], list[Standing]]:
    """All jobs, by name, and how far they are. Kept until something changes: all that wait ask for the same."""
    moment = (world.seen.changes, world.now())
    if moment not in world.standings:
        jobs = {_name(job): job for job in map(_parsed, world.seen.all_of("Compute")) if job is not None}
        world.standings.clear()
        world.standings[moment] = jobs, [_standing(world, name, job) for name, job in jobs.items()]
    found: tuple[dict[str, Compute], list[Standing]] = world.standings[moment]
    return found


def _has_to_change_too(world: World, compute: Compute) -> bool:
    """Whether a change of another job is due by the upgrade alone, as far as its driver and its specs show."""
    run = running_driver(compute, _runs(world, compute))
    if run is None or is_held_back(compute):
        return False
    held, source = inputs_of(run), compute.program.config_map
    if held is not None:
        return _has_to_change(world, compute, held.application, held.secret)
    known = ("", "")
    if source is not None:
        known = world.probes.latest_fact(_key(compute), program_subject(source.name, source.key))
    return known is not None and _has_to_change(world, compute, known[0], _secret(world, compute))


def _has_to_change(
    world: World, compute: Compute, application: str, secret: str, settled: Mapping[Ref, bool] | None = None
) -> bool:
    """Whether a change of a job's driver is due by the upgrade alone, could begin, and has not begun.

    `settled` are the parts of its store, if the caller knows them: to find out is costly.
    """
    run = running_driver(compute, _runs(world, compute))
    store = granted_store(world, compute)
    if run is None or store is None or store.spec.paused or store.is_being_deleted:
        return False
    if is_stuck(_trial(world, compute), world.now()):
        return False
    others = world.refs(compute.store_namespace, "StateStore", "Meta", "Compactor")
    addresses = [meta_address(meta, compute.store_namespace) for meta in stores_metas(compute, others)]
    template = _template(world, compute, store, addresses, application, secret)
    if template is None or not is_due(run, template):
        return False
    known = settled if settled is not None else settled_parts(world, store)
    return gates_of(compute, others, known).first is None


def _template(
    world: World, compute: Compute, store: StoreResource, addresses: Sequence[str], application: str, secret: str
) -> DriverTemplate | None:
    """What a job's driver has to be made from; `None` for an invalid job, whose status says so.

    Kept, since it is the same until somebody changes something, and all that wait ask for those of others.
    """
    generations = (compute.metadata.generation, store.metadata.generation)
    made_from = (compute.metadata.uid, store.metadata.uid, generations, tuple(addresses), application, secret)
    if made_from not in world.templates:
        if len(world.templates) >= TEMPLATES_MAX:
            world.templates.clear()
        try:
            job = compute_manifests(compute, store, addresses, world.defaults, application, secret)
            world.templates[made_from] = DriverTemplate(job.template_hash, job.inputs)
        except InvalidResource:
            world.templates[made_from] = None
    return world.templates[made_from]


def _standing(world: World, name: str, compute: Compute) -> Standing:
    changing = is_changing_driver(compute, _runs(world, compute), _trial(world, compute), world.now())
    return Standing(name, changing, not is_degraded(compute.status))


def _parsed(body: Manifest) -> Compute | None:
    try:
        found = parse_compute(body)
    except InvalidResource:
        return None  # its own status says so, and nothing of it is changed
    return None if found.is_service else found


def _runs(world: World, compute: Compute) -> list[JobRun]:
    children = world.seen.children(_key(compute))
    return runs_of((body for ref, body in sorted(children.items()) if ref.kind == "Pod"), holder_of(compute))


def _trial(world: World, compute: Compute) -> Manifest | None:
    children = world.seen.children(_key(compute))
    return own_child(children, Ref("Pod", trial_name(compute.name)), holder_of(compute))


def _secret(world: World, compute: Compute) -> str:
    ref = Ref("Secret", spark_secret_name(compute.name))
    body = world.seen.get(ref.kind, compute.namespace, ref.name)
    return (secret_version(compute, {ref: body}) or "") if body is not None else ""


def _key(compute: Compute) -> Key:
    return Key("Compute", compute.namespace, compute.name)


def _name(compute: Compute) -> str:
    return f"{compute.namespace}/{compute.name}"
