"""Which parts of a store have rolled out, for those that wait for them: compactors, jobs, and the turns of others."""

from collections.abc import Iterator, Mapping

from tussock.operator.handlers.world import World
from tussock.operator.manifests.compactor import compactor_manifests, compactor_name
from tussock.operator.manifests.meta import meta_address, meta_manifests, meta_name
from tussock.operator.planning.words.components import is_settled
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.common import InvalidResource
from tussock.operator.resources.compactor import Compactor, parse_compactor
from tussock.operator.resources.meta import parse_meta
from tussock.operator.resources.store import StoreResource, parse_store

__all__ = ["settled_metas", "settled_parts", "store_of", "wanted_compactors"]


def store_of(world: World, namespace: str, name: str) -> StoreResource | None:
    """The store of that name; `None` if there is none, or if it is invalid."""
    body = world.seen.get("StateStore", namespace, name)
    try:
        return parse_store(body) if body is not None else None
    except InvalidResource:
        return None


def settled_metas(world: World, store: StoreResource) -> dict[str, bool]:
    """The names of a store's `Meta` objects, and whether each has rolled out its current spec."""
    found = {}
    for body in world.seen.all_of("Meta", store.namespace):
        try:
            meta = parse_meta(body)
            if meta.spec.store_ref.name != store.name:
                continue
            wanted = meta_manifests(meta, store, world.defaults).manifests
        except InvalidResource:
            continue
        name = meta_name(meta.name)
        workload = next(manifest for manifest in wanted if manifest["kind"] == "Deployment")
        found[meta.name] = is_settled(workload, world.seen.get("Deployment", store.namespace, name), world.now())
    return found


def settled_parts(world: World, store: StoreResource) -> dict[Ref, bool]:
    """Whether the workload of each Meta and Compactor of a store matches its spec and has rolled out."""
    metas = settled_metas(world, store)
    found = {Ref("Meta", name): done for name, done in metas.items()}
    for compactor, workload in wanted_compactors(world, store, metas):
        child = world.seen.get("Deployment", store.namespace, compactor_name(compactor.name))
        found[Ref("Compactor", compactor.name)] = is_settled(workload, child, world.now())
    return found


def wanted_compactors(
    world: World, store: StoreResource, metas: Mapping[str, bool]
) -> Iterator[tuple[Compactor, Manifest]]:
    """The `Compactor` objects of a store and the Deployments that they ask for; `metas` has the names of its Metas."""
    addresses = [meta_address(meta, store.namespace) for meta in sorted(metas)]
    for body in world.seen.all_of("Compactor", store.namespace):
        try:
            compactor = parse_compactor(body)
            if compactor.spec.store_ref.name != store.name:
                continue
            wanted = compactor_manifests(compactor, store, addresses, world.defaults).manifests
        except InvalidResource:
            continue  # its own status says so, and it compacts nothing
        yield compactor, next(manifest for manifest in wanted if manifest["kind"] == "Deployment")
