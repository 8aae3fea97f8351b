"""What an application of procedures remembers besides its tables: last batches, windows, waiting tuples, replies.

In memory while it runs, written into tables `APPLICATION.WINDOW`, `APPLICATION.streams` and `APPLICATION.replies` by
each commit of the state. All of it can be undone to a savepoint, as the tables can.
"""

from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.compute.applications.borders.dead_letters import DEAD_LETTERS_SCHEMA, DeadLetters
from tussock.compute.applications.borders.output import POSITION, SEQUENCE
from tussock.compute.applications.borders.output_tables import OutputTables, create_output_tables
from tussock.compute.applications.durability.claims import TableClaims, check_columns
from tussock.compute.applications.durability.table_growth import (
    Growth,
    check_in_order,
    grow_tables,
    growth_of,
    other_columns,
)
from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.compute.procedures.definitions import Definitions, Procedure, TupleStream, Window
from tussock.compute.procedures.replies import REPLIES_SCHEMA, Replies, Reply
from tussock.compute.procedures.windows import WindowSlot, WindowState
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.rows.python_values import python_rows
from tussock.statestore.rows.wider_types import as_type
from tussock.statestore.transactions.delta import Delta

__all__ = ["EngineState", "Waiting", "create_tables"]

_STREAMS_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("batch_id", pa.int64(), nullable=False),
        pa.field("left", pa.binary(), nullable=False),
        pa.field("rows", pa.binary(), nullable=False),
    ]
)
_SLOT, _POSITION = "_slot", "_position"
_WINDOW_KEY, _OUTPUT_KEY = (_SLOT, _POSITION), (SEQUENCE, POSITION)


class Waiting(NamedTuple):
    """A batch in a stream that not all consumers have taken."""

    rows: pa.Table
    left: frozenset[str]


class _WindowProgress(msgspec.Struct, array_like=True):
    first: int
    next: int
    visible: int
    has_slid: bool


class _Progress(msgspec.Struct):
    last: dict[str, int]
    windows: dict[str, _WindowProgress]
    feeds: dict[str, bytes] = {}
    letters: int = 0
    outputs: dict[str, list[int]] = {}


def _read_progress(application: str, packed: bytes) -> _Progress:
    if not packed:
        return _Progress({}, {})
    try:
        return msgspec.msgpack.decode(packed, type=_Progress)
    except UNREADABLE as error:
        raise InvalidOption(
            f"application {application!r}: the store has an application of that name which is none of procedures; "
            "give this one another name"
        ) from error


def create_tables(store: StateStore, definitions: Definitions, place: str | None) -> None:
    """The application's tables, where they are not there yet; none if something stands against the start.

    Those that lack columns get them, and who runs the application is shut out first. `place`: of the input log. Raises
    `SchemaMismatch` if it was not stopped in order then, or a table cannot follow, `InvalidOption` for an output with
    other columns, or an application of another kind, and what `TableClaims.check` raises.
    """
    application = definitions.application
    claims = TableClaims(store, application)
    _read_progress(application, claims.state)
    wanted: dict[str, tuple[pa.Schema, list[str]]] = {
        f"{application}.replies": (REPLIES_SCHEMA, ["procedure", "slot"]),
        f"{application}.streams": (_STREAMS_SCHEMA, ["stream", "batch_id"]),
    }
    if definitions.feeds:
        wanted[f"{application}.dead_letters"] = (DEAD_LETTERS_SCHEMA, ["number"])
    check_columns(store, application, wanted)
    for window in definitions.windows.values():
        wanted[f"{application}.{window.name}"] = (_window_schema(window), [_SLOT, _POSITION])
    outputs = {one.table for one in definitions.outputs.values()}
    claims.check([*wanted.keys() - {f"{application}.dead_letters"}, *outputs, *definitions.tables], alone=outputs)
    _grow(store, definitions, place)
    there = set(store.tables())
    for name, (schema, key) in wanted.items():
        if name not in there:
            store.create_table(name, schema, primary_key=key, vnodes=1)
    schemas = {name: stream.schema for name, stream in definitions.streams.items()}
    create_output_tables(store, definitions.outputs, schemas)


def _grow(store: StateStore, definitions: Definitions, place: str | None) -> None:
    """Tables, windows and outputs whose declaration has more columns, or wider ones."""
    application = definitions.application
    declared = dict(definitions.grown)
    declared |= {f"{application}.{one.name}": _window_schema(one) for one in definitions.windows.values()}
    for stream, output in definitions.outputs.items():
        declared[output.table] = output.schema_of(definitions.streams[stream].schema)
    growths: dict[str, Growth] = {}
    there = set(store.tables())
    for name, schema in declared.items():
        if name not in there:
            continue
        table = store.table(name)
        key = getattr(table, "primary_key", None)
        if key is None or (name not in definitions.grown and tuple(key) not in (_WINDOW_KEY, _OUTPUT_KEY)):
            continue
        growth = growth_of(table.schema, schema, tuple(key))
        if isinstance(growth, Growth):
            growths[name] = growth
        elif name not in {one.table for one in definitions.outputs.values()}:
            raise SchemaMismatch(
                f"application {application!r}: table {name!r} has other columns, and cannot follow: {growth}; "
                f"{other_columns(table.schema, schema)}. Declare it as it was, with new columns nullable and types "
                "only wider; or under another name"
            )

    def refusal() -> SchemaMismatch:
        name = next(name for name, growth in growths.items() if growth)
        return SchemaMismatch(
            f"application {application!r}: table {name!r} has other columns, and the application runs, or was not "
            "stopped in order: its input log has what no commit holds, of the columns that it had; "
            f"{other_columns(store.table(name).schema, declared[name])}. Stop it, or start it as it was and stop it, "
            "and then start it with these; or give that up, with `tussock repair application "
            f"{application} --give-up`"
        )

    if any(growths.values()):
        check_in_order(store, application, place, refusal)
        grow_tables(store, application, growths, place=place, refusal=refusal)


def _as_declared(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Tuples that wait since before their stream had all of its columns, as they would be put now."""
    if rows.schema.equals(schema) or isinstance(growth_of(rows.schema, schema, ()), str):
        return rows
    columns = [
        as_type(rows.column(field.name).combine_chunks(), field.type)
        if field.name in rows.schema.names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _window_schema(window: Window) -> pa.Schema:
    own = [pa.field(_SLOT, pa.int64(), nullable=False), pa.field(_POSITION, pa.int64(), nullable=False)]
    return pa.schema([*own, *window.on.schema])


class EngineState:
    """The state of one run."""

    def __init__(self, definitions: Definitions, delta: Delta | None, packed: bytes) -> None:
        """Without a delta it has nothing but the tuples on their way: of a task, which runs one batch."""
        self._definitions = definitions
        known = _read_progress(definitions.application, packed)
        self._last = known.last
        self.replies = Replies()
        self.waiting: dict[tuple[str, int], Waiting] = {}
        self.windows: dict[str, WindowState] = {}
        self._before: dict[tuple[str, int], Waiting | None] | None = None
        self.outputs = OutputTables(definitions.application, definitions.outputs, delta, known.outputs)
        if delta is not None:
            self._load(delta, known)

    def _load(self, delta: Delta, known: _Progress) -> None:
        self._delta = delta
        self.replies.load(_rows(delta.table(self._name("replies"))))
        for row in _rows(delta.table(self._name("streams"))):
            left = frozenset(msgspec.msgpack.decode(row["left"], type=list[str]))
            rows, stream = ipc_table(row["rows"]), self._definitions.streams.get(row["stream"])
            rows = rows if stream is None else _as_declared(rows, stream.schema)
            self.waiting[row["stream"], row["batch_id"]] = Waiting(rows, left)
        self._stored_waiting = dict(self.waiting)
        self._stored_slots: dict[str, dict[int, int]] = {}
        """Of each window, how many rows of which slots are in its table."""
        for name, window in self._definitions.windows.items():
            self._load_window(name, window, known.windows.get(name))
        self.positions = known.feeds
        """By feed, behind the newest batch that has ended."""
        self.letters = DeadLetters(self._name("dead_letters"), delta, known.letters)

    def last(self, procedure: str) -> int:
        """The newest batch that the border procedure was given; 0 if there was none."""
        return self._last.get(procedure, 0)

    def answered(self, procedure: str, reply: Reply) -> None:
        """A batch has ended, well or not; its id is used up."""
        self._last[procedure] = reply.batch_id
        self.replies.add(procedure, reply)

    def put(self, stream: TupleStream, batch_id: int, rows: pa.Table, consumers: tuple[Procedure, ...]) -> None:
        """A batch waits for its consumers; `InvalidOption` if too many do."""
        most = self._definitions.limits.waiting_batches
        if len(self.waiting) >= most and not any(waits == batch_id for _, waits in self.waiting):
            raise InvalidOption(
                f"stream {stream.name!r}: {most:,} batches wait in the streams of the application already, each "
                "for another border's batch of its id: give those, under the same ids"
            )
        self._set((stream.name, batch_id), Waiting(rows, frozenset(one.name for one in consumers)))

    def is_ready(self, procedure: Procedure, batch_id: int) -> bool:
        """Whether all streams that the procedure consumes have the batch for it."""
        return all(
            (waiting := self.waiting.get((stream.name, batch_id))) is not None and procedure.name in waiting.left
            for stream in procedure.consumes
        )

    def take(self, procedure: Procedure, batch_id: int) -> list[pa.Table]:
        """The batch of each stream that the procedure consumes; what all have taken goes."""
        taken = []
        for stream in procedure.consumes:
            key = stream.name, batch_id
            rows, left = self.waiting[key]
            taken.append(rows)
            self._set(key, Waiting(rows, left - {procedure.name}) if len(left) > 1 else None)
        return taken

    def begin(self) -> None:
        """A savepoint."""
        self._before = {}
        self.outputs.begin()
        for window in self.windows.values():
            window.begin()

    def keep(self) -> None:
        """What came since stays."""
        self._before = None
        for window in self.windows.values():
            window.keep()

    def undo(self) -> None:
        """Be as at the savepoint."""
        assert self._before is not None, "nothing is undone without a savepoint"
        for key, waiting in self._before.items():
            self._put(key, waiting)
        self._before = None
        self.outputs.undo()
        for window in self.windows.values():
            window.undo()

    def persist(self) -> bytes:
        """Write what has changed since the last call into the tables; returns the rest, which is small."""
        replies, gone = self.replies.changed_rows()
        table = self._delta.table(self._name("replies"))
        if gone:
            table.delete(gone)
        if replies:
            table.upsert(pa.Table.from_pylist(replies, schema=REPLIES_SCHEMA))
        self._persist_waiting()
        for name in self.windows:
            self._persist_window(name)
        windows = {
            name: _WindowProgress(
                state.next_number - len(state.slots), state.next_number, state.visible_slots, state.has_slid
            )
            for name, state in self.windows.items()
        }
        letters, outputs = self.letters.persist(), self.outputs.persist()
        return msgspec.msgpack.encode(_Progress(self._last, windows, self.positions, letters, outputs))

    def _set(self, key: tuple[str, int], waiting: Waiting | None) -> None:
        if self._before is not None and key not in self._before:
            self._before[key] = self.waiting.get(key)
        self._put(key, waiting)

    def _put(self, key: tuple[str, int], waiting: Waiting | None) -> None:
        if waiting is None:
            self.waiting.pop(key, None)
        else:
            self.waiting[key] = waiting

    def _persist_waiting(self) -> None:
        table = self._delta.table(self._name("streams"))
        gone = [key for key in self._stored_waiting if key not in self.waiting]
        if gone:
            table.delete(gone)
        for (stream, batch_id), waiting in self.waiting.items():
            if self._stored_waiting.get((stream, batch_id)) is not waiting:
                left = msgspec.msgpack.encode(sorted(waiting.left))
                table.upsert([{"stream": stream, "batch_id": batch_id, "left": left, "rows": ipc_bytes(waiting.rows)}])
        self._stored_waiting = dict(self.waiting)

    def _load_window(self, name: str, window: Window, known: _WindowProgress | None) -> None:
        if known is None:
            self.windows[name] = WindowState(window)
            self._stored_slots[name] = {}
            return
        rows: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for row in _rows(self._delta.table(self._name(name))):
            rows.setdefault(row.pop(_SLOT), []).append((row.pop(_POSITION), row))
        slots = [
            WindowSlot(number, tuple(row for _, row in sorted(rows.get(number, []), key=lambda pair: pair[0])))
            for number in range(known.first, known.next)
        ]
        state = self.windows[name] = WindowState(window, slots, known.visible, has_slid=known.has_slid)
        state.resume(known.next)
        self._stored_slots[name] = {number: len(those) for number, those in rows.items()}

    def _persist_window(self, name: str) -> None:
        state, stored = self.windows[name], self._stored_slots[name]
        table = self._delta.table(self._name(name))
        first = state.next_number - len(state.slots)
        gone = [(number, at) for number, count in stored.items() if number < first for at in range(count)]
        if gone:
            table.delete(gone)
        fresh = [
            {_SLOT: slot.number, _POSITION: at, **row}
            for slot in state.slots
            if slot.number not in stored
            for at, row in enumerate(slot.rows)
        ]
        if fresh:
            table.upsert(pa.Table.from_pylist(fresh, schema=_window_schema(state.window)))
        self._stored_slots[name] = {slot.number: len(slot.rows) for slot in state.slots}

    def _name(self, name: str) -> str:
        return f"{self._definitions.application}.{name}"


def _rows(table: Any) -> list[dict[str, Any]]:
    return [row for batch in table.read() for row in python_rows(batch)]
