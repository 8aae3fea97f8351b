"""What the next record of the input log says: what came in, and which streams took what from where."""

import zlib
from typing import Any

import msgspec

from tussock.compute.applications.records import Record, RecordKind
from tussock.compute.changelog.bad_rows import Handling
from tussock.compute.changelog.loop.stream_loop import EXPIRY
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import CorruptLog

__all__ = ["Journal", "read_record"]


class Journal:
    """Of one run."""

    def __init__(self) -> None:
        self._events: list[list[Any]] = []
        self._steps: list[list[Any]] = []
        """Of each the stream, the input that it took from, and how many in a row; of an expiry the time."""
        self._handled: list[Handling] = []
        self._digest: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to record."""
        return not self._events and not self._steps

    def note_event(self, *event: Any) -> None:
        """Something came in."""
        self._events.append([*event])

    def note_step(self, stream: str, source: str, seq: int, digest: int | None) -> None:
        """A stream took a transaction, whose writes have this digest; the number counts for an expiry."""
        last = self._steps[-1] if self._steps else None
        if source == EXPIRY:
            self._steps.append([stream, source, seq])
        elif last is not None and last[:2] == [stream, source]:
            last[2] += 1
        else:
            self._steps.append([stream, source, 1])
        if digest is not None:
            self._digest = zlib.crc32(digest.to_bytes(4, "little"), self._digest or 0)

    def note_bad(self, handling: Handling, what: str) -> None:
        """A transaction was bad."""
        self._handled.append(handling)
        self._digest = zlib.crc32(what.encode(errors="backslashreplace"), self._digest or 0)

    def record(self, seq: int, count: int) -> Record:
        """All since the last one; `count` of transactions."""
        given = msgspec.msgpack.encode([self._events, self._steps])
        handled = [*self._handled]
        return Record(seq, RecordKind.CHANGES, "", count, given, handled, self.forget())

    def forget(self) -> int | None:
        """Begin anew; returns the digest."""
        digest, self._digest = self._digest, None
        self._events, self._steps, self._handled = [], [], []
        return digest


def read_record(record: Record, what: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Events and steps of a record; `CorruptLog`."""
    try:
        events, steps = msgspec.msgpack.decode(record.given, type=tuple[list[list[Any]], list[list[Any]]])
    except (*UNREADABLE, ValueError) as error:
        raise CorruptLog(f"{what}: it does not say what came in and was done: {error}") from error
    return events, steps
