"""Runs kubectl with the cluster, namespace and user that the plugin was called for."""

import json
import os
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tussock.operator.planning.words.model import Manifest

__all__ = ["Forward", "Kubectl", "KubectlFailed", "NotThere"]

FORWARDING = "Forwarding from 127.0.0.1:"
REQUEST_SECONDS = 30
"""A request without an answer has failed after that; kubectl makes up to five to find out what the server knows."""
SINGLE_REQUESTS = ("get", "create", "patch", "version")
"""Commands whose requests end soon; others watch, or read what is long."""
COMMAND_SECONDS = 90.0
END_SECONDS = 5.0
LINES_KEPT = 20
"""Of what kubectl says while it forwards a port."""
_LOG_LINE = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d")
"""How the lines begin that kubectl's libraries log; what it says itself comes after them."""


class KubectlFailed(Exception):
    """kubectl ended with an error; the message is kubectl's."""


class NotThere(KubectlFailed):
    """There is no such object."""


class Forward:
    """A port of a pod that is forwarded to this machine."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self._process = process
        self.address = address
        """The local end, `host:port`."""
        self._said: deque[str] = deque(maxlen=LINES_KEPT)
        # kubectl tells of each connection, and would stand still if nobody read it.
        self._readers = [
            threading.Thread(target=deque, args=(process.stdout, 0), daemon=True),
            threading.Thread(target=self._said.extend, args=(process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def wait(self) -> str:
        """Wait until it ends by itself, as when the pod is gone; returns what kubectl said last."""
        code = self._process.wait()
        for reader in self._readers:
            reader.join(END_SECONDS)
        return _told("".join(self._said), code)


class Kubectl:
    """Runs kubectl; `options` come first in each command, such as `--namespace=data`."""

    def __init__(self, options: Sequence[str]) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise KubectlFailed("there is no kubectl on the PATH; install it, or put it there")
        self.options = tuple(options)
        self._command = [program, *options]

    def objects(self, resource: str, *, everywhere: bool = False, labels: str = "") -> list[Manifest]:
        """All objects of a resource (`statestores.tussock.dev`) with the labels, in the namespace or in all of them."""
        scope = ["--all-namespaces"] if everywhere else []
        chosen = [f"--selector={labels}"] if labels else []
        return list(json.loads(self.run("get", resource, "--output=json", *scope, *chosen))["items"])

    def object(self, resource: str, name: str) -> Manifest:
        """One object; `NotThere` if there is none."""
        # A name with a slash or a dash in front would be another object or an option.
        found: Manifest = json.loads(self.run("get", "--output=json", "--", resource, name))
        return found

    def create(self, manifest: Manifest) -> None:
        """Create an object; `KubectlFailed` if there is one of that name."""
        self.run("create", "--filename=-", text=json.dumps(manifest))

    def patch(self, resource: str, name: str, patch: Manifest) -> None:
        """Merge a patch into an object; `NotThere` if there is none."""
        self.run("patch", "--type=merge", f"--patch={json.dumps(patch)}", "--", resource, name)

    def run(self, *arguments: str, text: str = "", seconds: float = COMMAND_SECONDS) -> str:
        """The output of a command; `KubectlFailed` if it fails, or has not ended in time."""
        limit = [f"--request-timeout={REQUEST_SECONDS}s"] if arguments[0] in SINGLE_REQUESTS else []
        command = [*self._command, *limit, *arguments]
        try:
            ran = subprocess.run(  # noqa: S603 - the program that the user's shell would find
                command, input=text, capture_output=True, check=False, text=True, errors="replace", timeout=seconds
            )
        except subprocess.TimeoutExpired:
            raise KubectlFailed(
                f"kubectl {arguments[0]} had no answer within {seconds:.0f} s; is the API server reachable?"
            ) from None
        if ran.returncode:
            told = _told(ran.stderr, ran.returncode)
            raise (NotThere if "(NotFound)" in told else KubectlFailed)(told)
        return ran.stdout

    def become(self, *arguments: str) -> None:
        """Become kubectl, whose output and exit code are then ours; does not return."""
        command: list[Any] = [*self._command, *arguments]
        os.execv(command[0], command)  # noqa: S606 - as above

    @contextmanager
    def forward(self, target: str, port: int, local: int = 0) -> Iterator[Forward]:
        """Forward a port of a pod (`pod/NAME`) while the context lasts, to that port of this machine; 0: a free one."""
        command = [*self._command, "port-forward", "--address=127.0.0.1", target, f"{local or ''}:{port}"]
        with subprocess.Popen(  # noqa: S603 - as above
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            assert process.stdout is not None
            try:
                said = process.stdout.readline()
                if not said.startswith(FORWARDING):
                    process.terminate()
                    _, why = process.communicate()
                    raise KubectlFailed(f"port {port} of {target} is not forwarded: {_told(why, process.returncode)}")
                yield Forward(process, f"127.0.0.1:{int(said.removeprefix(FORWARDING).split()[0])}")
            finally:
                process.terminate()
                try:
                    process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _told(said: str, code: int) -> str:
    """What kubectl says of its end in one line, without what its libraries log."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if not _LOG_LINE.match(line)] or lines[-1:]
    return " ".join(own).removeprefix("error: ") or f"kubectl ended with {code}"
