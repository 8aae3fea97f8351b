"""Altering a table: the delta that gives it another schema, decided on the version that it lands on.

What may change, and why no row is written anew, is in `tussock.statestore.format.schema_changes`.
"""

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from tussock.meta.version.version import Version
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import TableNotFound
from tussock.statestore.format.schema_changes import altered_schema, check_evolved

__all__ = ["AlterTable", "alter", "apply_alter", "validate_alter"]


class AlterTable(msgspec.Struct, frozen=True, kw_only=True, tag="alter_table", tag_field="type"):
    """A typed table has other columns from now on: more at the end, or of wider types. No row is written anew."""

    table_id: int
    schema: bytes
    """The whole new schema, as an IPC message."""


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


def validate_alter(version: Version, delta: AlterTable) -> None:
    """Raise `TableNotFound` or `SchemaMismatch` unless the table's rows can be read by the new schema."""
    state = version.tables.get(delta.table_id)
    if state is None:
        raise TableNotFound(f"table with id {delta.table_id} is not in the store; nothing was altered")
    check_evolved(state.spec, _with_schema(state, delta.schema).spec.arrow_schema())


def apply_alter(version: Version, delta: AlterTable) -> Version:
    """The version in which the table has the new schema."""
    altered = _with_schema(version.tables[delta.table_id], delta.schema)
    return replace(version, tables={**version.tables, delta.table_id: altered})


def _with_schema(state: TableState, schema: bytes) -> TableState:
    return replace(state, spec=replace(state.spec, schema=schema))
