"""What an Arrow expression asks of columns: tests of single columns that all have to hold, as far as it is such.

`read(filter=...)` narrows its key ranges by them. Arrow has no public way to look into an expression, but a form in
which it leaves a process: an IPC file whose schema's metadata spells the tree, and whose only row holds the literals,
with their types (`docs/decisions/0033-filters-narrow-reads.md`). It is read strictly; whatever is not known here makes
no test, and the filter is applied to the rows in any case. A test is taken only where a comparison by Arrow, which
first casts both sides to a common type, holds for no other values of the column than one in the column's own type.
"""

import ctypes
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.keys.conditions import Test
from tussock.statestore.rows.python_values import BAD_VALUE, array_of, python_value

__all__ = ["column_tests"]

_OPERATORS = {
    "equal": ("in", "in"),
    "less": ("<", ">"),
    "less_equal": ("<=", ">="),
    "greater": (">", "<"),
    "greater_equal": (">=", "<="),
}
"""Arrow's names of comparisons: the operator with the column on the left side, and with the column on the right."""

_AND = ("and", "and_kleene")
"""Either is true only if both sides are, and a row passes only if all is true."""


_VALUES_MAX = 1000
"""A longer list of values is its bounds: each value costs some microseconds."""


class _Unknown(Exception):
    """Not of a form that is known here."""


class _FieldName(NamedTuple):
    """A reference to a column."""

    name: str


@dataclass
class _Call:
    function: str
    arguments: list[Any] = field(default_factory=list)
    """Columns, scalars and calls; `None` for a field within a column."""
    options: Any = None


def column_tests(
    condition: pc.Expression, schema: pa.Schema, columns: Collection[str], nullable: Collection[str] = ()
) -> tuple[Test, ...]:
    """What the condition, one on columns of `schema`, asks of those in `columns`, which are never null.

    Also of those in `nullable`, which may be. Each row that passes it passes the tests; rows that do not pass it may.
    """
    try:
        tree = _tree(condition)
    except (_Unknown, pa.ArrowException, LookupError, ValueError, TypeError):
        return ()
    tests: list[Test] = []
    for call in _conjuncts(tree):
        try:
            tests += _tests(call, schema, columns, nullable)
        except (_Unknown, pa.ArrowException, LookupError, *BAD_VALUE):
            continue
    return tuple(tests)


def _conjuncts(tree: Any) -> Iterator[_Call]:
    """The calls that all have to be true; a stack, since a filter may be as deep as it is long."""
    stack = [tree]
    while stack:
        call = stack.pop()
        if isinstance(call, _Call):
            if call.function in _AND:
                stack.extend(reversed(call.arguments))
            else:
                yield call


def _tests(call: _Call, schema: pa.Schema, never_null: Collection[str], nullable: Collection[str]) -> list[Test]:
    """The call as one or two tests; raises `_Unknown`, or an error of Arrow or Python, if it is none."""
    columns = [*never_null, *nullable]
    if call.function in _OPERATORS and call.options is None:
        operator, mirrored = _OPERATORS[call.function]
        left, right = call.arguments
        if isinstance(right, _FieldName):
            left, right, operator = right, left, mirrored
        name, kind = _tested(left, schema, columns)
        value = _value(right, kind)
        return [Test(name, operator, (value,) if operator == "in" else value)]
    (column,) = call.arguments
    name, kind = _tested(column, schema, columns)
    options = dict(call.options.items())
    if call.function == "is_in" and set(options) == {"value_set", "null_matching_behavior", "_type_name"}:
        listed = options["value_set"].values
        if listed.null_count and name in nullable:
            # As a rule it holds for null then, and no test does.
            raise _Unknown(listed)
        return _listed_tests(name, listed, kind)
    if call.function == "starts_with" and set(options) == {"pattern", "ignore_case", "_type_name"}:
        pattern = options["pattern"].as_buffer().to_pybytes()
        if options["ignore_case"].as_py() is False:
            return [Test(name, "prefix", pattern.decode() if _is_text(kind) else _bytes_prefix(pattern, kind))]
    raise _Unknown(call.function)


def _listed_tests(name: str, listed: pa.Array, kind: pa.DataType) -> list[Test]:
    # If there are nulls, the column has none, and it does not matter what they match.
    if len(listed) - listed.null_count <= _VALUES_MAX:
        values = [_value(value, kind) for value in listed if value.is_valid]
        return [Test(name, "in", tuple(dict.fromkeys(values)))]
    if pt.is_floating(kind) or listed.type != kind:
        # NaN is beyond all bounds, and equal to itself here.
        raise _Unknown(kind)
    bounds = pc.min_max(listed)
    return [Test(name, ">=", _value(bounds["min"], kind)), Test(name, "<=", _value(bounds["max"], kind))]


def _tested(column: Any, schema: pa.Schema, columns: Collection[str]) -> tuple[str, pa.DataType]:
    if not isinstance(column, _FieldName) or column.name not in columns:
        raise _Unknown(column)
    return column.name, schema.field(column.name).type


def _bytes_prefix(pattern: bytes, kind: pa.DataType) -> bytes:
    if not _is_bytes(kind):
        raise _Unknown(kind)
    return pattern


# --- Values -----------------------------------------------------------------------------------------------------------


def _value(literal: Any, kind: pa.DataType) -> Any:
    """The literal as a value of the column's type, exactly; raises if there is none, or a comparison means others."""
    if not isinstance(literal, pa.Scalar) or not literal.is_valid:
        raise _Unknown(literal)
    if literal.type != kind:
        literal = _converted(literal, kind)
    if pt.is_timestamp(kind) and kind.tz is not None:
        literal = literal.cast(pa.timestamp(kind.unit, "UTC"))
    value = python_value(literal)
    if isinstance(value, pa.Scalar) or value != value:
        # What Python cannot hold has no order here; and NaN, which has none anywhere, is equal to itself in a list.
        raise _Unknown(value)
    return value


def _converted(literal: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    given = literal.type
    if pt.is_decimal(kind) and (pt.is_integer(given) or pt.is_decimal(given)):
        return array_of([literal.as_py()], kind)[0]
    if not any(is_kind(kind) and is_given(given) for is_kind, is_given in _CONVERTED):
        # Above all a float for integers: those are compared as doubles, in which some of them are equal.
        raise _Unknown(given)
    if pt.is_timestamp(kind) and (kind.tz is None) != (given.tz is None):
        raise _Unknown(given)
    converted = literal.cast(kind)
    if not converted.cast(given).equals(literal):
        raise _Unknown(literal)
    return converted


def _is_text(kind: pa.DataType) -> bool:
    return pt.is_string(kind) or pt.is_large_string(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pt.is_binary(kind) or pt.is_large_binary(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pt.is_integer(kind) or pt.is_floating(kind)


_CONVERTED = (
    (pt.is_integer, pt.is_integer),
    (pt.is_floating, _is_number),
    (_is_text, _is_text),
    (_is_bytes, _is_bytes),
    (pt.is_timestamp, pt.is_timestamp),
    (pt.is_date, pt.is_date),
    (pt.is_time, pt.is_time),
    (pt.is_duration, pt.is_duration),
)
"""Types of a column and of a literal that is converted to it, as long as it stays the same value."""


# --- Arrow's form -----------------------------------------------------------------------------------------------------


def _tree(condition: pc.Expression) -> Any:
    """The expression as calls of columns and scalars."""
    _, (data,) = condition.__reduce__()
    with pa.ipc.open_file(data) as file:
        literals, pairs = file.get_batch(0), _metadata(file.schema)
    root = _Call("")
    stack, nested = [root], 0
    for kind, value in pairs:
        if nested:
            # Names from the column inwards.
            if kind != "field_ref":
                raise _Unknown(kind)
            nested -= 1
        elif kind == "call":
            stack.append(_Call(value))
        elif kind == "field_ref":
            stack[-1].arguments.append(_FieldName(value))
        elif kind == "nested_field_ref":
            stack[-1].arguments.append(None)
            nested = int(value)
        elif kind == "literal":
            stack[-1].arguments.append(literals.column(int(value))[0])
        elif kind == "options" and len(stack) > 1:
            stack[-1].options = literals.column(int(value))[0]
        elif kind == "end" and len(stack) > 1 and stack[-1].function == value:
            call = stack.pop()
            stack[-1].arguments.append(call)
        else:
            raise _Unknown(kind)
    if len(stack) != 1 or nested or len(root.arguments) != 1:
        raise _Unknown(len(stack))
    return root.arguments[0]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _metadata(schema: pa.Schema) -> Sequence[tuple[str, str]]:
    """The schema's metadata in order, with keys that are there several times, of which pyarrow shows only one.

    By Arrow's C data interface, whose `ArrowSchema` begins with three pointers: format, name and metadata.
    """
    capsule = schema.__arrow_c_schema__()
    address = _capsule_pointer(capsule, b"arrow_schema")
    at = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))[2]
    if not at:
        return []

    def number() -> int:
        nonlocal at
        (value,) = struct.unpack("=i", ctypes.string_at(at, 4))
        at += 4
        return int(value)

    def text() -> str:
        nonlocal at
        size = number()
        value = ctypes.string_at(at, size).decode()
        at += size
        return value

    return [(text(), text()) for _ in range(number())]
