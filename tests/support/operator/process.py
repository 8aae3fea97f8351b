"""The operator as a process at a real API server, and that server's objects as a test sees them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from kubernetes import config, dynamic
from kubernetes.dynamic.exceptions import NotFoundError

from support.buckets.minio import free_port
from tussock.operator.cluster.api import Api, connect
from tussock.operator.planning.meta import FRESH_SECONDS

Body = dict[str, Any]
T = TypeVar("T")
WAIT_SECONDS_MAX = 120.0
"""Far more than anything takes, however busy the machine is."""
PUT_RIGHT_SECONDS = FRESH_SECONDS - 1
"""Less than the time after which the operator looks by itself, so only a watch can have woken it."""


class NeverHappened(AssertionError):
    """A test waited in vain; the text says what there was instead."""


def eventually(what: str, probe: Callable[[], T], seconds: float = WAIT_SECONDS_MAX) -> T:
    """The first true result of `probe`; fails if there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise NeverHappened(f"not within {seconds:.0f} s: {what}; last: {answer!r}")
        time.sleep(0.05)


class Objects:
    """The objects of one namespace, as plain dictionaries."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._client = dynamic.DynamicClient(config.new_client_from_config(str(kubeconfig)))
        self.namespace = namespace
        self.kubeconfig = kubeconfig

    def make_namespace(self) -> None:
        self._of("Namespace").create(body={"metadata": {"name": self.namespace}})

    def delete_namespace(self) -> None:
        """Delete the namespace, which stays `Terminating` with its content: no controller empties it here."""
        self._of("Namespace").delete(name=self.namespace)

    def apply(self, body: Mapping[str, Any], manager: str = "user") -> Body:
        kind = self._of(body["kind"])
        return kind.server_side_apply(
            body=dict(body), namespace=self.namespace, field_manager=manager, force_conflicts=True
        ).to_dict()

    def get(self, kind: str, name: str) -> Body | None:
        try:
            return self._of(kind).get(name=name, namespace=self.namespace).to_dict()
        except NotFoundError:
            return None

    def list(self, kind: str) -> "list[Body]":
        return self._of(kind).get(namespace=self.namespace).to_dict()["items"]

    def patch(self, kind: str, name: str, patch: Mapping[str, Any], subresource: str = "") -> Body:
        of_kind = self._of(kind)
        resource = of_kind.subresources[subresource] if subresource else of_kind
        return resource.patch(
            name=name, namespace=self.namespace, body=patch, content_type="application/merge-patch+json"
        ).to_dict()

    def delete(self, kind: str, name: str) -> None:
        self._of(kind).delete(name=name, namespace=self.namespace, body={"propagationPolicy": "Background"})

    def bind(self, pod: str, node: str) -> None:
        """Put a pod on a node, as a scheduler does; it needs no such node."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        self._of("Pod").subresources["binding"].create(body=body, name=pod, namespace=self.namespace)

    def serve(self, kind: str, name: str, ready: int | None = None) -> None:
        """Write the status of a workload as a cluster's controllers do: all pods are new, and `ready` of them serve."""
        body = eventually(f"{kind} {name}", lambda: self.get(kind, name))
        replicas = body["spec"]["replicas"]
        numbers = {"replicas": replicas, "updatedReplicas": replicas}
        numbers["readyReplicas"] = numbers["availableReplicas"] = replicas if ready is None else ready
        status = {"observedGeneration": body["metadata"]["generation"], **numbers}
        self.patch(kind, name, {"status": status}, "status")

    def ready(self, kind: str, name: str) -> Body:
        """The condition `Ready` of a resource; empty if it has none yet."""
        return self.condition(kind, name, "Ready")

    def condition(self, kind: str, name: str, type_: str) -> Body:
        body = self.get(kind, name) or {}
        found = body.get("status", {}).get("conditions", ())
        return next((condition for condition in found if condition["type"] == type_), {})

    def await_reason(self, kind: str, name: str, reason: str, seconds: float = WAIT_SECONDS_MAX) -> Body:
        """Wait until the condition `Ready` has this reason; returns it as it was then."""

        def found() -> Body:
            condition = self.ready(kind, name)
            return condition if condition.get("reason") == reason else {}

        try:
            return eventually(f"{kind} {name} {reason}", found, seconds)
        except NeverHappened as error:
            raise NeverHappened(f"{error}; now: {self.ready(kind, name)}") from None

    def events(self, name: str) -> "list[Body]":
        """The events about one of Tussock's custom resources, oldest first."""
        found = [body for body in self.list("Event") if (body.get("regarding") or {}).get("name") == name]
        return sorted(found, key=lambda body: body["eventTime"])

    def writes(self, manager: str = "tussock-operator") -> "list[Body]":
        """The writes of a field manager in this namespace, from the audit log."""
        lines = (self.kubeconfig.parent / "audit.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if f"fieldManager={manager}" in line]
        return [line for line in found if line["objectRef"].get("namespace") == self.namespace]

    def _of(self, kind: str) -> Any:
        versions = {"Event": "events.k8s.io/v1", "Namespace": "v1"}
        if kind in versions:
            return self._client.resources.get(kind=kind, api_version=versions[kind])
        return self._client.resources.get(kind=kind)


def with_api(objects: Objects, monkeypatch: pytest.MonkeyPatch, test: Callable[[Api], Awaitable[None]]) -> None:
    """Run `test` with the operator's own client of the API server that has `objects`."""
    monkeypatch.setenv("KUBECONFIG", str(objects.kubeconfig))

    async def run() -> None:
        async with await connect() as api:
            await test(api)

    asyncio.run(run())


class OperatorProcess:
    """`python -m tussock.operator`, for some namespaces."""

    running: ClassVar[set["OperatorProcess"]] = set()
    """All that were started and not ended: a fixture ends them after a test that failed."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        *namespaces: str,
        lease: str,
        identity: str = "one",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log_file = folder / f"operator-{identity}.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_kept, self._ending = False, threading.Lock()
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "KUBECONFIG": str(kubeconfig),
            "TUSSOCK_OPERATOR_NAMESPACES": ",".join(namespaces),
            "TUSSOCK_OPERATOR_LEASE_NAME": lease,
            "TUSSOCK_OPERATOR_IDENTITY": identity,
            "TUSSOCK_OPERATOR_HTTP_LISTEN": f"127.0.0.1:{self._port}",
            "TUSSOCK_OPERATOR_NODE_IMAGE": "localhost/tussock-node:test",
            "TUSSOCK_OPERATOR_SPARK_IMAGE": "localhost/tussock-spark:test",
            "TUSSOCK_OPERATOR_MINIO_IMAGE": "localhost/minio:test",
            **(environment or {}),
        }

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tussock.operator"], env=self._environment, stdout=log, stderr=log
            )
        self.running.add(self)

    def keep(self) -> None:
        """Start it, and again whenever it ends by itself, as a kubelet does: a busy machine may cost it its lease."""
        self.start()
        self._is_kept = True
        threading.Thread(target=self._revive, daemon=True).start()

    def _revive(self) -> None:
        while self._process is not None:
            self._process.wait()
            with self._ending:
                if not self._is_kept:
                    return
                self.start()

    def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        self._leave()
        self._process.kill()
        self._process.wait()
        self.running.discard(self)

    def stop(self) -> int:
        """Send SIGTERM; returns the exit code."""
        assert self._process is not None
        self._leave()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=WAIT_SECONDS_MAX)
        self.running.discard(self)
        return code

    def _leave(self) -> None:
        """From now on only the caller ends it."""
        with self._ending:
            self._is_kept = False

    def ask(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """The sum of all series of a metric."""
        found = [line for line in self.ask("/metrics").splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def log(self) -> str:
        return self.log_file.read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


def kept_operator(objects: Objects, folder: Path, identity: str = "one", **settings: str) -> OperatorProcess:
    """An operator of the namespace with these settings, which begins again whenever it ends by itself."""
    environment = {f"TUSSOCK_OPERATOR_{name.upper()}": value for name, value in settings.items()}
    found = OperatorProcess(
        *(objects.kubeconfig, folder, objects.namespace),
        lease=objects.namespace,
        identity=identity,
        environment=environment,
    )
    found.keep()
    return found
