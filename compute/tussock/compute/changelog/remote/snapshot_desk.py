"""All rows of a stream at one moment, for clients elsewhere: read page by page, from where the read began."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tussock.compute.applications.arguments import clean_text
from tussock.compute.applications.errors import Full, HistoryGone
from tussock.compute.applications.ipc_streams import ipc_bytes
from tussock.compute.changelog.engine.flow_engine import FlowEngine
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

if TYPE_CHECKING:
    from tussock.compute.changelog.flow_host import FlowHost

__all__ = ["SnapshotDesk"]

READS_MAX = 16
"""At once. Each holds on to the rows as they were when it began, until its last page is told; as many last pages are
kept beside them."""
PAGE_ROWS = 10_000
PAGE_BYTES = 4 << 20
"""About; a row is never split."""
NAME_MAX = 64


class _SnapshotRead:
    """One that has begun."""

    def __init__(self, seq: int, batches: Iterator[pa.RecordBatch]) -> None:
        self.seq = seq
        self.page = -1
        self.until = 0.0
        self._pages = _pages(batches)
        self._next = next(self._pages, None)
        self.told: dict[str, Any] = {}
        """The newest page, for who did not get it."""

    def turn(self) -> None:
        rows, self._next = self._next, next(self._pages, None)
        self.page += 1
        data = None if rows is None else ipc_bytes(rows)
        self.told = {"seq": self.seq, "rows": data, "is_last": self.is_over}

    @property
    def is_over(self) -> bool:
        """Whether there is no other page."""
        return self._next is None


class SnapshotDesk:
    """Of one run of a flow; used in its thread."""

    def __init__(self, flow: "FlowHost", system: System, lease_seconds: float) -> None:
        """`lease_seconds`: for how long a page may be asked for after the one before it."""
        self._flow = flow
        self._system = system
        self._lease_seconds = lease_seconds
        self._reads: dict[tuple[str, str], _SnapshotRead] = {}

    def page(self, asked: pb.StreamRows) -> dict[str, Any]:
        """A map of `seq`, `rows` (Arrow, null for no rows) and `is_last`. In any thread.

        Raises `InvalidOption`, `HistoryGone` if it was not asked for in time, and `Full`.
        """
        stream, reader = self._flow.name_of(asked.stream), asked.reader
        if not 1 <= len(reader) <= NAME_MAX or not reader.isascii() or not reader.isalnum():
            raise InvalidOption(
                f"stream {stream!r}: a reader is named {clean_text(reader)!r:.100}; expected 1 to {NAME_MAX} letters "
                "and digits"
            )
        return self._flow.look(lambda engine: self._page(engine, stream, reader, asked.page))

    def _page(self, engine: FlowEngine, stream: str, reader: str, page: int) -> dict[str, Any]:
        now = self._system.monotonic()
        self._reads = {who: one for who, one in self._reads.items() if one.until > now}
        read = self._reads.get((stream, reader))
        if page == 0 and (read is None or read.page):
            self._make_room((stream, reader))
            rows = iter(engine.kept.tables[stream].read())
            read = self._reads[(stream, reader)] = _SnapshotRead(engine.streams[stream].history.seq, rows)
        if read is None or page not in (read.page, read.page + 1) or (page > read.page >= 0 and read.is_over):
            raise HistoryGone(
                f"stream {stream!r}: page {page:,} of its rows was not asked for within {self._lease_seconds:g} s "
                "after the one before it, or there is none: begin with page 0",
                0,
            )
        if page > read.page:
            read.turn()
        read.until = now + self._lease_seconds
        return read.told

    def _make_room(self, who: tuple[str, str]) -> None:
        """For one that begins, or begins again; `Full`."""
        others = {other: one for other, one in self._reads.items() if other != who}
        over = [other for other, one in others.items() if one.is_over]
        if len(others) - len(over) >= READS_MAX:
            raise Full(f"stream {who[0]!r}: {READS_MAX} snapshots are read already; this one did not begin", 1000)
        for other in over[:-READS_MAX]:
            del self._reads[other]


def _pages(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        row_bytes = max(batch.nbytes // max(batch.num_rows, 1), 1)
        rows = min(max(PAGE_BYTES // row_bytes, 1), PAGE_ROWS)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
