"""Pod templates of users at a real API server: what the operator ignores, and what Kubernetes does not know."""

from typing import Any

import pytest

from support.operator.kubelet import Kubelet, job
from support.operator.process import Body, Objects, eventually
from support.operator.stores_in_cluster import serving

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator"), pytest.mark.timeout(240)]


def pods_of(objects: Objects, name: str) -> Body:
    """The pod template of the meta nodes."""
    body = eventually("a Deployment", lambda: objects.get("Deployment", f"{name}-meta"))
    return dict(body["spec"]["template"]["spec"])


def templated(store: Body, **spec: Any) -> Body:
    """The store with that part of a PodSpec for its meta nodes."""
    return {**store, "spec": {**store["spec"], "meta": {"replicas": 2, "podTemplate": {"spec": spec}}}}


def test_what_would_override_the_operator_is_ignored_with_an_event(store: Body, shared: Objects) -> None:
    """Story: command and variables stayed in the pods, and a second port `grpc` made the server refuse them."""
    name = store["metadata"]["name"]
    mine = {
        "name": "meta",
        "command": ["sh"],
        "env": [{"name": "TUSSOCK_META_TLS__CLIENT_CA", "value": ""}],
        "ports": [{"name": "grpc", "containerPort": 1}],
    }
    assert serving(shared, templated(store, containers=[mine])) == name
    [container] = pods_of(shared, name)["containers"]
    assert "command" not in container
    assert "TUSSOCK_META_TLS__CLIENT_CA" not in [entry["name"] for entry in container["env"]]
    assert [port["containerPort"] for port in container["ports"]] == [7370, 7371]
    [told] = [event["note"] for event in shared.events(name) if event["reason"] == "PodTemplateKept"]
    for path in ("command", "env[TUSSOCK_META_TLS__CLIENT_CA]", "ports[1]"):
        assert f"spec.containers[meta].{path}" in told


def test_a_misspelt_field_is_told_and_holds_up_nothing_else(store: Body, shared: Objects) -> None:
    """The message has the field in the user's template, and later changes of image and size arrive.

    Story: the message blamed the definitions of the cluster; a new image did not arrive, and a manual scale stayed.
    """
    name = store["metadata"]["name"]
    misspelt = {"nodeSelectr": {"disk": "fast"}, "containers": [{"name": "meta", "imagePullPolcy": "Always"}]}
    within_a_list = {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSecond": 5}]}
    wrong = templated(store, **misspelt, **within_a_list, priorityClassName="")
    shared.apply(wrong)
    told = shared.await_reason("Meta", name, "ApplyRefused")["message"]
    for path in ("nodeSelectr", "containers[meta].imagePullPolcy", "tolerations[0].tolerationSecond"):
        assert f"spec.podTemplate.spec.{path}" in told
    assert "crds" not in told
    assert pods_of(shared, name)["tolerations"][0] == {"key": "a", "operator": "Exists"}
    shared.apply({**wrong, "spec": {**wrong["spec"], "images": {"node": "localhost/newer:1"}}})
    eventually("the image", lambda: pods_of(shared, name)["containers"][0]["image"] == "localhost/newer:1")
    shared.await_reason("Meta", name, "ApplyRefused")
    shared.patch("Deployment", f"{name}-meta", {"spec": {"replicas": 5}})
    eventually("two replicas", lambda: shared.get("Deployment", f"{name}-meta")["spec"]["replicas"] == 2)  # type: ignore[index]
    shared.apply(templated(store, nodeSelector={"disk": "fast"}))
    eventually("the selector", lambda: pods_of(shared, name).get("nodeSelector") == {"disk": "fast"})
    shared.serve("Deployment", f"{name}-meta")
    shared.await_reason("Meta", name, "Ready")


def test_a_value_of_the_wrong_type_is_told(store: Body, shared: Objects) -> None:
    """Story: the server answers it with 500, so each pass ended as with a server that is away, and no status told."""
    name = serving(shared, store)
    shared.apply(templated(store, nodeSelector={"disk": 5}))
    told = shared.await_reason("Meta", name, "ApplyRefused")["message"]
    assert ".spec.nodeSelector.disk: expected string" in told
    shared.apply(templated(store, nodeSelector={"disk": "5"}))
    eventually("the selector", lambda: pods_of(shared, name).get("nodeSelector") == {"disk": "5"})
    shared.serve("Deployment", f"{name}-meta")
    shared.await_reason("Meta", name, "Ready")


def test_a_driver_starts_without_a_misspelt_field(store: Body, shared: Objects) -> None:
    """An event names it, since the pod is made once."""
    platform = serving(shared, store)
    name = f"{platform}-job"
    shared.apply(job(platform, name, driver={"podTemplate": {"spec": {"nodeSelectr": {"disk": "fast"}}}}))
    Kubelet(shared, name).runs()
    shared.await_reason("Compute", name, "Ready")
    [told] = [event["note"] for event in shared.events(name) if event["reason"] == "ApplyRefused"]
    assert "spec.driver.podTemplate.spec.nodeSelectr" in told
