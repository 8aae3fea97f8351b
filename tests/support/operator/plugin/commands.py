"""`kubectl tussock` as users run it, and the part of a cluster that an API server alone does not have: kubelets."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cluster.binaries import NoCluster, search_path
from support.operator.plugin.preloaded import run_module
from support.operator.process import Objects

__all__ = ["COMMAND", "Answer", "Kubelets", "plugin", "plugin_process"]

COMMAND = (sys.executable, "-m", "tussock.operator.plugin")
SECONDS_MAX = 180
Answer = subprocess.CompletedProcess[str]

_STAND_IN = """#!{python}
# Answers what needs a kubelet from {folder}; all else is the real kubectl's.
import json, os, re, sys, time
words = sys.argv[1:]
known = json.loads(open({folder!r} + "/known.json").read())
if "port-forward" in words:
    target = next(word for word in words if word.startswith("pod/"))
    ports = next(word for word in words if re.fullmatch(r"\\d*:\\d+", word))
    local = known["ports"].get(target.removeprefix("pod/") + ":" + ports.split(":")[1])
    if local is None:
        sys.exit("error: unable to forward port because pod is not running. Current status=Pending")
    open({folder!r} + "/forwarding", "w").write(str(os.getpid()))
    print(f"Forwarding from 127.0.0.1:{{local}} -> {{ports.split(':')[1]}}", flush=True)
    time.sleep(600)
elif "logs" in words:
    pod = next(word for word in words if word in known["logs"])
    sys.stdout.write(known["logs"][pod] + (" of before" if "--previous" in words else ""))
elif "--raw" in words:
    sys.stdout.write(known["raw"])
else:
    os.execv({kubectl!r}, [{kubectl!r}, *words])
"""


class Kubelets:
    """What kubelets would answer: forwarded ports of pods, logs, and what is behind a proxied path."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("kubectl", path=search_path())
        if not found:
            raise NoCluster("no kubectl on the PATH")
        self.folder = folder
        self._known: dict[str, object] = {"ports": {}, "logs": {}, "raw": ""}
        program = folder / "kubectl"
        program.write_text(_STAND_IN.format(python=sys.executable, folder=str(folder), kubectl=found))
        program.chmod(0o755)
        self.know()

    def know(
        self, ports: Mapping[str, int] | None = None, logs: Mapping[str, str] | None = None, raw: str = ""
    ) -> None:
        """From now on: local ports by `pod:port`, logs by pod, and the answer to any proxied request."""
        self._known |= {"ports": dict(ports or {}), "logs": dict(logs or {}), "raw": raw}
        (self.folder / "known.json").write_text(json.dumps(self._known))

    def is_forwarding(self) -> bool:
        """Whether the process runs that has forwarded a port last."""
        pid = int((self.folder / "forwarding").read_text())
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True


def _environment(kubelets: Kubelets | None) -> dict[str, str]:
    path = search_path() if kubelets is None else f"{kubelets.folder}{os.pathsep}{search_path()}"
    return {**os.environ, "PATH": path, "COLUMNS": "200"}


def _command(objects: Objects, arguments: tuple[str, ...], kubeconfig: Path | None = None) -> list[str]:
    name, *rest = arguments
    config = str(kubeconfig or objects.kubeconfig)
    return [*COMMAND, name, *rest, "--kubeconfig", config, "--namespace", objects.namespace]


def plugin(
    objects: Objects,
    *arguments: str,
    kubelets: Kubelets | None = None,
    folder: Path | None = None,
    kubeconfig: Path | None = None,
) -> Answer:
    """Run a command to its end, in the namespace of `objects`; `kubeconfig` is that of another user."""
    _, _, module, *words = _command(objects, arguments, kubeconfig)
    return run_module(module, words, environment=_environment(kubelets), folder=folder, seconds=SECONDS_MAX)


class plugin_process:  # noqa: N801 - used as a function
    """A command that runs until it is told to stop, as a context."""

    def __init__(self, objects: Objects, *arguments: str, kubelets: Kubelets | None = None) -> None:
        self.process = subprocess.Popen(
            _command(objects, arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(kubelets),
        )

    def __enter__(self) -> "subprocess.Popen[str]":
        return self.process

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=SECONDS_MAX)
