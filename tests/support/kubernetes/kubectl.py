"""kubectl as users run it: its input and its output."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cluster.binaries import NoCluster, search_path

SECONDS_MAX = 60


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    error: str


class Kubectl:
    """`kubectl` with one kubeconfig; its cache of the server's kinds is in `folder`."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        found = shutil.which("kubectl", path=search_path())
        if not found:
            raise NoCluster("no kubectl on the PATH, with which manifests are given to the API server")
        self._program = found
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(folder)}

    def __call__(self, *arguments: str, manifest: Any = None) -> Answer:
        """Run it; `manifest`, one object or several, is its standard input for `-f -`."""
        objects = manifest if isinstance(manifest, list) else [manifest]
        text = "" if manifest is None else yaml.safe_dump_all(objects)
        ran = subprocess.run(
            [self._program, *arguments],
            input=text,
            env=self._environment,
            capture_output=True,
            check=False,
            text=True,
            timeout=SECONDS_MAX,
        )
        return Answer(ran.returncode, ran.stdout, ran.stderr)

    def shell(self, line: str, folder: Path) -> str:
        """Run a line of a shell in a folder, with this `kubectl`, and fail if it fails; returns its output."""
        path = f"{Path(self._program).parent}{os.pathsep}{self._environment.get('PATH', '')}"
        ran = subprocess.run(
            ["sh", "-c", line],
            env={**self._environment, "PATH": path},
            cwd=folder,
            capture_output=True,
            check=False,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
        return ran.stdout

    def define(self, folder: Path) -> None:
        """Apply the definitions in a folder, and wait until the server knows them."""
        self.run_well("apply", "--server-side", "-f", str(folder))
        self.run_well("wait", "--for=condition=Established", "--timeout=30s", "-f", str(folder))

    def run_well(self, *arguments: str, manifest: Any = None) -> str:
        """Run it, and fail if it fails; returns its output."""
        answer = self(*arguments, manifest=manifest)
        assert answer.code == 0, f"kubectl {' '.join(arguments)}: {answer.error}"
        return answer.out
