"""Prints what the tests take, from the file that `pytest --junitxml=FILE` writes, as tables for `docs/testing.md`.

    python scripts/test_minutes.py FILE [--over SECONDS]

The time of a test includes the fixtures that it is the first to need. Tests of several processes run side by side, so
the sum is more than the time that passes.
"""

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Took(NamedTuple):
    """What one test took."""

    group: str
    name: str
    seconds: float


def read(file: Path) -> list[Took]:
    """All tests of a run."""
    return [
        Took(
            _group(case.get("classname", "")),
            f"{case.get('classname')}::{case.get('name')}",
            float(case.get("time", 0)),
        )
        for case in ElementTree.parse(file).getroot().iter("testcase")  # noqa: S314 - our own file
    ]


def groups_table(tests: Iterable[Took]) -> str:
    """A line a folder, the longest first."""
    groups: dict[str, list[float]] = {}
    for test in tests:
        groups.setdefault(test.group, []).append(test.seconds)
    lines = ["| group | tests | minutes |", "| --- | ---: | ---: |"]
    for group, seconds in sorted(groups.items(), key=lambda item: -sum(item[1])):
        lines.append(f"| `{group}` | {len(seconds):,} | {sum(seconds) / 60:.1f} |")
    return "\n".join(lines)


def long_table(tests: Iterable[Took], over: float) -> str:
    """A line a test that takes longer, the longest first."""
    lines = ["| test | seconds |", "| --- | ---: |"]
    longest = sorted((test for test in tests if test.seconds > over), key=lambda test: -test.seconds)
    lines.extend(f"| `{test.name}` | {test.seconds:.0f} |" for test in longest)
    return "\n".join(lines)


def _group(module: str) -> str:
    """The folder below `tests`; of the largest room its rooms."""
    rooms = [part for part in module.split(".") if not part.startswith("test_")]
    return "/".join(rooms[: 3 if rooms[1:2] == ["compute"] else 2])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--over", type=float, default=30.0, metavar="SECONDS", help="tests that take longer are listed")
    options = parser.parse_args()
    tests = read(options.file)
    sys.stdout.write(f"{groups_table(tests)}\n\n{long_table(tests, options.over)}\n")


if __name__ == "__main__":
    main()
