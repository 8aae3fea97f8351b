"""Bad transactions that are given once more: those that are kept, and what streams of operators hold back."""

from collections.abc import Mapping
from typing import Any

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.changelog.bad_rows import HELD, BadRows
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import changes_bytes, changes_from
from tussock.compute.changelog.engine.journal import Journal
from tussock.compute.changelog.engine.present_changes import present_changes
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.statestore.errors import InvalidOption

__all__ = ["Retries"]


class Retries:
    """Of one run."""

    def __init__(
        self,
        flow: str,
        streams: Mapping[str, RunningStream],
        tables: Mapping[str, Any],
        bad_rows: BadRows,
        journal: Journal,
    ) -> None:
        """`tables` has the rows of each stream."""
        self._flow = flow
        self._streams = streams
        self._tables = tables
        self._bad_rows = bad_rows
        self._journal = journal

    def replay(self, number: int) -> None:
        """Give a stream a transaction once more that was bad."""
        what = f"bad transaction {number} of flow {self._flow!r}"
        if self._held(number) is not None:
            self._journal.note_event("again", number, HELD)
            self.again(number, HELD, what)
            return
        row = self._bad_rows.find(number)
        if row is None or row["stream"] not in self._streams or row["data"] == HELD:
            raise InvalidOption(f"flow {self._flow!r} has no bad transaction {number}")
        if row["data"] is None:
            raise InvalidOption(f"flow {self._flow!r}: bad transaction {number} was skipped: its records are not kept")
        stream = self._streams[row["stream"]]
        changes = self._now(stream, row, what)
        data = changes_bytes(changes)
        self._journal.note_event("again", number, data)
        self._bad_rows.remove(number)
        stream.take_in(changes)

    def again(self, number: int, data: bytes, what: str) -> None:
        """What `replay` has done, when the log is replayed; `data` is what the record has."""
        if data == HELD:
            held = self._held(number)
            if held is None:
                raise NotDeterministic(f"{what}: bad transaction {number} was given again, and is not held back")
            stream, changes = held
            # What is held back comes with whatever comes, and be it nothing.
            stream.take_in(Changes(changes.shape, [], None, changes.time))
            return
        row = self._bad_rows.find(number)
        if row is None:
            raise NotDeterministic(f"{what}: bad transaction {number} was given again, and is not there")
        stream = self._streams[row["stream"]]
        self._bad_rows.remove(number)
        stream.take_in(changes_from(data, self._shape_of(stream, row["source"], what), what))

    def find(self, number: int) -> tuple[RunningStream, int, Changes]:
        """Of a bad transaction the stream, its number, and its records; `InvalidOption` if they are not kept."""
        row = self._bad_rows.find(number)
        if row is None or row["stream"] not in self._streams or row["data"] is None:
            raise InvalidOption(f"there is no bad transaction {number} whose records are kept")
        held = self._held(number)
        if held is not None:
            return held[0], row["seq"], held[1]
        stream = self._streams[row["stream"]]
        return stream, row["seq"], self._now(stream, row, f"bad transaction {number}")

    def _now(self, stream: RunningStream, row: Mapping[str, Any], what: str) -> Changes:
        """What a stream gets of a bad transaction: of one that was pushed what it was, else what it is by now."""
        changes = changes_from(row["data"], self._shape_of(stream, row["source"], what), what)
        if not row["source"]:
            return changes
        table = self._tables[row["source"]]
        return present_changes(changes, lambda keys: table.multi_get(keys).to_pylist())

    def _held(self, number: int) -> tuple[RunningStream, Changes] | None:
        """The stream that holds the bad transaction of that number back, and its records."""
        for stream in self._streams.values():
            for one in stream.held.values():
                if one.number == number:
                    return stream, one.changes
        return None

    def _shape_of(self, stream: RunningStream, source: str, what: str) -> StreamShape:
        if source and source not in self._streams:
            raise InvalidOption(f"{what} is of stream {source!r}, which flow {self._flow!r} no longer has")
        return self._streams[source].plan.shape if source else stream.plan.shape
