"""Foreign objects that have the names of children: none is changed, used or deleted, and the rest goes on."""

from typing import Any

import pytest

from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]

RBAC = "rbac.authorization.k8s.io/v1"
POD = {"containers": [{"name": "c", "image": "localhost/none"}]}
WEB = {"matchLabels": {"app": "web"}}


def workload(kind: str, name: str, **more: Any) -> Body:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": POD}
    return body("apps/v1", kind, name, spec={"selector": WEB, "template": template, **more})


def body(version: str, kind: str, name: str, **more: Any) -> Body:
    """A foreign object that has the name for other purposes."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"owner": "alice"}}, **more}


def claim(name: str) -> Body:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return body("v1", "PersistentVolumeClaim", name, spec=spec)


def service(name: str) -> Body:
    return body("v1", "Service", name, spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})


def make(shared: Objects, found: Body) -> Body:
    """Create the object; returns it as the API server has it."""
    shared.apply(found, "alice")
    return current(shared, found)


def current(shared: Objects, found: Body) -> Body:
    kept = shared.get(found["kind"], found["metadata"]["name"])
    assert kept is not None
    return kept


OF_META = {
    "Service": service,
    "ConfigMap": lambda name: body("v1", "ConfigMap", name, data={"mine": "1"}),
    "ServiceAccount": lambda name: body("v1", "ServiceAccount", name),
    "Deployment": lambda name: workload("Deployment", name, replicas=3),
    "PodDisruptionBudget": lambda name: body(
        "policy/v1", "PodDisruptionBudget", name, spec={"minAvailable": 1, "selector": WEB}
    ),
}
HELD_BY = {
    "ConfigMap": {"Deployment", "PodDisruptionBudget"},
    "ServiceAccount": {"Deployment", "PodDisruptionBudget"},
    "Deployment": {"PodDisruptionBudget"},
}
"""The children that would use the foreign object, and are therefore not made, and what says how these were made."""


@pytest.mark.parametrize("kind", OF_META)
def test_a_foreign_child_of_a_meta_is_left_alone(kind: str, store: Body, shared: Objects) -> None:
    """It stays as it is; the condition names it; the other children are made, but for those that would use it."""
    name = f"{store['metadata']['name']}-meta"
    before = make(shared, OF_META[kind](name))
    shared.apply(store)
    found = shared.await_reason("Meta", store["metadata"]["name"], "NameInUse")
    assert f"There is a {kind} {name} in namespace {shared.namespace}" in found["message"]
    assert shared.condition("Meta", store["metadata"]["name"], "Degraded")["status"] == "True"
    for other in OF_META.keys() - {kind} - HELD_BY.get(kind, set()):
        eventually(f"{other} {name}", lambda other=other: shared.get(other, name))
    for other in HELD_BY.get(kind, ()):
        assert shared.get(other, name) is None
    shared.delete("StateStore", store["metadata"]["name"])
    eventually("the store gone", lambda: shared.get("StateStore", store["metadata"]["name"]) is None)
    assert current(shared, before) == before


def test_the_operator_continues_once_the_name_is_free(store: Body, shared: Objects) -> None:
    name = store["metadata"]["name"]
    shared.apply(service(f"{name}-meta"))
    shared.apply(store)
    shared.await_reason("StateStore", name, "NameInUse")
    shared.delete("Service", f"{name}-meta")
    eventually("the Service", lambda: owners(shared, "Service", f"{name}-meta") == [name])
    serving(shared, store)


def test_a_foreign_object_is_handed_over_by_its_labels(store: Body, shared: Objects) -> None:
    """The message says which labels."""
    name = store["metadata"]["name"]
    shared.apply(OF_META["ConfigMap"](f"{name}-meta"))
    shared.apply(store)
    message = shared.await_reason("Meta", name, "NameInUse")["message"]
    words = message.rpartition("label it ")[2].rstrip(".").split()
    labels = dict(word.split("=") for word in words)
    shared.patch("ConfigMap", f"{name}-meta", {"metadata": {"labels": labels}})
    eventually("its owner", lambda: owners(shared, "ConfigMap", f"{name}-meta") == [name])


def owners(shared: Objects, kind: str, name: str) -> list[str]:
    found = shared.get(kind, name) or {"metadata": {}}
    return [reference["name"] for reference in found["metadata"].get("ownerReferences", ())]


def test_a_child_that_lost_its_labels_is_still_a_child(store: Body, shared: Objects) -> None:
    """The owner reference identifies it."""
    name = serving(shared, store)
    before = (shared.get("ConfigMap", f"{name}-meta") or {})["metadata"]
    shared.patch("ConfigMap", f"{name}-meta", {"metadata": {"labels": dict.fromkeys(before["labels"])}})

    def is_back() -> bool:
        return (shared.get("ConfigMap", f"{name}-meta") or {})["metadata"].get("labels") == before["labels"]

    eventually("its labels", is_back)
    assert (shared.get("ConfigMap", f"{name}-meta") or {})["metadata"]["uid"] == before["uid"]
    assert shared.ready("StateStore", name)["reason"] == "Ready"


@pytest.mark.parametrize("secret", ["ca", "meta-tls", "client-reader-tls"])
def test_a_foreign_secret_is_neither_read_nor_written(secret: str, store: Body, shared: Objects) -> None:
    """No certificate is issued, so nothing starts; the deletion of the store leaves the secret."""
    name = store["metadata"]["name"]
    keys = {"tls.key": "alice's own", "note": "keep"}
    before = make(shared, body("v1", "Secret", f"{name}-{secret}", stringData=keys))
    store["spec"]["tls"] = {}
    shared.apply(store)
    assert f"Secret {name}-{secret}" in shared.await_reason("StateStore", name, "NameInUse")["message"]
    eventually("other children", lambda: shared.get("NetworkPolicy", f"{name}-meta"))
    assert shared.get("Meta", name) is None
    assert "alice's own" not in str([shared.get("StateStore", name), shared.events(name)])
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert current(shared, before) == before


OF_MINIO = {
    "Secret": lambda name: body("v1", "Secret", name, stringData={"root-user": "admin", "root-password": "alice"}),
    "PersistentVolumeClaim": claim,
    "Service": service,
    "StatefulSet": lambda name: workload("StatefulSet", name, serviceName=name),
}


@pytest.mark.parametrize("kind", OF_MINIO)
def test_a_foreign_minio_is_left_alone(kind: str, name: str, shared: Objects) -> None:
    """The names are those of a well-known chart. The operator starts no server on a foreign disk or password."""
    before = make(shared, OF_MINIO[kind](f"{name}-minio"))
    spec = {"objectStore": {"managed": {}}, "deletionPolicy": "Delete", "tls": {"mode": "none"}, "meta": {}}
    shared.apply(body("tussock.dev/v1alpha1", "StateStore", name, spec=spec))
    assert f"{kind} {name}-minio" in shared.await_reason("StateStore", name, "NameInUse")["message"]
    if kind != "Service":
        eventually("the Service", lambda: owners(shared, "Service", f"{name}-minio") == [name])
    if kind == "Service":
        eventually("the server", lambda: owners(shared, "StatefulSet", f"{name}-minio") == [name])
    elif kind != "StatefulSet":
        assert shared.get("StatefulSet", f"{name}-minio") is None
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert current(shared, before) == before


def test_no_node_mounts_a_foreign_volume(name: str, shared: Objects) -> None:
    """A claim with the name of a store's volume: with `Delete` it would even go with the store."""
    before = make(shared, claim(f"{name}-store"))
    volume = {"objectStore": {"volume": {"size": "1Gi"}}, "deletionPolicy": "Delete"}
    spec = {**volume, "tls": {"mode": "none"}, "meta": {}}
    shared.apply(body("tussock.dev/v1alpha1", "StateStore", name, spec=spec))
    found = shared.await_reason("StateStore", name, "NameInUse")
    assert f"PersistentVolumeClaim {name}-store" in found["message"]
    eventually("other children", lambda: shared.get("NetworkPolicy", f"{name}-meta"))
    assert shared.get("Meta", name) is None
    shared.delete("StateStore", name)
    eventually("the store gone", lambda: shared.get("StateStore", name) is None)
    assert current(shared, before) == before


OF_JOB = {
    "Pod": lambda name: body("v1", "Pod", name, spec=POD),
    "Role": lambda name: body(RBAC, "Role", name, rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    "RoleBinding": lambda name: body(
        RBAC,
        "RoleBinding",
        name,
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "alices"},
        subjects=[{"kind": "ServiceAccount", "name": "alice"}],
    ),
    "ServiceAccount": lambda name: body("v1", "ServiceAccount", name),
    "ConfigMap": lambda name: body("v1", "ConfigMap", name, data={"mine": "1"}),
    "NetworkPolicy": lambda name: body(
        "networking.k8s.io/v1", "NetworkPolicy", name, spec={"podSelector": WEB, "policyTypes": ["Ingress"]}
    ),
    "Service": service,
}


@pytest.mark.parametrize("kind", OF_JOB)
def test_a_foreign_child_of_a_job_is_left_alone(kind: str, store: Body, shared: Objects) -> None:
    """No account gets rights from a foreign Role, and no foreign account gets the driver's."""
    job = f"{store['metadata']['name']}-job"
    before = make(shared, OF_JOB[kind](f"{job}-driver"))
    serving(shared, store)
    spec = {"storeRef": {"name": store["metadata"]["name"]}, "application": {"file": "/opt/app.py"}}
    shared.apply(body("tussock.dev/v1alpha1", "Compute", job, spec={**spec, "image": "localhost/spark:1"}))
    assert f"{kind} {job}-driver" in shared.await_reason("Compute", job, "NameInUse")["message"]
    if kind in ("Role", "ServiceAccount"):
        assert shared.get("RoleBinding", f"{job}-driver") is None
    if kind in ("ServiceAccount", "ConfigMap"):
        assert shared.get("Pod", f"{job}-driver") is None
    shared.delete("Compute", job)
    eventually("the job gone", lambda: shared.get("Compute", job) is None)
    assert current(shared, before) == before


def test_a_users_meta_is_not_taken_over(store: Body, shared: Objects) -> None:
    """A store with a section for one of the same name reports it, and serves."""
    name = store["metadata"]["name"]
    own = {"apiVersion": "tussock.dev/v1alpha1", "kind": "Meta", "metadata": {"name": name}}
    shared.apply({**own, "spec": {"storeRef": {"name": name}, "replicas": 3}}, "alice")
    shared.apply(store)
    assert f"Meta {name}" in shared.await_reason("StateStore", name, "NameInUse")["message"]
    found = shared.get("Meta", name)
    assert found is not None
    assert (found["spec"]["replicas"], owners(shared, "Meta", name)) == (3, [])
    shared.delete("Meta", name)


def test_a_field_that_is_no_longer_set_is_removed_from_a_child(store: Body, shared: Objects) -> None:
    """An object is made by another request than it is changed by; the server counts both as one manager's fields."""
    store["spec"]["meta"]["podTemplate"] = {"spec": {"nodeSelector": {"disk": "fast"}}}
    name = serving(shared, store)
    managers = (shared.get("Deployment", f"{name}-meta") or {})["metadata"]["managedFields"]
    ours = [entry["operation"] for entry in managers if entry["manager"] == "tussock-operator"]
    assert ours == ["Apply"]
    store["spec"]["meta"] = {"replicas": 2}
    shared.apply(store)

    def selector() -> Any:
        return (shared.get("Deployment", f"{name}-meta") or {})["spec"]["template"]["spec"].get("nodeSelector")

    eventually("no selector", lambda: selector() is None)
