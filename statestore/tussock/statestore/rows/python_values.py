"""Python values as an Arrow column without changing one, and Arrow's as Python values.

Arrow's own conversion cuts what does not fit: a time below the column's unit, a field that a struct has not, `1.5` of
a NumPy array into integers, an integer that a float has not. So each value is taken by its class first: NumPy's and
pandas's scalars and Arrow's become what they stand for, and what would change is a `Misfit`.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from tussock.statestore.rows.conversion import Misfit, convert, kind_misfit, kind_of
from tussock.statestore.shown import show_value

__all__ = [
    "BAD_VALUE",
    "array_of",
    "may_lose",
    "plain_parts",
    "python_rows",
    "python_structs",
    "python_value",
    "python_values",
    "taker",
]

AnyArray = Any
Take = Callable[[Any], Any]

BAD_VALUE = (Misfit, pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)
"""What `array_of` raises for a value that the type cannot hold."""

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_LARGER_UNITS = {"W": 7 * 86_400, "D": 86_400, "h": 3600, "m": 60}
_NULLS = ("NAType", "NaTType")
"""Classes of pandas's nulls."""


def array_of(values: Sequence[Any], kind: pa.DataType) -> AnyArray:
    """The values as one array of `kind`; raises one of `BAD_VALUE` if one of them would not be the same in it."""
    take = taker(kind)
    return convert(pa.array([take(value) for value in values], _building_type(kind)), kind)


def _building_type(kind: Any) -> pa.DataType:
    """The type in which Arrow builds the values before they are converted, which watches for infinity."""
    if pt.is_dictionary(kind):
        return _building_type(kind.value_type)
    if pt.is_floating(kind):
        return pa.float64()
    if pt.is_string_view(kind):
        return pa.string()
    if pt.is_binary_view(kind):
        return pa.binary()
    if pt.is_list(kind):
        return pa.list_(kind.value_field.with_type(_building_type(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_building_type(field.type)) for field in kind])
    if pt.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_building_type(key.type)), item.with_type(_building_type(item.type)))
    return kind


def taker(kind: Any) -> Take:
    """What turns a Python value into one that Arrow takes for `kind` unchanged, or raises one of `BAD_VALUE`."""
    if pt.is_dictionary(kind):
        return taker(kind.value_type)
    take = _plain_taker(kind)

    def take_value(value: Any) -> Any:
        if value is None or type(value).__name__ in _NULLS:
            return None
        if isinstance(value, pa.Scalar):
            return _from_scalar(value, kind)
        return take(value)

    return take_value


def _plain_taker(kind: Any) -> Take:
    name = kind_of(kind)
    if name in ("list", "map", "struct"):
        return {"list": _list_taker, "map": _map_taker, "struct": _struct_taker}[name](kind)
    if name in ("date", "time", "timestamp", "duration"):
        return _temporal_taker(kind, name)
    if name == "float":
        return _float_taker(kind)
    if name == "decimal":
        return _decimal_taker(kind)
    if name in _CLASSES:
        yes, no = _CLASSES[name]
        return lambda value: _of_class(value, yes, no)
    if name == "null":
        return lambda value: _of_class(value, (), ())
    return lambda value: value


_CLASSES: dict[str, tuple[tuple[type, ...], tuple[type, ...]]] = {
    "bool": ((bool, np.bool_), ()),
    "integer": ((int, np.integer), (bool, np.timedelta64)),
    "float": ((float, int, np.integer, np.float16, np.float32), (bool, np.timedelta64)),
    "decimal": ((Decimal, int, np.integer), (bool, np.timedelta64)),
    "string": ((str,), ()),
    "binary": ((bytes, bytearray, memoryview), ()),
}
"""Classes whose values may be of a kind, and subclasses of these that are not."""


def _of_class(value: Any, yes: tuple[type, ...], no: tuple[type, ...]) -> Any:
    if not isinstance(value, yes) or isinstance(value, no):
        raise Misfit(f"a value of type {type(value).__name__}")
    return value.item() if isinstance(value, np.generic) and not isinstance(value, str | bytes) else value


def _float_taker(kind: Any) -> Take:
    yes, no = _CLASSES["float"]
    width: Any = {16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width]
    most = int(np.finfo(width).max)

    def take_value(value: Any) -> Any:
        value = _of_class(value, yes, no)
        if not isinstance(value, int):
            return value
        # Only what was a float may take the nearest value: of integers that round to one, each would be another key.
        near = float(width(value)) if -most <= value <= most else None
        if near != value:
            raise Misfit(f"no {kind} is exactly this integer")
        return near

    return take_value


def _decimal_taker(kind: Any) -> Take:
    yes, no = _CLASSES["decimal"]
    places = kind.precision - kind.scale

    def take_value(value: Any) -> Any:
        value = _of_class(value, yes, no)
        if isinstance(value, int):
            is_long = abs(value) >= 10**places if places > 0 else value != 0
        else:
            is_long = value.is_finite() and bool(value) and value.adjusted() >= places
        if is_long:
            # Arrow tells a precision that is not the one of the column.
            raise Misfit(f"it has more digits in front of the point than the {max(places, 0)} of {kind}")
        return value

    return take_value


def _list_taker(kind: Any) -> Take:
    take, field = taker(kind.value_type), kind.value_field

    def take_value(value: Any) -> Any:
        if not isinstance(value, list | tuple | np.ndarray):
            raise Misfit(f"a value of type {type(value).__name__}")
        return [_not_null(take(item), field) for item in value]

    return take_value


def _map_taker(kind: Any) -> Take:
    take_key, take_item, item_field = taker(kind.key_type), taker(kind.item_type), kind.item_field

    def take_value(value: Any) -> Any:
        if not isinstance(value, Mapping | list | tuple):
            raise Misfit(f"a value of type {type(value).__name__}")
        pairs = []
        for pair in value.items() if isinstance(value, Mapping) else value:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise Misfit(f"{show_value(pair)}, which is no pair of a key and a value")
            pairs.append((take_key(pair[0]), _not_null(take_item(pair[1]), item_field)))
        return pairs

    return take_value


def _struct_taker(kind: Any) -> Take:
    fields = {field.name: (taker(field.type), field) for field in kind}

    def take_value(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(f"a value of type {type(value).__name__}")
        unknown = [name for name in value if name not in fields]
        if unknown:
            raise Misfit(f"the fields {show_value(unknown)} are unknown, expected {list(fields)}")
        return {name: _not_null(take(value.get(name)), field) for name, (take, field) in fields.items()}

    return take_value


def _not_null(value: Any, field: pa.Field) -> Any:
    if value is None and not field.nullable:
        raise Misfit(f"null in {field}, which is never null")
    return value


def _temporal_taker(kind: Any, name: str) -> Take:
    is_moment, is_duration = name == "timestamp", name == "duration"
    naive = kind.tz is None if is_moment else True
    # Python's times have microseconds; in a coarser unit most of them are another time.
    step = 1 if name == "date" else max(_NANOSECONDS[kind.unit] // 1000, 1)
    yes: Any = {"date": dt.date, "time": dt.time, "timestamp": dt.datetime, "duration": dt.timedelta}[name]
    no: Any = dt.datetime if name == "date" else ()
    count_units = _counter(kind)

    def take_value(value: Any) -> Any:
        if hasattr(value, "to_datetime64") and is_moment and (value.tzinfo is None) == naive:
            return pa.scalar(count_units(value.to_datetime64()), kind)
        if hasattr(value, "to_timedelta64") and is_duration:
            return pa.scalar(count_units(value.to_timedelta64()), kind)
        if isinstance(value, np.timedelta64 if is_duration else np.datetime64) and naive and name != "time":
            return None if np.isnat(value) else pa.scalar(count_units(value), kind)
        if not isinstance(value, yes) or (no and isinstance(value, no)):
            raise Misfit(f"a value of type {type(value).__name__}")
        if name == "date":
            return value
        if not is_duration and (value.tzinfo is None) != naive:
            raise Misfit("a time without a zone" if value.tzinfo is None else "a time with a zone")
        if not naive and value.utcoffset().microseconds:
            value = value.astimezone(dt.UTC)  # Arrow would cut such an offset
        if (value.microseconds if is_duration else value.microsecond) % step:
            raise Misfit(f"it has digits below the column's unit, {kind.unit}")
        return value

    return take_value


def _counter(kind: Any) -> Callable[[Any], int]:
    """What counts a NumPy time in the units of `kind`, exactly."""
    target = 86_400 * 10**9 if pt.is_date32(kind) else 10**6 if pt.is_date64(kind) else _NANOSECONDS[kind.unit]
    whole = 86_400 * 10**9 if pt.is_date(kind) else 1

    def count_units(value: Any) -> int:
        unit, count = np.datetime_data(value.dtype)
        if unit in ("Y", "M") and isinstance(value, np.datetime64):
            value, unit, count = value.astype("datetime64[D]"), "D", 1
        size = _LARGER_UNITS[unit] * 10**9 if unit in _LARGER_UNITS else _NANOSECONDS.get(unit)
        if size is None:
            raise Misfit(f"a time of NumPy in units of {unit}")
        nanoseconds = int(value.astype(np.int64)) * count * size
        if nanoseconds % target or nanoseconds % whole:
            raise Misfit(f"it has digits below the column's unit, {kind}")
        return nanoseconds // target

    return count_units


def _from_scalar(value: Any, kind: pa.DataType) -> Any:
    """An Arrow scalar as the array is converted."""
    misfit = kind_misfit(value.type, kind)
    if misfit is not None:
        raise Misfit(misfit or f"a scalar of {value.type}")
    converted = convert(pa.array([value], value.type), kind)[0]
    built = _building_type(kind)
    return converted if built == kind else converted.as_py() if pt.is_floating(kind) else converted.cast(built)


def python_value(scalar: Any, *, check: bool = True) -> Any:
    """The Arrow scalar as a Python value, or itself if Python has none that is the same.

    Such are times in nanoseconds and years beyond 9999, which Python's classes have not. `check=False` where
    `may_lose` says that the type needs none.
    """
    try:
        value = scalar.as_py()
    except (pa.ArrowException, ValueError, OverflowError):
        return scalar
    if check and may_lose(scalar.type) and pa.scalar(value, scalar.type) != scalar:
        return scalar
    return value


def python_values(values: Any) -> list[Any]:
    """The same of each value of an array."""
    found = _at_once(values, [values.type])
    return [python_value(one) for one in values] if found is None else found


def python_rows(rows: Any) -> list[dict[str, Any]]:
    """The rows of a table or batch as dicts of such values."""
    found = _at_once(rows, rows.schema.types)
    if found is not None:
        return found
    names = rows.schema.names
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def python_structs(structs: Any) -> list[dict[str, Any] | None]:
    """The same of a struct array, with `None` for null."""
    found = _at_once(structs, [structs.type])
    if found is not None:
        return found
    rows = python_rows(pa.RecordBatch.from_struct_array(structs))
    return [row if is_there else None for row, is_there in zip(rows, structs.is_valid().to_pylist(), strict=True)]


def _at_once(values: Any, kinds: Sequence[pa.DataType]) -> list[Any] | None:
    """All values as Arrow makes Python's of them; `None` if one may be another one then."""
    if any(map(may_lose, kinds)):
        return None
    try:
        found: list[Any] = values.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        return None
    return found


def plain_parts(scalar: Any) -> Any:
    """Of a scalar that no Python class holds: the same in lists and dicts, whose scalars hold nothing else."""
    kind = scalar.type
    if pt.is_struct(kind):
        return {name: python_value(one) for name, one in scalar.items()}
    if pt.is_map(kind):
        keys, items = scalar.values.field(0), scalar.values.field(1)
        return [list(pair) for pair in zip(python_values(keys), python_values(items), strict=True)]
    if pt.is_nested(kind):
        return python_values(scalar.values)
    return scalar


@lru_cache(maxsize=1024)
def may_lose(kind: Any) -> bool:
    """Whether Arrow makes another value of some of this type: it cuts times of day in nanoseconds."""
    if kind.num_fields:
        return any(may_lose(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pt.is_time64(kind) and kind.unit == "ns")
