"""The arguments of `create_table`, checked and turned into the record that the catalog keeps."""

from collections.abc import Sequence

import pyarrow as pa

from tussock.statestore.catalog import TableSpec
from tussock.statestore.errors import InvalidOption
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.sst.block import CODECS
from tussock.statestore.sst.writer import value_schema

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
    if not isinstance(name, str) or not name or len(name) > 255:
        raise InvalidOption(f"table name {name!r}: expected 1 to 255 characters")
    if compression not in CODECS:
        raise InvalidOption(f"compression {compression!r}: expected one of {sorted(CODECS)}")
    if not 256 <= block_bytes <= 16 << 20:
        raise InvalidOption(f"block_bytes {block_bytes}: expected 256 to {16 << 20}")
    if schema is None:
        if primary_key or distribution_key:
            raise InvalidOption(f"table {name!r}: a primary key needs a schema; a raw table has neither")
        return TableSpec(id=0, name=name, block_bytes=block_bytes, compression=compression)
    if not primary_key:
        raise InvalidOption(f"table {name!r}: a typed table needs a primary key, one or more of {schema.names}")
    if vnodes not in (1 << bit for bit in range(9)):
        raise InvalidOption(f"vnodes {vnodes}: expected a power of two from 1 to 256")
    spec = TableSpec(
        id=0,
        name=name,
        schema=schema.remove_metadata().serialize().to_pybytes(),
        primary_key=tuple(primary_key),
        distribution_key=tuple(distribution_key or primary_key),
        vnodes=vnodes,
        block_bytes=block_bytes,
        compression=compression,
    )
    KeyEncoder(schema, spec.primary_key, spec.distribution_key, vnodes)
    value_schema(spec)
    return spec
