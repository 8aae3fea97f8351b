"""Times that Arrow's columns can have and Python's classes cannot: such as a day of the year 33658, or nanoseconds.

Streams give their rows as Python's values too, so they refuse a time that would be another one there, or none.
"""

import datetime as dt
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.errors import SchemaMismatch

__all__ = ["beyond_python", "check_times", "first_beyond", "has_times", "time_misfit"]

Flags = npt.NDArray[np.bool_]

_STEPS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Of a second."""
_DAY = 86_400
_EPOCH = dt.date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = dt.date.min.toordinal() - _EPOCH, dt.date.max.toordinal() - _EPOCH
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_HAS_PANDAS = find_spec("pandas") is not None
"""Its classes are what Arrow gives for nanoseconds; there is none else for them."""


def has_times(kind: Any) -> bool:
    """Whether a type is one of times, or has such within."""
    if pt.is_struct(kind):
        return any(has_times(kind.field(at).type) for at in range(kind.num_fields))
    if pt.is_map(kind):
        return has_times(kind.key_type) or has_times(kind.item_type)
    if _is_list(kind):
        return has_times(kind.value_type)
    return bool(pt.is_temporal(kind))


def check_times(rows: pa.RecordBatch, names: tuple[str, ...]) -> None:
    """`SchemaMismatch` for the first value of these columns that is beyond Python."""
    for name in names:
        column = rows.column(name)
        at = first_beyond(column)
        if at >= 0:
            raise SchemaMismatch(f"column {name!r} at position {at} {time_misfit(column, at)}")


def first_beyond(column: pa.Array) -> int:
    """The place of the first value that is beyond Python; -1: there is none."""
    wrong = np.flatnonzero(beyond_python(column))
    return int(wrong[0]) if len(wrong) else -1


def time_misfit(column: pa.Array, at: int) -> str:
    """What is wrong with a value that is."""
    return (
        f"is {_shown(column[at])} as {column.type}, which no time of Python's can be; expected {_expected(column.type)}"
    )


def beyond_python(array: pa.Array) -> Flags:
    """Which values of an array are, or have within, times that Python cannot hold."""
    kind = array.type
    wrong = np.zeros(len(array), np.bool_)
    if not has_times(kind):
        return wrong
    if pt.is_struct(kind):
        for field in array.flatten():
            wrong |= beyond_python(field)
        return wrong
    if pt.is_map(kind):
        # Arrow flattens lists only.
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        array = pa.ListArray.from_arrays(array.offsets, pairs)
    if _is_list(kind):
        within = beyond_python(array.flatten())
        wrong[pc.list_parent_indices(array).to_numpy()[within]] = True
        return wrong
    numbers = array.view(pa.int64() if kind.bit_width == 64 else pa.int32()).fill_null(0).to_numpy()
    wrong = _beyond(kind, numbers)
    if pt.is_timestamp(kind) and kind.tz is not None:
        # By the clock of its zone it may be on the other side of the border.
        for number in np.unique(numbers[~wrong & _is_near_border(kind, numbers)]).tolist():
            if not _is_held(number, kind):
                wrong |= numbers == number
    return wrong


def _beyond(kind: Any, numbers: Any) -> Flags:
    if pt.is_date32(kind):
        return _outside(numbers, _FIRST_DAY, _LAST_DAY)
    if pt.is_date64(kind):
        return _outside(numbers, _FIRST_DAY * _DAY * 1000, _LAST_DAY * _DAY * 1000) | (numbers % (_DAY * 1000) != 0)
    step = _STEPS[kind.unit]
    if pt.is_time(kind):
        wrong = _outside(numbers, 0, _DAY * step - 1)
        return wrong | (numbers % 1000 != 0) if kind.unit == "ns" else wrong
    if kind.unit == "ns":
        return np.asarray(numbers == _LEAST if _HAS_PANDAS else numbers % 1000 != 0, np.bool_)
    if pt.is_duration(kind):
        days = dt.timedelta.max.days
        # Arrow does not take all of the first day back.
        least, most = max(-days * _DAY * step, _LEAST + _DAY * step), min((days + 1) * _DAY * step - 1, _MOST)
        return _outside(numbers, least, most)
    return _outside(numbers, _FIRST_DAY * _DAY * step, (_LAST_DAY + 1) * _DAY * step - 1)


def _outside(numbers: Any, least: int, most: int) -> Flags:
    return np.asarray((numbers < least) | (numbers > most), np.bool_)


def _is_near_border(kind: Any, numbers: Any) -> Flags:
    step = _STEPS[kind.unit]
    if kind.unit == "ns":
        return _outside(numbers, _LEAST + _DAY * step, _MOST - _DAY * step)
    return _outside(numbers, (_FIRST_DAY + 1) * _DAY * step, _LAST_DAY * _DAY * step)


def _is_held(number: int, kind: Any) -> bool:
    try:
        pa.scalar(number, pa.int64()).cast(kind).as_py()
    except (OverflowError, ValueError):
        return False
    return True


def _is_list(kind: Any) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) or pt.is_map(kind))


def _shown(value: Any) -> str:
    number = getattr(value, "value", None)
    return str(number) if isinstance(number, int) else "a value"


def _expected(kind: Any) -> str:
    if pt.is_time(kind):
        return "a time of a day in whole microseconds"
    if pt.is_duration(kind):
        return "at most 999,999,999 days" if kind.unit != "ns" else _expected_of_nanoseconds()
    if pt.is_date(kind):
        return "whole days of the years 1 to 9999"
    if pt.is_timestamp(kind):
        years = "the years 1 to 9999, by the clock of its zone too"
        return years if kind.unit != "ns" else f"{_expected_of_nanoseconds()}, in range by the clock of its zone too"
    return "the years 1 to 9999, times of a day in whole microseconds, and at most 999,999,999 days"


def _expected_of_nanoseconds() -> str:
    return "what pandas can hold" if _HAS_PANDAS else "whole microseconds, unless pandas is installed"
