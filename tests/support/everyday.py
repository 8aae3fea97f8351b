"""`--everyday`: leave out slow tests, and name them at the end; a plugin of pytest.

What is left out needs a program that takes minutes to build (the parts of Kubernetes), or takes minutes by itself. It
is run by `make test-all`, as CI does. The groups are those of `docs/testing.md`.
"""

from collections import Counter
from typing import Any

import pytest

from support.workers import piece_of

__all__ = ["group_of"]

GROUPS = {
    "node": "a Kubernetes node of our own (tests/e2e)",
    "kills": "random kills of Spark",
    "programs": "programs that start their own Spark (driver processes, speculation, the examples)",
}
"""Pieces that are left out whole, and their descriptions."""
API_SERVER_GROUP = "an API server of Kubernetes (most of tests/operator, tests/crds, tests/charts)"
LONG_GROUP = "kills, chaos, simulated histories, long waits and streams, floods, and the documents' Spark programs"
_BUILT = {"api_server", "kubectl", "definitions", "helm", "rendered", "shared", "operator"}
"""Fixtures that need programs built from Kubernetes' source."""

_left_out: Counter[str] = Counter()


def group_of(item: pytest.Item) -> str:
    """The group with which a test is left out; empty for an everyday test."""
    piece = piece_of(item.nodeid)
    if piece in GROUPS:
        return GROUPS[piece]
    if piece == "api server" and _BUILT & set(getattr(item, "fixturenames", ())):
        return API_SERVER_GROUP
    return LONG_GROUP if item.get_closest_marker("long") else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that `make test` gives."""
    parser.addoption("--everyday", action="store_true", help="leave out what takes long, and name it at the end")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the everyday tests."""
    if not config.getoption("--everyday"):
        return
    left_out = [item for item in items if group_of(item)]
    _left_out.update(group_of(item) for item in left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not group_of(item)]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the counts of a worker of pytest-xdist to the first process: all leave out the same."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(_left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the counts of a worker that has ended."""
    _left_out.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - _left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out, and how to run it."""
    if not _left_out:
        return
    terminalreporter.section("left out, as every day")
    for group, count in sorted(_left_out.items()):
        terminalreporter.write_line(f"{count:5} tests of {group}")
    terminalreporter.write_line("`make test-all` runs them too.")
