"""The newest epoch that this process has committed, for whoever watches over it (`tussock.compute.driver`).

Only commits of `write_epoch` and `upsert` are seen here: those of the sink happen in a Python worker of Spark's.
"""

from typing import NamedTuple

from tussock.statestore.system import RealSystem

__all__ = ["Commit", "latest_commit", "note_commit"]


class Commit(NamedTuple):
    """One batch of a writer in the store."""

    writer: str
    batch: int
    epoch: int
    noted_ms: int
    """When this process knew of it, as Unix time."""


_latest: Commit | None = None


def note_commit(writer: str, batch: int, epoch: int) -> None:
    """A batch is in the store; an older one, which was only run again, changes nothing."""
    global _latest
    if _latest is None or epoch > _latest.epoch:
        _latest = Commit(writer, batch, epoch, RealSystem().now_ms())


def latest_commit() -> Commit | None:
    """The newest batch that is known to be in the store."""
    return _latest
