"""What an application has to be to be partitioned by key; a pure function of what was declared."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.procedures.definitions import Definitions, Procedure
from tussock.compute.procedures.graph import Graph
from tussock.compute.procedures.partitions.partition import Partition
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption

__all__ = ["columns_of", "partition_of"]

_KINDS = (
    pt.is_integer,
    pt.is_string,
    pt.is_large_string,
    pt.is_binary,
    pt.is_large_binary,
    pt.is_boolean,
    pt.is_date,
    pt.is_timestamp,
)


def columns_of(application: str, given: object) -> tuple[str, ...]:
    """The partition columns; `InvalidOption` unless they are different names."""
    names = (given,) if isinstance(given, str) else given
    if (
        not isinstance(names, list | tuple)
        or not names
        or not all(isinstance(name, str) and name for name in names)
        or len(set(names)) < len(names)
    ):
        raise InvalidOption(
            f"application {application!r}: partition_by={given!r:.100}; expected a column, or a list of different ones"
        )
    return tuple(names)


def partition_of(definitions: Definitions, graph: Graph, specs: Mapping[str, TableSpec]) -> Partition:
    """The partition; `InvalidOption` for what cannot be done key by key."""
    names = definitions.partition_by
    if not names:
        raise InvalidOption(
            f"application {definitions.application!r} is not partitioned: give App the columns of the key, such as "
            'partition_by=["account"], if its procedures need the tuples and rows of one key only'
        )
    what = f"application {definitions.application!r} is partitioned by {list(names)}"
    for window in definitions.windows.values():
        raise InvalidOption(
            f"{what}, and window {window.name!r} shows the newest tuples of all keys, which no task has: keep the "
            "newest rows of a key in a table whose primary key begins with the partition columns"
        )
    for stream_name in definitions.outputs:
        raise InvalidOption(
            f"{what}, and stream {stream_name!r} has an output, whose sequence counts the batches of all keys, and "
            "no task knows them: write the tuples to a table whose primary key begins with the partition columns, and "
            "read its changes"
        )
    schema = _partition_schema(definitions, names, what)
    for stream in definitions.streams.values():
        _check_columns(schema, stream.schema, f"{what}, and stream {stream.name!r}")
    for name in sorted(specs):
        _check_table(schema, specs[name], what)
    for procedure in graph.order:
        borders = [one.name for one in graph.order if one.border and procedure in graph.downstream(one)]
        if len(borders) > 1:
            raise InvalidOption(
                f"{what}, and procedure {procedure.name!r} waits for batches of the borders {borders}: the tuples of a "
                "key may be in one of them only; give one border the tuples of both"
            )
    return Partition(schema)


def _partition_schema(definitions: Definitions, names: Sequence[str], what: str) -> pa.Schema:
    """The partition columns as the borders have them."""
    borders = [one for one in definitions.procedures.values() if one.border]
    if not borders:
        raise InvalidOption(f"{what}, and has no border procedure, which would be given batches")
    for border in borders:
        if border.schema is None:
            raise InvalidOption(
                f"{what}, and border procedure {border.name!r} has no schema: give schema=, so that the types of the "
                "partition columns are known"
            )
    first: Procedure = borders[0]
    assert first.schema is not None
    missing = [name for name in names if name not in first.schema.names]
    if missing:
        raise InvalidOption(
            f"{what}, and the batches of border procedure {first.name!r} lack {missing}; they have {first.schema.names}"
        )
    schema = pa.schema([pa.field(name, first.schema.field(name).type, nullable=False) for name in names])
    for field in schema:
        if not any(is_kind(field.type) for is_kind in _KINDS):
            raise InvalidOption(
                f"{what}, and column {field.name!r} is {field.type}: expected integers, text, bytes, booleans, dates "
                "or timestamps, of which equal values are the same key everywhere"
            )
    for border in borders:
        assert border.schema is not None
        _check_columns(schema, border.schema, f"{what}, and border procedure {border.name!r}")
    return schema


def _check_columns(schema: pa.Schema, found: pa.Schema, what: str) -> None:
    for field in schema:
        if field.name not in found.names:
            raise InvalidOption(
                f"{what} lacks {field.name!r}: a tuple has to say which key it is of; it has {found.names}"
            )
        if found.field(field.name).type != field.type:
            raise InvalidOption(
                f"{what} has {field.name!r} as {found.field(field.name).type}, and others have it as {field.type}: a "
                "key has one type"
            )


def _check_table(schema: pa.Schema, spec: TableSpec, what: str) -> None:
    names = schema.names
    if spec.schema is None or list(spec.primary_key[: len(names)]) != names:
        key = "a raw table's key is bytes" if spec.schema is None else f"its primary key is {list(spec.primary_key)}"
        raise InvalidOption(
            f"{what}, and table {spec.name!r} is not: {key}; expected one that begins with {names}, so that each row "
            "is of one key"
        )
    _check_columns(schema, spec.arrow_schema(), f"{what}, and table {spec.name!r}")
