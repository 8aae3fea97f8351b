"""The manifests of services: golden files, and rules for all of them."""

from typing import Any

import pytest

from golden.write_manifests import text_of
from golden.write_services import FOLDER
from support.operator.compute_cases import ADDRESSES
from support.operator.pod_security import violations
from support.operator.resources import DEFAULTS, store_with
from support.operator.services.service_cases import (
    SERVICE_CASES,
    children_of,
    service_manifests_of,
    service_with,
)
from tussock.operator.manifests.certificates import cert_manager_manifests, job_certificate
from tussock.operator.manifests.service.children import service_manifests
from tussock.operator.resources.compute import Compute


def made(compute: Compute, **store: Any) -> Any:
    """The children of a service of a store with TLS, unless `store` says something else."""
    return service_manifests(compute, store_with({"managed": {}}, **store), ADDRESSES, DEFAULTS)


def container(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def variables(workload: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(workload)["env"]}


@pytest.mark.parametrize("case", SERVICE_CASES)
def test_manifests_of_services_are_those_of_the_file(case: str) -> None:
    """Byte for byte; after an intended change run `tests/golden/write_services.py`."""
    assert text_of(service_manifests_of(case)) == (FOLDER / f"{case}.yaml").read_text(encoding="utf-8")


def test_no_file_of_services_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(SERVICE_CASES)


@pytest.mark.parametrize("case", SERVICE_CASES)
def test_pods_of_services_are_restricted_and_have_no_token(case: str) -> None:
    """Neither node nor workers call the API."""
    found = children_of(case)
    for workload in filter(None, (found.node, found.workers)):
        template = workload["spec"]["template"]
        assert violations(template["spec"]) == []
        assert template["spec"]["automountServiceAccountToken"] is False


def test_there_is_one_node_and_never_two() -> None:
    """A StatefulSet waits for the end of a pod before it makes the next; workers of two programs never mix."""
    found = made(service_with(workers=5))
    assert (found.node["kind"], found.node["spec"]["replicas"]) == ("StatefulSet", 1)
    # Else a pod that is never ready would stay when the template is corrected.
    assert found.node["spec"]["podManagementPolicy"] == "Parallel"
    assert (found.workers["spec"]["strategy"], found.workers["spec"]["replicas"]) == ({"type": "Recreate"}, 5)


@pytest.mark.parametrize("seconds", [1, 30, 3600])
def test_a_node_has_twice_its_time_to_drain(seconds: int) -> None:
    """For the requests that it has taken, and as long again for its state; then the kubelet ends it."""
    found = made(service_with(drainSeconds=seconds))
    assert variables(found.node)["TUSSOCK_SERVE_DRAIN_SECONDS"] == str(seconds)
    assert found.node["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 2 * seconds


def test_the_number_of_workers_is_in_no_template() -> None:
    """So that more or fewer of them restart nobody; but the first and the last one change the node."""
    few, many, none = (made(service_with(workers=count)) for count in (1, 64, 0))
    assert few.template == many.template != none.template
    assert few.workers["spec"]["template"] == many.workers["spec"]["template"]
    assert none.workers is None


def test_another_port_of_the_service_restarts_nobody() -> None:
    """It is the Service's; the container's stays."""
    one, other = made(service_with()), made(service_with(port=443))
    assert one.template == other.template
    ports = [found["spec"]["ports"][0]["port"] for found in other.around if found["kind"] == "Service"]
    assert ports == [443]


def test_code_of_a_config_map_is_the_working_folder() -> None:
    """Both pods import the module from there; another digest makes other pods."""
    compute, store = service_with(configMap={"name": "code"}, workers=1), store_with({"managed": {}})
    one, other = (service_manifests(compute, store, ADDRESSES, DEFAULTS, code) for code in ("1", "2"))
    assert one.template != other.template
    for workload in (one.node, one.workers):
        assert workload is not None
        [folder] = [mount for mount in container(workload)["volumeMounts"] if mount["name"] == "application"]
        assert container(workload)["workingDir"] == folder["mountPath"]


def test_node_and_workers_run_the_same() -> None:
    """Image, code, variables of the user, store and certificate: a worker that differs would be refused."""
    found = made(service_with(workers=1, of={"image": "bank:7", "env": [{"name": "A", "value": "b"}]}))
    node, worker = container(found.node), container(found.workers)
    assert node["image"] == worker["image"] == "bank:7"
    for name in ("A", "TUSSOCK_STORE", "TUSSOCK_TLS_CERT", "TUSSOCK_TLS_SERVER_NAME"):
        assert variables(found.node)[name] == variables(found.workers)[name]
    assert node["args"][1] == worker["args"][1] == "bank:make"
    assert worker["args"][2:] == [
        *("--program", "bank-workers.data.svc:7382"),
        *("--tls-server-name", "bank-service.data.svc"),
    ]


@pytest.mark.parametrize("mode", ["none", "secret"])
def test_without_certificates_of_its_own_a_service_asks_for_none(mode: str) -> None:
    """No TLS, or the user's one certificate, whose name is that of the meta nodes."""
    tls = {"mode": mode, **({"secretName": "ours"} if mode == "secret" else {})}
    found = made(service_with(workers=1), tls=tls)
    args, ports = container(found.workers)["args"], [one["name"] for one in container(found.node)["ports"]]
    if mode == "none":
        assert "TUSSOCK_SERVE_TLS__CERTIFICATE" not in variables(found.node)
        assert ("--tls-server-name" in args, "http" in ports) == (False, True)
    else:
        assert args[-1] == "shop-meta.data.svc"
        assert variables(found.node)["TUSSOCK_SERVE_TLS__ROLES__ADMIN"] == "DNS:shop-meta.data.svc"
        assert "https" in ports


def test_only_its_own_workers_are_admins_beside_the_admins() -> None:
    """Another job or service of the store is a writer there, and no worker."""
    roles = variables(made(service_with(workers=1)).node)
    own = "URI:tussock://data/shop/writer/bank"
    assert own in roles["TUSSOCK_SERVE_TLS__ROLES__ADMIN"].split(",")
    assert own not in roles["TUSSOCK_SERVE_TLS__ROLES__WRITER"].split(",")
    assert "URI:tussock://data/shop/writer/*" in roles["TUSSOCK_SERVE_TLS__ROLES__WRITER"].split(",")
    assert not any(name.endswith("/writer/*") for name in roles["TUSSOCK_SERVE_TLS__ROLES__ADMIN"].split(","))


def test_a_services_certificate_is_a_servers_and_a_clients() -> None:
    """Under the names of its Service, and under that of the job."""
    store = store_with({"managed": {}}, tls={"mode": "certManager", "issuerRef": {"name": "ca"}})
    compute = service_with()
    [asked] = cert_manager_manifests(store, (job_certificate(compute, store),), compute)
    assert asked["spec"]["secretName"] == "bank-service-tls"
    assert asked["spec"]["usages"] == ["digital signature", "server auth", "client auth"]
    assert asked["spec"]["dnsNames"] == ["bank-service", "bank-service.data", "bank-service.data.svc", "localhost"]
    assert asked["spec"]["uris"] == ["tussock://data/shop/writer/bank"]


def test_workers_reach_their_port_and_nobody_reaches_workers() -> None:
    """Where the cluster's network enforces policies."""
    policies = {
        one["metadata"]["name"]: one["spec"]
        for one in made(service_with(workers=1)).around
        if one["kind"] == "NetworkPolicy"
    }
    assert policies["bank-workers"]["ingress"] == []
    [rule] = [one for one in policies["bank-service"]["ingress"] if one["ports"][0]["port"] == 7382]
    [peer] = rule["from"]
    assert peer["podSelector"]["matchLabels"]["tussock.dev/role"] == "worker"
    assert made(service_with(workers=1), networkPolicy=False).template == made(service_with(workers=1)).template


@pytest.mark.parametrize("name", ["b", "b" * 40])
def test_names_of_children_fit(name: str) -> None:
    """A label, or a Service, has at most 63 characters; a StatefulSet puts ten more behind its own name."""
    found = made(service_with(name, workers=1))
    assert all(len(one["metadata"]["name"]) <= 52 for one in [*found.around, found.node, found.workers])
