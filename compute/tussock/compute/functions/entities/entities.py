"""The state of entities: what is dirty since the last cut, what is remembered, and below that the store's tables.

An operator's entities are rows of the table of its name, which belongs to the running program. State is read when it
is needed and may be larger than memory: what is remembered has a budget, and goes by whole generations, the older of
two at a time. The dirty part is what the next commit writes, and nothing else is (Styx's delta map, section 7.1).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tussock.compute.functions.entities.forms import ENTITY_BYTES, KEY, VALUE_BYTES, StateForm, table_schema
from tussock.compute.functions.errors import StateUnread
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.operators import Operator
from tussock.compute.functions.program.values import Key
from tussock.statestore import SchemaMismatch, StateStore, TableExists

__all__ = ["Cut", "Entities", "TableOpener", "create_tables"]

_UNKNOWN = object()


class TableOpener(Protocol):
    """Where the tables are: a delta, or a store."""

    def table(self, name: str) -> Any:
        """A table with what is committed, and with what the delta holds."""


class Cut(NamedTuple):
    """What one operator has for the next commit."""

    operator: int
    gone: list[Key]
    """Deleted."""
    there: pa.Table | None
    """Rows of the operator's table."""


def create_tables(store: StateStore, operators: Iterable[Operator]) -> None:
    """The tables that are not there yet; `SchemaMismatch` for one that is there and has other columns."""
    there = set(store.tables())
    for operator in operators:
        schema = table_schema(operator)
        if operator.name not in there:
            try:
                store.create_table(operator.name, schema, primary_key=[KEY])
                continue
            except TableExists:
                store.tables()
        table = store.table(operator.name)
        if not table.schema.equals(schema) or tuple(table.primary_key) != (KEY,):
            raise SchemaMismatch(
                f"operator {operator.name!r}: table {operator.name!r} has other columns, {table.schema.names} by "
                f"{list(table.primary_key)}, and the operator keeps {schema.names} by ['key']: give it another name"
            )


class Entities:
    """The state of all entities, for the thread that runs the program; an `EntityAccess`."""

    def __init__(self, operators: Operators, source: TableOpener, cache_bytes: int, *, keeps_cut: bool = False) -> None:
        """The operators' tables are there. `keeps_cut`: the source does not have what was cut until it is committed."""
        self._operators = operators
        self.target = operators.target
        self._forms = [StateForm(operator) for operator in operators.all]
        self._tables = [source.table(operator.name) for operator in operators.all]
        self._dirty: list[dict[Key, Any]] = [{} for _ in operators.all]
        self._keeps_cut = keeps_cut
        self._cut: list[dict[Key, Any]] = [{} for _ in operators.all]
        """What was cut last, if it is kept."""
        self._young: dict[Entity, Any] = {}
        self._old: dict[Entity, Any] = {}
        self._young_bytes = 0
        self._generation_bytes = cache_bytes // 2
        self._dirty_bytes = 0
        self.misses = 0
        """Reads that went to the store."""

    def read(self, entity: Entity) -> Any:
        """The stored form of an entity's state, or `None`; `StateUnread` if the store cannot tell."""
        found = self._young.get(entity, _UNKNOWN)
        if found is not _UNKNOWN:
            return found
        found = self._old.pop(entity, _UNKNOWN)
        if found is _UNKNOWN:
            number, key = entity
            found = self._dirty[number].get(key, _UNKNOWN)
            if found is _UNKNOWN and self._keeps_cut:
                found = self._cut[number].get(key, _UNKNOWN)
            if found is _UNKNOWN:
                self.misses += 1
                try:
                    row = self._tables[number].get(key)
                except Exception as error:
                    raise StateUnread(error) from error
                found = None if row is None else self._forms[number].of_row(row)
        self._remember(entity, found)
        return found

    def encode(self, entity: Entity, state: Any) -> Any:
        """The stored form of a state; `FunctionFault` if the operator cannot keep it."""
        return self._forms[entity[0]].encode(state, entity[1])

    def decode(self, entity: Entity, stored: Any) -> dict[str, Any]:
        """A copy of a state, for the caller to change."""
        return self._forms[entity[0]].decode(stored)

    def form(self, operator: int) -> StateForm:
        """How states of an operator are stored."""
        return self._forms[operator]

    def apply(self, writes: Mapping[Entity, Any]) -> None:
        """Store what a transaction has written; `None` deletes."""
        dirty = self._dirty
        for entity, stored in writes.items():
            dirty[entity[0]][entity[1]] = stored
            self._dirty_bytes += _size(stored)
            self._old.pop(entity, None)
            self._remember(entity, stored)

    def prefetch(self, entities: Iterable[Entity]) -> None:
        """Read those that are not remembered together, as a read of many keys costs less than many of one.

        Raises what the store says.
        """
        missing: dict[int, dict[Key, None]] = {}
        for entity in entities:
            if entity in self._young or entity in self._old:
                continue
            if entity[1] not in self._dirty[entity[0]] and entity[1] not in self._cut[entity[0]]:
                missing.setdefault(entity[0], {})[entity[1]] = None
        for number, keys in missing.items():
            if len(keys) > 1:
                self.misses += len(keys)
                rows = self._tables[number].multi_get(list(keys)).to_pylist()
                form = self._forms[number]
                for key, row in zip(keys, rows, strict=True):
                    self._remember((number, key), None if row is None else form.of_row(row))

    def cut(self) -> Iterator[Cut]:
        """What is dirty, for a commit: rows for each operator that has some. What was cut before is committed."""
        self._dirty_bytes = 0
        for number, (form, dirty) in enumerate(zip(self._forms, self._dirty, strict=True)):
            gone = [key for key, stored in dirty.items() if stored is None]
            there = {key: stored for key, stored in dirty.items() if stored is not None} if gone else dirty
            if dirty:
                yield Cut(number, gone, form.table(there) if there else None)
            if self._keeps_cut:
                self._cut[number] = dirty
                self._dirty[number] = {}
            else:
                dirty.clear()

    @property
    def dirty_bytes(self) -> int:
        """What has been written since the last commit, about; what was written twice counts twice."""
        return self._dirty_bytes

    @property
    def dirty(self) -> int:
        """Entities that the next commit writes."""
        return sum(map(len, self._dirty))

    def _remember(self, entity: Entity, stored: Any) -> None:
        if entity not in self._young:
            size = _size(stored)
            self._young_bytes += size
            if self._young_bytes > self._generation_bytes:
                self._old, self._young, self._young_bytes = self._young, {}, size
        self._young[entity] = stored


def _size(stored: Any) -> int:
    """What a state takes in memory, about."""
    if stored is None:
        return ENTITY_BYTES
    return ENTITY_BYTES + (len(stored) if type(stored) is bytes else VALUE_BYTES * len(stored))
