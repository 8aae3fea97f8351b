"""Lasting refusals of a real API server: each is reported, tried ever more rarely, and stops nothing else."""

import time
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = [pytest.mark.minio, pytest.mark.timeout(300)]

WATCHED_SECONDS = 8.0
WRITES_MAX = 12
"""Within the time watched: ever rarer tries of what is refused, and no write that follows from them."""

CHANGING_SECONDS = 5.0
"""Several passes over a refused change: the first pauses are of 2 and 4 seconds."""


@pytest.fixture
def own(objects: Objects, tmp_path: Path) -> Objects:
    """A namespace with a separate operator, whose every write is one for the test's store."""
    process = OperatorProcess(objects.kubeconfig, tmp_path, objects.namespace, lease=objects.namespace)
    process.start()
    return objects


def quota(services: int) -> Body:
    """Set a namespace's quota of Services, with the status of its controller, which is missing here."""
    hard = {"services": str(services)}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": hard}}


def give_quota(objects: Objects, services: int) -> None:
    body = quota(services)
    objects.apply(body)
    hard = body["spec"]["hard"]
    objects.patch("ResourceQuota", "small", {"status": {"hard": hard, "used": {"services": "0"}}}, "status")


def at_rest(objects: Objects, name: str) -> set[tuple[str, str]]:
    """The reasons of store and Meta over some seconds, with next to no writes, and no event."""
    before, seen = writes_and_events(objects, name), set()
    until = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        seen.add((objects.ready("StateStore", name)["reason"], objects.ready("Meta", name)["reason"]))
        time.sleep(0.1)
    after = writes_and_events(objects, name)
    assert after[0] - before[0] <= WRITES_MAX
    assert after[1] == before[1]
    return seen


def writes_and_events(objects: Objects, name: str) -> tuple[int, int]:
    return len(objects.writes()), len(objects.events(name))


def test_a_quota_that_refuses_a_child_causes_few_writes(own: Objects, minio: MinioServer) -> None:
    """It is reported once, and tried again later and later.

    Story: Meta told of a Service that a quota refused; the store repeated it in its own status; Meta took that for an
    obstacle of the store and waited; the store then waited for Meta, so Meta tried again: 40 writes a second, and
    another reason at each look, for ever.
    """
    give_quota(own, 0)
    name = "s"
    own.apply(store_on(minio, own, name))
    said = own.await_reason("StateStore", name, "ApplyRefused")
    assert "exceeded quota" in said["message"]
    assert "ResourceQuota" in said["message"].rpartition("exceeded quota")[2], "the way out is the quota's"
    eventually("all of it but the Service", lambda: own.get("Deployment", f"{name}-meta"))
    assert at_rest(own, name) == {("ApplyRefused", "ApplyRefused")}
    own.delete("ResourceQuota", "small")
    eventually("the Service", lambda: own.get("Service", f"{name}-meta"))
    for workload in ("meta", "compactor"):
        own.serve("Deployment", f"{name}-{workload}")
    own.await_reason("StateStore", name, "Ready")


def test_a_foreign_object_that_cannot_be_changed_causes_few_writes(own: Objects, minio: MinioServer) -> None:
    """Its selector differs and cannot be changed: the server's message is reported, and not repeated."""
    labels = {"app": "of-somebody"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    own.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "s-meta"}, "spec": spec})
    own.apply(store_on(minio, own, "s"))
    eventually("a refusal", lambda: own.condition("Meta", "s", "Degraded").get("status") == "True")
    eventually("the store's word on it", lambda: own.condition("StateStore", "s", "Degraded").get("status") == "True")
    assert "s-meta" in own.ready("StateStore", "s")["message"]
    assert len(at_rest(own, "s")) == 1
    kept = own.get("Deployment", "s-meta")
    assert kept is not None
    assert kept["spec"]["selector"]["matchLabels"] == labels
    own.delete("Deployment", "s-meta")

    def is_ours() -> bool:
        found = own.get("Deployment", "s-meta")
        return found is not None and found["spec"]["selector"]["matchLabels"] != labels

    eventually("a Deployment of the operator", is_ours)


def test_a_webhook_that_does_not_answer_stops_nothing_else(own: Objects, minio: MinioServer) -> None:
    """Story: the server answers 500, which looked like an unavailable server: no condition, and no other child."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}
    webhook = {
        "name": "away.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": own.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    kind = "ValidatingWebhookConfiguration"
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": own.namespace}}
    own.apply({**body, "webhooks": [webhook]})
    own.apply(store_on(minio, own, "s"))
    said = own.await_reason("Meta", "s", "ApplyRefused")
    assert "away.example.org" in said["message"]
    assert "webhook of the cluster does not work" in said["message"]
    eventually("the Deployment", lambda: own.get("Deployment", "s-meta"))
    own.delete(kind, own.namespace)
    eventually("the Service", lambda: own.get("Service", "s-meta"))


@pytest.mark.parametrize("kind", ["Meta", "Compactor"])
def test_a_refused_change_is_told_while_another_store_changes(own: Objects, minio: MinioServer, kind: str) -> None:
    """The corrected one is made at once.

    Story: a pass later the change counted as an upgrade's; store and nodes were `Ready`, and it waited for its turn.
    """
    for name in "ab":
        serving(own, store_on(minio, own, name))
    own.patch("StateStore", "a", {"spec": {"meta": {"replicas": 3}}})
    eventually("a store that changes", lambda: (own.get("Deployment", "a-meta") or {})["spec"]["replicas"] == 3)

    def select(disk: str | int) -> None:
        pods = {"podTemplate": {"spec": {"nodeSelector": {"disk": disk}}}}
        own.patch("StateStore", "b", {"spec": {kind.lower(): pods}})

    select(5)
    own.await_reason(kind, "b", "ApplyRefused")
    until = time.monotonic() + CHANGING_SECONDS
    while time.monotonic() < until:
        assert own.ready(kind, "b")["reason"] == "ApplyRefused"
        time.sleep(0.1)
    select("5")
    workload = f"b-{kind.lower()}"

    def disk() -> str | None:
        pods = (own.get("Deployment", workload) or {})["spec"]["template"]["spec"]
        return (pods.get("nodeSelector") or {}).get("disk")

    eventually("the corrected change", lambda: disk() == "5")
    own.serve("Deployment", workload)
    own.await_reason(kind, "b", "Ready")


def on_volume(objects: Objects, name: str, storage_class: str) -> str:
    """A store on a claim of 1 GiB whose nodes serve; returns the name of the claim, which is bound."""
    volume = {"size": "1Gi", "storageClassName": storage_class}
    spec = {"objectStore": {"volume": volume}, "tls": {"mode": "none"}, "meta": {}, "compactor": {}}
    serving(
        objects,
        {"apiVersion": "tussock.dev/v1alpha1", "kind": "StateStore", "metadata": {"name": name}, "spec": spec},
    )
    [claim] = objects.list("PersistentVolumeClaim")
    bound = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    objects.patch("PersistentVolumeClaim", claim["metadata"]["name"], {"status": bound}, "status")
    return str(claim["metadata"]["name"])


def give_class(objects: Objects, *, grows: bool) -> str:
    name = f"{objects.namespace}-{'grows' if grows else 'fixed'}"
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
    objects.apply({**body, "provisioner": "example.org/none", "allowVolumeExpansion": grows})
    return name


def size_of(objects: Objects, claim: str) -> str:
    return str((objects.get("PersistentVolumeClaim", claim) or {})["spec"]["resources"]["requests"]["storage"])


def test_a_claim_that_a_user_enlarged_stays_large(own: Objects) -> None:
    """It grows when the spec asks for more.

    Story: it was applied again with its old size, which is refused for ever, and nothing after it was done: a policy
    that somebody had deleted stayed away, and more meta nodes never came.
    """
    claim = on_volume(own, "v", give_class(own, grows=True))
    own.patch("PersistentVolumeClaim", claim, {"spec": {"resources": {"requests": {"storage": "3Gi"}}}})
    own.delete("NetworkPolicy", "v-meta")
    own.patch("StateStore", "v", {"spec": {"meta": {"replicas": 3}}})
    eventually("the policy again", lambda: own.get("NetworkPolicy", "v-meta"))
    eventually("three meta nodes", lambda: (own.get("Deployment", "v-meta") or {})["spec"]["replicas"] == 3)
    own.serve("Deployment", "v-meta")
    own.await_reason("StateStore", "v", "Ready")
    assert size_of(own, claim) == "3Gi"
    own.patch("StateStore", "v", {"spec": {"objectStore": {"volume": {"size": "4Gi"}}}})
    eventually("a claim as large as the spec asks", lambda: size_of(own, claim) == "4Gi")


def test_a_claim_that_cannot_grow_stops_nothing_else(own: Objects) -> None:
    claim = on_volume(own, "v", give_class(own, grows=False))
    own.patch("StateStore", "v", {"spec": {"objectStore": {"volume": {"size": "2Gi"}}}})
    said = own.await_reason("StateStore", "v", "ApplyRefused")
    assert said["status"] == "True", "what serves goes on"
    assert "allowVolumeExpansion" in said["message"]
    assert size_of(own, claim) == "1Gi"
    own.patch("StateStore", "v", {"spec": {"meta": {"replicas": 3}}})
    eventually("three meta nodes", lambda: (own.get("Deployment", "v-meta") or {})["spec"]["replicas"] == 3)
