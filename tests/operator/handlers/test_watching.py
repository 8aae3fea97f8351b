"""Which events wake which resources; and that events that the watches missed are made up for."""

import asyncio
from typing import Any

import pytest

from support.operator.process import Objects
from tussock.operator.cluster.api import Api, connect
from tussock.operator.cluster.errors import ApiError
from tussock.operator.cluster.kinds import CHILDREN, KINDS, OURS, selectors_of
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.passes.sweep import Sweeper
from tussock.operator.handlers.passes.wakeups import concerned_keys, secrets_of
from tussock.operator.handlers.passes.watches import kopf_settings, watched_kinds
from tussock.operator.handlers.world import World
from tussock.operator.health import SILENCE_SECONDS, Health
from tussock.operator.manifests.settings import Defaults
from tussock.operator.metrics import OperatorMetrics
from tussock.operator.probes.cache import Probes
from tussock.statestore.base.system import RealSystem

STORE, META = Key("StateStore", "n", "s"), Key("Meta", "n", "m")
OURS_BY = {"app.kubernetes.io/managed-by": "tussock-operator"}
COMPACTOR, OTHER = Key("Compactor", "n", "c"), Key("StateStore", "n", "other")


def body(kind: str, name: str, spec: dict[str, Any] | None = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"}
    return {"kind": kind, "metadata": {**metadata, "labels": labels}, "spec": spec or {}}


@pytest.fixture
def seen() -> Seen:
    """The picture of a store with a meta and a compactor, and of another store with another secret."""
    found = Seen()
    bucket = {"objectStore": {"s3": {"credentialsSecret": {"name": "keys"}}}, "tls": {"secretName": "tls"}}
    found.put("StateStore", body("StateStore", "s", bucket))
    found.put("StateStore", body("StateStore", "other", {"objectStore": {"volume": {}}}))
    found.put("Meta", body("Meta", "m", {"storeRef": {"name": "s"}}))
    found.put("Compactor", body("Compactor", "c", {"storeRef": {"name": "s"}}))
    return found


CHANGES: dict[str, tuple[dict[str, Any], set[Key]]] = {
    "a store": (body("StateStore", "s"), {STORE, META, COMPACTOR}),
    "a part of it": (body("Meta", "m", {"storeRef": {"name": "s"}}), {STORE, META, COMPACTOR}),
    "a part that is new": (
        body("Meta", "x", {"storeRef": {"name": "s"}}),
        {Key("Meta", "n", "x"), STORE, META, COMPACTOR},
    ),
    "a child": (
        body("Deployment", "m-meta", **OURS_BY, **{"tussock.dev/owner-kind": "Meta", "tussock.dev/owner": "m"}),
        {META},
    ),
    "the bucket's secret": (body("Secret", "keys"), {STORE, META, COMPACTOR}),
    "the certificate's secret": (body("Secret", "tls"), {STORE, META, COMPACTOR}),
    "a secret of the operator's own": (
        body("Secret", "s-ca", **OURS_BY, **{"tussock.dev/owner-kind": "StateStore", "tussock.dev/owner": "s"}),
        {STORE, META, COMPACTOR},
    ),
    "a secret of nobody's": (body("Secret", "unknown"), set()),
    "an object of nobody's": (body("Service", "x"), set()),
}


@pytest.mark.parametrize(("changed", "woken"), CHANGES.values(), ids=CHANGES)
def test_a_change_wakes_the_resources_that_it_concerns(changed: dict[str, Any], woken: set[Key], seen: Seen) -> None:
    assert concerned_keys(seen, changed["kind"], changed) == woken


def test_a_store_and_a_client_of_another_namespace_wake_each_other(seen: Seen) -> None:
    """A store of the same name beside the client is not concerned."""
    far = body("StateStoreClient", "x", {"storeRef": {"name": "s", "namespace": "n"}})
    far["metadata"]["namespace"] = "far"
    beside = body("StateStore", "s")
    beside["metadata"] |= {"namespace": "far", "uid": "beside"}
    for one in (far, beside):
        seen.put(one["kind"], one)
    all_of_it = {STORE, META, COMPACTOR, Key("StateStoreClient", "far", "x")}
    assert concerned_keys(seen, "StateStore", body("StateStore", "s")) == all_of_it
    assert concerned_keys(seen, "StateStoreClient", far) == all_of_it
    assert concerned_keys(seen, "StateStore", beside) == {Key("StateStore", "far", "s")}


def test_secrets_are_found_wherever_a_spec_names_them() -> None:
    spec = {
        "objectStore": {"gcs": {"credentialsSecret": {"name": "a", "key": "k"}}},
        "tls": {"secretName": "b"},
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "c", "key": "k"}}}],
        "podTemplate": {"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "d"}}]}]}},
    }
    assert secrets_of(spec) == {"a", "b", "c", "d"}


def test_children_are_watched_by_label() -> None:
    """The server filters, so that a big cluster costs no more than a small one; of secrets all but Helm's."""
    kinds = watched_kinds(certificates=True)
    settings = kopf_settings(kinds, clusterwide=True)
    selectors = {selector.any_name: value for selector, value in settings.watching.label_selectors.items()}
    assert selectors == {KINDS[name].plural: OURS for name in [*CHILDREN, "Certificate"]}
    fields = {selector.any_name: value for selector, value in settings.watching.field_selectors.items()}
    assert fields == {"secrets": "type!=helm.sh/release.v1"}
    assert settings.watching.chunk_size
    assert "Certificate" not in watched_kinds(certificates=False)


class Clock(RealSystem):
    """A machine whose clock a test moves."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_a_process_is_healthy_while_its_loops_turn() -> None:
    clock = Clock()
    health = Health(clock)
    clock.seconds = SILENCE_SECONDS - 1
    assert health.problem() == ""
    clock.seconds = SILENCE_SECONDS + 1
    assert "leader election" in health.problem()
    health.beat()
    assert health.problem() == ""
    health.fail("the watch of Pod objects is dead")
    health.beat()
    assert "Pod" in health.problem()


def world_of(api: Api, woken: list[Key]) -> World:
    """An operator's picture of the cluster before any event."""
    return World(
        api=api,
        seen=Seen(),
        probes=Probes(woken.append),
        wake=woken.append,
        system=RealSystem(),
        metrics=OperatorMetrics(),
        identity="test",
        has_cert_manager=False,
        defaults=Defaults(),
    )


def test_a_sweep_lists_only_watched_objects(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases of Helm are neither watched nor swept.

    Story: the sweep listed what no watch tells of, such as other people's certificates, found that it had not been
    told, and had the process begin anew every ten minutes.
    """
    helm = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "release"}, "type": "helm.sh/release.v1"}
    objects.apply(helm)
    objects.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}})
    objects.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-somebody"}})
    monkeypatch.setenv("KUBECONFIG", str(objects.kubeconfig))

    async def sweep() -> str:
        async with await connect() as api:
            [listed] = await api.list_metadata("Secret", objects.namespace, *selectors_of("Secret"))
            assert listed["metadata"]["name"] == "keys"
            world = world_of(api, [])
            world.seen.put("Secret", await api.get("Secret", objects.namespace, "keys"))
            health = Health(world.system)
            sweeper = Sweeper(world, watched_kinds(certificates=False), [objects.namespace], health)
            for _ in range(2):
                for kind in ("Secret", "ConfigMap"):
                    await sweeper.sweep(kind, objects.namespace)
            return health.problem()

    assert asyncio.run(sweep()) == ""


def test_sweeps_and_watches_cover_the_same_objects() -> None:
    for kind in watched_kinds(certificates=True):
        place = KINDS[kind].plural
        settings = kopf_settings(watched_kinds(certificates=True), clusterwide=True).watching
        labels = {selector.any_name: value for selector, value in settings.label_selectors.items()}
        fields = {selector.any_name: value for selector, value in settings.field_selectors.items()}
        assert selectors_of(kind) == (labels.get(place, ""), fields.get(place, ""))


def test_a_long_list_comes_in_parts(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        objects.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}})
    monkeypatch.setenv("KUBECONFIG", str(objects.kubeconfig))

    async def names() -> list[str]:
        async with await connect(listed_at_once=2) as api:
            listed = await api.list_metadata("ConfigMap", objects.namespace, "")
            return [body["metadata"]["name"] for body in listed]

    assert [name for name in asyncio.run(names()) if name.startswith("c")] == ["c0", "c1", "c2", "c3", "c4"]


def test_a_sweep_finds_events_that_watches_missed(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreported deletion wakes the owner; a change that is missed twice ends the process."""
    space = objects.namespace
    labels = {
        "app.kubernetes.io/managed-by": "tussock-operator",
        "tussock.dev/owner-kind": "Meta",
        "tussock.dev/owner": "m",
    }
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "labels": labels}}
    there = objects.apply(manifest)
    gone = {"metadata": {**there["metadata"], "name": "gone", "uid": "gone"}}
    monkeypatch.setenv("KUBECONFIG", str(objects.kubeconfig))
    woken: list[Key] = []

    async def sweep() -> tuple[str, str]:
        async with await connect() as api:
            world = world_of(api, woken)
            health = Health(world.system)
            sweeper = Sweeper(world, {"ConfigMap": KINDS["ConfigMap"]}, [space], health)
            for known in (there, gone):
                world.seen.put("ConfigMap", known)
            await sweeper.sweep("ConfigMap", space)
            assert woken == [Key("Meta", space, "m")]
            assert world.seen.get("ConfigMap", space, "gone") is None
            assert world.seen.get("ConfigMap", space, "there") is not None
            objects.patch("ConfigMap", "there", {"data": {"a": "b"}})
            await sweeper.sweep("ConfigMap", space)
            once = health.problem()
            await sweeper.sweep("ConfigMap", space)
            return once, health.problem()

    once, twice = asyncio.run(sweep())
    assert once == ""
    assert "watch of ConfigMap" in twice


def test_a_failed_request_says_what_failed(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verb and object, and the server's own words; but not the values of a refused secret."""
    monkeypatch.setenv("KUBECONFIG", str(objects.kubeconfig))
    bad: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "x"},
        "type": "kubernetes.io/dockerconfigjson",
    }
    bad["stringData"] = {".dockerconfigjson": "not-json-but-secret"}

    async def texts() -> list[str]:
        found = []
        async with await connect() as api:
            for work in (
                api.get("Pod", objects.namespace, "nobody"),
                api.apply(bad, objects.namespace),
                api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}, objects.namespace),
            ):
                with pytest.raises(ApiError) as error:
                    await work
                found.append(f"{type(error.value).__name__}: {error.value}")
        return found

    missing, secret, pod = asyncio.run(texts())
    assert missing.startswith(f"ApiNotFound: get Pod {objects.namespace}/nobody: 404")
    assert secret.startswith(f"ApiRefused: apply Secret {objects.namespace}/x")
    assert "not-json" not in secret
    assert "spec.containers" in pod
