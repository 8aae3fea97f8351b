"""Prometheus' own checker of rules and queries."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.binaries import PROGRAMS, missing

__all__ = ["Promtool"]


class Promtool:
    """`promtool`, if it is built; else the test is skipped, with the words how to build it."""

    def __init__(self) -> None:
        program = PROGRAMS["promtool"]
        if missing(("promtool",)):
            how = f"go install {program.package}@v{program.version}, to {program.path}"
            pytest.skip(f"promtool is not built, which takes about eight minutes: {how}")
        self._program = str(program.path)

    def run_well(self, *arguments: str) -> str:
        """Run it, and fail with its output if it fails; returns the output."""
        ended = subprocess.run([self._program, *arguments], capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def evaluate(self, folder: Path, rules: Any, series: Mapping[str, str], **asked: Sequence[Any]) -> None:
        """Evaluate rules, and what is `asked`, over series in its notation, with a value for each minute.

        `asked` has the lists `alert_rule_test` and `promql_expr_test` of a test of promtool.
        """
        (folder / "rules.json").write_text(json.dumps(rules))
        given = [{"series": one, "values": values} for one, values in series.items()]
        test = {"interval": "1m", "input_series": given, **asked}
        file = folder / "test.json"
        file.write_text(json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [test]}))
        self.run_well("test", "rules", str(file))
