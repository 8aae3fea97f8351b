"""An upgrade of the operator changes a few stores at a time; changes by users wait for no turn."""

from typing import Any

import pytest
from msgspec.structs import replace

from support.operator.resources import DEFAULTS, store_with
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.planning.turns import StoreTurn, is_asked_by_operator, is_changing, predecessors
from tussock.operator.planning.words.comparison import mark
from tussock.operator.planning.words.model import Manifest, Ref, ref_of
from tussock.operator.resources.meta import parse_meta


def store(name: str, *, pending: bool = False, changing: bool = False, well: bool = True) -> StoreTurn:
    return StoreTurn(name, pending, changing, well)


WAITING = [store(f"ns/{name}", pending=True) for name in "cab"]


@pytest.mark.parametrize(
    ("stores", "parallel", "turn"),
    [
        (WAITING, 1, ["ns/a"]),
        (WAITING, 2, ["ns/a", "ns/b"]),
        (WAITING, 9, ["ns/a", "ns/b", "ns/c"]),
        ([*WAITING, store("ns/0", changing=True)], 1, []),
        ([*WAITING, store("ns/0", changing=True)], 2, ["ns/a"]),
        ([*WAITING, store("ns/0", pending=True, well=False)], 1, ["ns/a"]),
        ([store("ns/a", pending=True, well=False), store("ns/b", well=False)], 1, ["ns/a"]),
        ([store("ns/a", pending=True), store("ns/b")], 1, ["ns/a"]),
        ([store("ns/a", pending=True, changing=True), store("ns/b", pending=True)], 1, ["ns/a"]),
    ],
    ids=["one", "two", "all", "busy", "busy of two", "ill last", "ill alone", "others done", "its second Meta"],
)
def test_a_bounded_number_of_stores_is_changed_at_a_time(
    stores: list[StoreTurn], parallel: int, turn: list[str]
) -> None:
    waiting = [one.name for one in stores if one.pending]
    assert sorted(name for name in waiting if not predecessors(name, stores, parallel)) == turn


def test_each_store_has_its_turn_within_the_bound() -> None:
    """In any order of the passes; the waiting store reports which one it waits for."""
    stores = {f"ns/{number}": store(f"ns/{number}", pending=True) for number in range(5)}
    done: list[str] = []
    while any(one.pending or one.changing for one in stores.values()):
        for name in reversed(list(stores)):
            if stores[name].pending and not predecessors(name, list(stores.values()), 2):
                stores[name] = store(name, changing=True)
        changing = [name for name, one in stores.items() if one.changing]
        assert 1 <= len(changing) <= 2
        done.append(changing[0])
        stores[changing[0]] = store(changing[0])
    assert done == sorted(stores)
    assert predecessors("ns/b", [store("ns/a", pending=True), store("ns/b", pending=True)], 1) == ("ns/a",)


META = parse_meta(
    {"metadata": {"name": "shop", "namespace": "data", "generation": 1}, "spec": {"storeRef": {"name": "shop"}}}
)
STORE = store_with({"managed": {}})


def make_nodes(image: str, generation: int = 1, **edited: Any) -> dict[Ref, Manifest]:
    """The objects of nodes that were made with that image."""
    store = replace(STORE, metadata=replace(STORE.metadata, generation=generation))
    manifests = meta_manifests(META, store, DEFAULTS._replace(node_image=image)).manifests
    found = {ref_of(one): mark(one) for one in manifests}
    found[Ref("Deployment", "shop-meta")] |= edited
    return found


def test_only_changes_by_the_upgrade_wait() -> None:
    """Another image by the operator's settings waits; a change of a spec, a manual edit and the first start do not."""
    wanted = meta_manifests(META, STORE, DEFAULTS).manifests
    generation = STORE.metadata.generation
    assert is_asked_by_operator(wanted, make_nodes("former", generation))
    assert not is_asked_by_operator(wanted, make_nodes(DEFAULTS.node_image, generation))
    assert not is_asked_by_operator(wanted, make_nodes("former", generation + 1))
    assert not is_asked_by_operator(wanted, make_nodes(DEFAULTS.node_image, generation, spec={"replicas": 0}))
    assert not is_asked_by_operator(wanted, {})
    earlier = make_nodes("former", generation)
    earlier[Ref("ConfigMap", "shop-meta")]["metadata"].pop("annotations")
    assert is_asked_by_operator(wanted, earlier)


@pytest.mark.parametrize(
    ("status", "changing"),
    [
        ({}, False),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 1}, True),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2}, True),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}, False),
        (
            {
                "observedGeneration": 2,
                "replicas": 3,
                "updatedReplicas": 1,
                "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
            },
            False,
        ),
    ],
    ids=["unseen", "just applied", "begun", "old pod left", "crashes by itself", "stalled"],
)
def test_a_change_without_progress_blocks_no_other(status: dict[str, Any], changing: bool) -> None:
    workload = {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}
    assert is_changing(workload) is changing
