"""Reading on: the entries that follow a version, several at a time where a request takes long.

As a rule there is none, which is one GET. A reader that fell behind asks for two, four and then eight entries at once,
and is told when it would do better to begin at a base version.
"""

from typing import NamedTuple

from tussock.meta.log.format import base_path
from tussock.meta.log.recovery import ReadEntry, apply_entry, read_entry
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["PROBES", "Learned", "is_far_behind", "replay"]

PROBES = 7
"""Entries that a reader reads before it asks for a base version: three rounds, of one, two and four."""
AHEAD_MAX = 8
SLOW_SECONDS = 0.003
"""A request that takes less is not worth a thread: a folder, memory."""


class Learned(NamedTuple):
    """An entry that was read, and the version after it."""

    entry_id: bytes
    frame: bytes
    version: Version
    writer: str


def replay(
    bucket: ObjectStore, system: System, version: Version, *, most: int | None = None, exists: bool = False
) -> list[Learned]:
    """The entries that follow `version`, to the tail of the log.

    Args:
        bucket: where the log is.
        system: clocks and threads.
        version: what is known.
        most: stop at the end of the round in which this many were read; the tail was reached if there are fewer.
        exists: the next entry is known to be there, so others may be, too.
    """
    learned: list[Learned] = []
    ahead = 2 if exists else 1
    while most is None or len(learned) < most:
        began = system.monotonic()
        for read in _fetch(bucket, system, version.seq + 1, ahead):
            if read is None:
                return learned
            version = apply_entry(version, read.entry)
            learned.append(Learned(read.entry.id, read.frame, version, read.entry.writer))
        is_slow = system.monotonic() - began >= SLOW_SECONDS
        ahead = min(2 * ahead, AHEAD_MAX) if is_slow else 1
    return learned


def is_far_behind(bucket: ObjectStore, seq: int) -> bool:
    """Whether a base version is there from which less has to be read than from version `seq`. One LIST."""
    return next(iter(bucket.list("snapshot/", base_path(seq))), None) is not None


def _fetch(bucket: ObjectStore, system: System, seq: int, count: int) -> list[ReadEntry | None]:
    """The entries from `seq` on, `count` at most, up to one that is missing, which is `None`."""
    if count == 1:
        return [read_entry(bucket, seq)]
    return system.uninterrupted(lambda: _fetch_together(bucket, system, seq, count))


def _fetch_together(bucket: ObjectStore, system: System, seq: int, count: int) -> list[ReadEntry | None]:
    with system.pool("tussock-log", count) as pool:
        futures = [pool.submit(read_entry, bucket, seq + number) for number in range(count)]
        read: list[ReadEntry | None] = []
        for future in futures:
            # In order: what comes after a missing entry says nothing, be it there, damaged or out of reach.
            read.append(future.result())
            if read[-1] is None:
                break
        return read
