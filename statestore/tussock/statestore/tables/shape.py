"""What an open typed table knows of its schema, taken apart once."""

from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.rows.python_values import may_lose
from tussock.statestore.rows.row_codec import RowCodec
from tussock.statestore.sst.writer import value_schema

__all__ = ["Shape", "encoder_of", "shape_of"]

_KEPT = 256
"""Tables whose schema was taken apart: a transaction opens its tables anew, and is over in a millisecond."""


class Shape(NamedTuple):
    """What may change of a table while it is open; an operation sticks to the one that it began with."""

    spec: TableSpec
    schema: pa.Schema
    values: tuple[str, ...]
    """Names of the value columns, as they are stored."""
    types: tuple[pa.DataType, ...]
    """Their types, as they are stored."""
    lossy: frozenset[str]
    """Names of those of which Python's values may not be the same."""
    codec: RowCodec | None
    """For rows that are written alone; `None` if some of its types need Arrow."""


@lru_cache(_KEPT)
def encoder_of(spec: TableSpec) -> KeyEncoder:
    """What encodes the keys of a table."""
    return KeyEncoder(spec.arrow_schema(), spec.primary_key, spec.distribution_key, spec.vnodes)


@lru_cache(_KEPT)
def shape_of(spec: TableSpec) -> Shape:
    """The shape of a table as the catalog holds it."""
    stored = value_schema(spec)
    lossy = frozenset(field.name for field in stored if may_lose(field.type))
    schema = spec.arrow_schema()
    codec = RowCodec.of(schema, spec.primary_key)
    return Shape(spec, schema, tuple(stored.names), tuple(stored.types), lossy, codec)
