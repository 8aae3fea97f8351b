"""Which parts of a store have rolled out, for those that wait for them: compactors, jobs, and the turns of others."""

from collections.abc import Iterator
from typing import NamedTuple

from tussock.operator.handlers.world import World
from tussock.operator.manifests.compactor import compactor_manifests, compactor_name
from tussock.operator.manifests.meta import meta_address, meta_manifests, meta_name
from tussock.operator.planning.words.approvals import approved_nodes
from tussock.operator.planning.words.comparison import digest
from tussock.operator.planning.words.components import is_settled
from tussock.operator.planning.words.model import Manifest, Ref, workload_in
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compactor import Compactor, parse_compactor
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["StoreMetas", "metas_of", "settled_parts", "store_of", "wanted_by", "wanted_compactors"]


def store_of(world: World, namespace: str, name: str) -> StoreResource | None:
    """The store of that name; `None` if there is none, or if it is invalid."""
    body = world.seen.get("StateStore", namespace, name)
    try:
        return parse_store(body) if body is not None else None
    except InvalidResource:
        return None


class StoreMetas(NamedTuple):
    """The `Meta` objects of a store."""

    settled: dict[str, bool]
    """Their names, and whether each has rolled out its current spec."""
    templates: str
    """A digest of all that their pods are to be made from."""
    workloads: tuple[Manifest, ...] = ()
    """The Deployments that they ask for."""


def metas_of(world: World, store: StoreResource) -> StoreMetas:
    """The `Meta` objects of a store; those that are invalid have no nodes, and their own status says so."""
    settled, workloads = {}, {}
    for body in world.seen.all_of("Meta", store.namespace):
        try:
            meta = parse_meta(body)
            if meta.spec.store_ref.name != store.name:
                continue
            name = meta_name(meta.name)
            running = world.seen.get("Deployment", store.namespace, name)
            note = world.seen.get("PodDisruptionBudget", store.namespace, name)
            meta, _ = approved_nodes(meta, store, world.defaults, running, note)
            wanted = meta_manifests(meta, store, world.defaults).manifests
        except InvalidResource:
            continue
        workload = workloads[meta.name] = workload_in(wanted)
        settled[meta.name] = is_settled(workload, running, world.now())
    templates = digest({name: workload["spec"]["template"] for name, workload in workloads.items()})
    return StoreMetas(settled, templates, tuple(workloads.values()))


def settled_parts(world: World, store: StoreResource) -> dict[Ref, bool]:
    """Whether the workload of each Meta and Compactor of a store matches its spec and has rolled out."""
    metas = metas_of(world, store)
    found = {Ref("Meta", name): done for name, done in metas.settled.items()}
    for compactor, workload in wanted_compactors(world, store, metas):
        child = world.seen.get("Deployment", store.namespace, compactor_name(compactor.name))
        found[Ref("Compactor", compactor.name)] = is_settled(workload, child, world.now())
    return found


def wanted_compactors(world: World, store: StoreResource, metas: StoreMetas) -> Iterator[tuple[Compactor, Manifest]]:
    """The `Compactor` objects of a store with these Metas, and the Deployments that they ask for."""
    for body in world.seen.all_of("Compactor", store.namespace):
        try:
            compactor = parse_compactor(body)
            if compactor.spec.store_ref.name != store.name:
                continue
            wanted = wanted_by(world, compactor, store, metas)
        except InvalidResource:
            continue  # its own status says so, and it compacts nothing
        yield compactor, workload_in(wanted)


def wanted_by(world: World, compactor: Compactor, store: StoreResource, metas: StoreMetas) -> tuple[Manifest, ...]:
    """The children that a `Compactor` asks for; raises `InvalidResource` if its spec and its store's do not fit."""
    name = compactor_name(compactor.name)
    running, note = (world.seen.get(kind, store.namespace, name) for kind in ("Deployment", "PodDisruptionBudget"))
    compactor, _ = approved_nodes(compactor, store, world.defaults, running, note)
    addresses = [meta_address(meta, store.namespace) for meta in sorted(metas.settled)]
    return compactor_manifests(compactor, store, addresses, world.defaults, metas.templates).manifests
