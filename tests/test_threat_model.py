"""`docs/threat-model.md` names a test for each line of its tables, and these tests exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def lines() -> Iterator[str]:
    """The rows of all tables, without their heads."""
    for line in (ROOT / "docs/threat-model.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith(("| at worst ", "|---")):
            yield line


@pytest.mark.parametrize("line", list(lines()), ids=lambda line: line.split("|")[1].strip()[:40])
def test_each_line_names_existing_tests(line: str) -> None:
    named = NAMED.findall(line)
    assert named, "a line that no test shows"
    for path, name in named:
        assert (ROOT / path).is_file(), path
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in found, f"{path} has no {name}"
