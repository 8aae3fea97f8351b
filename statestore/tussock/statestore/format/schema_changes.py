"""How the schema of a typed table may change: value columns are added, nullable, or take a wider type.

Nothing that is stored is written anew. Each SST says in its meta which value columns it has, and a schema only ever
grows: so the columns of an older SST are the first ones of a newer schema, of the same or a narrower type. A read
fills up and casts (`wider_types.py`). A change that old rows could not be read by is refused: dropping, renaming and
narrowing a column, changing a key column, and forbidding nulls.
"""

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from tussock.statestore.base.arguments import check_name
from tussock.statestore.base.names import repeated, shown
from tussock.statestore.contract.records import TableSpec, shown_schema
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.format.columns import check_storable, storage_type
from tussock.statestore.shown import show_value

__all__ = ["Columns", "altered_schema", "check_evolved", "columns_of", "is_earlier", "is_wider"]

Columns: TypeAlias = Mapping[str, pa.DataType] | pa.Schema
"""Columns by name, with their types."""

_DIGITS = {
    pa.int8(): 3,
    pa.int16(): 5,
    pa.int32(): 10,
    pa.int64(): 19,
    pa.uint8(): 3,
    pa.uint16(): 5,
    pa.uint32(): 10,
    pa.uint64(): 20,
}
"""Decimal digits that any value of an integer type has at most."""

_SIGNIFICAND_BITS = {16: 11, 32: 24, 64: 53}
"""By the bits of a float: integers of that many bits, without their sign, are exact in it."""


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether `new` is another type that has each value of `old`, unchanged.

    Integers become wider integers (unsigned ones wider signed ones too), floats that hold each of them, or decimals
    with digits enough; floats wider floats; decimals those with as many digits on both sides of the point, or more.
    """
    if old == new:
        return False
    if old in _DIGITS:
        if new in _DIGITS:
            signed = pa.types.is_signed_integer(old)
            return new.bit_width > old.bit_width and (pa.types.is_signed_integer(new) or not signed)
        if pa.types.is_floating(new):
            bits = int(old.bit_width) - pa.types.is_signed_integer(old)
            return bits <= _SIGNIFICAND_BITS[new.bit_width]
        return pa.types.is_decimal(new) and new.scale >= 0 and new.precision - new.scale >= _DIGITS[old]
    if pa.types.is_floating(old):
        return pa.types.is_floating(new) and new.bit_width > old.bit_width
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        digits = new.precision - new.scale >= old.precision - old.scale
        return digits and new.scale >= old.scale and new.bit_width >= old.bit_width
    return False


def is_earlier(old: pa.Schema, new: pa.Schema) -> bool:
    """Whether value columns of `old` can be read as those of `new`: the same ones first, of the same types or wider."""
    return len(old) <= len(new) and all(
        before.name == after.name and (before.type == after.type or is_wider(before.type, after.type))
        for before, after in zip(old, new, strict=False)
    )


def columns_of(columns: Columns | None, option: str) -> pa.Schema:
    """The columns of an argument of `alter_table`; `InvalidOption` if it is not names with Arrow types."""
    if isinstance(columns, pa.Schema):
        if twice := repeated(columns.names):
            raise InvalidOption(
                f"{option} has the columns {shown(twice)} twice, of {shown(columns.names)}; expected each once"
            )
        return shown_schema(columns)
    if columns is not None and not isinstance(columns, Mapping):
        raise InvalidOption(f"{option} is {show_value(columns)}: expected a dict of column names and Arrow types")
    for name, kind in (columns or {}).items():
        if not isinstance(name, str) or not name or not isinstance(kind, pa.DataType):
            raise InvalidOption(
                f"{option} has {show_value(name)}: {show_value(kind)}; expected a column name and an Arrow type"
            )
        check_name(name, f"{option}: column name", len(name))
    return shown_schema(pa.schema(list((columns or {}).items())))


def altered_schema(spec: TableSpec, add: pa.Schema, widen: pa.Schema) -> pa.Schema:
    """The table's schema with the columns of `add` at its end and those of `widen` of their new type.

    What is so already is left as it is, so that a repetition changes nothing. Raises `SchemaMismatch` naming table,
    column, the type it has and the one that was asked for, or `InvalidOption` for a raw table.
    """
    if spec.schema is None:
        raise InvalidOption(f"table {spec.name!r} is raw: it has key and value for ever; a typed table can be altered")
    schema = spec.arrow_schema()
    fields = {field.name: field for field in schema}
    for field in add:
        fields[field.name] = _add_column(spec, fields.get(field.name), field.name, field.type)
    for field in widen:
        fields[field.name] = _widen_column(spec, fields, field.name, field.type)
    return pa.schema(list(fields.values()), schema.metadata)


def _add_column(spec: TableSpec, there: pa.Field | None, name: str, kind: pa.DataType) -> pa.Field:
    if there is None:
        check_storable(kind, name)
        return pa.field(name, kind)
    if name in spec.primary_key:
        raise _change_error(
            spec, name, there.type, kind, "it is a key column already; give the new column another name"
        )
    if there.type != kind:
        hint = f"to make it wider: widen={{{name!r}: ...}}" if is_wider(there.type, kind) else "give it another name"
        raise _change_error(spec, name, there.type, kind, f"it is there already; {hint}")
    if not there.nullable:
        raise _change_error(spec, name, there.type, kind, "it is there already, and never null; give it another name")
    return there


def _widen_column(spec: TableSpec, fields: Mapping[str, pa.Field], name: str, kind: pa.DataType) -> pa.Field:
    there = fields.get(name)
    if there is None:
        raise SchemaMismatch(
            f"table {spec.name!r} has no column {name!r} to widen to {kind}; it has {shown(list(fields))}; nothing was "
            f"altered, add={{{name!r}: ...}} adds it"
        )
    if there.type == kind:
        return there
    if name in spec.primary_key:
        raise _change_error(spec, name, there.type, kind, "a key column never changes; copy the rows to a new table")
    if not is_wider(there.type, kind):
        raise _change_error(
            spec,
            name,
            there.type,
            kind,
            "not every value of the old type is one of the new; add a column of that type, or copy the rows to a new "
            "table",
        )
    return there.with_type(kind)


def check_evolved(spec: TableSpec, schema: pa.Schema) -> None:
    """Raise `SchemaMismatch` unless the table may have `schema` from now on: nothing dropped, renamed or narrowed."""
    if spec.schema is None:
        raise InvalidOption(f"table {spec.name!r} is raw: it has key and value for ever; a typed table can be altered")
    before = spec.arrow_schema()
    if schema.names[: len(before)] != before.names or len(set(schema.names)) != len(schema):
        raise SchemaMismatch(
            f"table {spec.name!r} has the columns {shown(before.names)}; altered to {shown(schema.names)} it would "
            "have lost or moved some of them, or have one twice; nothing was altered"
        )
    for old, new in zip(before, schema, strict=False):
        if old.type != new.type and (old.name in spec.primary_key or not is_wider(old.type, new.type)):
            raise _change_error(spec, old.name, old.type, new.type, "only value columns change, to a wider type")
        if old.nullable != new.nullable:
            raise _change_error(spec, old.name, old.type, new.type, "whether a column may be null never changes")
    for field in list(schema)[len(before) :]:
        storage_type(field.type, field.name)
        if not field.nullable:
            raise SchemaMismatch(
                f"table {spec.name!r}: column {field.name!r} ({field.type}) would be new and never null, but the rows "
                "that are there have no value for it; nothing was altered, add it nullable"
            )


def _change_error(spec: TableSpec, name: str, old: pa.DataType, new: pa.DataType, why: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"table {spec.name!r}: column {name!r} has type {old} and cannot become {new}: {why}; nothing was altered"
    )
