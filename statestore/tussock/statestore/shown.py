"""How a value that a user gave is shown in a message, whatever it is."""

from typing import Any

__all__ = ["show_value"]

_SHOWN = 100
"""Characters of it."""
_DEPTH = 4
"""Levels of lists and dicts, each of which is cut before it is shown."""


def show_value(value: object) -> str:
    """Its `repr`, cut to 100 characters; if that fails, as of some of Arrow's objects and of deep lists, its class.

    Of text, bytes, lists and dicts only as much is looked at, since the `repr` of 2 GiB takes eight more.
    """
    try:
        return f"{_beginning(value, _DEPTH)!r:.{_SHOWN}}"
    except Exception:  # noqa: BLE001 - whatever foreign code raises, the message is about the value
        return f"a value of type {type(value).__name__}"


def _beginning(value: Any, depth: int) -> Any:
    """A value whose `repr` begins as that of this one does."""
    kind = type(value)
    if kind in (str, bytes, bytearray):
        return value[: _SHOWN + 1]
    if kind in (list, tuple) and depth:
        return kind(_beginning(one, depth - 1) for one in value[:_SHOWN])
    if kind is dict and depth:
        names = [name for name, _ in zip(value, range(_SHOWN), strict=False)]
        return {_beginning(name, depth - 1): _beginning(value[name], depth - 1) for name in names}
    return value
