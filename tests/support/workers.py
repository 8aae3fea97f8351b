"""How `make test` shares the tests out to worker processes, by pytest-xdist; a plugin of pytest.

A file is one piece of work, so that what its tests share is made once; a folder whose files share something dear, a
Kubernetes node, a JVM or an API server, is one piece too. A worker takes the next piece when it has done its last, so
the longest come first, and what would otherwise get into each other's way at the same time stands in one piece.
"""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["Pieces", "piece_of", "rank_of"]

# The longest first. Each is a piece with a name, and the beginnings of its tests' ids.
LONG_PIECES = {
    # A node whose pods are Spark jobs, and JVMs of our own: two of them at once need more memory than they save time.
    "spark": ("tests/e2e/", "tests/compute/test_spark_", "tests/examples/"),
    "api server": ("tests/operator/", "tests/crds/", "tests/charts/"),
}


def piece_of(test: str) -> str:
    """The piece of work that a test, by its id, belongs to."""
    for name, beginnings in LONG_PIECES.items():
        if test.startswith(beginnings):
            return name
    return test.split("::")[0]


def rank_of(test: str) -> int:
    """By what the tests are put in order: long pieces first, all else as it was collected."""
    piece = piece_of(test)
    return [*LONG_PIECES, piece].index(piece)


class Pieces(LoadScopeScheduling):
    """Gives each worker a piece at a time, in the order of the tests."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers have the tests in the order in which the pieces are given out; a run without workers is as it was."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Pieces:
    """Whatever `--dist` says: other ways to share out would start a node or a JVM in each worker."""
    return Pieces(config, log)
