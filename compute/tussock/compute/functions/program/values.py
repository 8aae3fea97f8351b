"""Plain values: what travels between callers and functions, and what is kept of an entity without a schema.

`None`, booleans, integers of 64 bits, floats, strings, bytes, lists, and dicts with strings as keys. Each
receiver gets a copy, so that none changes what another one holds.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tussock.compute.applications.arguments import check_nesting
from tussock.compute.functions.errors import FunctionFault
from tussock.statestore import InvalidOption

__all__ = [
    "KEY_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "Key",
    "are_free",
    "check_key",
    "copy_of",
    "is_text",
    "pack",
    "size_of",
    "sized_copy",
    "unpack",
]

Key = str | int | bytes

KEY_BYTES_MAX = 4096
VALUE_BYTES_MAX = 1 << 20
"""Of the arguments of one call, one reply, and one entity."""

_INT_MIN, _INT_END = -(1 << 63), 1 << 63
_SCALARS = frozenset((str, int, float, bool, bytes, type(None)))
_FREE = frozenset((float, bool, type(None)))
_SHORT = 4096
_BEYOND = "has an integer beyond 64 bits; expected plain values"

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


def check_key(key: object, operator: str, kind: type) -> None:
    """`FunctionFault` unless an entity of this operator can have the key, which is of class `kind`."""
    if type(key) is kind:
        if isinstance(key, str):
            if len(key) <= KEY_BYTES_MAX // 4 and is_text(key):
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


def are_free(values: Sequence[Any]) -> bool:
    """Whether values need neither a copy nor a closer look: nobody can change them, and they are short."""
    for value in values:
        kind = type(value)
        if kind in _FREE or (kind is int and _INT_MIN <= value < _INT_END):
            continue
        if (kind is str or kind is bytes) and len(value) <= _SHORT and (kind is bytes or value.isascii()):
            continue
        return False
    return True


def copy_of(value: Any, what: str) -> Any:
    """A copy of a plain value; `FunctionFault` if it is none, nests too deep, or takes more than 1 MiB."""
    return sized_copy(value, what)[0]


def sized_copy(value: Any, what: str) -> tuple[Any, int]:
    """The same, and the bytes that it takes; 0 of a number."""
    kind = type(value)
    if kind in _FREE or (kind is int and _INT_MIN <= value < _INT_END):
        return value, 0
    try:
        check_nesting(value, what)
        data = pack(value)
        copy = unpack(data)
        _check_same(value, copy, what)
    except FunctionFault:
        raise
    except InvalidOption as error:
        raise FunctionFault(str(error)) from error
    except OverflowError as error:
        raise FunctionFault(f"{what} {_BEYOND}") from error
    except (TypeError, ValueError, RecursionError) as error:
        # The encoder names a class at most: it is said which value it is.
        with suppress(RecursionError):
            _check_plain(value, what)
        raise FunctionFault(f"{what} cannot be kept: {error}; expected plain values") from error
    if len(data) > VALUE_BYTES_MAX:
        raise FunctionFault(f"{what} takes {len(data):,} bytes; at most 1 MiB fit")
    return copy, len(data)


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
            raise FunctionFault(f"{what} {_BEYOND}")
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


def _check_plain(value: Any, what: str) -> None:
    """`FunctionFault` that names what is no plain value, if there is any."""
    kind = type(value)
    if kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                raise FunctionFault(f"{what} has a dict with the key {name!r:.100}; expected strings")
            _check_plain(name, what)
            _check_plain(item, what)
    elif kind is list or kind is tuple:
        for item in value:
            _check_plain(item, what)
    elif kind not in _SCALARS:
        raise FunctionFault(f"{what} has {value!r:.100}, of type {kind.__name__}; expected plain values")
    elif kind is str and not is_text(value):
        raise FunctionFault(f"{what} has {value!r:.100}, with half of a surrogate pair; expected text")


def is_text(value: str) -> bool:
    """Whether UTF-8 has all of it: half of a surrogate pair it has not."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
