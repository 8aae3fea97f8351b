"""The ways in from outside at a real API server, which gives node ports and refuses what does not go together."""

import base64
from typing import Any

import pytest
from cryptography import x509

from support.operator.process import Body, Objects, eventually

pytestmark = [pytest.mark.minio, pytest.mark.usefixtures("operator")]

REPLICA = "tussock.dev/replica"


def outside(store: Body, **section: Any) -> Body:
    """The store with encryption, and clients outside if there is a section."""
    meta = {"replicas": 2, **({"outside": section} if section else {})}
    return {**store, "spec": {**store["spec"], "tls": {"mode": "managed"}, "meta": meta}}


def start(shared: Objects, store: Body) -> str:
    """Create the store, and the two pods that its Deployment would have; returns its name."""
    name: str = store["metadata"]["name"]
    shared.apply(store)
    deployment = eventually("the meta nodes", lambda: shared.get("Deployment", f"{name}-meta"))
    for number in range(2):
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        spec = {"containers": [{"name": "meta", "image": "localhost/tussock-node:test"}]}
        about = {"name": f"{name}-meta-{number}", "labels": labels}
        shared.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
        ip = f"10.1.0.{number + 1}"
        status = {"podIP": ip, "podIPs": [{"ip": ip}], "phase": "Running"}
        shared.patch("Pod", f"{name}-meta-{number}", {"status": status}, "status")
    shared.serve("Deployment", f"{name}-meta")
    shared.serve("Deployment", f"{name}-compactor")
    return name


def numbers(shared: Objects, name: str) -> dict[str, str]:
    """The number of each pod, by its IP."""
    pods = [body for body in shared.list("Pod") if body["metadata"]["name"].startswith(f"{name}-meta-")]
    return {
        body["status"]["podIP"]: body["metadata"]["labels"][REPLICA]
        for body in pods
        if REPLICA in body["metadata"]["labels"]
    }


def told(shared: Objects, name: str) -> str:
    """What the nodes are told of addresses outside."""
    found = shared.get("ConfigMap", f"{name}-meta") or {"data": {}}
    return str(found["data"].get("outside.toml", ""))


def hosts(shared: Objects, name: str) -> set[str]:
    """What the certificate of the nodes is for."""
    data = (shared.get("Secret", f"{name}-meta-tls") or {"data": {}})["data"]
    leaf = x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return {*names.get_values_for_type(x509.DNSName), *addresses}


def endpoint(shared: Objects, name: str) -> str:
    """Where the status of the store says that the outside finds it."""
    return str(((shared.get("StateStore", name) or {}).get("status") or {}).get("outsideEndpoint", ""))


def test_node_ports_come_and_change_and_go(store: Body, shared: Objects) -> None:
    """They are in the status of the store, in what the nodes are told, and their host is in the certificate."""
    name = start(shared, outside(store, type="NodePort", host="203.0.113.9"))
    shared.await_reason("StateStore", name, "Ready")
    services = [shared.get("Service", f"{name}-meta-outside-{number}") or {} for number in range(2)]
    ports = [service["spec"]["ports"][0]["nodePort"] for service in services]
    assert endpoint(shared, name) == f"tussock://203.0.113.9:{ports[0]},203.0.113.9:{ports[1]}"
    eventually("both numbers", lambda: sorted(numbers(shared, name).values()) == ["0", "1"])
    lines = {f'"{ip}:7370" = "203.0.113.9:{ports[int(at)]}"' for ip, at in numbers(shared, name).items()}
    eventually("what nodes are told", lambda: lines <= set(told(shared, name).splitlines()))
    eventually("the host in the certificate", lambda: "203.0.113.9" in hosts(shared, name))
    assert shared.get("NetworkPolicy", f"{name}-meta-outside")

    # The same Services with another type, which the server has to take: fields of the one do not go with the other.
    shared.apply(outside(store, type="LoadBalancer", loadBalancerSourceRanges=["203.0.113.0/24"]))
    waiting = shared.await_reason("StateStore", name, "WaitingForAddress")
    assert waiting["status"] == "True"
    assert f"Service {name}-meta-outside-0 has no load balancer" in waiting["message"]
    eventually("no address", lambda: not endpoint(shared, name))
    for number in range(2):
        status = {"loadBalancer": {"ingress": [{"hostname": f"lb-{number}.example"}]}}
        shared.patch("Service", f"{name}-meta-outside-{number}", {"status": status}, "status")
    shared.serve("Deployment", f"{name}-meta")
    shared.await_reason("StateStore", name, "Ready")
    eventually("both", lambda: endpoint(shared, name) == "tussock://lb-0.example:7370,lb-1.example:7370")
    eventually("their hosts", lambda: {"lb-0.example", "lb-1.example"} <= hosts(shared, name))
    assert "203.0.113.9" not in hosts(shared, name)

    shared.apply(outside(store, type="NodePort", host="nodes.example"))
    eventually("the first type again", lambda: endpoint(shared, name).startswith("tussock://nodes.example:"))
    changed = shared.get("Service", f"{name}-meta-outside-0")
    assert changed is not None
    assert "loadBalancerSourceRanges" not in changed["spec"]

    shared.apply(outside(store))
    eventually("no way in", lambda: shared.get("Service", f"{name}-meta-outside-0") is None)
    eventually("no rule", lambda: shared.get("NetworkPolicy", f"{name}-meta-outside") is None)
    eventually("no numbers", lambda: not numbers(shared, name))
    eventually("no address", lambda: not endpoint(shared, name))
    assert shared.get("Service", f"{name}-meta")


def test_the_number_of_a_pod_that_goes_is_given_on(store: Body, shared: Objects) -> None:
    """The address outside stays, and leads to the next pod; the other one keeps its number."""
    name = start(shared, outside(store, type="NodePort", host="nodes.example"))
    eventually("both numbers", lambda: sorted(numbers(shared, name).values()) == ["0", "1"])
    before = numbers(shared, name)
    shared.delete("Pod", f"{name}-meta-0")
    next_pod = shared.get("Pod", f"{name}-meta-1")
    assert next_pod is not None
    labels = {key: value for key, value in next_pod["metadata"]["labels"].items() if key != REPLICA}
    about = {"name": f"{name}-meta-2", "labels": labels}
    spec = {"containers": [{"name": "meta", "image": "localhost/tussock-node:test"}]}
    shared.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec})
    status = {"podIP": "10.1.0.3", "podIPs": [{"ip": "10.1.0.3"}], "phase": "Running"}
    shared.patch("Pod", f"{name}-meta-2", {"status": status}, "status")
    expected = {"10.1.0.2": before["10.1.0.2"], "10.1.0.3": before["10.1.0.1"]}
    eventually("the number", lambda: numbers(shared, name) == expected)
    eventually("what nodes are told", lambda: '"10.1.0.3:7370"' in told(shared, name))
    assert '"10.1.0.1:7370"' not in told(shared, name)


def test_the_console_is_led_to_and_not_any_more(store: Body, shared: Objects) -> None:
    """The server takes the Ingress; without the section all of it goes."""
    name: str = store["metadata"]["name"]
    ingress = {"host": "console.example", "tlsSecret": "console-tls", "className": "nginx"}
    spec = {**store["spec"], "tls": {"mode": "managed"}}
    meta = {"replicas": 1, "console": {"namespace": "ingress-nginx", "ingress": ingress}}
    shared.apply({**store, "spec": {**spec, "meta": meta}})
    kinds = ("Service", "NetworkPolicy", "Ingress")
    for kind in kinds:
        eventually(kind, lambda kind=kind: shared.get(kind, f"{name}-meta-console"))
    shared.apply({**store, "spec": {**spec, "meta": {"replicas": 1}}})
    for kind in kinds:
        eventually(f"no {kind}", lambda kind=kind: shared.get(kind, f"{name}-meta-console") is None)
