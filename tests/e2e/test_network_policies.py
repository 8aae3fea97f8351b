"""Which pods can connect to those of a store and of a job, where the cluster's network enforces policies.

The store's meta node and MinIO are real. Pods that only listen stand for driver, executor and compactor: they have the
labels by which the operator's own policies mean those, and their ports.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from cluster.view.client import Cluster, NeverHappened
from cluster.view.pods import pod
from support.kubernetes.programs_in_pods import PROGRAMS
from support.kubernetes.users import User, resource

SECONDS = 60
CLIENT = {"tussock.dev/client": "shop"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
OPERATOR = {"app.kubernetes.io/name": "tussock-operator"}
JOB_PORTS = {"rpc": 7078, "blocks": 7079, "ui": 4040, "status": 7372}

MAY: dict[str, set[str]] = {
    "stranger": set(),
    "client": {"meta grpc", "meta http", "minio"},
    "executor": {"meta grpc", "minio", "driver rpc", "driver blocks"},
    "compactor": {"meta grpc", "minio"},
    "operator": {"meta grpc", "meta http", "minio", "driver status"},
    # What has the operator's label, but isn't where the operator is.
    "impostor": set(),
    # The release names no namespace of Prometheus, and a label may be set by everybody.
    "elsewhere/prometheus": set(),
    "elsewhere/client": set(),
}


class Shop(User):
    """A store and a suspended job, pods that stand for missing ones, and pods that try to connect."""

    def __init__(self, cluster: Cluster, namespace: str, elsewhere: str, operators: str, node_image: str) -> None:
        super().__init__(cluster, namespace, node_image)
        self._elsewhere, self._operators, self._image = elsewhere, operators, node_image
        self._addresses: dict[str, str] = {}

    def begin(self) -> None:
        """Apply everything, and wait until all clients and all targets are there."""
        application = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job"}, "data": {"job.py": ""}}
        job = resource(
            "Compute",
            "job",
            storeRef={"name": "shop"},
            application={"configMap": {"name": "job", "key": "job.py"}},
            checkpoint={"emptyDir": {}},
            suspend=True,
        )
        managed = {"managed": {"ephemeral": True}}
        store = resource("StateStore", "shop", objectStore=managed, meta={})
        self.cluster.apply(store, application, job, namespace=self.namespace)
        of_job = {**self._selected_by("job-driver"), "tussock.dev/store": "shop"}
        of_compactors = self._selected_by("shop-compactor")
        here: dict[str, dict[str, str]] = {
            "stranger": {},
            "client": CLIENT,
            "impostor": OPERATOR,
            "driver": of_job,
            "executor": of_job,
            "compactor": of_compactors,
        }
        there = {"client": CLIENT, "prometheus": PROMETHEUS}
        for namespace, who in ((self.namespace, here), (self._elsewhere, there)):
            pods = [self._listening(name, labels) for name, labels in who.items()]
            self.cluster.apply(*pods, namespace=namespace)
        for namespace, who in ((self.namespace, here), (self._elsewhere, there)):
            self.cluster.wait_ready(*(f"pod/{name}" for name in who), namespace=namespace)
        self.await_reason("tss/shop", "Ready", status="True")
        services = {"meta grpc": "shop-meta:7370", "meta http": "shop-meta:7371", "minio": "shop-minio:9000"}
        for what, address in services.items():
            host, _, port = address.partition(":")
            self._addresses[what] = f"{host}.{self.namespace}.svc:{port}"
        for name in ("driver", "compactor"):
            address = self.get(f"pod/{name}")["status"]["podIP"]
            self._addresses |= {f"{name} {what}": f"{address}:{port}" for what, port in JOB_PORTS.items()}

    def _listening(self, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
        """A pod with labels, that listens on the ports of a job."""
        listen = ["python", "-c", (PROGRAMS / "listen.py").read_text()]
        found = pod(name, self._image, command=listen, environment={"PORTS": " ".join(map(str, JOB_PORTS.values()))})
        found["metadata"]["labels"].update(labels)
        return found

    def reachable(self, *who: str) -> Mapping[str, set[str]]:
        """The addresses to which each pod can connect now."""
        with ThreadPoolExecutor(len(who)) as threads:
            return dict(zip(who, threads.map(self._opened_by, who), strict=True))

    def _opened_by(self, who: str) -> set[str]:
        namespace, _, name = who.rpartition("/")
        where = self._elsewhere if namespace else self.namespace
        # The operator itself, and so nobody has to believe that a pod with its labels would do.
        target, where = ("deploy/tussock-operator", self._operators) if who == "operator" else (name, where)
        connect = ["python", "-c", (PROGRAMS / "connect.py").read_text(), *self._addresses.values()]
        said = self.cluster.kubectl("exec", target, f"--namespace={where}", "--", *connect)
        opens = json.loads(said)
        return {what for what, address in self._addresses.items() if opens[address]} - self._own(name)

    def _own(self, name: str) -> set[str]:
        """The connections of each pod to itself, which no policy can stop."""
        return {what for what in self._addresses if what.startswith(f"{name} ")}

    def everything(self) -> set[str]:
        """All addresses."""
        return set(self._addresses)

    def _selected_by(self, policy: str) -> dict[str, str]:
        """The labels of the pods that a policy selects."""
        found = self.cluster.wait_for(
            f"policy {policy}", lambda: self.cluster.get("networkpolicy", policy, self.namespace)
        )
        labels = found["spec"]["podSelector"]["matchLabels"]
        assert isinstance(labels, dict)
        return labels


@pytest.fixture(scope="module")
def shop(cluster: Cluster, operator: str, image_names: Mapping[str, str]) -> Iterator[Shop]:
    """The store with its policies, and all pods."""
    with cluster.namespace("policies") as namespace, cluster.namespace("elsewhere") as elsewhere:
        found = Shop(cluster, namespace, elsewhere, operator, image_names["node"])
        try:
            with cluster.phase("policies: store, job and all who try to connect"):
                found.begin()
            yield found
        finally:
            with cluster.phase("policies: delete"):
                found.kubectl("delete", "tsx,tss", "--all", "--timeout=100s", seconds=120)


def test_policies_let_in_only_the_named_clients(shop: Shop) -> None:
    """A stranger opens nothing; clients, executors, operator and Prometheus what they need; then all, without policies.

    The end shows that each address answers, so that it was the policies that kept the stranger out.
    """
    cluster = shop.cluster
    with cluster.phase("policies: everybody opens what they may"):
        if cluster.node is None and wrongly_opened(shop, {"stranger": set()}):
            pytest.skip("the network of this cluster enforces no policies: a stranger connects")
        assert not wrongly_opened(shop, MAY)
    with cluster.phase("policies: taken away, to a stranger who opens all"):
        shop.patch("tss/shop", networkPolicy=False)
        assert not wrongly_opened(shop, {"stranger": shop.everything()})
        assert not cluster.list("networkpolicies", shop.namespace)


def wrongly_opened(shop: Shop, wanted: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Connections that are open and should not be, or the reverse, after the policies had time to be enforced."""
    wrong: dict[str, set[str]] = {}

    def is_right() -> bool:
        nonlocal wrong
        wrong = {who: opens ^ wanted[who] for who, opens in shop.reachable(*wanted).items() if opens != wanted[who]}
        return not wrong

    with suppress(NeverHappened):
        shop.cluster.wait_for("wanted connections", is_right, SECONDS)
    return wrong
