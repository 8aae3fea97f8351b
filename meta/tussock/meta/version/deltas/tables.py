"""Tables that come, change and go: the deltas, and the alteration decided on the version that it lands on.

What may change in a schema, and why no row is written anew, is in `tussock.statestore.format.schema_changes`.
"""

import msgspec
from msgspec.structs import replace

from tussock.meta.version.version import Version
from tussock.statestore.contract.records import GoneTable, TableChange, TableSpec, TableState
from tussock.statestore.errors import Conflict, InvalidOption, TableExists, TableNotFound
from tussock.statestore.format.schema_changes import altered_schema, check_evolved
from tussock.statestore.shown import show_value

__all__ = ["AlterTable", "CreateTable", "DropTable", "SetRetention", "alter"]


RETENTION_MS_MAX = 10**12
"""31 years, as of a store."""


class CreateTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="create_table", tag_field="type"):
    """A table comes into being, empty; `spec.id` is the version's `next_table_id`."""

    spec: TableSpec
    dated: bool = False
    """The version notes when, for pins."""

    def validate(self, version: Version) -> None:
        """Raise `TableExists` if the name is taken, `Conflict` if the id is not the next one."""
        if version.find_table(self.spec.name) is not None:
            raise TableExists(f"table {self.spec.name!r} exists already; open it, or drop it first")
        if self.spec.id != version.next_table_id:
            raise Conflict(
                f"table {self.spec.name!r} was to get id {self.spec.id}, but the next id is {version.next_table_id}"
            )
        check_retention(self.spec.retention_ms)

    def apply(self, version: Version) -> Version:
        """The version with the table in it."""
        created = TableState(spec=self.spec)
        if self.dated:
            created = replace(created, created=(version.max_committed_epoch, version.seq + 1))
        if self.spec.retention_ms is not None:
            created = _with_own_epochs(version, created)
        return replace(version, tables={**version.tables, self.spec.id: created}, next_table_id=self.spec.id + 1)


class AlterTable(msgspec.Struct, frozen=True, kw_only=True, tag="alter_table", tag_field="type"):
    """A typed table has other columns from now on: more at the end, or of wider types. No row is written anew."""

    table_id: int
    schema: bytes
    """The whole new schema, as an IPC message."""

    def validate(self, version: Version) -> None:
        """Raise `TableNotFound` or `SchemaMismatch` unless the table's rows can be read by the new schema."""
        state = version.tables.get(self.table_id)
        if state is None:
            raise TableNotFound(f"table with id {self.table_id} is not in the store; nothing was altered")
        check_evolved(state.spec, _with_schema(state, self.schema).spec.arrow_schema())

    def apply(self, version: Version) -> Version:
        """The version in which the table has the new schema."""
        altered = _with_schema(version.tables[self.table_id], self.schema)
        return replace(version, tables={**version.tables, self.table_id: altered})


class SetRetention(msgspec.Struct, frozen=True, kw_only=True, tag="set_retention", tag_field="type"):
    """A table has another retention from now on. What is gone stays gone."""

    table_id: int
    retention_ms: int | None
    """`None`: the store's."""

    def validate(self, version: Version) -> None:
        """Raise `TableNotFound` unless the table is there, `InvalidOption` for a negative retention."""
        if self.table_id not in version.tables:
            raise TableNotFound(f"table with id {self.table_id} is not in the store; nothing was altered")
        check_retention(self.retention_ms)

    def apply(self, version: Version) -> Version:
        """The version in which the table has that retention."""
        altered = _with_retention(version, version.tables[self.table_id], self.retention_ms)
        return replace(version, tables={**version.tables, self.table_id: altered})


class DropTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drop_table", tag_field="type"):
    """A table goes, with its compaction tasks. Its id is never given again."""

    table_id: int
    at_ms: int
    keep: bool = False
    """It is kept as gone, for pins, until a `ForgetDropped` names it; else its SSTs become dropped at once."""

    def validate(self, version: Version) -> None:
        """Raise `TableNotFound` unless the table is there."""
        if self.table_id not in version.tables:
            raise TableNotFound(f"table with id {self.table_id} is not in the store; nothing was dropped")

    def apply(self, version: Version) -> Version:
        """The version without the table."""
        gone = version.tables[self.table_id]
        without = replace(
            version,
            tables={key: state for key, state in version.tables.items() if key != self.table_id},
            tasks={key: task for key, task in version.tasks.items() if task.table_id != self.table_id},
        )
        if self.keep:
            kept = GoneTable(
                state=gone,
                dropped_epoch=version.max_committed_epoch,
                dropped_seq=version.seq + 1,
                dropped_ms=self.at_ms,
            )
            return without.with_gone({**version.gone, self.table_id: kept})
        return without.with_ssts_dropped(gone.levels.ssts(), self.at_ms)


def alter(version: Version, name: str, change: TableChange) -> tuple[list[AlterTable | SetRetention], TableState]:
    """The deltas that change a table so, none if it is so already, and the table after them.

    Raises `TableNotFound`, `SchemaMismatch`, `InvalidOption`.
    """
    state = version.find_table(name)
    if state is None:
        raise TableNotFound(f"table {show_value(name)} is not in the store; nothing was altered")
    deltas: list[AlterTable | SetRetention] = []
    wants_retention = change.store_retention or change.retention_ms is not None
    if change.add or change.widen or not wants_retention:
        schema = altered_schema(state.spec, change.add, change.widen)
        if schema != state.spec.arrow_schema():
            written = schema.serialize().to_pybytes()
            deltas.append(AlterTable(table_id=state.spec.id, schema=written))
            state = _with_schema(state, written)
    if wants_retention:
        check_retention(change.retention_ms)
        retention_ms = None if change.store_retention else change.retention_ms
        if retention_ms != state.spec.retention_ms:
            deltas.append(SetRetention(table_id=state.spec.id, retention_ms=retention_ms))
            state = _with_retention(version, state, retention_ms)
    return deltas, state


def check_retention(retention_ms: int | None) -> None:
    """`InvalidOption` unless it is one that a table may have."""
    if retention_ms is not None and not 0 <= retention_ms <= RETENTION_MS_MAX:
        raise InvalidOption(
            f"a table's retention of {retention_ms} ms: expected 0 to {RETENTION_MS_MAX}; nothing was changed"
        )


def _with_retention(version: Version, state: TableState, retention_ms: int | None) -> TableState:
    """Its own epochs go on from the store's; once it has them it keeps them, since no epoch may ever go back."""
    kept = state if state.own_epochs else _with_own_epochs(version, state)
    return replace(kept, spec=replace(state.spec, retention_ms=retention_ms))


def _with_own_epochs(version: Version, state: TableState) -> TableState:
    return replace(state, own_epochs=(version.safe_epoch, version.compacted_epoch))


def _with_schema(state: TableState, schema: bytes) -> TableState:
    return replace(state, spec=replace(state.spec, schema=schema))
