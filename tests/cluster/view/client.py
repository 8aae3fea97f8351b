"""A cluster as end-to-end tests see it, this project's or another: kubectl, waiting, namespaces, times of phases."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any, TypeVar

from cluster.binaries import search_path
from cluster.node import Node
from cluster.view.reading import ClusterFailed, Objects
from support import times

Manifest = Mapping[str, Any]
WAIT_SECONDS_MAX = 120


class KubectlFailed(ClusterFailed):
    """A call of kubectl that failed; the text has the call and what kubectl said."""


class NeverHappened(Exception):
    """A test waited in vain; the text says what the cluster looked like instead."""


T = TypeVar("T")


class Cluster:
    """A cluster that a kubeconfig leads to. `node` is the one that tests may harm, or `None` on another cluster."""

    def __init__(self, kubeconfig: Path, node: Node | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.node = node
        # Plugins of kubectl are programs on the path, and ours is installed beside Python.
        path = os.pathsep.join([search_path(), str(Path(sys.executable).parent)])
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        self._numbers = count(1)
        self._objects = Objects(kubeconfig)

    # Each call is a separate process, as users have it: slow, but what they see is what we test.
    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 120) -> str:
        """Run kubectl and return what it prints; raises `KubectlFailed`."""
        done = self.run("kubectl", *arguments, stdin=stdin, seconds=seconds)
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def run(self, *command: str, stdin: str | None = None, seconds: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run a program with `KUBECONFIG` set, such as helm, whatever its exit code."""
        return subprocess.run(
            command, check=False, input=stdin, capture_output=True, text=True, timeout=seconds, env=self._environment
        )

    @contextmanager
    def running(self, *command: str, output: IO[str]) -> "Iterator[subprocess.Popen[str]]":
        """Run a program with `KUBECONFIG` set, such as a watch, for the time of the block, then end it."""
        with subprocess.Popen(
            command, stdout=output, stdin=subprocess.DEVNULL, text=True, env=self._environment
        ) as ran:
            try:
                yield ran
            finally:
                ran.terminate()

    def apply(self, *manifests: Manifest, namespace: str = "default") -> None:
        """Server-side apply, as a user."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        self.kubectl("apply", "--server-side", f"--namespace={namespace}", "--filename=-", stdin=text)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """One object, or `None` if there is none of this name."""
        return self._objects.get(kind, name, namespace)

    def list(self, kind: str, namespace: str = "default", selector: str = "") -> "Sequence[dict[str, Any]]":
        """Objects of a kind, by labels if `selector` is given."""
        return self._objects.list(kind, namespace, selector)

    def answer(self, path: str) -> Any:
        """The API server's answer at a path, from JSON: of a pod's port, for instance."""
        return self._objects.answer(path)

    def log(self, pod: str, namespace: str) -> str:
        """What the one container of a pod has printed; empty before it began."""
        try:
            return self._objects.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log")
        except ClusterFailed:
            return ""

    def wait_for(self, what: str, probe: Callable[[], T | None], seconds: float = WAIT_SECONDS_MAX) -> T:
        """The first answer of `probe` that is true; asked again when the cluster fails. Raises `NeverHappened`."""
        deadline = time.monotonic() + seconds
        last = "nothing yet"
        while time.monotonic() < deadline:
            try:
                if answer := probe():
                    return answer
            except ClusterFailed as error:
                last = str(error)
            time.sleep(0.2)
        raise NeverHappened(f"no {what} within {seconds:.0f} s: {last}")

    def wait_ready(self, *names: str, namespace: str = "default", seconds: float = WAIT_SECONDS_MAX) -> None:
        """Wait for condition Ready of pods or custom resources (`pod/x`), or for the rollout of the rest."""
        for name in names:
            if name.split("/")[0] in ("deployment", "statefulset", "daemonset"):
                wait = ["rollout", "status", name, f"--timeout={seconds}s"]
            else:
                wait = ["wait", "--for=condition=Ready", name, f"--timeout={seconds}s"]
            self.kubectl(*wait, f"--namespace={namespace}", seconds=seconds + 30)

    @contextmanager
    def namespace(self, prefix: str) -> Iterator[str]:
        """A new namespace in which only pods of the restricted profile may run; it is deleted at the end.

        When the test fails, what went on in it is printed first.
        """
        name = f"{prefix}-{os.getpid()}-{next(self._numbers)}"
        self.make_namespace(name)
        try:
            yield name
        except BaseException:
            print(self.describe(name))
            raise
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")

    def make_namespace(self, name: str) -> None:
        """A namespace for pods of the restricted profile, which is not deleted at the end."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def kill(self, pod: str, namespace: str) -> None:
        """End a pod's processes by SIGKILL; on another cluster delete the pod, without time to end."""
        if self.node is None:
            force = ["--grace-period=0", "--force", "--wait=true"]
            self.kubectl("delete", "pod", pod, f"--namespace={namespace}", *force)
            return
        found = self.get("pod", pod, namespace)
        assert found is not None, f"no pod {pod}"
        for container in found["status"]["containerStatuses"]:
            self.node.named(found["spec"]["nodeName"]).kill(container["containerID"].removeprefix("containerd://"))

    def describe(self, namespace: str) -> str:
        """Pods, events and the ends of logs of a namespace, for messages."""
        told = [self.run("kubectl", "get", "pods,events", f"--namespace={namespace}", "--output=wide").stdout]
        for pod in self.list("pods", namespace):
            name = pod["metadata"]["name"]
            log = self.run("kubectl", "logs", name, f"--namespace={namespace}", "--tail=40", "--all-containers")
            told.append(f"--- log of {name}\n{log.stdout}{log.stderr}")
        return "\n".join(told)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure one part of a test; all are printed at the end of the run."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.note(name, time.monotonic() - started)

    def note(self, name: str, seconds: float) -> None:
        """Record a time that was measured elsewhere, to be printed at the end of the run."""
        times.note(name, seconds)

    def audited_writes(self) -> "Sequence[dict[str, Any]]":
        """Every write that the API server answered until now, oldest first; only this project's node logs them.

        Of each: `verb`, `user.username`, `userAgent`, `objectRef`, `requestURI` (with the field manager), times.
        """
        assert self.node is not None
        return [json.loads(line) for line in self.node.audit_log.read_text().splitlines()]
