"""One node for all test runs of a clone that overlap: the first starts it, the last stops it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.node import Node


@contextmanager
def shared_node() -> Iterator[Node]:
    """The node, up; ends with its last user, unless `TUSSOCK_KEEP_NODE` is set. Raises as `Node.up` does."""
    node = Node()
    with Path(f"{node.folder}.turn").open("w") as turn, Path(f"{node.folder}.users").open("w") as users:
        # Starting and stopping is one's turn; using is shared. The kernel lets go of both if a run is killed.
        fcntl.flock(turn, fcntl.LOCK_EX)
        node.up()
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield node
        finally:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not os.environ.get("TUSSOCK_KEEP_NODE") and _only_user(users.fileno()):
                node.down()


def _only_user(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
