"""The feed of versions: recent log entries in memory, to bring subscribers and callers up to date without the bucket.

A client at a sequence that the feed still covers gets the entries after it; one that is further behind gets a
base version, all of them the same bytes: a large version is many megabytes, and many clients may come at once, so it
is kept once, as the message that they are sent. Both are bytes as they lie in the bucket, so a client checks and
applies them as if it had read them itself.
"""

import threading
from collections import deque
from typing import NamedTuple

from tussock.meta.log.format import encode_base
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.base_messages import Encoded, base_message
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
        """A base version as it is sent, and its sequence."""
        self._making = threading.Lock()
        """Held by the thread that makes a base version: the others wait for it, and make none."""

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

    def answer(self, seq: int) -> Encoded:
        """A `GetVersionResponse` with what leads from the version of `seq` to the newest one."""
        with self._lock:
            newest, entries = self._version, list(self._entries)
        if newest.seq - seq <= len(entries):
            return Encoded(_response(_update(seq, newest.seq, entries)))
        base_seq, base = self._base_before(newest, len(entries))
        if base_seq == newest.seq:
            return Encoded(base)
        # Messages one after the other are one, which has the later one's numbers and the entries of both.
        return Encoded(base + _response(_update(base_seq, newest.seq, entries)))

    def after(self, seq: int, bytes_max: int) -> pb.VersionUpdate:
        """The entries that lead from the version of `seq` to the newest one.

        Empty if that is it, or is older, or if they have more bytes than `bytes_max`.
        """
        with self._lock:
            newest, entries = self._version.seq, list(self._entries)
        update = _update(seq, newest, entries if newest - seq <= len(entries) else [])
        return update if sum(map(len, update.entries)) <= bytes_max else pb.VersionUpdate(seq=newest)

    def bytes_after(self, seq: int) -> int:
        """About how many bytes a client's `answer` holds in memory while it is sent."""
        with self._lock:
            newest, known, entries = self._version, len(self._entries), self._bytes
            base_seq, base = self._base[0], len(self._base[1])
        if newest.seq <= seq:
            return 0
        if newest.seq - seq <= known:
            return entries
        if base_seq == newest.seq:
            return base
        # With entries after it, it is copied.
        return 2 * base + entries if newest.seq - known <= base_seq else SST_BYTES * _ssts(newest)

    def news(self, seq: int) -> News:
        """What to send next to a client that has the version of `seq`: some entries, or a base version alone."""
        with self._lock:
            newest, entries = self._version, list(self._entries)
        missing = newest.seq - seq
        if missing <= 0:
            return News(b"", newest.seq, more=False)
        if missing > len(entries):
            base_seq, base = self._base_before(newest, len(entries))
            return News(base, base_seq, more=base_seq < newest.seq)
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
        """A base version from which the `known` newest entries lead on, as it is sent, and its sequence."""
        with self._making:
            with self._lock:
                seq, base = self._base
            if not newest.seq - known <= seq <= newest.seq:
                # The old one first: nobody is to be sent it any more.
                with self._lock:
                    self._base = (-1, b"")
                del base
                seq, base = newest.seq, base_message(newest.seq, encode_base(newest))
                with self._lock:
                    self._base = (seq, base)
            return seq, base


def _update(seq: int, newest: int, entries: list[bytes]) -> pb.VersionUpdate:
    """From the version of `seq` to the newest; `entries` are the last ones, enough of them or none."""
    missing = newest - seq
    if missing <= 0 or not entries:
        return pb.VersionUpdate(seq=newest)
    return pb.VersionUpdate(first_seq=seq + 1, entries=entries[-missing:], seq=newest)


def _response(update: pb.VersionUpdate) -> bytes:
    return pb.GetVersionResponse(update=update).SerializeToString()


def _ssts(version: Version) -> int:
    trees = [state.levels for state in version.tables.values()]
    below = sum(len(run) for tree in trees for run in (*tree.levels, *(past.ssts for past in tree.history)))
    return below + len(version.dropped)
