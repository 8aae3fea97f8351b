"""Runs kubectl with the cluster, namespace and user that the plugin was called for."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tussock.operator.planning.words.model import Manifest

__all__ = ["Kubectl", "KubectlFailed"]

FORWARDING = "Forwarding from 127.0.0.1:"


class KubectlFailed(Exception):
    """kubectl ended with an error; the message is kubectl's."""


class Kubectl:
    """Runs kubectl; `options` come first in each command, such as `--namespace=data`."""

    def __init__(self, options: Sequence[str]) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise KubectlFailed("there is no kubectl on the PATH; install it, or put it there")
        self._command = [program, *options]

    def objects(self, resource: str, *, everywhere: bool = False) -> list[Manifest]:
        """All objects of a resource (`statestores.tussock.dev`) in the namespace, or in all of them."""
        scope = ["--all-namespaces"] if everywhere else []
        return list(json.loads(self.run("get", resource, "--output=json", *scope))["items"])

    def object(self, resource: str, name: str) -> Manifest:
        """One object; `KubectlFailed` if there is none."""
        found: Manifest = json.loads(self.run("get", resource, name, "--output=json"))
        return found

    def create(self, manifest: Manifest) -> None:
        """Create an object; `KubectlFailed` if there is one of that name."""
        self.run("create", "--filename=-", text=json.dumps(manifest))

    def run(self, *arguments: str, text: str = "") -> str:
        """The output of a command; `KubectlFailed` if it fails."""
        ran = subprocess.run(  # noqa: S603 - the program that the user's shell would find
            [*self._command, *arguments], input=text, capture_output=True, check=False, text=True
        )
        if ran.returncode:
            raise KubectlFailed(ran.stderr.strip().removeprefix("error: ") or f"kubectl ended with {ran.returncode}")
        return ran.stdout

    def become(self, *arguments: str) -> None:
        """Become kubectl, whose output and exit code are then ours; does not return."""
        command: list[Any] = [*self._command, *arguments]
        os.execv(command[0], command)  # noqa: S606 - as above

    @contextmanager
    def forward(self, target: str, port: int) -> Iterator[str]:
        """Forward a port of a pod (`pod/NAME`) while the context lasts; yields the local address, `host:port`."""
        command = [*self._command, "port-forward", target, f":{port}"]
        with subprocess.Popen(  # noqa: S603 - as above
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                said = process.stdout.readline()
                if not said.startswith(FORWARDING):
                    raise KubectlFailed(process.stderr.read().strip().removeprefix("error: "))
                yield f"127.0.0.1:{int(said.removeprefix(FORWARDING).split()[0])}"
            finally:
                process.terminate()
