"""Histories: the newest transactions that have entered and left a stream, in memory and in a table.

A history is bounded in transactions, seconds and bytes; those that somebody has still to read stay besides.
Commits write what is new to table `FLOW.histories` and delete what has gone, so that it is in the epoch of the state.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction, changes_bytes, changes_from

__all__ = ["HISTORIES_SCHEMA", "HISTORY_KEY", "History", "history_row"]

HISTORIES_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("side", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("source_seq", pa.int64(), nullable=False),
        pa.field("published", pa.int64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
HISTORY_KEY = ("stream", "side", "seq")
BYTES_MAX = 64 << 20
"""Of one side of a stream; the newest transaction stays, whatever it takes."""


class _Kept(NamedTuple):
    transaction: StreamTransaction
    source_seq: int
    """What number it has in the stream that has published it, if its records are kept there; else 0."""
    published: int
    """Of one that was taken: the number of what was published of it."""


class History:
    """One side of one stream: `in`, what it has taken, or `out`, what it has published."""

    def __init__(self, stream: str, side: str, count: int, seconds: float | None) -> None:
        self._stream = stream
        self._side = side
        self._count = count
        self._ms = None if seconds is None else int(seconds * 1000)
        self._kept: deque[_Kept] = deque()
        self._nbytes = 0
        self._stored: deque[int] = deque()
        """Numbers that the table has, ascending."""
        self.unsaved_bytes = 0
        """What the next commit writes, about."""
        self.seq = 0
        """Of the newest transaction."""

    @property
    def oldest(self) -> int:
        """The number of the oldest transaction that is kept; one above `seq` if none is."""
        return self._kept[0].transaction.seq if self._kept else self.seq + 1

    def add(self, one: StreamTransaction, source_seq: int = 0, published: int = 0) -> None:
        """The next one. One that another stream has published is kept by its number there.

        `published`: the number of what was published of it.
        """
        self.seq = one.seq
        self._keep(_Kept(one, source_seq, published))
        self.unsaved_bytes += 0 if source_seq else one.changes.nbytes

    def trim(self, needed: int, now_ms: int) -> None:
        """Let old ones go, none from number `needed` on."""
        while len(self._kept) > 1 and self._kept[0].transaction.seq < needed:
            first = self._kept[0]
            is_old = self._ms is not None and first.transaction.time < now_ms - self._ms
            if len(self._kept) <= self._count and self._nbytes <= BYTES_MAX and not is_old:
                break
            self._kept.popleft()
            self._nbytes -= 0 if first.source_seq else first.transaction.changes.nbytes

    def find(self, seq: int) -> StreamTransaction | None:
        """The transaction of a number, where there are no gaps; in any thread."""
        while True:
            at = seq - self.oldest
            if not 0 <= at < len(self._kept):
                return None
            try:
                one = self._kept[at].transaction
            except IndexError:
                continue  # old ones went meanwhile
            if one.seq == seq:
                return one

    def taken(self, seq: int) -> tuple[StreamTransaction, int] | None:
        """The transaction of a number that was taken, and the number of what was published of it; gaps are bad ones."""
        for one in reversed(self._kept):
            if one.transaction.seq <= seq:
                return (one.transaction, one.published) if one.transaction.seq == seq else None
        return None

    def since(self, seq: int) -> list[tuple[StreamTransaction, int]]:
        """Those that were taken from a number on, the newest first, with the number of what was published of each."""
        found = []
        for one in reversed(self._kept):
            if one.transaction.seq < seq:
                break
            found.append((one.transaction, one.published))
        return found

    def before(self, seq: int | None, count: int) -> list[StreamTransaction]:
        """At most `count`, up to that number, `None`: to the newest; the newest last. In any thread."""
        while True:
            found: list[StreamTransaction] = []
            try:
                for one in reversed(self._kept):
                    if seq is None or one.transaction.seq <= seq:
                        found.append(one.transaction)
                    if len(found) >= count:
                        break
            except RuntimeError:
                continue  # one came, or went
            return found[::-1]

    def all(self) -> list[StreamTransaction]:
        """The newest last; in any thread."""
        while True:
            try:
                return [one.transaction for one in self._kept]
            except RuntimeError:
                continue  # one came, or went

    def persist(self, table: Any) -> list[dict[str, Any]]:
        """Delete what has gone; returns the rows that are new."""
        oldest, last = self.oldest, self._stored[-1] if self._stored else 0
        gone = []
        while self._stored and self._stored[0] < oldest:
            gone.append((self._stream, self._side, self._stored.popleft()))
        if gone:
            table.delete(gone)
        fresh = []
        for one in reversed(self._kept):
            if one.transaction.seq <= last:
                break
            fresh.append(self._row(one))
        fresh.reverse()
        self._stored.extend(row["seq"] for row in fresh)
        self.unsaved_bytes = 0
        return fresh

    def load(
        self,
        rows: list[dict[str, Any]],
        seq: int,
        find: Callable[[str, int], StreamTransaction | None],
        shapes: Mapping[str, StreamShape],
    ) -> None:
        """What the table has, by ascending numbers, and the newest one. `find`: what another stream has published."""
        for row in rows:
            number, source = row["seq"], row["source"]
            self._stored.append(number)
            if row["source_seq"]:
                there = find(source, row["source_seq"])
                if there is None:
                    continue  # that stream's history has let it go
                changes = there.changes
            else:
                what = f"histories of stream {self._stream!r}, {self._side} {number}"
                changes = changes_from(row["data"], shapes[source], what)
            self._keep(_Kept(StreamTransaction(number, changes), row["source_seq"], row["published"]))
        self.seq = seq

    def _keep(self, one: _Kept) -> None:
        self._kept.append(one)
        self._nbytes += 0 if one.source_seq else one.transaction.changes.nbytes

    def _row(self, one: _Kept) -> dict[str, Any]:
        return history_row(self._stream, self._side, one.transaction, one.source_seq, one.published)


def history_row(
    stream: str, side: str, one: StreamTransaction, source_seq: int = 0, published: int = 0
) -> dict[str, Any]:
    """A transaction in the table; without its records if another stream keeps them, under `source_seq`."""
    return {
        "stream": stream,
        "side": side,
        "seq": one.seq,
        "source": one.changes.shape.stream,
        "source_seq": source_seq,
        "published": published,
        "data": b"" if source_seq else changes_bytes(one.changes),
    }
