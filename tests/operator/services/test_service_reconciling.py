"""Services against a real API server, with a real operator.

There are no controllers and no kubelet, so the tests make the node's pod, and say what becomes of it.
"""

from typing import Any

import pytest
from kubernetes.dynamic.exceptions import ApiException

from support.operator.process import Body, Objects, OperatorProcess, eventually
from support.operator.services.service_pods import ServicePods, service_job
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.timeout(180)]

CHILDREN = ("StatefulSet", "Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy")
OF_WORKERS = ("Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy")


@pytest.fixture
def platform(store: Body, shared: Objects, operator: OperatorProcess) -> str:
    """A store whose nodes serve; its name."""
    return serving(shared, store)


def environment(template: Body) -> dict[str, Any]:
    return {entry["name"]: entry.get("value") for entry in template["spec"]["containers"][0]["env"]}


def test_a_service_is_made_and_reports_that_it_serves(platform: str, name: str, shared: Objects) -> None:
    """All children exist; later passes write nothing."""
    shared.apply(service_job(platform, name, workers=2))
    pods = ServicePods(shared, name)
    assert environment(pods.template())["TUSSOCK_STORE"] == f"tussock://{platform}-meta.{shared.namespace}.svc:7370"
    for kind in CHILDREN:
        assert shared.get(kind, f"{name}-service"), kind
    for kind in OF_WORKERS:
        assert eventually(kind, lambda kind=kind: shared.get(kind, f"{name}-workers")), kind
    shared.await_reason("Compute", name, "Running")
    pods.make()
    assert shared.await_reason("Compute", name, "Ready")["status"] == "True"
    status = (shared.get("Compute", name) or {})["status"]
    assert status["service"] == {"endpoint": f"{name}-service.{shared.namespace}.svc:7380"}
    eventually("its event", lambda: [event for event in shared.events(name) if event["reason"] == "Ready"])

    def writes() -> int:
        refs = [line["objectRef"] for line in shared.writes()]
        own = ("computes", "pods", "configmaps", "services", "statefulsets", "deployments", "networkpolicies")
        return sum(ref["resource"] in own and ref.get("name", "").startswith(name) for ref in refs)

    eventually("the file's annotation", lambda: "tussock.dev/workers" in annotations(shared, pods))
    before = writes()
    body = service_job(platform, name, workers=2)
    shared.apply({**body, "metadata": {"name": name, "labels": {"a": "b"}}})
    eventually("a label", lambda: (shared.get("Compute", name) or {})["metadata"]["labels"].get("a") == "b")
    pods.make()
    assert writes() == before


def annotations(objects: Objects, pods: ServicePods) -> Body:
    found: Body = (objects.get("Pod", pods.pod_name) or {}).get("metadata", {}).get("annotations") or {}
    return found


@pytest.mark.parametrize("kind", ["StatefulSet", "Service"])
def test_a_child_that_is_deleted_or_edited_is_put_right(platform: str, name: str, shared: Objects, kind: str) -> None:
    """Within seconds."""
    shared.apply(service_job(platform, name))
    first = eventually(kind, lambda: shared.get(kind, f"{name}-service"))
    shared.delete(kind, f"{name}-service")
    eventually(
        "another one",
        lambda: (found := shared.get(kind, f"{name}-service")) and found["metadata"]["uid"] != first["metadata"]["uid"],
    )
    if kind == "StatefulSet":
        shared.patch(kind, f"{name}-service", {"spec": {"replicas": 2}})
        eventually("one node", lambda: (shared.get(kind, f"{name}-service") or {})["spec"]["replicas"] == 1)


def test_a_foreign_object_of_a_childs_name_is_left_alone(platform: str, name: str, shared: Objects) -> None:
    """The condition names it; the service comes up when it is gone."""
    taken = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{name}-service"}}
    shared.apply({**taken, "spec": {"ports": [{"port": 80}], "selector": {"app": "other"}}})
    shared.apply(service_job(platform, name))
    said = shared.await_reason("Compute", name, "NameInUse")
    assert f"There is a Service {name}-service" in said["message"]
    assert (shared.get("Service", f"{name}-service") or {})["spec"]["selector"] == {"app": "other"}
    shared.delete("Service", f"{name}-service")
    eventually("the port", lambda: ((shared.get("Service", f"{name}-service") or {}).get("spec") or {}).get("ports"))
    shared.await_reason("Compute", name, "Running")


def test_workers_change_after_the_node(platform: str, name: str, shared: Objects) -> None:
    """The StatefulSet has the change at once, the Deployment when the node's old pod has gone."""
    shared.apply(service_job(platform, name, workers=2))
    pods = ServicePods(shared, name)
    pods.make()
    shared.await_reason("Compute", name, "Ready")
    shared.apply(service_job(platform, name, workers=2, module="bank:other"))
    eventually("the node's change", lambda: "bank:other" in str(pods.template()))

    def workers() -> str:
        return str((shared.get("Deployment", f"{name}-workers") or {})["spec"]["template"])

    # A pass that has seen it all, by what it says of the change.
    eventually("a pass", lambda: (shared.get("Compute", name) or {})["status"]["observedGeneration"] == 2)
    assert "bank:make" in workers()
    pods.end()
    eventually("the workers' change", lambda: "bank:other" in workers())


def test_workers_are_scaled_by_their_number_and_not_as_executors(platform: str, name: str, shared: Objects) -> None:
    """`service.workers` changes file and Deployment; `kubectl scale` is refused, and says what to change."""
    shared.apply(service_job(platform, name, workers=1))
    pods = ServicePods(shared, name)
    pods.make()
    shared.await_reason("Compute", name, "Ready")
    template = pods.template()
    shared.patch("Compute", name, {"spec": {"service": {"workers": 3}}})
    eventually("three", lambda: (shared.get("Deployment", f"{name}-workers") or {})["spec"]["replicas"] == 3)
    assert (shared.get("ConfigMap", f"{name}-workers") or {})["data"] == {"workers": "3\n"}
    eventually("the annotation", lambda: annotations(shared, pods).get("tussock.dev/workers") == "3")
    assert pods.template() == template
    with pytest.raises(ApiException, match=r"a service has no executors: change service\.workers"):
        shared.patch("Compute", name, {"spec": {"replicas": 2}}, "scale")


def test_code_in_a_config_map_is_followed(platform: str, name: str, shared: Objects) -> None:
    """Without it nothing starts, and the condition says what is missing; another one makes another node."""
    shared.apply(service_job(platform, name, configMap={"name": f"{name}-code"}))
    assert (
        f"There is no ConfigMap {name}-code, which spec.service names"
        in (shared.await_reason("Compute", name, "InvalidSpec")["message"])
    )
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-code"}}
    shared.apply({**code, "data": {"other.py": "1"}})
    eventually("the key", lambda: "has no key bank.py" in shared.ready("Compute", name)["message"])
    shared.apply({**code, "data": {"bank.py": "1"}})
    pods = ServicePods(shared, name)
    first = pods.template()["metadata"]["annotations"]["tussock.dev/code-hash"]
    shared.apply({**code, "data": {"bank.py": "2"}})
    eventually("other code", lambda: pods.template()["metadata"]["annotations"]["tussock.dev/code-hash"] != first)


def test_a_deleted_service_ends_its_node_then_its_workers(platform: str, name: str, shared: Objects) -> None:
    """It is gone when the node's pod is; the workers' Deployment stays until then."""
    shared.apply(service_job(platform, name, workers=1))
    pods = ServicePods(shared, name)
    pods.make()
    shared.await_reason("Compute", name, "Ready")
    shared.delete("Compute", name)
    eventually("no StatefulSet", lambda: shared.get("StatefulSet", f"{name}-service") is None)
    shared.await_reason("Compute", name, "Draining")
    assert shared.get("Deployment", f"{name}-workers") is not None
    pods.end()
    eventually("no Compute", lambda: shared.get("Compute", name) is None)
    assert shared.get("Deployment", f"{name}-workers") is None


def test_a_store_that_goes_takes_its_services_along(platform: str, name: str, shared: Objects) -> None:
    """The node's pod is gone before the meta nodes are told to go."""
    shared.apply(service_job(platform, name, workers=1))
    pods = ServicePods(shared, name)
    pods.make()
    shared.await_reason("Compute", name, "Ready")
    shared.delete("StateStore", platform)
    shared.await_reason("Compute", name, "Deleting")
    eventually("no StatefulSet", lambda: shared.get("StatefulSet", f"{name}-service") is None)
    assert f"{name}-service-0" in eventually(
        "what it waits for", lambda: shared.await_reason("StateStore", platform, "Draining")["message"]
    )
    assert shared.get("Deployment", f"{platform}-meta") is not None
    pods.end()
    eventually("no workers", lambda: shared.get("Deployment", f"{name}-workers") is None)


def test_a_wrong_module_of_an_older_definition_is_told(platform: str, name: str, shared: Objects) -> None:
    """The API server refuses it in words of the field."""
    with pytest.raises(ApiException, match="give MODULE:APP by their names in Python"):
        shared.apply(service_job(platform, name, module="bank"))
    both = service_job(platform, name, of={"application": {"file": "/a.py"}})
    with pytest.raises(ApiException, match=r"give application \(a Spark job\) or service"):
        shared.apply(both)
