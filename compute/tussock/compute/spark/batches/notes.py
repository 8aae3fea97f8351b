"""Notes on what was committed, in a folder that the processes of a driver share.

`write_epoch` and `upsert` commit in the driver's own process, sinks in Python workers that Spark starts beside it; the
driver reads the notes. Without a folder nothing is noted: the operator's driver makes one first of all, elsewhere
`register` does. A note that cannot be written never fails the commit, since the rows are in the store.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec
from pyspark import SparkContext

from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.logs import get_logger

__all__ = ["NOTES_FOLDER", "keep_notes", "leave_note", "notes_folder", "read_note"]

log = get_logger("tussock.compute")

T = TypeVar("T")

NOTES_FOLDER = "TUSSOCK_COMMIT_NOTES"
"""Names the folder; workers inherit it from the driver through the JVM."""

_own: dict[int, str] = {}
"""The folder that this process made, with the process's id: a fork does not delete it."""


def keep_notes(context: SparkContext) -> None:
    """Make a folder for notes, unless there is one, and pass it to workers of all functions registered from now on."""
    if NOTES_FOLDER not in os.environ:
        os.environ[NOTES_FOLDER] = _own[os.getpid()] = tempfile.mkdtemp(prefix="tussock-commits-")
        atexit.register(_forget)
    if os.environ[NOTES_FOLDER] == _own.get(os.getpid()):
        # The JVM may run already, and workers get the environment that it started with.
        context.environment[NOTES_FOLDER] = os.environ[NOTES_FOLDER]


def _forget() -> None:
    folder = _own.pop(os.getpid(), None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def notes_folder() -> Path | None:
    """The folder of the notes; `None` if there is none."""
    folder = os.environ.get(NOTES_FOLDER)
    return Path(folder) if folder else None


def leave_note(path: Path, note: object, **of: object) -> bool:
    """Write a note in one step, in place of an older one; returns whether that went well, and logs a warning if not."""
    # A process that Spark has given up, and that does not know it, may still be writing the same note.
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.encode(note))
        draft.replace(path)
    except OSError as error:
        log.warning("a commit could not be noted", **of, error=str(error))
        return False
    return True


def read_note(path: Path, kind: type[T]) -> T | None:
    """A note; `None` if there is none, or if it is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNREADABLE):
        return None
