"""The arguments of `create_table` and `alter_table`, checked and turned into records."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from tussock.statestore.base.arguments import check_name, check_seconds
from tussock.statestore.base.names import repeated, shown
from tussock.statestore.contract.records import TableChange, TableSpec, shown_schema
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.format.block import CODECS
from tussock.statestore.format.columns import check_storable
from tussock.statestore.format.schema_changes import Columns, columns_of
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.shown import show_value

__all__ = ["TABLE_NAME_MAX", "Retention", "TablePeriods", "milliseconds", "table_change", "table_spec"]

Retention: TypeAlias = float | str
"""Of a table: seconds, or `STORE`."""

TABLE_NAME_MAX = 255
"""Characters of the name of a table."""

STORE = "store"
"""As the retention of a table: that of the store."""


class TablePeriods(NamedTuple):
    """How long a table keeps what, in seconds."""

    retention: float | None = None
    ttl: float | None = None
    ttl_column: str | None = None


NO_PERIODS = TablePeriods()


def table_spec(
    name: str,
    schema: pa.Schema | None,
    primary_key: Sequence[str] | None,
    distribution_key: Sequence[str] | None,
    vnodes: int,
    block_bytes: int,
    compression: str,
    periods: TablePeriods = NO_PERIODS,
) -> TableSpec:
    """The table's record, still without an id; `InvalidOption` or `SchemaMismatch` if an argument cannot work."""
    check_name(name, "table name", TABLE_NAME_MAX)
    if not isinstance(compression, str) or compression not in CODECS:
        raise InvalidOption(f"compression {show_value(compression)}: expected one of {sorted(CODECS)}")
    if type(block_bytes) is not int or not 256 <= block_bytes <= 16 << 20:
        raise InvalidOption(f"block_bytes {show_value(block_bytes)}: expected 256 to {16 << 20}")
    primary_key = _names(primary_key, "primary_key")
    distribution_key = _names(distribution_key, "distribution_key")
    if schema is None:
        if primary_key or distribution_key:
            raise InvalidOption(f"table {name!r}: a primary key needs a schema; a raw table has neither")
        if periods.ttl_column is not None:
            raise InvalidOption(
                f"table {name!r}: ttl_column is {show_value(periods.ttl_column)}; a raw table has no such column"
            )
        return TableSpec(
            id=0,
            name=name,
            block_bytes=block_bytes,
            compression=compression,
            retention_ms=milliseconds(periods.retention, "retention"),
            ttl_ms=_ttl_ms(periods.ttl, None),
        )
    schema = _check_schema(schema, name)
    if not primary_key:
        raise InvalidOption(f"table {name!r}: a typed table needs a primary key, one or more of {shown(schema.names)}")
    if type(vnodes) is not int or vnodes not in (1 << bit for bit in range(9)):
        raise InvalidOption(f"vnodes {show_value(vnodes)}: expected a power of two from 1 to 256")
    spec = TableSpec(
        id=0,
        name=name,
        schema=schema.serialize().to_pybytes(),
        primary_key=primary_key,
        distribution_key=distribution_key or primary_key,
        vnodes=vnodes,
        block_bytes=block_bytes,
        compression=compression,
        retention_ms=milliseconds(periods.retention, "retention"),
        ttl_ms=_ttl_ms(periods.ttl, periods.ttl_column),
        ttl_column=periods.ttl_column,
    )
    KeyEncoder(schema, spec.primary_key, spec.distribution_key, vnodes)
    for field in schema:
        check_storable(field.type, field.name)
    if periods.ttl_column is not None:
        _check_ttl_column(schema, spec)
    return spec


def table_change(add: Columns | None, widen: Columns | None, retention: Retention | None) -> TableChange:
    """The arguments of `alter_table`, checked; `InvalidOption` for one that cannot work."""
    of_store = isinstance(retention, str) and retention == STORE
    if isinstance(retention, str) and not of_store:
        raise InvalidOption(f"retention is {retention!r:.100}; expected seconds, or {STORE!r} for the store's")
    return TableChange(
        add=columns_of(add, "add"),
        widen=columns_of(widen, "widen"),
        retention_ms=None if isinstance(retention, str) else milliseconds(retention, "retention"),
        store_retention=of_store,
    )


def milliseconds(seconds: float | None, option: str) -> int | None:
    """A period of a table as it is kept; `InvalidOption` if it is not seconds."""
    if seconds is None:
        return None
    check_seconds(seconds, option)
    return round(seconds * 1000)  # 1.001 s are 1000.9999999999999 ms


def _ttl_ms(ttl: float | None, column: object) -> int | None:
    if ttl is None and column is not None:
        raise InvalidOption(
            f"ttl_column is {show_value(column)} without ttl; expected seconds, 0 to expire at that time"
        )
    ttl_ms = milliseconds(ttl, "ttl")
    if ttl_ms == 0 and column is None:
        raise InvalidOption(f"ttl is {ttl!r}; expected at least a millisecond, as rows live from when they are written")
    return ttl_ms


def _check_ttl_column(schema: pa.Schema, spec: TableSpec) -> None:
    """`InvalidOption` unless there is such a value column, of a type that tells the time."""
    name = spec.ttl_column
    found = schema.field(name) if isinstance(name, str) and name in schema.names else None
    if found is None or not pa.types.is_timestamp(found.type) or name in spec.primary_key:
        times = [one.name for one in schema if pa.types.is_timestamp(one.type) and one.name not in spec.primary_key]
        is_key = " of the key" if name in spec.primary_key else ""
        kind = "which is not there" if found is None else f"a column{is_key} of type {found.type}"
        raise InvalidOption(
            f"table {spec.name!r}: ttl_column is {show_value(name)}, {kind}; expected a column of a timestamp type "
            f"that is not in the key: {f'one of {shown(times)}' if times else 'there is none'}"
        )


def _names(names: object, option: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InvalidOption(f"{option} is {show_value(names)}; expected a list of column names")
    for name in filter(None, names):
        check_name(name, f"{option}: column name", len(name))
    return tuple(names)


def _check_schema(schema: object, table: str) -> pa.Schema:
    if not isinstance(schema, pa.Schema):
        kind = type(schema)
        raise SchemaMismatch(
            f"table {table!r}: schema is of type {kind.__module__}.{kind.__name__}; expected a pyarrow.Schema"
        )
    if twice := repeated(schema.names):
        raise SchemaMismatch(
            f"table {table!r}: the columns {shown(twice)} stand twice in {shown(schema.names)}; expected each once"
        )
    return shown_schema(schema.remove_metadata())
