"""The newest epoch that a driver has committed, for whoever watches over it (`tussock.compute.driver`).

`write_epoch` and `upsert` commit in the driver's own process, sinks in Python workers that Spark starts beside it. So
each leaves a note in a folder that all of these see, one file a writer. Where there is no folder nothing is noted: the
operator's driver makes one before anything else, elsewhere `register` does.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from pyspark import SparkContext

from tussock.statestore.logs import get_logger
from tussock.statestore.system import RealSystem

__all__ = ["NOTES_FOLDER", "Commit", "keep_notes", "latest_commit", "note_commit"]

log = get_logger("tussock.compute")

NOTES_FOLDER = "TUSSOCK_COMMIT_NOTES"
"""Names the folder; workers inherit it from the driver by way of the JVM."""

_own: dict[int, str] = {}
"""The folder that this process made, by its id: a fork does not take it away."""


class Commit(NamedTuple):
    """One batch of a writer in the store."""

    writer: str
    batch: int
    epoch: int
    noted_ms: int
    """When it was noted, as Unix time."""


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


def note_commit(writer: str, batch: int, epoch: int) -> None:
    """A batch is in the store; an older one, which was only run again, changes nothing.

    Never fails: what is in the store is there, whether or not it can be told.
    """
    folder = os.environ.get(NOTES_FOLDER)
    if not folder:
        return
    path = Path(folder) / f"{hashlib.sha256(writer.encode()).hexdigest()[:32]}.json"
    known = _read(path)
    if known is not None and known.epoch >= epoch:
        return
    # A writer has one batch at a time, but the one before may still run in a worker that Spark has given up.
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        draft.write_bytes(msgspec.json.encode(Commit(writer, batch, epoch, RealSystem().now_ms())))
        draft.replace(path)
    except OSError as error:
        log.warning("a commit could not be noted", writer=writer, batch=batch, epoch=epoch, error=str(error))


def latest_commit() -> Commit | None:
    """The newest batch that is known to be in the store, of whichever writer."""
    folder = os.environ.get(NOTES_FOLDER)
    return max(_notes(Path(folder)), key=lambda commit: commit.epoch, default=None) if folder else None


def _notes(folder: Path) -> Iterator[Commit]:
    for path in folder.glob("*.json"):
        commit = _read(path)
        if commit is not None:
            yield commit


def _read(path: Path) -> Commit | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Commit)
    except (OSError, msgspec.DecodeError):
        return None
