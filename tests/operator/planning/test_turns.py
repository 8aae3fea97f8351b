"""An upgrade of the operator changes a few stores at a time; changes by users wait for no turn."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from support.operator.resources import DEFAULTS, store_with
from tussock.operator.cluster.seen import Seen
from tussock.operator.handlers.turns import turn_of_server
from tussock.operator.handlers.world import World
from tussock.operator.manifests.bucket_access import managed_name
from tussock.operator.manifests.compactor import compactor_manifests
from tussock.operator.manifests.labels import STORE_GENERATION, STORE_LABEL
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.store import store_manifests
from tussock.operator.planning.turns import (
    PROGRESS_SECONDS,
    UPGRADED,
    Standing,
    UpgradeTurn,
    is_asked_by_operator,
    is_changing,
    is_restarting,
    predecessors,
)
from tussock.operator.planning.words.comparison import APPLIED, mark
from tussock.operator.planning.words.model import Manifest, Ref, ref_of
from tussock.operator.resources.compactor import parse_compactor
from tussock.operator.resources.meta import parse_meta


class Case(NamedTuple):
    """A store, and whether a change of it is due."""

    standing: Standing
    pending: bool

    @property
    def name(self) -> str:
        return self.standing.name


def store(name: str, *, pending: bool = False, changing: bool = False, well: bool = True) -> Case:
    return Case(Standing(name, changing, well), pending)


def before_one(mine: str, stores: Iterable[Case], parallel: int) -> tuple[str, ...]:
    pending = {one.name: one.pending for one in stores}
    return predecessors(mine, [one.standing for one in stores], pending.__getitem__, parallel)


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
        ([store("ns/a", changing=True), store("ns/b", pending=True, changing=True)], 1, []),
        ([store("ns/a", changing=True), store("ns/b", pending=True, changing=True)], 2, ["ns/b"]),
    ],
    ids=[
        "one",
        "two",
        "all",
        "busy",
        "busy of two",
        "ill last",
        "ill alone",
        "others done",
        "its second Meta",
        "scaled",
        "scaled, of two",
    ],
)
def test_a_bounded_number_of_stores_is_changed_at_a_time(stores: list[Case], parallel: int, turn: list[str]) -> None:
    waiting = [one.name for one in stores if one.pending]
    assert sorted(name for name in waiting if not before_one(name, stores, parallel)) == turn


def test_each_store_has_its_turn_within_the_bound() -> None:
    """In any order of the passes; the waiting store reports which one it waits for."""
    stores = {f"ns/{number}": store(f"ns/{number}", pending=True) for number in range(5)}
    done: list[str] = []
    while any(one.pending or one.standing.changing for one in stores.values()):
        for name in reversed(list(stores)):
            if stores[name].pending and not before_one(name, stores.values(), 2):
                stores[name] = store(name, changing=True)
        changing = [name for name, one in stores.items() if one.standing.changing]
        assert 1 <= len(changing) <= 2
        done.append(changing[0])
        stores[changing[0]] = store(changing[0])
    assert done == sorted(stores)
    assert before_one("ns/b", [store("ns/a", pending=True), store("ns/b", pending=True)], 1) == ("ns/a",)


def test_those_that_wait_ask_of_few_others() -> None:
    """Whether a change is due is costly to find out, and of a thousand that wait each asks every few seconds."""
    names = [f"ns/{number:03}" for number in range(1000)]
    asked: list[str] = []

    def has_to_change(name: str) -> bool:
        asked.append(name)
        return True

    standings = [Standing(name, changing=False, well=True) for name in names]
    assert predecessors(names[-1], standings, has_to_change, 1) == (names[-3], names[-2])
    standings[0] = Standing(names[0], changing=True, well=True)
    assert predecessors(names[-1], standings, has_to_change, 1) == (names[0], names[-2])
    assert asked == [names[-2], names[-3], names[-2]]


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
    earlier[Ref("PodDisruptionBudget", "shop-meta")]["metadata"].pop("annotations")
    assert is_asked_by_operator(wanted, earlier)


@pytest.mark.parametrize("kind", ["Meta", "Compactor"])
def test_nodes_wait_until_the_store_has_told_what_is_new_of_them(kind: str) -> None:
    """A new spec of a store is no reason to change them before: their part of it comes next, and they roll once."""

    def made(image: str, store: int, told: int) -> tuple[Manifest, ...]:
        of_store = replace(STORE, metadata=replace(STORE.metadata, generation=store))
        defaults = DEFAULTS._replace(node_image=image)
        body = {
            "metadata": {
                "name": "shop",
                "namespace": "data",
                "generation": told,
                "annotations": {STORE_GENERATION: str(told)},
            },
            "spec": {"storeRef": {"name": "shop"}},
        }
        if kind == "Meta":
            return meta_manifests(parse_meta(body), of_store, defaults).manifests
        return compactor_manifests(parse_compactor(body), of_store, ["shop-meta.data.svc:7370"], defaults, "").manifests

    there = {ref_of(one): mark(one) for one in made("former", store=1, told=1)}
    assert is_asked_by_operator(made("new", store=2, told=1), there)
    assert not is_asked_by_operator(made("new", store=2, told=2), there)


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


def server_of(name: str, image: str, version: str = "7", generation: int = 1) -> Manifest:
    """The StatefulSet of a managed object store, as an operator wants it."""
    store = store_with({"managed": {}}, name)
    store = replace(store, metadata=replace(store.metadata, generation=generation))
    made = store_manifests(store, [], DEFAULTS._replace(minio_image=image), version).manifests
    return next(one for one in made if one["kind"] == "StatefulSet")


def test_a_server_waits_only_for_changes_by_the_upgrade() -> None:
    """A new secret starts it anew at once, since nobody gets in with the former one; so does a changed spec."""
    wanted = server_of("shop", "next")
    ref = ref_of(wanted)
    assert is_asked_by_operator([wanted], {ref: mark(server_of("shop", "former"))})
    assert not is_asked_by_operator([wanted], {ref: mark(wanted)})
    assert not is_asked_by_operator([wanted], {ref: mark(server_of("shop", "former", version="6"))})
    assert not is_asked_by_operator([wanted], {ref: mark(server_of("shop", "former", generation=2))})
    assert not is_asked_by_operator([wanted], {})


NOW = datetime(2026, 11, 24, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "since", "restarting"),
    [
        ({}, 0, False),
        ({"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1}, 0, True),
        ({"observedGeneration": 2, "updatedReplicas": 0, "readyReplicas": 0}, 5, True),
        ({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 0}, 5, True),
        ({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 1}, 5, False),
        ({"observedGeneration": 2, "updatedReplicas": 1, "readyReplicas": 0}, PROGRESS_SECONDS + 1, False),
    ],
    ids=["unseen", "just applied", "stopped", "starts", "serves", "stalled"],
)
def test_a_server_without_progress_blocks_no_other(status: dict[str, Any], since: float, restarting: bool) -> None:
    """Nobody waits for a server that has not become ready for minutes."""
    began = (NOW - timedelta(seconds=since)).strftime("%Y-%m-%dT%H:%M:%SZ")
    held = {"type": "Progressing", "status": "True", "lastTransitionTime": began}
    workload = {"metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": status}
    assert is_restarting(workload, {"conditions": [held]}, NOW) is restarting


def cluster_of(servers: dict[str, Manifest]) -> World:
    """A cluster of stores with these servers; their secrets have version 7."""
    seen = Seen()
    for name, server in servers.items():
        place = {"name": name, "namespace": "data", "uid": f"uid-of-statestore-{name}", "generation": 1}
        body = {"kind": "StateStore", "metadata": place, "spec": {"objectStore": {"managed": {}}}}
        seen.put("StateStore", body)
        secret = managed_name(store_with({"managed": {}}, name))
        seen.put("Secret", {"metadata": {**place, "name": secret, "uid": f"{name}-s", "resourceVersion": "7"}})
        seen.put("StatefulSet", {**server, "metadata": {**server["metadata"], "uid": f"{name}-w"}})
    made: Any = World
    world: World = made(
        **dict.fromkeys(("api", "probes", "wake", "metrics", "identity")),
        seen=seen,
        system=Clock(),
        has_cert_manager=False,
        defaults=DEFAULTS._replace(minio_image="next"),
    )
    return world


class Clock:
    """It stands still."""

    def now_ms(self) -> int:
        return int(NOW.timestamp() * 1000)


NOT_READY = [{"type": type_, "status": "False", "reason": "RollingOut"} for type_ in ("Ready", "Degraded")]


def before(world: World, name: str) -> tuple[str, ...]:
    return turn(world, name).before


def turn(world: World, name: str) -> UpgradeTurn:
    children = {
        ref_of(one): one for one in world.seen.all_of("StatefulSet") if one["metadata"]["labels"][STORE_LABEL] == name
    }
    return turn_of_server(world, store_with({"managed": {}}, name), children)


def test_servers_of_managed_object_stores_take_turns() -> None:
    """Story: an upgrade with another image of MinIO stopped all managed stores of a cluster at once."""
    rolled = {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1}
    former = {name: mark(server_of(name, "former")) for name in "abc"}
    assert [before(cluster_of(former), name) for name in "abc"] == [(), ("data/a",), ("data/a", "data/b")]
    starts = {**mark(server_of("a", "next")), "status": {**rolled, "readyReplicas": 0}}
    assert [before(cluster_of({**former, "a": starts}), name) for name in "bc"] == [("data/a",), ("data/a", "data/b")]
    upgraded = dict(starts["metadata"]["annotations"])
    upgraded[UPGRADED] = upgraded[APPLIED]
    broken = {**starts, "metadata": {**starts["metadata"], "annotations": upgraded}}
    stopped = cluster_of({**former, "a": broken})
    body = stopped.seen.get("StateStore", "data", "a") or {}
    gone_on = [{"type": "Progressing", "status": "True", "lastTransitionTime": "2026-11-23T00:00:00Z"}]
    stopped.seen.put("StateStore", {**body, "status": {"conditions": [*gone_on, *NOT_READY]}})
    assert turn(stopped, "b").failed == turn(stopped, "c").failed == "data/a (RollingOut)"
    assert not turn(stopped, "a").waits
    serves = {**mark(server_of("a", "next")), "status": rolled}
    assert [before(cluster_of({**former, "a": serves}), name) for name in "abc"] == [(), (), ("data/b",)]
