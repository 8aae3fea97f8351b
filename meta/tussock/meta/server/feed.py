"""The feed of versions: recent log entries in memory, to bring subscribers and callers up to date without the bucket.

Whoever is at a sequence that the feed still covers gets the entries after it; whoever is further behind gets a
snapshot. Both are bytes as they lie in the bucket, so a client checks and applies them as if it had read them itself.
"""

import threading
from collections import deque

from tussock.meta.framing import encode_snapshot
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.version import Version

__all__ = ["Feed"]

ENTRIES_MAX = 1024
BYTES_MAX = 16 << 20


class Feed:
    """The newest entries of the log, without a hole. Safe to share between threads."""

    def __init__(self, version: Version) -> None:
        self._lock = threading.Lock()
        self._version = version
        self._entries: deque[bytes] = deque()
        self._bytes = 0
        self._snapshot: tuple[int, bytes] = (-1, b"")

    def learn(self, entry: bytes | None, version: Version) -> None:
        """The log has learnt an entry, or has jumped to `version` by a snapshot."""
        with self._lock:
            if entry is None or version.seq != self._version.seq + 1:
                self._entries.clear()
                self._bytes = 0
            else:
                self._entries.append(entry)
                self._bytes += len(entry)
                while len(self._entries) > ENTRIES_MAX or self._bytes > BYTES_MAX:
                    self._bytes -= len(self._entries.popleft())
            self._version = version

    def after(self, seq: int) -> pb.VersionUpdate:
        """What leads from the version of `seq` to the newest one; empty if that is it, or is older."""
        with self._lock:
            newest, entries = self._version, list(self._entries)
            cached_seq, snapshot = self._snapshot
        missing = newest.seq - seq
        if missing <= 0:
            return pb.VersionUpdate(seq=newest.seq)
        if missing <= len(entries):
            return pb.VersionUpdate(first_seq=seq + 1, entries=entries[-missing:], seq=newest.seq)
        if not newest.seq - len(entries) <= cached_seq:
            cached_seq, snapshot = newest.seq, encode_snapshot(newest)
            with self._lock:
                self._snapshot = (cached_seq, snapshot)
        later = newest.seq - cached_seq
        return pb.VersionUpdate(
            snapshot=snapshot,
            snapshot_seq=cached_seq,
            first_seq=cached_seq + 1,
            entries=entries[len(entries) - later :] if later else [],
            seq=newest.seq,
        )
