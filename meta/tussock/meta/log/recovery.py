"""Reading the version log from the bucket: markers, entries, and the newest base version that can be read.

Functions on an `ObjectStore`; what they find is cached by nobody but the `VersionLog` that asks.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from tussock.meta.log.format import (
    LogEntry,
    decode_base,
    decode_entry,
    entry_frame,
    entry_path,
    is_backup_path,
    sequence_of,
)
from tussock.meta.log.objects import read_object
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.version import Version
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, ObjectNotFound, TussockError

__all__ = [
    "ReadEntry",
    "apply_entry",
    "beyond",
    "look_for_remains",
    "newest_base",
    "read_entry",
    "truncation_boundary",
]


_SST_PATH = re.compile(r"sst/[0-9a-f]{32}\.(data|meta)")


def truncation_boundary(bucket: ObjectStore) -> int:
    """The largest marker under `log/boundary/`; 0 if there is none. One LIST, never answered from a cache."""
    highest = 0
    for info in bucket.list("log/boundary/"):
        seq = sequence_of(info.path)
        if seq is None:
            raise _foreign_marker(info.path)
        highest = max(highest, seq)
    return highest


def beyond(bucket: ObjectStore, seq: int, on_time: Callable[[int], None] = lambda _: None) -> tuple[int, int | None]:
    """The largest marker, and the first entry above `seq` that a listing shows, if there is one. One LIST.

    `on_time` hears of the bucket's times.
    """
    highest, first = 0, None
    # From the entry `seq` itself on, for its time.
    for info in bucket.list("log/", entry_path(max(seq - 1, 0))):
        on_time(info.modified_ms)
        found = sequence_of(info.path)
        if info.path.startswith("log/boundary/"):
            if found is None:
                raise _foreign_marker(info.path)
            highest = max(highest, found)
        elif found is not None and found > seq and first is None:
            first = found
    return highest, first


def _foreign_marker(path: str) -> CorruptLog:
    return CorruptLog(f"{path}: expected a name of 20 digits; remove the foreign object")


def look_for_remains(bucket: ObjectStore, found_before: str) -> str:
    """For a place without a log: an object that is there only once a store has begun, or empty. Two LISTs.

    Found at the first look, it may be of somebody who has begun the store since: look for the log once more. Found at
    the second one, with `found_before` from the first, `CorruptLog`: the log was lost, and the process that began
    another one would make garbage of all that is there.
    """
    paths = (info.path for folder in ("backup/", "sst/") for info in bucket.list(folder))
    found = next((path for path in paths if is_backup_path(path) or _SST_PATH.fullmatch(path)), "")
    if found and found_before:
        raise CorruptLog(
            f"{bucket.url} has no log, and holds {found}: its log was lost, or a restore into it has not come to its "
            "end. Nothing was changed. Put the objects under log/ and snapshot/ back, restore a backup of it into an "
            "empty place (`tussock backup restore`), or repeat the restore"
        )
    return found


class ReadEntry(NamedTuple):
    """A log entry and its frame, without the SSTs that it brought along."""

    entry: LogEntry
    frame: bytes


def read_entry(bucket: ObjectStore, seq: int) -> ReadEntry | None:
    """The log entry `seq`, or `None` if there is none; `CorruptLog` if it is damaged."""
    path = entry_path(seq)
    try:
        frame = entry_frame(path, seq, read_object(bucket, path))
    except ObjectNotFound:
        return None
    return ReadEntry(decode_entry(path, seq, frame), frame)


def apply_entry(version: Version, entry: LogEntry) -> Version:
    """The version after the entry that follows it."""
    try:
        return advance(version, entry.deltas, check=False)
    except (TussockError, LookupError) as error:
        path = entry_path(version.seq + 1)
        raise CorruptLog(f"{path}: intact, but it does not apply to the version of {version.seq}: {error}") from error


def newest_base(bucket: ObjectStore, on_time: Callable[[int], None] = lambda _: None) -> tuple[Version, list[str]]:
    """The newest base version that can be read (an empty version if none can), and what is wrong with newer ones.

    `on_time` hears of the bucket's times.

    A damaged base version is no loss while an older one and the entries after it are there; truncation keeps two.
    """
    problems: list[str] = []
    listed = []
    for info in bucket.list("snapshot/"):
        listed.append((info.path, sequence_of(info.path)))
        on_time(info.modified_ms)
    for path, seq in reversed(listed):
        if seq is None:
            continue
        try:
            return decode_base(path, seq, read_object(bucket, path)), problems
        except (CorruptLog, ObjectNotFound) as error:
            problems.append(str(error))
    return Version(), problems
