"""What `newer_than` needs of a table: a column of versions, and beside the table another for the versions of deletes.

A row keeps its version as long as it is there. A deleted one leaves key and version in the table of tombstones, whose
rows expire: so an older change of that key is known to be old for as long as the user asked for.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.spark.reads.connections import table_or_new
from tussock.compute.spark.writes.newest import VERSION_KINDS
from tussock.statestore.base.names import shown
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption
from tussock.statestore.format.schema_changes import is_wider
from tussock.statestore.rows.conversion import kind_of
from tussock.statestore.tables.table_options import TABLE_NAME_MAX, milliseconds

__all__ = ["Guard", "check_guard_arguments", "check_newer_than", "guard_of"]

TOMBSTONES = ".tombstones"
"""Ending of the name of the table of deletes, beside the names of the tables of `stateful`."""


@dataclass(frozen=True)
class Guard:
    """How a write is compared with what is stored; pickled to the tasks."""

    column: str
    """The column of versions."""
    tombstones: TableSpec | None
    """The table that keeps the versions of deletes; `None`: they leave nothing."""


def check_newer_than(column: str, spec: TableSpec) -> None:
    """Raise `InvalidOption` unless this is a value column of the table whose values have an order."""
    if spec.schema is None:
        raise InvalidOption(f"newer_than is {column!r}, and table {spec.name!r} is raw: it has no column of versions")
    schema = spec.arrow_schema()
    if column not in schema.names or column in spec.primary_key or not _has_order(schema.field(column).type):
        suitable = [f.name for f in schema if f.name not in spec.primary_key and _has_order(f.type)]
        kind = "which it does not have" if column not in schema.names else f"of type {schema.field(column).type}"
        where = " in its key" if column in spec.primary_key else ""
        raise InvalidOption(
            f"newer_than is {column!r}, a column of table {spec.name!r}{where}, {kind}; expected a value column of "
            f"integers, decimals, dates, times, timestamps, strings or bytes: "
            f"{f'one of {shown(suitable)}' if suitable else 'there is none'}"
        )


def _has_order(kind: pa.DataType) -> bool:
    return kind_of(kind) in VERSION_KINDS and not pt.is_dictionary(kind)


def check_guard_arguments(newer_than: str | None, keep_deletes: float | None, op_column: str | None) -> None:
    """Raise `InvalidOption` unless these go together, and `keep_deletes` is a time that a table can have."""
    if newer_than is not None and newer_than == op_column:
        raise InvalidOption(
            f"newer_than and op_column are both {newer_than!r}; expected a column of versions, and another one with a "
            "word for each row"
        )
    if keep_deletes is None:
        return
    if newer_than is None or op_column is None:
        missing = "newer_than" if newer_than is None else "op_column"
        raise InvalidOption(
            f"keep_deletes is {keep_deletes!r}, and {missing} is not given; it keeps the versions of rows that "
            "op_column marks as deletes, which newer_than compares: give all three, or leave keep_deletes out"
        )
    if not milliseconds(keep_deletes, "keep_deletes"):
        raise InvalidOption(f"keep_deletes is {keep_deletes!r}; expected seconds, at least 0.001, or leave it out")


def guard_of(store: StateStore, spec: TableSpec, newer_than: str, keep_deletes: float | None) -> Guard:
    """The guard of a table, after checks; creates the table of tombstones if it is wanted and missing.

    Raises `InvalidOption` if another table has its name, also one with another time to live.
    """
    check_newer_than(newer_than, spec)
    return Guard(newer_than, None if keep_deletes is None else _tombstones(store, spec, newer_than, keep_deletes))


def _tombstones(store: StateStore, spec: TableSpec, version: str, keep_deletes: float) -> TableSpec:
    name = f"{spec.name}{TOMBSTONES}"
    if len(name) > TABLE_NAME_MAX:
        raise InvalidOption(
            f"table {spec.name!r}: keep_deletes needs a table of that name and {TOMBSTONES!r}, and names have at most "
            f"{TABLE_NAME_MAX} characters; leave keep_deletes out, or use a table with a shorter name"
        )
    schema = spec.arrow_schema()
    expected = pa.schema([schema.field(column).with_nullable(False) for column in (*spec.primary_key, version)])
    found = table_or_new(
        store,
        name,
        schema=expected,
        primary_key=spec.primary_key,
        distribution_key=spec.distribution_key,
        vnodes=spec.vnodes,
        ttl=keep_deletes,
    )
    columns = None if found.schema is None else found.arrow_schema()
    if columns is not None and columns.names == expected.names:
        kind = expected.field(version).type
        if is_wider(columns.field(version).type, kind):
            # The column of the table was widened since, and the next delete may need the room.
            found = store.alter_table(name, widen={version: kind}).spec
            columns = found.arrow_schema()
    _check_tombstones(found, columns, expected, spec, keep_deletes)
    return found


def _check_tombstones(
    found: TableSpec, columns: pa.Schema | None, expected: pa.Schema, spec: TableSpec, keep_deletes: float
) -> None:
    ttl_ms = milliseconds(keep_deletes, "keep_deletes")
    same = columns is not None and [(f.name, f.type) for f in columns] == [(f.name, f.type) for f in expected]
    if not same or found.primary_key != spec.primary_key or found.ttl_column is not None or found.ttl_ms is None:
        told = "a raw table" if columns is None else f"{_shown(columns)} with the key {list(found.primary_key)}"
        raise InvalidOption(
            f"table {found.name!r} is not one that keep_deletes made for table {spec.name!r}: expected "
            f"{_shown(expected)} with the key {list(spec.primary_key)} and a time to live, found {told}; it is left as "
            "it is: use a table with another name, or drop that one if it remains from an earlier table or another "
            "newer_than"
        )
    if found.ttl_ms != ttl_ms:
        raise InvalidOption(
            f"keep_deletes is {keep_deletes!r}, and table {found.name!r} was made with {found.ttl_ms / 1000!r} "
            "seconds, which cannot be changed; give that, or drop the table, which forgets the deletes that it keeps"
        )


def _shown(schema: pa.Schema) -> str:
    return str([f"{field.name}: {field.type}" for field in schema])
