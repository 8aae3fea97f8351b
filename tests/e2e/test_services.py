"""An application as a service, called all the time: scaled, changed, killed and deleted, and no call fails or repeats.

The manifest is `examples/kubernetes/service.yaml`, with one worker at first.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.view.client import Cluster
from cluster.view.pods import pod

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "service.yaml"
PROGRAM = Path(__file__).parent / "programs" / "call_bank.py"
SECONDS = 120
LONGEST_SECONDS = 30.0
"""The `deadline` of a client that sets none."""


class BankService:
    """The bank in a namespace, and its caller."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def compute(self) -> dict[str, Any]:
        return self.cluster.get("compute", "bank", self.namespace) or {}

    def patch(self, **spec: Any) -> None:
        """Change the spec, as a user does."""
        where = f"--namespace={self.namespace}"
        self.cluster.kubectl("patch", "tsx/bank", where, "--type=merge", "-p", json.dumps({"spec": spec}))

    def is_ready(self) -> bool:
        """Whether the condition is about the present spec, and true, and nothing is under way."""
        found, held = self.compute(), {}
        for one in found.get("status", {}).get("conditions", ()):
            held[one["type"]] = one["status"]
        is_current = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        return is_current and held == {"Ready": "True", "Progressing": "False", "Degraded": "False"}

    def said(self) -> dict[str, Any]:
        """What its node has said last."""
        found: dict[str, Any] = self.compute().get("status", {}).get("service", {})
        return found

    def pods(self, role: str) -> list[dict[str, Any]]:
        found = self.cluster.list("pods", self.namespace, f"tussock.dev/owner=bank,tussock.dev/role={role}")
        return [one for one in found if not one["metadata"].get("deletionTimestamp")]

    def node(self) -> str:
        """The uid of the node's pod; empty if there is none."""
        return next((str(one["metadata"]["uid"]) for one in self.pods("node")), "")

    def kill_worker(self) -> None:
        """Kill a worker's process; returns when its container runs again."""
        name = self.pods("worker")[0]["metadata"]["name"]
        self.cluster.kill(name, self.namespace)

        def is_back() -> bool:
            found = self.cluster.get("pod", name, self.namespace) or {}
            return any(one["restartCount"] and one["ready"] for one in found["status"]["containerStatuses"])

        self.await_it("the worker's next life", is_back)

    def start_caller(self, image: str) -> None:
        """A pod with the certificate of a writer, and the label of a client."""
        environment = {
            "BANK": f"bank-service.{self.namespace}.svc:7380",
            **{
                f"TUSSOCK_TLS_{name}": f"/tls/{file}"
                for name, file in (("CA", "ca.crt"), ("CERT", "tls.crt"), ("KEY", "tls.key"))
            },
        }
        program = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "caller"},
            "data": {"program.py": PROGRAM.read_text()},
        }
        volumes = {
            "/program": {"configMap": {"name": "caller"}},
            "/tls": {"secret": {"secretName": "bank-client-writer-tls"}},
        }
        caller = pod(
            "caller", image, command=["python", "/program/program.py"], environment=environment, volumes=volumes
        )
        caller["metadata"]["labels"]["tussock.dev/client"] = "bank"
        self.cluster.apply(program, caller, namespace=self.namespace)

    def tell_caller(self, file: str) -> None:
        """Make a file that the caller looks for."""
        self.cluster.kubectl("exec", "caller", f"--namespace={self.namespace}", "--", "touch", f"/tmp/{file}")

    def lines(self) -> list[dict[str, Any]]:
        """What the caller has printed."""
        log = self.cluster.log("caller", self.namespace)
        return [json.loads(line) for line in log.splitlines() if line.startswith("{") and line.endswith("}")]

    @contextmanager
    def calls_go_on(self, what: str) -> Iterator[None]:
        """Each caller has replies after what is done in the block; the longest wait is noted, and must not be long."""
        first = len(self.lines())
        with self.cluster.phase(f"service: {what}"):
            yield
            calls = self.lines()[-1]["calls"]
            self.await_it("calls", lambda: self.lines()[-1]["calls"] > calls + 60)
        since = self.lines()[first:]
        assert [line["failures"] for line in since if line["failures"]] == []
        longest = max(line["longest"] for line in since)
        self.cluster.note(f"service: {what}, the longest call", longest)
        assert longest < LONGEST_SECONDS

    def await_it(self, what: str, probe: Callable[[], Any]) -> None:
        self.cluster.wait_for(what, probe, SECONDS)

    def await_joined(self, workers: int) -> None:
        """Until the program has that many workers, and there are no others."""

        def is_so() -> bool:
            joined = {"workers": workers, "workersJoined": workers}
            return joined.items() <= self.said().items() and len(self.pods("worker")) == workers and self.is_ready()

        self.await_it(f"{workers} workers", is_so)

    def await_another_node(self, uid: str) -> None:
        """Until another pod serves as the spec says."""
        self.await_it("another node", lambda: self.node() not in ("", uid) and self.is_ready())


@pytest.mark.usefixtures("operator")
def test_no_call_fails_whatever_becomes_of_a_service(
    cluster: Cluster, image_names: dict[str, str], next_image_names: dict[str, str]
) -> None:
    """1, 3, 2 workers; another variable, another image; a worker and the node killed; each call runs once."""
    with cluster.namespace("service") as namespace:
        bank = BankService(cluster, namespace)
        store, code, compute = yaml.safe_load_all(EXAMPLE.read_text())
        compute["spec"]["service"]["workers"] = 1
        compute["spec"]["image"] = image_names["node"]
        try:
            with cluster.phase("service: apply to ready"):
                cluster.apply(store, code, compute, namespace=namespace)
                bank.await_joined(1)
            said = bank.said()
            assert (said["application"], said["layer"], said["state"]) == ("bank", "functions", "running")
            bank.start_caller(image_names["node"])
            bank.await_it("calls", lambda: bank.lines() and bank.lines()[-1]["calls"] > 60)
            first = bank.node()
            with bank.calls_go_on("1 to 3 workers"):
                bank.patch(service={"workers": 3})
                bank.await_joined(3)
            assert bank.node() == first
            with bank.calls_go_on("another variable"):
                bank.patch(env=[{"name": "TZ", "value": "Europe/Berlin"}])
                bank.await_another_node(first)
            second = bank.node()
            with bank.calls_go_on("3 to 2 workers"):
                bank.patch(service={"workers": 2})
                bank.await_joined(2)
            with bank.calls_go_on("a worker killed"):
                bank.kill_worker()
                bank.await_joined(2)
            assert bank.node() == second
            with bank.calls_go_on("another image"):
                bank.patch(image=next_image_names["node"])
                bank.await_another_node(second)
            assert {one["spec"]["containers"][0]["image"] for one in bank.pods("worker")} == {next_image_names["node"]}
            third = bank.node()
            with bank.calls_go_on("the node's pod deleted"):
                cluster.kubectl("delete", "pod", "bank-service-0", f"--namespace={namespace}")
                bank.await_another_node(third)
            # A killed process answers nobody, so only calls with ids are sure to have their replies.
            bank.tell_caller("ids-only")
            with bank.calls_go_on("the node killed"):
                cluster.kill("bank-service-0", namespace)
                bank.await_joined(2)
            bank.tell_caller("stop")
            bank.await_it("the end of the caller", lambda: "differing" in bank.lines()[-1])
            last = bank.lines()[-1]
            print(f"service: {last['calls']} calls")
            assert (last["failures"], last["differing"], last["state"]) == ([], [], "running")
            with cluster.phase("service: delete"):
                cluster.kubectl("delete", "tsx/bank", f"--namespace={namespace}", "--timeout=60s")
            bank.await_it("no pods", lambda: not bank.pods("node") and not bank.pods("worker"))
        finally:
            with cluster.phase("service: delete the store"):
                cluster.kubectl("delete", "tsx,tss", "--all", f"--namespace={namespace}", "--timeout=100s", seconds=120)
