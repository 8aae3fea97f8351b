"""The arguments of a typed table's reads, checked: each refusal names the argument and what is expected of it."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.base.arguments import iterator_over
from tussock.statestore.epochs import integer_of
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.encoding import KeyEncoder, upper_bound
from tussock.statestore.keys.intervals import Interval, interval_ranges
from tussock.statestore.keys.ranges import KeyRanges, Range
from tussock.statestore.shown import show_value

__all__ = ["added_fields", "check_filter", "check_limit", "filter_batch", "key_ranges", "picked_columns"]


def picked_columns(columns: Iterable[str] | None, schema: pa.Schema, table: str) -> list[str]:
    """The names to return: `columns`, all of the schema if `None`; `SchemaMismatch` for one unknown or given twice."""
    if columns is None:
        return list(schema.names)
    names = _strings(columns)
    if names is None:
        raise InvalidOption(
            f"table {table!r}: columns is {show_value(columns)}; expected a list of names, such as {schema.names}"
        )
    if not names:
        raise SchemaMismatch(f"table {table!r}: no columns to read; it has {schema.names}")
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise SchemaMismatch(f"table {table!r} has no columns {unknown}; it has {schema.names}", table)
    if len(set(names)) < len(names):
        raise SchemaMismatch(f"table {table!r}: a column is asked for twice in {names}", table)
    return names


def _strings(values: Iterable[str]) -> list[str] | None:
    """The values, if they are several strings; `None` otherwise, also where they are numbers without an end."""
    found = None if isinstance(values, str) else iterator_over(values)
    if found is None:
        return None
    names = []
    for name in found:
        if not isinstance(name, str):
            return None
        names.append(name)
    return names


def check_limit(limit: object) -> int | None:
    """The limit, a number of rows or `None`; else `InvalidOption`."""
    rows = integer_of(limit)
    if limit is not None and rows is None:
        raise InvalidOption(f"limit is {show_value(limit)}; expected 0 or more rows")
    return rows


def check_filter(condition: object, schema: pa.Schema, table: str) -> None:
    """`InvalidOption` unless the condition is one on columns of the schema."""
    if condition is None:
        return
    if not isinstance(condition, pc.Expression):
        raise InvalidOption(
            f"table {table!r}: filter is of type {type(condition).__name__}; expected an Arrow expression, such as "
            "pyarrow.compute.field('name') > 5"
        )
    filter_batch(pa.RecordBatch.from_pylist([], schema=schema), condition, table)


def filter_batch(batch: pa.RecordBatch, condition: pc.Expression, table: str) -> pa.RecordBatch:
    """The rows of the batch for which the condition holds; `InvalidOption` if that cannot be told."""
    try:
        return batch.filter(condition)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidOption(f"table {table!r}: the filter {_shown(condition)} cannot be evaluated: {error}") from error


def _shown(condition: pc.Expression) -> str:
    """Of an expression with a view of bytes in it Arrow makes no text, unless they happen to be UTF-8."""
    try:
        return str(condition)
    except UnicodeDecodeError:
        return "(with bytes that are no text)"


def key_ranges(
    encoder: KeyEncoder,
    nodes_in_all: int,
    prefix: Sequence[Any] | None,
    between: Interval | None,
    vnodes: tuple[int, int] | None,
) -> KeyRanges:
    """The ranges of encoded keys to read: one, or one per virtual node where a prefix leaves the node open."""
    return KeyRanges(_key_ranges(encoder, nodes_in_all, prefix, between, vnodes))


def _key_ranges(
    encoder: KeyEncoder,
    nodes_in_all: int,
    prefix: Sequence[Any] | None,
    between: Interval | None,
    vnodes: tuple[int, int] | None,
) -> list[Range]:
    if prefix is not None:
        if vnodes is not None or between is not None:
            raise InvalidOption("a read takes a prefix alone, without between and vnodes")
        if not isinstance(prefix, tuple | list):
            raise InvalidOption(
                f"prefix {show_value(prefix)}: expected a tuple of leading key values, in the order of the key, such "
                "as ('a',)"
            )
        encoded = encoder.encode_prefix(prefix)
        vnode = encoder.prefix_vnode(prefix)
        nodes = range(nodes_in_all) if vnode is None else [vnode]
        starts = [node.to_bytes(2, "big") + encoded for node in nodes]
        if len(prefix) == len(encoder.primary_key):
            # A whole key is itself only: a string at its end would also begin longer ones.
            return [(start, start + b"\0") for start in starts]
        return [(start, upper_bound(start)) for start in starts]
    if vnodes is None and between is None:
        return [(None, None)]
    low, high = _node_range(vnodes, nodes_in_all)
    if between is not None:
        return interval_ranges(encoder, between, range(low, high))
    return [(low.to_bytes(2, "big"), high.to_bytes(2, "big"))]


def _node_range(vnodes: object, most: int) -> tuple[int, int]:
    if vnodes is None:
        return 0, most
    if isinstance(vnodes, tuple | list) and len(vnodes) == 2:
        low, high = vnodes
        if type(low) is type(high) is int and 0 <= low <= high <= most:
            return low, high
    raise InvalidOption(f"vnodes {show_value(vnodes)}: expected two numbers with 0 <= from <= to <= {most}")


def added_fields(fields: Sequence[pa.Field], schema: pa.Schema) -> list[pa.Field]:
    """The columns that changes add to the table's own, each with underscores in front until its name is free."""
    added = []
    for field in fields:
        name = field.name
        while name in schema.names:
            name = f"_{name}"
        added.append(field.with_name(name))
    return added
