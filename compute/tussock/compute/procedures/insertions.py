"""What follows when a procedure writes: tuples go into windows, triggers run, the batch goes on to its consumers."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tussock.compute.procedures.context import ProcedureContext
from tussock.compute.procedures.definitions import Definitions, TupleStream, Window
from tussock.compute.procedures.graph import Graph
from tussock.compute.procedures.partitions.group_table import GroupTable
from tussock.compute.procedures.partitions.partition import KeyGroup, Partition
from tussock.compute.procedures.rows import TupleShape
from tussock.compute.procedures.state import EngineState
from tussock.compute.procedures.windows import VisibleTuples
from tussock.statestore.base.arguments import check_ended
from tussock.statestore.errors import InvalidOption
from tussock.statestore.rows.python_values import python_rows
from tussock.statestore.transactions.delta import Delta
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["Insertions"]

TRIGGER_DEPTH_MAX = 16


class Insertions:
    """The `Effects` of the procedures of one run."""

    def __init__(self, definitions: Definitions, graph: Graph, delta: Delta | Transaction, state: EngineState) -> None:
        self.partition: Partition | None = None
        self.group: KeyGroup | None = None
        """In a partitioned application, the key for which the procedures run."""
        self._definitions = definitions
        self._graph = graph
        self._delta = delta
        self._state = state
        self._shapes = {
            name: TupleShape(stream.schema, f"stream {name!r}") for name, stream in definitions.streams.items()
        }
        self._windows_on: dict[str, list[Window]] = {}
        for window in definitions.windows.values():
            self._windows_on.setdefault(window.on.name, []).append(window)
        self._triggers_on: dict[tuple[str, str], list[Callable[..., Any]]] = {}
        for trigger in definitions.triggers.values():
            on = trigger.on
            kind = "stream" if isinstance(on, TupleStream) else "window" if isinstance(on, Window) else "table"
            self._triggers_on.setdefault((kind, on if isinstance(on, str) else on.name), []).append(trigger.run)
        self._visible = {
            name: VisibleTuples(self._shapes[window.on.name], state.windows[name])
            for name, window in definitions.windows.items()
        }
        self._tables: dict[str, Any] = {}
        self._emitted: dict[str, list[pa.Table]] = {}
        """By stream, what the running procedure has emitted."""

    def begin_step(self) -> None:
        """A procedure begins."""
        self._emitted = {}

    def end_step(self, tx: ProcedureContext, emits: tuple[TupleStream, ...], batch_id: int) -> None:
        """The procedure has returned: the batch goes on in the streams that it emits, maybe without tuples."""
        for stream in emits:
            for window in self._windows_on.get(stream.name, ()):
                if window.by_batches and self._state.windows[window.name].insert(python_rows(self._rows(stream))):
                    self._slid(tx, window)
        # After the triggers, which may have emitted more.
        for stream in emits:
            self._state.outputs.append(stream.name, self._rows(stream))
            consumers = self._graph.consumers[stream.name]
            if consumers:
                self._state.put(stream, batch_id, self._rows(stream), consumers)

    def _rows(self, stream: TupleStream) -> pa.Table:
        tables = self._emitted.get(stream.name)
        if not tables:
            return self._shapes[stream.name].empty
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def window_rows(self, window: Window, *, staged: bool = False) -> pa.Table:
        """The visible tuples of a window, oldest first, or the staged ones."""
        if not staged:
            return self._visible[window.name].table()
        return self._shapes[window.on.name].of_rows(self._state.windows[window.name].rows(staged=True))

    def open_table(self, name: str) -> Any:
        """A table of the application."""
        table = self._tables.get(name)
        if table is None:
            if name not in self._definitions.tables:
                raise InvalidOption(
                    f"table {name!r:.100} is not one of application {self._definitions.application!r}, which has "
                    f"{sorted(self._definitions.tables)}: declare it by app.table()"
                )
            table = self._tables[name] = self._delta.table(name)
        if self.group is not None and self.partition is not None:
            return GroupTable(table, self.partition, self.group)
        return table

    def has_triggers(self, table: str) -> bool:
        """Whether a trigger is on the table."""
        return ("table", table) in self._triggers_on

    def insert(self, tx: ProcedureContext, stream: TupleStream, rows: Any) -> None:
        """Tuples into a stream."""
        table = self._shapes[stream.name].table(rows)
        if self.group is not None and self.partition is not None:
            at = self.partition.others(table, self.group.values)
            if at is not None:
                raise InvalidOption(
                    f"stream {stream.name!r}: a procedure that runs for the key {self.group.values} emits the tuple "
                    f"{python_rows(table.slice(at, 1))[0]!r:.200} of another key; in a partitioned application tuples "
                    "stay with their key"
                )
        self._emitted.setdefault(stream.name, []).append(table)
        triggers = self._triggers_on.get(("stream", stream.name), ())
        windows = [one for one in self._windows_on.get(stream.name, ()) if not one.by_batches]
        if not triggers and not windows:
            return
        tuples = python_rows(table)
        for at, one in enumerate(tuples):
            for run in triggers:
                self._fire(tx, run, table.slice(at, 1))
            for window in windows:
                if self._state.windows[window.name].insert((one,)):
                    self._slid(tx, window)

    def wrote(self, tx: ProcedureContext, table: str, rows: Any) -> None:
        """Each row that was written to a table, to its triggers."""
        schema = self.open_table(table).schema
        written = TupleShape(schema, f"table {table!r}").table(rows)
        for at in range(written.num_rows):
            for run in self._triggers_on["table", table]:
                self._fire(tx, run, written.slice(at, 1))

    def _slid(self, tx: ProcedureContext, window: Window) -> None:
        triggers = self._triggers_on.get(("window", window.name), ())
        if triggers:
            visible = self.window_rows(window)
            for run in triggers:
                self._fire(tx, run, visible)

    def _fire(self, tx: ProcedureContext, run: Callable[..., Any], rows: pa.Table) -> None:
        if tx.depth >= TRIGGER_DEPTH_MAX:
            raise InvalidOption(f"triggers have set off each other {TRIGGER_DEPTH_MAX} deep")
        tx.depth += 1
        try:
            returned = run(tx, rows)
            check_ended(returned, "a trigger", is_used=False)
        finally:
            tx.depth -= 1
