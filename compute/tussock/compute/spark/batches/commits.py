"""The newest epoch that a driver has committed, for the process that watches it (`tussock.compute.driver`).

Each writer's newest batch has its own note, since writers commit in several processes (`notes`).
"""

import hashlib
from typing import NamedTuple

from tussock.compute.spark.batches.notes import leave_note, notes_folder, read_note
from tussock.statestore.base.system import RealSystem

__all__ = ["Commit", "latest_commit", "note_commit"]


class Commit(NamedTuple):
    """One batch of a writer in the store."""

    writer: str
    batch_id: int
    epoch: int
    noted_ms: int
    """Unix time of the note."""


def note_commit(writer: str, batch_id: int, epoch: int) -> None:
    """Note that a batch is in the store; an older one that only ran again changes nothing. Never fails."""
    folder = notes_folder()
    if folder is None:
        return
    path = folder / f"{hashlib.sha256(writer.encode()).hexdigest()[:32]}.json"
    known = read_note(path, Commit)
    if known is None or known.epoch < epoch:
        note = Commit(writer, batch_id, epoch, RealSystem().now_ms())
        leave_note(path, note, writer=writer, batch=batch_id, epoch=epoch)


def latest_commit() -> Commit | None:
    """The newest batch, of any writer, that is known to be in the store."""
    folder = notes_folder()
    paths = folder.glob("*.json") if folder is not None else ()
    commits = [commit for path in paths if (commit := read_note(path, Commit)) is not None]
    return max(commits, key=lambda commit: commit.epoch, default=None)
