"""One node for all test runs of a clone that overlap, and one operator on it: the first starts, the last stops."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.node import Node


@contextmanager
def shared_node() -> Iterator[Node]:
    """The node, up; ends with its last user, unless `TUSSOCK_KEEP_NODE` is set. Raises as `Node.up` does."""
    node = Node()

    def end() -> None:
        if not os.environ.get("TUSSOCK_KEEP_NODE"):
            node.down()

    with share(node.folder, node.up, end):
        yield node


@contextmanager
def share(name: Path, begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
    """Begin and end something that runs share: each run begins it if needed, only the last one ends it, by `name`."""
    with Path(f"{name}.turn").open("w") as turn, Path(f"{name}.users").open("w") as users:
        # Starting and stopping is one's turn; using is shared. The kernel lets go of both if a run is killed.
        fcntl.flock(turn, fcntl.LOCK_EX)
        begin()
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if _only_user(users.fileno()):
                end()


class Peace:
    """Whether the whole node may be harmed: each run holds the peace, and breaks it while no other one holds it."""

    def __init__(self, name: Path) -> None:
        """`name` tells nodes apart."""
        self._path = Path(f"{name}.peace")

    @contextmanager
    def keep(self) -> Iterator["Peace"]:
        """Hold the peace: what all runs share works meanwhile."""
        with self._path.open("w") as self._file:
            fcntl.flock(self._file, fcntl.LOCK_SH)
            yield self

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Wait until no other run holds the peace, and keep others waiting; within `keep`."""
        # The kernel gives the shared lock up before it waits for the other, so two that want this don't hang.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_SH)


def _only_user(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
