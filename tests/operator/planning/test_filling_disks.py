"""The disk of a managed object store that fills: said before it is full, once, and over when it has room again."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tussock.operator.manifests.settings import Defaults
from tussock.operator.planning.store import StoreFacts, plan_store
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    conditions,
    problem_verdict,
    ready_verdict,
    transitions,
)
from tussock.operator.planning.words.facts import BucketFact
from tussock.operator.planning.words.model import Apply, Observed, Plan, Ref
from tussock.operator.resources.store import StoreResource, parse_store

NOW = datetime(2026, 11, 28, 9, tzinfo=UTC)
USABLE = BucketFact(None)
FACTS = StoreFacts(Defaults(minio_image="minio:1"), {"Meta": {}}, bucket=USABLE)
SERVES = ready_verdict("All 1 meta nodes serve.")


class World:
    """A store whose server is ready, and that has made its parts."""

    def __init__(self, meta: Verdict = SERVES, **spec: Any) -> None:
        metadata = {
            "name": "s",
            "namespace": "n",
            "uid": "1",
            "generation": 1,
            "creationTimestamp": "2026-11-28T08:00:00Z",
        }
        asked = {"objectStore": {"managed": {}}, "tls": {"mode": "none"}, **spec}
        self.store = parse_store({"metadata": metadata, "spec": asked, "status": {"prefixHeld": True}})
        body = {
            "kind": "Meta",
            "metadata": {"name": "s", "namespace": "n", "generation": 1},
            "spec": {"storeRef": {"name": "s"}},
        }
        body["status"] = {"observedGeneration": 1, "conditions": conditions((), meta, 1, NOW)}
        owner = [{"kind": "StateStore", "name": "s", "uid": "1"}]
        metadata = {"name": "s-minio", "resourceVersion": "7", "ownerReferences": owner}
        self.others = {
            Ref("Meta", "s"): body,
            Ref("Secret", "s-minio"): {"kind": "Secret", "metadata": metadata, "data": {}},
        }
        self.children: dict[Ref, Any] = {}
        for action in self.plan().actions:
            if isinstance(action, Apply):
                made = action.manifest
                numbers = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
                metadata = {**made["metadata"], "generation": 1}
                self.children[Ref(made["kind"], metadata["name"])] = {**made, "metadata": metadata, "status": numbers}

    def plan(self, used: int | None = None, bucket: BucketFact = USABLE) -> Plan:
        """A pass in which the server says how full its disk is."""
        facts = replace(FACTS, disk_used_percent=used, bucket=bucket)
        return plan_store(self.store, Observed(facts, self.children, self.others), NOW)

    def say(self, used: int | None) -> list[str]:
        """The reason afterwards, its conditions by their first letters, and the events."""
        before: StoreResource = self.store
        self.store = msgspec.structs.replace(before, status=self.plan(used).status)
        held = self.store.status["conditions"]
        events = transitions(before.status.get("conditions") or (), held)
        return [held[0]["reason"], "".join(one["status"][0] for one in held), *(one.type for one in events)]


def test_a_store_serves_on_and_says_that_its_disk_fills() -> None:
    """The warning names the claim, and what to do; it does not end by a few deleted objects."""
    world = World()
    world.say(10)
    assert [world.say(used) for used in (84, 85, 96, 84, 80, 79, 84)] == [
        ["Ready", "TFF"],
        ["VolumeFilling", "TFT", "Warning"],
        *[["VolumeFilling", "TFT"]] * 3,
        ["Ready", "TFF", "Normal"],
        ["Ready", "TFF"],
    ]
    assert world.store.status["diskUsedPercent"] == 84
    world.say(90)
    told = world.store.status["conditions"][0]["message"]
    for words in ("90 % full", "spec.objectStore.managed.size", "s-minio", "The store serves at"):
        assert words in told
    assert world.store.status["obstacle"] == "", "its parts and jobs start as ever"


def test_what_was_said_last_stays_while_the_server_does_not_answer() -> None:
    world = World()
    world.say(90)
    assert world.say(None) == ["VolumeFilling", "TFT"]
    assert world.store.status["diskUsedPercent"] == 90


@pytest.mark.parametrize("place", [{"managed": {"ephemeral": True}}, {"s3": {"bucket": "b", "region": "x"}}])
def test_only_a_disk_of_its_own_is_watched(place: dict[str, Any]) -> None:
    """An `emptyDir` is the node's disk, which the kubelet watches."""
    world = World(objectStore=place)
    assert world.say(99)[0] == "Ready"
    assert "diskUsedPercent" not in world.store.status


def test_a_problem_of_the_store_is_told_first() -> None:
    world = World(problem_verdict(Reason.CRASH_LOOPING, "Words.", serving=True))
    assert world.say(99)[0] == "CrashLooping"
    assert world.store.status["diskUsedPercent"] == 99


def test_a_full_disk_says_how_it_gets_more_room() -> None:
    """Only there: other buckets that refuse writes get room, or rights, from others."""
    full = BucketFact(Reason.BUCKET_NOT_WRITABLE, "The operator cannot write: it is full.", is_full=True)
    told = World().plan(100, full).status["conditions"][0]
    assert (told["reason"], told["status"]) == ("BucketNotWritable", "True")
    assert "spec.objectStore.managed.size" in told["message"]
    denied = full._replace(is_full=False)
    assert World().plan(100, denied).status["conditions"][0]["message"] == denied.message
    other = World(objectStore={"s3": {"bucket": "b", "region": "x"}})
    assert other.plan(None, full).status["conditions"][0]["message"] == full.message


def test_a_larger_size_reaches_the_claim_while_the_server_runs() -> None:
    world = World()
    managed = {"managed": {"size": "20Gi"}}
    grown = {
        "metadata": {"name": "s", "namespace": "n", "uid": "1"},
        "spec": {"objectStore": managed, "tls": {"mode": "none"}},
    }
    world.store = parse_store({**grown, "status": world.store.status})
    applied = {one.manifest["kind"]: one.manifest for one in world.plan(90).actions if isinstance(one, Apply)}
    assert applied["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"] == "20Gi"
    running = world.children[Ref("StatefulSet", "s-minio")]
    assert applied.get("StatefulSet", running)["spec"]["template"] == running["spec"]["template"]
