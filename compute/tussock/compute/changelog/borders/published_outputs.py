"""The outputs of one run: what streams have published, as rows of tables, in the epoch of the state."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tussock.compute.applications.borders.output import POSITION, SEQUENCE, Output
from tussock.compute.applications.borders.output_tables import OutputTables, create_output_tables
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import CODES, OLD, OP, StreamShape, words_of
from tussock.compute.changelog.engine.journal import Journal
from tussock.compute.changelog.engine.tables.columns import growth_of
from tussock.compute.changelog.progress import FlowProgress
from tussock.statestore import StateStore
from tussock.statestore.transactions.delta import Delta

__all__ = ["TIME", "FlowOutput", "PublishedOutputs", "output_schema"]

TIME = "_time"
"""Of an outbox: the time of the transaction, in milliseconds since 1970."""
_BLOCK, _UPDATE = CODES[Op.UPDATE_BLOCK], CODES[Op.UPDATE]


class FlowOutput(NamedTuple):
    """Where what a stream publishes goes."""

    stream: str
    output: Output
    has_blocks: bool
    """Whether an update is two rows: the new values, and those before."""

    @property
    def is_outbox(self) -> bool:
        """Whether the rows wait there to be sent."""
        return self.output.topic is not None


def output_schema(declared: FlowOutput, schema: pa.Schema) -> pa.Schema:
    """The columns of its table without those of the key; a deleted row has all columns of its stream."""
    own = [pa.field(OP, pa.string(), nullable=False)]
    if declared.has_blocks:
        own.append(pa.field(OLD, pa.bool_(), nullable=False))
    if declared.is_outbox:
        own.append(pa.field(TIME, pa.int64(), nullable=False))
    return pa.schema([*own, *schema])


class PublishedOutputs:
    """By name; used by the thread of requests."""

    def __init__(self, flow: str, store: StateStore, outputs: Mapping[str, FlowOutput]) -> None:
        self._flow = flow
        self._store = store
        self._declared = outputs
        self._by_stream: dict[str, list[tuple[str, FlowOutput, pa.Schema]]] = {}

    @property
    def outputs(self) -> Mapping[str, Output]:
        """Tables and targets, by name."""
        return {name: one.output for name, one in self._declared.items()}

    def create_tables(self, shapes: Mapping[str, StreamShape]) -> None:
        """Those that are not there; `InvalidOption` if one is there with other columns."""
        self._by_stream = {}
        schemas = {}
        for name, one in self._declared.items():
            schemas[name] = output_schema(one, shapes[one.stream].schema)
            self._by_stream.setdefault(one.stream, []).append((name, one, schemas[name]))
        self._grow(schemas)
        create_output_tables(self._store, self.outputs, schemas)

    def _grow(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Columns that a stream has got since are null in the rows that are there, wider ones have their values."""
        there = set(self._store.tables())
        for name, schema in schemas.items():
            table = self._declared[name].output.table
            if table in there:
                found = self._store.table(table).schema
                wanted = pa.schema([*list(found)[:2], *schema])
                if found.names[:2] == [SEQUENCE, POSITION]:
                    growth = growth_of(found.remove_metadata(), wanted, (SEQUENCE, POSITION))
                    if growth and not isinstance(growth, str):
                        self._store.alter_table(table, add=growth.add, widen=growth.widen)

    def load(self, delta: Delta, known: FlowProgress, journal: Journal) -> None:
        """Begin where the newest commit is."""
        self._journal = journal
        self._tables = OutputTables(self._flow, self.outputs, delta, known.outputs)

    def persist(self) -> dict[str, list[int]]:
        """For a commit: how far each output is."""
        return self._tables.persist()

    def published(self, stream: str, seq: int, changes: Changes) -> None:
        """A transaction of a stream, as part of what it writes."""
        for name, declared, schema in self._by_stream.get(stream, ()):
            if len(changes):
                self._tables.append(name, _rows(declared, schema, changes), seq)

    def sent(self, name: str, sequence: int) -> None:
        """The target of an output has the rows up to this sequence."""
        self._journal.note_event("sent", name, sequence)
        self._tables.sent(name, sequence)

    def replays(self) -> Mapping[str, Callable[[str, list[Any], str], None]]:
        """By kind of event, what does it again."""
        return {"sent": lambda name, given, _: self._tables.sent(name, given[0])}

    def of(self, name: str) -> tuple[int, int, int]:
        """Sequence of the newest rows, what is sent, and how many rows are not known to be."""
        return self._tables.of(name)


def _rows(declared: FlowOutput, schema: pa.Schema, changes: Changes) -> pa.Table:
    rows, codes, olds = changes.columns
    if not declared.has_blocks:
        if olds.any():
            kept = np.flatnonzero(~olds)
            rows, codes, olds = rows.take(pa.array(kept)), codes[kept], olds[kept]
        codes = np.where(codes == _BLOCK, _UPDATE, codes).astype(np.int8)
    own: list[Any] = [words_of(codes)]
    if declared.has_blocks:
        own.append(pa.array(olds))
    if declared.is_outbox:
        own.append(pa.repeat(pa.scalar(changes.time, pa.int64()), len(codes)))
    return pa.Table.from_arrays([*own, *rows.columns], schema=schema)
