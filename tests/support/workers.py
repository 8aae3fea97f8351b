"""How `make test` shares the tests out to worker processes, by pytest-xdist; a plugin of pytest.

A file is one piece of work, so that what its tests share is made once. So are the folders that share something dear,
and those that would keep each other waiting, since each of them computes all the time. A worker takes the next piece
when it has nearly done its last one, so the longest come first.
"""

from collections.abc import Sequence, Set
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["LONG_PIECES", "Pieces", "piece_of", "rank_of"]

LONG_PIECES = {
    # One session of Spark.
    "session": (
        "tests/compute/",
        "tests/statestore/keys/test_vnode.py",  # asks Spark for its hashes
    ),
    # One Kubernetes node, which has all images.
    "node": ("tests/e2e/",),
    # API servers, operators at them; they mostly wait, which suits the two before, which compute.
    "api server": ("tests/operator/", "tests/crds/", "tests/charts/"),
    # Tests that each start their own Spark.
    "programs": (
        "tests/compute/test_spark_speculation.py",
        "tests/compute/driver/test_driver_process.py",
        "tests/examples/",
    ),
    # Many processes that are killed, and thousands of histories: nothing that waits.
    "histories": ("tests/chaos/", "tests/simulation/"),
    # Streams that begin again and again, since all that runs them is killed.
    "kills": ("tests/compute/test_spark_crash.py",),
    # One broker of Kafka.
    "feeds": ("tests/compute/feeds/",),
    "documents": ("tests/test_docs.py",),
}
"""Names of pieces, the longest first, and how the ids of their tests begin; the longest beginning decides."""


SHORT_PIECES = (
    "tests/compute/applications/",
    "tests/compute/changelog/",
    "tests/compute/functions/",
    "tests/compute/procedures/",
    "tests/compute/service/",
)
"""Folders within those of long pieces whose files share nothing with them."""

_SLOW_MARKS = ("long", "slow")


def piece_of(test: str) -> str:
    """The piece of work to which a test belongs, by its id."""
    if test.startswith(SHORT_PIECES):
        return test.split("::")[0]
    fitting = [
        (len(beginning), name)
        for name, beginnings in LONG_PIECES.items()
        for beginning in beginnings
        if test.startswith(beginning)
    ]
    return max(fitting)[1] if fitting else test.split("::")[0]


def rank_of(test: str, before: Sequence[Set[str]] = ()) -> tuple[int, ...]:
    """The rank of a test: long pieces first, the others as collected, but for pieces that are in the sets `before`."""
    piece = piece_of(test)
    return ([*LONG_PIECES, piece].index(piece), *(piece not in pieces for pieces in before))


class Pieces(LoadScopeScheduling):
    """Gives each worker a piece at a time, in the order of the tests."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers have the tests in the order in which the pieces are given out; a run without workers is as it was.

    Of the short pieces, those with tests that take minutes, and then those with slow ones, come before the others: one
    that begins last would keep a worker busy when the others have nothing left.
    """
    if hasattr(config, "workerinput"):
        before = [{piece_of(one.nodeid) for one in items if one.get_closest_marker(mark)} for mark in _SLOW_MARKS]
        items.sort(key=lambda item: rank_of(item.nodeid, before))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Pieces:
    """For any `--dist`: other schedulers would start a node or a JVM in each worker."""
    return Pieces(config, log)
