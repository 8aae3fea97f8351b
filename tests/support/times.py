"""Times, printed at the end of the run: those that tests measured, and of the files that took longest.

A plugin of pytest. The first process has them from all worker processes.
"""

from collections import Counter
from typing import Any

import pytest

__all__ = ["note"]

_FILES = 40
_FILE_SECONDS = 20
"""A run that took less in each of its files is told of no file."""

_times: list[tuple[str, float]] = []
_files: Counter[str] = Counter()
"""Milliseconds of each file: set-up, tests and what ends them."""


def note(name: str, seconds: float) -> None:
    """Have a time printed at the end of the run."""
    _times.append((name, seconds))


@pytest.hookimpl(trylast=True)  # after the fixtures that note theirs when they end
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the times of a worker of pytest-xdist to the first process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["times"] = _times


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the times of a worker that has ended; a killed one has sent none."""
    _times.extend(getattr(node, "workeroutput", {}).get("times", ()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the time of a test to its file."""
    _files[report.nodeid.split("::")[0]] += round(report.duration * 1000)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them."""
    if _times:
        terminalreporter.section("times")
    for name, seconds in _times:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
    longest = [(name, ms / 1000) for name, ms in _files.most_common(_FILES) if ms >= _FILE_SECONDS * 1000]
    if longest:
        terminalreporter.section(f"the files that took longest, of {_files.total() / 1000:,.0f} s")
    for name, seconds in longest:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
