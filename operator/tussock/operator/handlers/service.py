"""What the plan of a service needs: what its node says, and the turns of an upgrade of the operator."""

from collections.abc import Mapping
from functools import partial

from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.inquiries import CertificatesUnreadable, certificates_of
from tussock.operator.handlers.job_turns import program_subject
from tussock.operator.handlers.rollouts import settled_parts, store_of
from tussock.operator.handlers.world import World
from tussock.operator.manifests.compute.pods import ROLE_LABEL
from tussock.operator.manifests.meta import meta_address
from tussock.operator.manifests.service.children import ServiceChildren, service_manifests
from tussock.operator.manifests.service.names import NODE_ROLE, service_name, service_server_name
from tussock.operator.planning.compute.gates import gates_of, stores_metas
from tussock.operator.planning.compute.health import is_ready_pod
from tussock.operator.planning.service.plan import CHANGING_SECONDS
from tussock.operator.planning.turns import Standing, is_asked_by_operator, is_pending, is_restarting, predecessors
from tussock.operator.planning.words.conditions import is_degraded
from tussock.operator.planning.words.facts import NodeFact
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.probes.computes.node import ask_node
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compute import Compute, parse_compute
from tussock.operator.resources.service import PAGE_PORT
from tussock.operator.resources.store import StoreResource

__all__ = ["node_fact", "services_before"]

NODE_SECONDS = 12.0
"""Each answer with other counts writes the status, so not more often. It is below the 15 s between two looks."""


def node_fact(
    world: World, key: Key, compute: Compute, store: StoreResource | None, children: Mapping[Ref, Manifest]
) -> NodeFact | None:
    """What the running node says; `None` if none runs, or before its first answer."""
    pod = _running_node(compute, children)
    if pod is None or store is None:
        return None
    address = pod["status"]["podIP"]
    host = f"[{address}]" if ":" in address else address
    about = ("node", pod["metadata"]["uid"])
    known: NodeFact | None = world.probes.latest_fact(key, about)
    is_changing = (
        not is_ready_pod(pod)
        or known is None
        or bool(known.problem)
        or known.workers != compute.service.workers
        or known.workers_joined != known.workers
    )
    run = partial(_ask, world, compute, store, f"{host}:{PAGE_PORT}")
    found: NodeFact | None = world.probes.fact(key, about, run, CHANGING_SECONDS if is_changing else NODE_SECONDS)
    return found


async def _ask(world: World, compute: Compute, store: StoreResource, address: str) -> NodeFact:
    try:
        certificates = await certificates_of(world, store, "client-reader")
    except CertificatesUnreadable as error:
        return NodeFact(str(error), is_blind=True)
    return await ask_node(address, certificates, service_server_name(compute, store))


def _running_node(compute: Compute, children: Mapping[Ref, Manifest]) -> Manifest | None:
    pod = children.get(Ref("Pod", f"{service_name(compute.name)}-0")) or {}
    status, labels = pod.get("status") or {}, (pod.get("metadata") or {}).get("labels") or {}
    is_there = labels.get(ROLE_LABEL) == NODE_ROLE and status.get("phase") == "Running" and status.get("podIP")
    return pod if is_there else None


def services_before(
    world: World, compute: Compute, code: str, settled: Mapping[Ref, bool], children: Mapping[Ref, Manifest]
) -> tuple[str, ...]:
    """The services that an upgrade changes before this one; none if it changes nothing, or may begin.

    `code` is the digest of its present ConfigMap: another one than before is a user's change. `settled` are the parts
    of its store. Services have their turns among themselves: a node that restarts stops no stream.
    """
    made = _made(world, compute, code)
    if made is None or compute.spec.suspend or not is_asked_by_operator([made.node], children):
        return ()
    if gates_of(compute, _others(world, compute), settled).first is not None:
        return ()  # it waits for that in any case
    services = {_name(one): one for one in map(_parsed, world.seen.all_of("Compute")) if one is not None}
    standings = [_standing(world, name, one) for name, one in services.items()]
    return predecessors(
        _name(compute),
        standings,
        lambda name: _has_to_change(world, services[name]),
        world.max_unavailable.of(len(services)),
    )


def _has_to_change(world: World, compute: Compute) -> bool:
    """Whether a change of another service's node is due, and could begin, as far as its code is known."""
    source = compute.service.config_map
    known = (
        ("", "")
        if source is None
        else world.probes.latest_fact(
            Key("Compute", compute.namespace, compute.name), program_subject(source.name, compute.service.module_file)
        )
    )
    store = store_of(world, compute.namespace, compute.spec.store_ref.name)
    if known is None or store is None or store.spec.paused or store.is_being_deleted or compute.spec.suspend:
        return False
    made = _made(world, compute, known[0])
    if made is None or compute.is_being_deleted or not is_pending(made.node, _node(world, compute)):
        return False
    return gates_of(compute, _others(world, compute), settled_parts(world, store)).first is None


def _made(world: World, compute: Compute, code: str) -> ServiceChildren | None:
    """What a service's children have to be; `None` for one that cannot be made, whose status says so."""
    store = store_of(world, compute.namespace, compute.spec.store_ref.name)
    if store is None:
        return None
    addresses = [meta_address(meta, compute.namespace) for meta in stores_metas(compute, _others(world, compute))]
    try:
        return service_manifests(compute, store, addresses, world.defaults, code)
    except InvalidResource:
        return None


def _standing(world: World, name: str, compute: Compute) -> Standing:
    changing = is_restarting(_node(world, compute), compute.status, world.now()) and not compute.spec.suspend
    return Standing(name, changing, not is_degraded(compute.status))


def _node(world: World, compute: Compute) -> Manifest | None:
    return world.seen.get("StatefulSet", compute.namespace, service_name(compute.name))


def _others(world: World, compute: Compute) -> dict[Ref, Manifest]:
    return world.refs(compute.namespace, "StateStore", "Meta", "Compactor")


def _parsed(body: Manifest) -> Compute | None:
    try:
        found = parse_compute(body)
    except InvalidResource:
        return None  # its own status says so, and nothing of it is changed
    return found if found.is_service else None


def _name(compute: Compute) -> str:
    return f"{compute.namespace}/{compute.name}"
