"""Tables that come, change and go: the deltas, and the alteration decided on the version that it lands on.

What may change in a schema, and why no row is written anew, is in `tussock.statestore.format.schema_changes`.
"""

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tussock.meta.version.version import Version
from tussock.statestore.contract.records import GoneTable, TableSpec, TableState
from tussock.statestore.errors import Conflict, TableExists, TableNotFound
from tussock.statestore.format.schema_changes import altered_schema, check_evolved

__all__ = ["AlterTable", "CreateTable", "DropTable", "alter"]


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

    def apply(self, version: Version) -> Version:
        """The version with the table in it."""
        created = TableState(spec=self.spec)
        if self.dated:
            created = replace(created, created=(version.max_committed_epoch, version.seq + 1))
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


def alter(version: Version, name: str, add: pa.Schema, widen: pa.Schema) -> tuple[list[AlterTable], TableState]:
    """The delta that adds and widens these columns, none if they are so already, and the table after it.

    Raises `TableNotFound`, `SchemaMismatch`.
    """
    state = version.find_table(name)
    if state is None:
        raise TableNotFound(f"table {name!r} is not in the store; nothing was altered")
    schema = altered_schema(state.spec, add, widen)
    if schema == state.spec.arrow_schema():
        return [], state
    written = schema.serialize().to_pybytes()
    return [AlterTable(table_id=state.spec.id, schema=written)], _with_schema(state, written)


def _with_schema(state: TableState, schema: bytes) -> TableState:
    return replace(state, spec=replace(state.spec, schema=schema))
