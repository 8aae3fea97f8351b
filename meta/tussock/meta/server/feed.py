"""The feed of versions: recent log entries in memory, to bring subscribers and callers up to date without the bucket.

A client at a sequence that the feed still covers gets the entries after it; one that is further behind gets a
base version, all of them the same bytes: a large version is many megabytes, and many clients may come at once. Both are
bytes as they lie in the bucket, so a client checks and applies them as if it had read them itself.
"""

import threading
from collections import deque
from typing import NamedTuple

from tussock.meta.log.format import encode_base
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.version.version import Version

__all__ = ["Feed"]

ENTRIES_MAX = 1024
BYTES_MAX = 16 << 20
SST_BYTES = 180
"""Of an SST in a base version, reckoned."""
NEWS_BYTES_MAX = 256 << 10
"""Of the entries in one event, unless a single one has more."""


class News(NamedTuple):
    """What a subscriber is sent next."""

    event: bytes
    """A serialized `Event`; empty for nothing."""
    seq: int
    """The version that it leads to."""
    more: bool
    """There is more after it."""


class Feed:
    """The newest entries of the log, without a hole. Safe to share between threads."""

    def __init__(self, version: Version) -> None:
        self._lock = threading.Lock()
        self._version = version
        self._entries: deque[bytes] = deque()
        self._bytes = 0
        self._base: tuple[int, bytes] = (-1, b"")
        self._making = threading.Lock()
        """Held by the thread that makes a base version: the others wait for it, and make none."""
        self._base_event: tuple[int, bytes] = (-1, b"")

    def learn(self, entry: bytes | None, version: Version) -> None:
        """The log has learnt an entry, or has jumped to `version` by a base version."""
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

    def after(self, seq: int, *, bytes_max: int | None = None) -> pb.VersionUpdate:
        """What leads from the version of `seq` to the newest one; empty if that is it, or is older.

        With `bytes_max` also empty if it has more bytes than that.
        """
        with self._lock:
            newest, entries = self._version, list(self._entries)
        missing = newest.seq - seq
        if missing <= 0:
            return pb.VersionUpdate(seq=newest.seq)
        if missing <= len(entries):
            entries = entries[-missing:]
            if bytes_max is not None and sum(map(len, entries)) > bytes_max:
                return pb.VersionUpdate(seq=newest.seq)
            return pb.VersionUpdate(first_seq=seq + 1, entries=entries, seq=newest.seq)
        if bytes_max is not None:
            return pb.VersionUpdate(seq=newest.seq)
        cached_seq, base = self._base_before(newest, len(entries))
        later = newest.seq - cached_seq
        return pb.VersionUpdate(
            snapshot=base,
            snapshot_seq=cached_seq,
            first_seq=cached_seq + 1,
            entries=entries[len(entries) - later :] if later else [],
            seq=newest.seq,
        )

    def bytes_after(self, seq: int) -> int:
        """About how many bytes `after` returns."""
        with self._lock:
            missing, known, entries = self._version.seq - seq, len(self._entries), self._bytes
            base = len(self._base[1]) or SST_BYTES * _ssts(self._version)
        if missing <= 0:
            return 0
        return entries if missing <= known else entries + base

    def news(self, seq: int) -> News:
        """What to send next to a client that has the version of `seq`: some entries, or a base version alone."""
        with self._lock:
            newest, entries = self._version, list(self._entries)
        missing = newest.seq - seq
        if missing <= 0:
            return News(b"", newest.seq, more=False)
        if missing > len(entries):
            cached_seq, base = self._base_before(newest, len(entries))
            with self._making:
                event_seq, event = self._base_event
                if event_seq != cached_seq:
                    update = pb.VersionUpdate(
                        snapshot=base, snapshot_seq=cached_seq, first_seq=cached_seq + 1, seq=cached_seq
                    )
                    event = pb.Event(version=update).SerializeToString()
                    self._base_event = (cached_seq, event)
            return News(event, cached_seq, more=cached_seq < newest.seq)
        size = 0
        some: list[bytes] = []
        for entry in entries[-missing:]:
            size += len(entry)
            if some and size > NEWS_BYTES_MAX:
                break
            some.append(entry)
        last = seq + len(some)
        update = pb.VersionUpdate(first_seq=seq + 1, entries=some, seq=last)
        return News(pb.Event(version=update).SerializeToString(), last, more=last < newest.seq)

    def _base_before(self, newest: Version, known: int) -> tuple[int, bytes]:
        """A base version from which the `known` newest entries lead on, and its sequence; made if there is none."""
        with self._making:
            with self._lock:
                cached_seq, base = self._base
            if not newest.seq - known <= cached_seq <= newest.seq:
                cached_seq, base = newest.seq, encode_base(newest)
                with self._lock:
                    self._base = (cached_seq, base)
            return cached_seq, base


def _ssts(version: Version) -> int:
    trees = [state.levels for state in version.tables.values()]
    below = sum(len(run) for tree in trees for run in (*tree.levels, *(past.ssts for past in tree.history)))
    return below + len(version.dropped)
