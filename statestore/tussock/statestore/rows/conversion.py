"""Bringing an Arrow array into a column's type without changing a value, or saying why that cannot be.

Between types of one kind (a narrower integer, a large string, a timestamp of another unit) values are converted if
none changes; between kinds never, at any depth of lists, structs and maps. One exception: a narrower float takes the
nearest value that it has, but never infinity for a finite one.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.rows.key_arrays import binary_buffers

__all__ = ["Misfit", "as_dictionary", "check_text", "convert", "kind_misfit", "kind_of", "same_kind"]

AnyArray = Any


class Misfit(Exception):
    """A value that a type cannot hold as it is; the text says which one and why."""


_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("integer", pt.is_integer),
    ("float", pt.is_floating),
    ("decimal", pt.is_decimal),
    ("date", pt.is_date),
    ("time", pt.is_time),
    ("timestamp", pt.is_timestamp),
    ("duration", pt.is_duration),
    ("string", lambda t: pt.is_string(t) or pt.is_large_string(t) or pt.is_string_view(t)),
    (
        "binary",
        lambda t: pt.is_binary(t) or pt.is_large_binary(t) or pt.is_binary_view(t) or pt.is_fixed_size_binary(t),
    ),
    ("list", lambda t: pt.is_list(t) or pt.is_large_list(t) or pt.is_fixed_size_list(t)),
    ("struct", pt.is_struct),
    ("map", pt.is_map),
)


def kind_of(kind: pa.DataType) -> str:
    """`integer`, `string`, `list` and so on; of a dictionary that of its values, of any other type its own name."""
    if pt.is_dictionary(kind):
        return kind_of(kind.value_type)
    return next((name for name, test in _KINDS if test(kind)), str(kind))


def same_kind(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether both are integers, or floats, or strings, and so on: of these, values are converted if they fit."""
    return kind_of(found) == kind_of(expected)


def kind_misfit(found: pa.DataType, expected: pa.DataType, path: str = "") -> str | None:
    """Why values of `found` never fit `expected`, down into nested types; `None` if some may.

    The text goes on from the column's name (`.field[] is ...`), and is empty where the types as such do not fit.
    A struct may lack nullable fields, which become null; a field that the expected one has not is a misfit.
    """
    if pt.is_dictionary(found):
        return kind_misfit(found.value_type, expected, path)
    if pt.is_dictionary(expected):
        return kind_misfit(found, expected.value_type, path)
    if pt.is_null(found):
        return None
    here = f"{path} is {found}, expected {expected}" if path else ""
    if not same_kind(found, expected):
        return here
    name = kind_of(expected)
    if name == "timestamp":
        return here if (found.tz is None) != (expected.tz is None) else None
    if name == "list":
        return kind_misfit(found.value_type, expected.value_type, f"{path}[]")
    if name == "map":
        keys = kind_misfit(found.key_type, expected.key_type, f"{path}.key")
        return keys if keys is not None else kind_misfit(found.item_type, expected.item_type, f"{path}.value")
    return _fields_misfit(found, expected, path) if name == "struct" else None


def _fields_misfit(found: Any, expected: Any, path: str) -> str | None:
    names = [field.name for field in found]
    known = [field.name for field in expected]
    expected_names = frozenset(known)
    counts = Counter(names)
    unknown = sorted(name for name, count in counts.items() if count > 1 or name not in expected_names)
    if unknown:
        return f"{path} has fields {names}, of which {unknown} are unknown or twice, expected {known}"
    for field in expected:
        if field.name not in counts:
            if not field.nullable:
                return f"{path} lacks the field {field.name!r}, which is never null"
            continue
        misfit = kind_misfit(found.field(field.name).type, field.type, f"{path}.{field.name}")
        if misfit is not None:
            return misfit
    return None


def convert(array: AnyArray, kind: pa.DataType) -> AnyArray:
    """The array in `kind`, itself if it is; kinds must fit (`kind_misfit`).

    Raises `Misfit` or Arrow's own errors where a value does not fit.
    """
    found = array.type
    if found == kind and not (pt.is_dictionary(found) and array.dictionary.null_count):
        return array
    if pt.is_dictionary(found):
        return convert(array.dictionary_decode(), kind)
    if pt.is_dictionary(kind):
        return as_dictionary(convert(array, kind.value_type), kind)
    if pt.is_null(found):
        return pa.nulls(len(array), kind)
    if pt.is_struct(kind):
        return _convert_struct(array, kind)
    if pt.is_list(kind):
        values = _checked_field(convert(array.flatten(), kind.value_type), kind.value_field)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=_nulls(array))
    if pt.is_map(kind):
        return _convert_map(array, kind)
    cast = array.cast(kind)
    if pt.is_floating(kind) and pt.is_floating(found):
        beyond = pc.index(pc.and_(pc.is_inf(cast), pc.is_finite(array)), True).as_py()
        if beyond >= 0:
            raise Misfit(f"{array[beyond].as_py()} at position {beyond}")
    return cast


def as_dictionary(array: AnyArray, kind: Any) -> AnyArray:
    """Plain values in a dictionary type; itself if it is one."""
    if array.type == kind:
        return array
    encoded = array.dictionary_encode()
    return encoded if encoded.type == kind else encoded.cast(kind)


def _convert_struct(array: AnyArray, kind: Any) -> AnyArray:
    there = {field.name: array.field(at) for at, field in enumerate(array.type)}
    # What stands under a struct that is null means nothing, and must not be a reason to refuse.
    nulls = _nulls(array)
    children = []
    for field in kind:
        child = there.get(field.name)
        if child is None:
            children.append(pa.nulls(len(array), field.type))
            continue
        if nulls is not None:
            child = pc.if_else(nulls, pa.scalar(None, child.type), child)
        converted = convert(child, field.type)
        if not field.nullable and converted.null_count > array.null_count:
            raise Misfit(f"null in the field {field.name!r}, which is never null")
        children.append(converted)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)


def _convert_map(array: AnyArray, kind: Any) -> AnyArray:
    entries = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
    lists = array.cast(pa.list_(entries))
    pairs = lists.flatten()
    keys = convert(pairs.field(0), kind.key_type)
    items = _checked_field(convert(pairs.field(1), kind.item_type), kind.item_field)
    return pa.MapArray.from_arrays(_offsets(lists), keys, items, type=kind, mask=_nulls(array))


def _checked_field(values: AnyArray, field: pa.Field) -> AnyArray:
    if not field.nullable and values.null_count:
        raise Misfit(f"null in {field}, which is never null")
    return values


def _offsets(lists: AnyArray) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets).cast(pa.int32())


def _nulls(array: AnyArray) -> AnyArray | None:
    return array.is_null() if array.null_count else None


def check_text(array: AnyArray) -> None:
    """Raise `Misfit` unless all strings in the array are UTF-8, at any depth; 1 ns a row for ASCII, else 7 to 9.

    Arrow makes an array of any bytes without a look at them, and a reader that takes it for text then fails.
    """
    kind = array.type
    if not _has_text(kind) or (pt.is_string(kind) and _is_ascii(array)):
        return
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        at = _first_invalid(array) if pt.is_string(kind) or pt.is_large_string(kind) else None
        where = "" if at is None else f" at position {at}: {array[at].as_buffer().to_pybytes()!r:.100}"
        raise Misfit(f"text is stored as UTF-8, found other bytes{where} ({error}); store bytes as binary") from error


def _has_text(kind: Any) -> bool:
    if kind.num_fields:
        return any(_has_text(kind.field(at).type) for at in range(kind.num_fields))
    if pt.is_dictionary(kind):
        return _has_text(kind.value_type)
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _is_ascii(array: AnyArray) -> bool:
    array.validate()
    offsets, raw = binary_buffers(array)
    data = np.frombuffer(raw, np.uint8)[offsets[0] : offsets[-1]]
    return not len(data) or bool(data.max() < 128)


def _first_invalid(array: AnyArray) -> int | None:
    for at, value in enumerate(array):
        try:
            value.as_py()
        except UnicodeDecodeError:
            return at
    return None
