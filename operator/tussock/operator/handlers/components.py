"""The controllers of `Meta` and `Compactor`."""

from tussock.operator.cluster.seen import key_of
from tussock.operator.handlers.clients.admissions import declarations_of
from tussock.operator.handlers.inquiries import platform_fact
from tussock.operator.handlers.rollouts import StoreMetas, metas_of, store_of
from tussock.operator.handlers.turns import turn_of_compactors, turn_of_nodes
from tussock.operator.handlers.world import Controller, World
from tussock.operator.manifests.meta import meta_name
from tussock.operator.planning.compactor import CompactorFacts, plan_compactor
from tussock.operator.planning.meta import MetaFacts, plan_meta
from tussock.operator.planning.turns import NO_WAIT
from tussock.operator.planning.words.facts import PlatformFact
from tussock.operator.planning.words.model import Manifest, Observed, Ref
from tussock.operator.resources.compactor import Compactor, parse_compactor
from tussock.operator.resources.meta import Meta, parse_meta
from tussock.operator.resources.store import StoreResource

__all__ = ["COMPACTOR", "META"]


def _observe_meta(world: World, meta: Meta, body: Manifest) -> Observed[MetaFacts]:
    store = store_of(world, meta.namespace, meta.spec.store_ref.name)
    children = world.seen.children(key_of(body))
    turn = turn_of_nodes(world, meta, store, children) if store is not None else NO_WAIT
    clients = tuple(declarations_of(world, store).entries.values()) if store is not None else ()
    facts = MetaFacts(store, world.defaults, _platform(world, store, meta.name), turn, clients)
    return Observed(facts, children, _others(world, meta.namespace, meta.spec.store_ref.name))


def _observe_compactor(world: World, compactor: Compactor, body: Manifest) -> Observed[CompactorFacts]:
    store = store_of(world, compactor.namespace, compactor.spec.store_ref.name)
    metas = metas_of(world, store) if store is not None else StoreMetas({}, "")
    platform = _platform(world, store, min(metas.settled)) if metas.settled else None
    children = world.seen.children(key_of(body))
    turn = turn_of_compactors(world, compactor, store, metas, children) if store is not None else NO_WAIT
    facts = CompactorFacts(store, world.defaults, metas.settled, platform, metas.templates, turn)
    return Observed(facts, children, _others(world, compactor.namespace, compactor.spec.store_ref.name))


def _platform(world: World, store: StoreResource | None, meta: str) -> PlatformFact | None:
    """What the meta nodes report; asked only while a node serves, since no other can answer."""
    if store is None or store.is_being_deleted:
        return None
    workload = world.seen.get("Deployment", store.namespace, meta_name(meta))
    if workload is None or not (workload.get("status") or {}).get("readyReplicas"):
        return None
    return platform_fact(world, store, meta)


def _others(world: World, namespace: str, store: str) -> dict[Ref, Manifest]:
    found = world.refs(namespace, "Secret")
    body = world.seen.get("StateStore", namespace, store)
    return {**found, Ref("StateStore", store): body} if body is not None else found


META = Controller(kind="Meta", parse=parse_meta, observe=_observe_meta, plan=plan_meta)
"""The controller of `Meta`."""
COMPACTOR = Controller(kind="Compactor", parse=parse_compactor, observe=_observe_compactor, plan=plan_compactor)
"""The controller of `Compactor`."""
