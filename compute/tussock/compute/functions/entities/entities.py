"""The state of entities: what is dirty since the last cut, what is remembered, and below that the store's tables.

An operator's entities are rows of the table of its name, which belongs to the running program. State is read when it
is needed and may be larger than memory: what is remembered has a budget, and goes by whole generations, the older of
two at a time. The dirty part is what the next commit writes, and nothing else is (Styx's delta map, section 7.1).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tussock.compute.functions.entities.forms import StateForm
from tussock.compute.functions.errors import StateUnread
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.values import Key
from tussock.statestore.rows.python_values import python_structs

__all__ = ["Cut", "Entities", "TableOpener"]

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


class Entities:
    """The state of all entities, for the thread that runs the program; an `EntityAccess`."""

    def __init__(
        self,
        operators: Operators,
        source: TableOpener,
        cache_bytes: int,
        excuse: Callable[[Callable[[], Any]], Any],
        *,
        keeps_cut: bool = False,
    ) -> None:
        """The operators' tables are there. `excuse` runs a read of the store: its time is not that of functions.

        `keeps_cut`: the source does not have what was cut until it is committed.
        """
        self._operators = operators
        self.target = operators.target
        self._forms = [StateForm(operator) for operator in operators.all]
        self._tables = [source.table(operator.name) for operator in operators.all]
        self._excuse = excuse
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
                    row = self._excuse(lambda: self._tables[number].get(key))
                except Exception as error:
                    raise StateUnread(error) from error
                found = None if row is None else self._forms[number].of_row(row)
        self._remember(entity, found)
        return found

    def read_many(self, entities: Iterable[Entity]) -> list[Any]:
        """The same of each of many entities."""
        young = self._young
        return [young[one] if one in young else self.read(one) for one in entities]

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
        dirty, young = self._dirty, self._young
        for entity, stored in writes.items():
            number, key = entity
            dirty[number][key] = stored
            form = self._forms[number]
            size = form.entity_bytes
            if size and entity in young:
                # Most writes of batch functions are such.
                self._dirty_bytes += size
                young[entity] = stored
                continue
            size = size or form.size(key, stored)
            self._dirty_bytes += size
            older = self._young.get(entity, _UNKNOWN)
            if older is _UNKNOWN:
                self._old.pop(entity, None)
            elif not form.is_even:
                self._young_bytes -= form.size(key, older)
            else:
                self._young[entity] = stored
                continue
            self._keep(entity, stored, size)
            young = self._young

    def prefetch(self, entities: Iterable[Entity]) -> None:
        """Read those that are not remembered together, as a read of many keys costs less than many of one.

        Raises what the store says.
        """
        missing: dict[int, dict[Key, None]] = {}
        young = self._young
        for entity in [one for one in entities if one not in young]:
            if entity in self._old:
                continue
            if entity[1] not in self._dirty[entity[0]] and entity[1] not in self._cut[entity[0]]:
                missing.setdefault(entity[0], {})[entity[1]] = None
        for number, keys in missing.items():
            if len(keys) > 1:
                self.misses += len(keys)
                rows = self._tables[number].multi_get(list(keys))
                form = self._forms[number]
                for key, row in zip(keys, python_structs(rows), strict=True):
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
        """What the young generation does not have."""
        self._keep(entity, stored, self._forms[entity[0]].size(entity[1], stored))

    def _keep(self, entity: Entity, stored: Any, size: int) -> None:
        self._young_bytes += size
        if self._young_bytes > self._generation_bytes:
            self._old, self._young, self._young_bytes = self._young, {}, size
        self._young[entity] = stored
