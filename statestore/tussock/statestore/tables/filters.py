"""The filter of a typed table's read: which keys can pass it, and which values.

A filter that compares key columns with values becomes ranges of encoded keys, or single keys if they are few; one that
compares value columns becomes tests, by which blocks are left unread. It is applied to what is read all the same, so
these only have to let through every row that passes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.format.value_bounds import ValueTest, layout_of
from tussock.statestore.keys.conditions import Conditions, Test
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.keys.expressions import column_tests
from tussock.statestore.keys.intervals import Interval, interval_ranges
from tussock.statestore.keys.ranges import KeyRanges
from tussock.statestore.keys.vnode import vnodes
from tussock.statestore.rows.python_values import array_of
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.lookups.lookup_many import Hits
from tussock.statestore.tables.shape import Shape
from tussock.statestore.write.sorted_runs import take_hits

__all__ = ["ReadPlan", "found_rows", "read_plan"]

_LOOKUPS_MAX = 100
"""More keys are scanned in batches of bounded bytes, whatever their rows hold; blocks with none of them are skipped."""

_INTERVALS_MAX = 1000
"""More keys, or intervals, are fewer and longer ones: each takes some microseconds, and of a table that is not very
large it would leave hardly a block unread."""

_INTERVALS_OF_ALL_NODES_MAX = 50
"""The same where each of them is a range in every virtual node."""


_ALL_KEYS: list[Interval] = [((), ())]


class ReadPlan(NamedTuple):
    """What to read for a filter."""

    ranges: KeyRanges
    """What to scan."""
    keys: list[bytes] | None
    """What to look up in place of that, ascending, if it is few."""
    tests: tuple[ValueTest, ...] = ()
    """What value columns have to pass."""


def read_plan(encoder: KeyEncoder, shape: Shape, condition: pc.Expression | None, ranges: KeyRanges) -> ReadPlan:
    """The plan for a read in `ranges`; the condition was checked."""
    if condition is None:
        return ReadPlan(ranges, None)
    conditions = Conditions(column_tests(condition, shape.schema, encoder.primary_key, shape.values))
    tests = tuple(_value_test(test, shape) for test in conditions.tests if test.column in shape.values)
    keys = conditions.keys(encoder.primary_key, _INTERVALS_MAX)
    if keys is not None:
        encoded = _encoded(encoder, shape.schema, keys)
        if len(encoded) <= _LOOKUPS_MAX:
            return ReadPlan(ranges, [key for key in encoded if ranges.touch(key, key)])
        return ReadPlan(ranges.common(KeyRanges((key, key + b"\0") for key in encoded)), None, tests)
    in_one_node = conditions.fixed_columns(encoder.primary_key) >= encoder.distribution_width
    most = _INTERVALS_MAX if in_one_node else _INTERVALS_OF_ALL_NODES_MAX
    intervals = conditions.intervals(encoder.primary_key, most)
    nodes = None if in_one_node else _nodes(shape, conditions)
    if intervals is None and nodes is None:
        return ReadPlan(ranges, None, tests)
    among = range(shape.spec.vnodes) if nodes is None else nodes
    parts = _ALL_KEYS if intervals is None else intervals
    narrow = KeyRanges(one for interval in parts for one in interval_ranges(encoder, interval, among))
    return ReadPlan(ranges.common(narrow), None, tests)


def _nodes(shape: Shape, conditions: Conditions) -> list[int] | None:
    """The virtual nodes of the rows that can pass, if the tests fix the distribution key to a few values."""
    names = shape.spec.distribution_key
    keys = conditions.keys(names, _INTERVALS_MAX)
    if keys is None:
        return None
    if not keys:
        return []
    kinds = [shape.schema.field(name).type for name in names]
    columns = [array_of(values, kind) for values, kind in zip(zip(*keys, strict=True), kinds, strict=True)]
    return sorted({int(node) for node in vnodes(columns, shape.spec.vnodes)})


def _value_test(test: Test, shape: Shape) -> ValueTest:
    """A test of a value column as the bounds of blocks take it: times are counts of their unit."""
    at = shape.values.index(test.column)
    kind, value = shape.types[at], test.value
    if pt.is_temporal(kind) and layout_of(kind) is not None:
        several = test.operator == "in"
        counts = [pa.scalar(one, kind).value for one in (value if several else [value])]
        value = tuple(counts) if several else counts[0]
    return ValueTest(at, test.operator, value)


def _encoded(encoder: KeyEncoder, schema: pa.Schema, keys: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """The encoded keys, ascending, each once."""
    if len(keys) <= _LOOKUPS_MAX:
        return sorted({encoder.encode_row(key) for key in keys})
    fields = [schema.field(name) for name in encoder.primary_key]
    columns = [array_of(values, field.type) for values, field in zip(zip(*keys, strict=True), fields, strict=True)]
    encoded = encoder.encode(pa.record_batch(columns, schema=pa.schema(fields)))
    return sorted(set(encoded.to_pylist()))


def found_rows(hits: Hits, keys: Sequence[bytes], columns: Sequence[int], shape: Shape) -> Rows:
    """The rows under ascending keys, as far as there are any, with these value columns."""
    types = [shape.types[at] for at in columns]
    found, values = take_hits(hits, len(keys), columns, types, shape.spec.name)
    there = pa.array(np.flatnonzero(found))
    return Rows(pa.array(keys, pa.binary()).take(there), 0, None, tuple(column.take(there) for column in values))
