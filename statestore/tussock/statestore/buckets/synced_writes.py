"""Writes the parts of a file, and has the disk take them: at the end, or on the way if they come one by one."""

import os
from collections.abc import Iterable, Sequence

__all__ = ["write_synced"]

_BUFFERS_PER_WRITE = 512  # below every system's IOV_MAX, which is 1024 on Linux
_GROUP_BYTES = 1 << 20
"""Parts that come one by one are written once they are this many bytes."""
_SYNC_BYTES = 16 << 20
"""And synced, so that the disk works while more comes: else all of it would wait for the last part."""


def write_synced(descriptor: int, data: bytes | Iterable[bytes | memoryview]) -> None:
    """Write an open file, and sync it: no byte of it can be lost then."""
    if isinstance(data, bytes):
        _write_all(descriptor, [data])
    elif isinstance(data, list | tuple):
        _write_all(descriptor, data)
    else:
        _write_as_they_come(descriptor, data)
    # A failed fsync is a failed write: the kernel may have dropped the pages and reports it only once.
    os.fsync(descriptor)


def _write_as_they_come(descriptor: int, parts: Iterable[bytes | memoryview]) -> None:
    group: list[bytes | memoryview] = []
    size = unsynced = 0
    for part in parts:
        group.append(part)
        size += memoryview(part).nbytes
        if size >= _GROUP_BYTES:
            _write_all(descriptor, group)
            unsynced += size
            group, size = [], 0
        if unsynced >= _SYNC_BYTES:
            os.fdatasync(descriptor)
            unsynced = 0
    _write_all(descriptor, group)


def _write_all(descriptor: int, buffers: Sequence[bytes | memoryview]) -> None:
    """Write buffers one after the other without joining them, however little a call of the kernel takes."""
    waiting = [memoryview(buffer).cast("B") for buffer in buffers if memoryview(buffer).nbytes]
    first = 0
    while first < len(waiting):
        written = os.writev(descriptor, waiting[first : first + _BUFFERS_PER_WRITE])
        while first < len(waiting) and written >= len(waiting[first]):
            written -= len(waiting[first])
            first += 1
        if written:
            waiting[first] = waiting[first][written:]
