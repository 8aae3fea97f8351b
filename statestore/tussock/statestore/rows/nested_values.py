"""Lists, structs and maps as Python's values: taken as `RowCodec` takes simple ones, and copied.

Each value is a copy that nobody else has, in the order of its type. So who has given it, or gets it, may change it.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from tussock.statestore.rows.row_codec import UNFIT, Take, take_of

__all__ = ["copy_of", "nested_take_of"]


def nested_take_of(kind: pa.DataType) -> Take | None:
    """How a value becomes what a column of this type reads back, as a copy; `None` if Python's values cannot tell."""
    if _is_list(kind):
        return _lists(kind)
    if pt.is_struct(kind):
        return _structs(kind)
    if pt.is_map(kind):
        return _maps(kind)
    return take_of(kind)


def copy_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What copies a value of this type that a column has read back, not null; `None` for one that cannot change."""
    if not pt.is_nested(kind):
        return None
    if _is_list(kind):
        return _list_copy(copy_of(kind.value_type))
    if pt.is_struct(kind):
        fields = [(field.name, copy) for field in kind if (copy := copy_of(field.type)) is not None]
        return _struct_copy(fields) if fields else dict.copy
    if pt.is_map(kind) and not pt.is_nested(kind.key_type):
        return _map_copy(copy_of(kind.item_type))
    return deepcopy


def _list_copy(item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if item is None:
        return list.copy
    return lambda value: [None if one is None else item(one) for one in value]


def _map_copy(item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if item is None:
        return list.copy
    return lambda value: [(name, None if one is None else item(one)) for name, one in value]


def _struct_copy(fields: Sequence[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    def copied(value: Any) -> Any:
        found = value.copy()
        for name, copy in fields:
            if found[name] is not None:
                found[name] = copy(found[name])
        return found

    return copied


def _is_list(kind: Any) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _lists(kind: Any) -> Take | None:
    take, nullable = nested_take_of(kind.value_type), kind.value_field.nullable
    size = kind.list_size if pt.is_fixed_size_list(kind) else None
    if take is None:
        return None

    def take_list(value: Any) -> Any:
        if type(value) is not list or (size is not None and len(value) != size):
            return UNFIT
        found = [None if one is None else take(one) for one in value]
        if UNFIT in found or (not nullable and None in found):
            return UNFIT
        return found

    return take_list


def _structs(kind: Any) -> Take | None:
    fields: list[tuple[str, Take, bool]] = []
    for field in kind:
        take = nested_take_of(field.type)
        if take is None:
            return None
        fields.append((field.name, take, field.nullable))
    names = {name for name, _, _ in fields}
    if len(names) < len(fields):
        return None

    def take_struct(value: Any) -> Any:
        if type(value) is not dict or value.keys() != names:
            return UNFIT
        found = {}
        for name, take, nullable in fields:
            one = value[name]
            if one is None:
                if not nullable:
                    return UNFIT
            elif (one := take(one)) is UNFIT:
                return UNFIT
            found[name] = one
        return found

    return take_struct


def _maps(kind: Any) -> Take | None:
    take_key, take, nullable = take_of(kind.key_type), nested_take_of(kind.item_type), kind.item_field.nullable
    if take_key is None or take is None:
        return None

    def take_map(value: Any) -> Any:
        if type(value) is not list:
            return UNFIT
        found = []
        for pair in value:
            if type(pair) is not tuple or len(pair) != 2 or pair[0] is None:
                return UNFIT
            key, one = take_key(pair[0]), pair[1]
            if one is None:
                if not nullable:
                    return UNFIT
            else:
                one = take(one)
            if key is UNFIT or one is UNFIT:
                return UNFIT
            found.append((key, one))
        return found

    return take_map
