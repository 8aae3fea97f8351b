"""Checks of what users give, and texts of their errors made fit to be kept."""

import datetime as dt
import re
from typing import Any, TypeGuard

from tussock.statestore import InvalidOption

__all__ = [
    "NESTING_MAX",
    "TEXT_MAX",
    "cause_of",
    "check_nesting",
    "check_plain",
    "check_seconds",
    "check_text",
    "class_of",
    "clean_text",
    "is_name",
    "text_of",
]

TEXT_MAX = 10_000
"""Characters of a user's error that are kept."""
NESTING_MAX = 100
"""Of lists and dicts within each other: how deep Python can read depends on who asks, so on another start it could not.
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_SCALARS = (type(None), bool, int, float, str, bytes)


def is_name(value: object) -> TypeGuard[str]:
    """Whether it is a name of an application, or of a part of one: 100 characters at most, beginning as Python's do."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def check_seconds(value: object, what: str, *, none: bool) -> None:
    """`InvalidOption` unless these are seconds from 0 to a day, or `None` where that has a meaning."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise InvalidOption(f"{what} is {value!r:.100}; expected seconds from 0 to 86,400{' or None' if none else ''}")


def check_text(value: object, what: str) -> str:
    """The value if it is a text that can be stored as UTF-8, not empty; else `InvalidOption`."""
    if not isinstance(value, str) or not value:
        raise InvalidOption(f"{what} is {value!r:.100}; expected text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(f"{what} is {value!r:.100}; expected text, found half of a surrogate pair") from error
    return value


def clean_text(text: str) -> str:
    """The text as UTF-8 has it, for records, rows and messages: half of a surrogate pair becomes its number in hex."""
    # Of a subclass, which may have replaced what this looks at, and which no record can have.
    text = str.__str__(text)
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def class_of(error: BaseException) -> str:
    """The name of a user's class of errors, which cannot have replaced what this looks at."""
    return clean_text(type.__dict__["__name__"].__get__(type(error)))


def text_of(error: BaseException) -> str:
    """What a user's error says, at most 10,000 characters, as text that can be sent; its class, if it says nothing."""
    return _said_by(error, TEXT_MAX) or class_of(error)


def cause_of(error: BaseException) -> str:
    """Class and text of what a user's code raised; the class alone if the text cannot be had.

    Records have this, and a replay compares it: it stays as it is.
    """
    name, text = class_of(error), _said_by(error, None)
    return name if text is None else clean_text(f"{name}: {text}")


def _said_by(error: BaseException, most: int | None) -> str | None:
    try:
        # Plain text, as records have it, also where it is of a class that the error has made.
        return clean_text(str.__getitem__(str(error), slice(most)))
    except BaseException:  # noqa: BLE001 - the text is a user's code, too
        return None


def check_nesting(value: object, what: str) -> None:
    """`InvalidOption` if lists and dicts nest deeper than can be read everywhere."""
    _walk(value, what, is_strict=False)


def check_plain(value: object, what: str) -> None:
    """The same, and for anything that MessagePack does not give back equal: a tuple comes back as a list, that is all.

    The value has been encoded, so what it holds is no more than its bytes.
    """
    _walk(value, what, is_strict=True)


def _walk(value: object, what: str, *, is_strict: bool) -> None:
    level: list[Any] = [value]
    for _ in range(NESTING_MAX + 1):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                inner += one.keys()
                inner += one.values()
            elif isinstance(one, list | tuple):
                inner += one
            elif is_strict and not _comes_back(one):
                raise InvalidOption(
                    f"{what} has a {type(one).__name__}, which would not come back from the log as it is; expected "
                    "None, booleans, numbers, strings, bytes, times with a zone, lists and dicts of them"
                )
        if not inner:
            return
        level = inner
    raise InvalidOption(f"{what}: lists and dicts nest more than {NESTING_MAX} deep; expected less")


def _comes_back(value: object) -> bool:
    return isinstance(value, _SCALARS) or (isinstance(value, dt.datetime) and value.tzinfo is not None)
