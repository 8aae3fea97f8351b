"""The output tables of one run: what was emitted, numbered; trimmed where it was sent or is old.

Rows are written within the transaction of the batch, so an error takes them back and a replay writes them again. The
sequence counts the batches that had rows for the output; it does not depend on the mode of recovery, nor on when the
state was committed.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from tussock.compute.applications.borders.output import POSITION, SEQUENCE, Output
from tussock.statestore import InvalidOption, StateStore, TableNotFound
from tussock.statestore.rows.python_values import python_rows
from tussock.statestore.transactions.delta import Delta

__all__ = ["OutputTables", "create_output_tables"]

_FEW_ROWS = 8


def create_output_tables(store: StateStore, outputs: Mapping[str, Output], schemas: Mapping[str, pa.Schema]) -> None:
    """Tables that are not there yet, of streams and their columns; `InvalidOption` if one is there with others."""
    there = set(store.tables())
    for stream, output in outputs.items():
        schema = output.schema_of(schemas[stream])
        if output.table not in there:
            # One virtual node, so that a reader gets the rows in their order.
            store.create_table(output.table, schema, primary_key=[SEQUENCE, POSITION], vnodes=1)
            continue
        table = store.table(output.table)
        found = getattr(table, "primary_key", None), {one.name: one for one in table.schema}
        # In whatever order: a table that was altered has its new columns at the end.
        if found != ((SEQUENCE, POSITION), {one.name: one for one in schema}):
            raise InvalidOption(
                f"output of stream {stream!r}: table {output.table!r} is there with the columns {table.schema.names}; "
                f"expected {schema.names} of the stream's types, with the key ({SEQUENCE!r}, {POSITION!r}): name "
                "another table, or drop this one"
            )


class _Part(NamedTuple):
    sequence: int
    rows: int


class _OutputTable:
    """One output."""

    def __init__(self, output: Output, table: Any, sequence: int, sent: int) -> None:
        self.output = output
        self._table = table
        self.sequence = sequence
        """Of the newest rows."""
        self.sent = sent
        """Up to here the rows are in the topic."""
        self._parts: deque[_Part] = deque()
        """What is in the table, oldest first; of a table that keeps everything nothing."""
        self.rows = 0
        self._begun = sequence
        if output.topic is not None or output.keep_rows is not None:
            self._load()

    def append(self, rows: pa.Table, sequence: int | None = None) -> None:
        count = rows.num_rows
        if not count:
            return
        self.sequence = self.sequence + 1 if sequence is None else sequence
        if count <= _FEW_ROWS:
            own = [{SEQUENCE: self.sequence, POSITION: at} for at in range(count)]
            self._table.upsert([{**key, **row} for key, row in zip(own, python_rows(rows), strict=True)])
        else:
            sequences = pa.repeat(pa.scalar(self.sequence, pa.int64()), count)
            columns = [sequences, pa.array(range(count), pa.int64()), *rows.columns]
            self._table.upsert(pa.Table.from_arrays(columns, names=[SEQUENCE, POSITION, *rows.schema.names]))
        self._note(_Part(self.sequence, count))

    def begin(self) -> None:
        self._begun = self.sequence

    def undo(self) -> None:
        self.sequence = self._begun
        while self._parts and self._parts[-1].sequence > self.sequence:
            self.rows -= self._parts.pop().rows

    def trim(self) -> None:
        """Delete what is sent, or what is more than has to be kept."""
        gone = []
        keep = self.output.keep_rows
        while self._parts:
            first = self._parts[0]
            is_old = keep is not None and self.rows - first.rows >= keep
            if not is_old and (self.output.topic is None or first.sequence > self.sent):
                break
            self._parts.popleft()
            self.rows -= first.rows
            gone += [(first.sequence, at) for at in range(first.rows)]
        if gone:
            self._table.delete(gone)

    def _note(self, part: _Part) -> None:
        if self.output.topic is not None or self.output.keep_rows is not None:
            self._parts.append(part)
            self.rows += part.rows

    def _load(self) -> None:
        counts: dict[int, int] = {}
        for batch in self._table.read(columns=[SEQUENCE]):
            for value in batch.column(0).value_counts().to_pylist():
                counts[value["values"]] = counts.get(value["values"], 0) + value["counts"]
        for sequence in sorted(counts):
            self._note(_Part(sequence, counts[sequence]))


class OutputTables:
    """All outputs of one application."""

    def __init__(
        self, application: str, outputs: Mapping[str, Output], delta: Delta | None, known: Mapping[str, list[int]]
    ) -> None:
        """`outputs` by stream; `known` is what `persist` gave for the newest commit. Without a delta there are none."""
        self._known = dict(known)
        self._delta = delta
        self._outputs: dict[str, _OutputTable] = {}
        if delta is None:
            return
        for stream, output in outputs.items():
            table = delta.table(output.table)
            if stream not in known and any(batch.num_rows for batch in table.read(columns=[SEQUENCE], limit=1)):
                raise InvalidOption(
                    f"output of stream {stream!r}: table {output.table!r} has rows that application "
                    f"{application!r} did not write: name another table"
                )
            sequence, sent = known.get(stream, (0, 0))
            # Its next rows would take the place of these.
            if any(batch.num_rows for batch in table.read(columns=[SEQUENCE], between=((sequence + 1,), ()), limit=1)):
                raise InvalidOption(
                    f"output of stream {stream!r}: table {output.table!r} has rows above its sequence {sequence}, "
                    "which another output has written: name the table that it had, or another one"
                )
            self._outputs[stream] = _OutputTable(output, table, sequence, sent)

    def append(self, stream: str, rows: pa.Table, sequence: int | None = None) -> None:
        """The rows that one batch has emitted to a stream; `sequence`: a larger one than before, if it has one."""
        output = self._outputs.get(stream)
        if output is not None:
            output.append(rows, sequence)

    def append_former(self, table: str, rows: pa.Table, sequence: int) -> int:
        """Rows of an output that is not declared any more, behind that sequence; returns that of the newest.

        They are nowhere if the table is gone.
        """
        assert self._delta is not None
        try:
            output = _OutputTable(Output(table, None), self._delta.table(table), sequence, 0)
        except TableNotFound:
            return sequence
        output.append(rows)
        return output.sequence

    def begin(self) -> None:
        """A savepoint."""
        for output in self._outputs.values():
            output.begin()

    def undo(self) -> None:
        """Be as at the savepoint; the rows themselves are the delta's."""
        for output in self._outputs.values():
            output.undo()

    def sent(self, stream: str, sequence: int) -> None:
        """The topic has the rows up to this sequence."""
        output = self._outputs.get(stream)
        if output is not None:
            output.sent = max(output.sent, sequence)

    def persist(self) -> dict[str, list[int]]:
        """Trim the tables; returns sequence and what is sent of each, for the progress."""
        for stream, output in self._outputs.items():
            output.trim()
            self._known[stream] = [output.sequence, output.sent]
        return self._known

    def of(self, stream: str) -> tuple[int, int, int]:
        """Sequence of the newest rows, what is sent, and rows in the table that are not known to be."""
        output = self._outputs[stream]
        return output.sequence, output.sent, output.rows
