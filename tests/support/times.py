"""Times that tests measured, printed at the end of the run, from all worker processes; a plugin of pytest."""

from typing import Any

import pytest

__all__ = ["note"]

_times: list[tuple[str, float]] = []


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them."""
    if _times:
        terminalreporter.section("times")
    for name, seconds in _times:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
