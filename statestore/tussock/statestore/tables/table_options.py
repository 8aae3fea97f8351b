"""The arguments of `create_table`, checked and turned into the record that the catalog keeps."""

from collections.abc import Sequence

import pyarrow as pa

from tussock.statestore.base.arguments import check_name
from tussock.statestore.base.names import repeated, shown
from tussock.statestore.contract.records import TableSpec, shown_schema
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.format.block import CODECS
from tussock.statestore.format.columns import check_storable
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.shown import show_value

__all__ = ["table_spec"]


def table_spec(
    name: str,
    schema: pa.Schema | None,
    primary_key: Sequence[str] | None,
    distribution_key: Sequence[str] | None,
    vnodes: int,
    block_bytes: int,
    compression: str,
) -> TableSpec:
    """The table's record, still without an id; `InvalidOption` or `SchemaMismatch` if an argument cannot work."""
    check_name(name, "table name", 255)
    if not isinstance(compression, str) or compression not in CODECS:
        raise InvalidOption(f"compression {show_value(compression)}: expected one of {sorted(CODECS)}")
    if type(block_bytes) is not int or not 256 <= block_bytes <= 16 << 20:
        raise InvalidOption(f"block_bytes {show_value(block_bytes)}: expected 256 to {16 << 20}")
    primary_key = _names(primary_key, "primary_key")
    distribution_key = _names(distribution_key, "distribution_key")
    if schema is None:
        if primary_key or distribution_key:
            raise InvalidOption(f"table {name!r}: a primary key needs a schema; a raw table has neither")
        return TableSpec(id=0, name=name, block_bytes=block_bytes, compression=compression)
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
    )
    KeyEncoder(schema, spec.primary_key, spec.distribution_key, vnodes)
    for field in schema:
        check_storable(field.type, field.name)
    return spec


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
