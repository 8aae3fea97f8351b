"""Plain values: what travels between callers and functions, and what is kept of an entity without a schema.

`None`, booleans, integers of 64 bits, floats, strings, bytes, lists, and dicts with strings as keys. Each
receiver gets a copy, so that none changes what another one holds.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.functions.errors import FunctionFault

__all__ = ["KEY_BYTES_MAX", "VALUE_BYTES_MAX", "Key", "check_key", "copies_of", "copy_of", "pack", "size_of", "unpack"]

Key = str | int | bytes

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 1 << 20
"""Of the arguments of one call, one reply, and one entity."""

_INT_MIN, _INT_END = -(1 << 63), 1 << 63
_SCALARS = frozenset((str, int, float, bool, bytes, type(None)))
_FREE = frozenset((float, bool, type(None)))
_SHORT = 4096

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


def check_key(key: object, operator: str, kind: type) -> None:
    """`FunctionFault` unless an entity of this operator can have the key, which is of class `kind`."""
    if type(key) is kind:
        if isinstance(key, str):
            if len(key) <= KEY_BYTES_MAX // 4 and (key.isascii() or _is_text(key)):
                return
        elif isinstance(key, int):
            if _INT_MIN <= key < _INT_END:
                return
        elif isinstance(key, bytes) and len(key) <= KEY_BYTES_MAX:
            return
    wanted = {
        str: f"a string of at most {KEY_BYTES_MAX // 4:,} characters",
        int: "an integer of 64 bits",
        bytes: f"at most {KEY_BYTES_MAX:,} bytes",
    }[kind]
    raise FunctionFault(f"{key!r:.100} is no key of operator {operator!r}; expected {wanted}")


def copies_of(values: Sequence[Any], what: str) -> tuple[Any, ...]:
    """Arguments as their receiver gets them; `FunctionFault` names the first that is not plain."""
    for value in values:
        kind = type(value)
        if kind in _FREE or (kind is int and _INT_MIN <= value < _INT_END):
            continue
        if (kind is str or kind is bytes) and len(value) <= _SHORT and (kind is bytes or value.isascii()):
            continue
        return tuple(copy_of(list(values), what))
    return tuple(values)


def copy_of(value: Any, what: str) -> Any:
    """A copy of a plain value; `FunctionFault` if it is none, or takes more than 1 MiB."""
    kind = type(value)
    if kind in _FREE or (kind is int and _INT_MIN <= value < _INT_END):
        return value
    try:
        data = pack(value)
        copy = unpack(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FunctionFault(f"{what} cannot be kept: {error}; expected plain values") from error
    if len(data) > VALUE_BYTES_MAX:
        raise FunctionFault(f"{what} takes {len(data):,} bytes; at most 1 MiB fit")
    _check_same(value, copy, what)
    return copy


def size_of(values: Sequence[Any]) -> int:
    """Bytes that plain values take, about."""
    size = 0
    for value in values:
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
        elif kind not in _FREE and kind is not int:
            size += len(pack(value))
    return size


def _check_same(value: Any, copy: Any, what: str) -> None:
    """MessagePack makes arrays of sets and text of times: what comes back has to be what was given."""
    kind = type(value)
    if kind in _SCALARS:
        if kind is int and not _INT_MIN <= value < _INT_END:
            raise FunctionFault(f"{what} has the integer {value}; expected one of 64 bits")
    elif kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise FunctionFault(f"{what} has a dict with the key {name!r:.100}; expected strings")
            _check_same(item, copy[name], what)
    elif kind is list or kind is tuple:
        for item, other in zip(value, copy, strict=True):
            _check_same(item, other, what)
    else:
        raise FunctionFault(f"{what} has {value!r:.100}, of type {kind.__name__}; expected plain values")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
