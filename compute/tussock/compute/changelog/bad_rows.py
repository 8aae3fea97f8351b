"""Bad transactions: rows of table `FLOW.bad_rows`, in the epoch of the state, until they are replayed or removed."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.changelog.loop.location import Location
from tussock.compute.changelog.loop.stream_loop import BadTransaction, Queued
from tussock.statestore.transactions.delta import Delta

__all__ = ["BAD_ROWS_KEY", "BAD_ROWS_SCHEMA", "BadRecord", "BadRows", "Handling"]

Handling = Literal["dead-letter", "skip", "stop"]
BAD_ROWS_SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("row", pa.int64()),
        pa.field("location", pa.string(), nullable=False),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
        pa.field("data", pa.binary()),
    ]
)
BAD_ROWS_KEY = ("number",)
_LISTED = [name for name in BAD_ROWS_SCHEMA.names if name != "data"]

ROWS_MAX = 100_000
BYTES_MAX = 256 << 20
"""Of the records of all that are kept."""
WINDOW = 1000
"""Numbers that are looked through first for the newest of one stream; then twice as many, and so on."""


class BadRecord(NamedTuple):
    """A transaction that could not be."""

    number: int
    """Of all that were bad in the flow, from 1."""
    stream: str
    source: str
    """The stream that it came from; empty: it was pushed."""
    seq: int
    """Its number there; of one that was bad again after a replay, what number the stream gave it then.

    Of an operator, that of the first transaction that it holds back.
    """
    row: int | None
    """The record that is to blame, from 0: of what came in if `location` is COMPUTE, of what was computed in PUT.

    Of an operator, of all that it holds back, together.
    """
    location: Location
    error: str
    """What was wrong: class and text."""
    is_kept: bool
    """Whether the transaction itself is kept, so that it can be replayed."""


HELD = b""
"""In place of the records of a transaction that its stream holds back."""


class BadRows:
    """Of one run."""

    def __init__(self, table: str, delta: Delta, count: int) -> None:
        self._delta = delta
        self._table = table
        self.count = count
        self._room: tuple[int, int] | None = None
        """Rows and bytes that there may still be, at least; `None`: not known yet."""

    def lack_of_room(self, nbytes: int) -> str:
        """Why no other transaction of that many bytes can be kept; empty if one can.

        The table is only counted when it seems to be full, as others may have deleted rows of it.
        """
        if self._room is None or not _has_room(self._room, nbytes):
            self._room = self._counted()
        if _has_room(self._room, nbytes):
            return ""
        rows, free = self._room
        return (
            f"table {self._table!r} has {ROWS_MAX - rows:,} bad transactions of {(BYTES_MAX - free) >> 20:,} MiB; at "
            f"most {ROWS_MAX:,} of {BYTES_MAX >> 20:,} MiB are kept: delete those that are of no interest, or replay "
            "some"
        )

    def add(self, stream: str, taken: Queued, why: BadTransaction, data: bytes | None) -> None:
        """Keep one, with its records unless it is to be skipped."""
        source = taken.transaction.changes.shape.stream
        self._note(0 if data is None else len(data))
        self._write(self.count, stream, "" if source == stream else source, taken.transaction.seq, why, data)

    def hold(self, stream: str, source: str, seq: int, why: BadTransaction, number: int | None) -> int:
        """Tell of what a stream holds back; `number`: where it did so before. Returns the number."""
        if number is None:
            self._note(0)
            number = self.count
        self._write(number, stream, source, seq, why, HELD)
        return number

    def list(self, stream: str, last: int, before: int | None = None) -> list[BadRecord]:
        """The newest of a stream, with numbers below `before`; the newest last."""
        found: list[BadRecord] = []
        end = self.count if before is None else min(before - 1, self.count)
        width = WINDOW
        while end > 0 and len(found) < last:
            start = max(end - width + 1, 1)
            of_stream = pc.field("stream") == stream
            rows = self._rows().read(_LISTED, of_stream, between=((start,), (end,)))
            found[:0] = [_record(row) for batch in rows for row in batch.to_pylist()]
            end, width = start - 1, 2 * width
        return found[-last:]

    def find(self, number: int) -> Mapping[str, Any] | None:
        """The row of one."""
        found: Mapping[str, Any] | None = self._rows().get(number)
        return found

    def remove(self, number: int) -> None:
        """It was replayed, or is of no interest any more."""
        self._rows().delete([number])

    def remove_all(self, stream: str) -> None:
        """The same for all of a stream."""
        of_stream = pc.field("stream") == stream
        found = [
            number
            for batch in self._rows().read(["number", "stream"], of_stream)
            for number in batch.column("number").to_pylist()
        ]
        if found:
            self._rows().delete(found)

    def _note(self, nbytes: int) -> None:
        self.count += 1
        if self._room is not None:
            self._room = self._room[0] - 1, self._room[1] - nbytes

    def _counted(self) -> tuple[int, int]:
        rows = nbytes = 0
        for batch in self._rows().read(["bytes"]):
            rows += batch.num_rows
            nbytes += pc.sum(batch.column("bytes")).as_py() or 0
        return ROWS_MAX - rows, BYTES_MAX - nbytes

    def _write(self, number: int, stream: str, source: str, seq: int, why: BadTransaction, data: bytes | None) -> None:
        row = {
            "number": number,
            "stream": stream,
            "source": source,
            "seq": seq,
            "row": why.row,
            "location": str(why.at),
            "cause": why.cause,
            "bytes": None if data is None else len(data),
            "data": data,
        }
        self._rows().upsert([row])

    def _rows(self) -> Any:
        # Shared: operators look at them, and delete them, while the flow runs.
        return self._delta.table(self._table, shared=True)


def _has_room(room: tuple[int, int], nbytes: int) -> bool:
    rows, free = room
    # One that is larger than all that is kept may be alone.
    return rows > 0 and (nbytes <= free or free == BYTES_MAX)


def _record(row: Mapping[str, Any]) -> BadRecord:
    return BadRecord(
        row["number"],
        row["stream"],
        row["source"],
        row["seq"],
        row["row"],
        Location(row["location"]),
        row["cause"],
        row["bytes"] is not None,
    )
