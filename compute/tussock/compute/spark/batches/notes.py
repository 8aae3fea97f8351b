"""Notes of what was committed, in a folder that the processes of a driver share.

`write_epoch` and `upsert` commit in the driver's own process, sinks in Python workers that Spark starts beside it; who
asks is the driver. Where there is no folder nothing is noted: the operator's driver makes one before anything else,
elsewhere `register` does. A note never fails what it tells of, since what is in the store is there.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec
from pyspark import SparkContext

from tussock.statestore.base.logs import get_logger

__all__ = ["NOTES_FOLDER", "keep_notes", "leave_note", "notes_folder", "read_note"]

log = get_logger("tussock.compute")

T = TypeVar("T")

NOTES_FOLDER = "TUSSOCK_COMMIT_NOTES"
"""Names the folder; workers inherit it from the driver by way of the JVM."""

_own: dict[int, str] = {}
"""The folder that this process made, by its id: a fork does not take it away."""


def keep_notes(context: SparkContext) -> None:
    """Make a folder for notes, unless there is one, and tell workers that run what is registered from now on."""
    if NOTES_FOLDER not in os.environ:
        os.environ[NOTES_FOLDER] = _own[os.getpid()] = tempfile.mkdtemp(prefix="tussock-commits-")
        atexit.register(_forget)
    if os.environ[NOTES_FOLDER] == _own.get(os.getpid()):
        # The JVM may run already, and workers get its environment as it began.
        context.environment[NOTES_FOLDER] = os.environ[NOTES_FOLDER]


def _forget() -> None:
    folder = _own.pop(os.getpid(), None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def notes_folder() -> Path | None:
    """Where notes are; `None` if nobody keeps them."""
    folder = os.environ.get(NOTES_FOLDER)
    return Path(folder) if folder else None


def leave_note(path: Path, note: object, **of: object) -> bool:
    """Write a note in one step, in place of an older one; whether that went well. If not, a warning says of what."""
    # The process that noted the same before may still be at it: Spark has given it up, and it does not know.
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.encode(note))
        draft.replace(path)
    except OSError as error:
        log.warning("a commit could not be noted", **of, error=str(error))
        return False
    return True


def read_note(path: Path, kind: type[T]) -> T | None:
    """A note; `None` if there is none, or something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
