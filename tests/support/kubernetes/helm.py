"""`helm` as tests call it."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.binaries import KUBERNETES_VERSION, PROGRAMS

__all__ = ["Helm"]


class Helm:
    """Helm on one chart, and on one cluster if `kubeconfig` is given."""

    def __init__(self, chart: Path, kubeconfig: Path | None = None) -> None:
        self.chart = chart
        self._cluster = ["--kubeconfig", str(kubeconfig)] if kubeconfig is not None else []

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run helm; `values` is the content for `--values`."""
        given = ["--values", "-"] if values is not None else []
        return subprocess.run(
            [str(PROGRAMS["helm"].path), *arguments, *given, *self._cluster],
            input=json.dumps(values) if values is not None else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def run_well(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm, and fail with its output if it fails; returns the output."""
        ended = self.run(*arguments, values=values)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def template(self, values: Mapping[str, Any], *, namespace: str = "system") -> list[dict[str, Any]]:
        """The objects that the chart makes of these values, as release `r`."""
        place = ["--namespace", namespace, "--kube-version", KUBERNETES_VERSION]
        text = self.run_well("template", "r", str(self.chart), *place, values=values)
        return [one for one in yaml.safe_load_all(text) if one]
