"""Checks of what users pass to a store, each with an error that names the argument.

Nothing here needs Arrow: the operator, whose image has none, opens buckets with these.
"""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tussock.statestore.epochs import integer_of
from tussock.statestore.errors import InvalidOption
from tussock.statestore.shown import show_value

__all__ = [
    "WRITER_LENGTH_MAX",
    "check_ended",
    "check_expected",
    "check_flag",
    "check_function",
    "check_limits",
    "check_name",
    "check_seconds",
    "check_table",
    "check_timeout",
    "check_writer",
    "iterator_over",
]

WRITER_LENGTH_MAX = 1024
"""Characters of the name of a writer, and of a source."""
_SECONDS_MAX = 10**9
"""31 years. Ten times as long is more than a thread can wait for, and the log has 64 bits for milliseconds."""
_AHEAD_MAX = 10**15
"""Seconds: more than the time of any epoch, which is no limit."""


def check_name(name: object, what: str, most: int) -> str:
    """The name if it is a text of 1 to `most` characters that can be stored as UTF-8; else `InvalidOption`."""
    if not isinstance(name, str) or not 0 < len(name) <= most:
        raise InvalidOption(f"{what} {show_value(name)}: expected 1 to {most} characters")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(
            f"{what} {show_value(name)}: expected text, found half of a surrogate pair: {error}"
        ) from error
    return name


def check_table(name: object) -> None:
    """`InvalidOption` unless this can name a table."""
    if not isinstance(name, str):
        raise InvalidOption(f"a table is named by a string, found {show_value(name)}")


def check_flag(value: object, name: str) -> None:
    """`InvalidOption` unless this is true or false."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} is {show_value(value)}; expected True or False")


def iterator_over(values: object) -> Iterator[Any] | None:
    """What walks through the values; `None` where nothing can.

    Either question alone is not enough: NumPy's arrays of no dimension and Arrow's null lists are called `Iterable`,
    and of Polars' lazy frames an iterator is made that fails.
    """
    try:
        return iter(values) if isinstance(values, Iterable) else None
    except TypeError:
        return None


def check_function(fn: object, what: str) -> None:
    """`InvalidOption` unless this can be called, and has run when its call returns: no coroutine, no generator."""
    if not callable(fn):
        raise InvalidOption(f"{what} is {show_value(fn)}; expected a function")
    for one in (fn, vars(type(fn)).get("__call__")):
        if inspect.iscoroutinefunction(one) or inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one):
            raise InvalidOption(
                f"{what} is {show_value(fn)}, a coroutine or generator, of which nothing runs when it is called; "
                "expected a plain function"
            )


def check_ended(returned: object, what: str, *, is_used: bool = True) -> None:
    """`InvalidOption` for a coroutine, which a plain function may return, too: what it would do is not done.

    So is a generator, unless what was returned `is_used`: rows of a table come as one.
    """
    if inspect.iscoroutine(returned) or (inspect.isgenerator(returned) and not is_used):
        returned.close()
        raise InvalidOption(
            f"{what} returned a {type(returned).__name__}, of which nothing has run; expected a function"
        )


def check_expected(expect: object) -> dict[str, int]:
    """The tables and the epochs at which they were read; `InvalidOption` unless it is a mapping of these, or `None`."""
    if expect is not None and not isinstance(expect, Mapping):
        raise InvalidOption(
            f"expect is {show_value(expect)}; expected a dict of table names and the epochs that were read"
        )
    found = {}
    for name, epoch in (expect or {}).items():
        number = integer_of(epoch)
        if number is None:
            raise InvalidOption(
                f"expect has {show_value(name)}: {show_value(epoch)}; expected the epoch that was read, 0 to 2**63-1"
            )
        found[name] = number
    return found


def check_timeout(seconds: float) -> float:
    """The seconds if they can be waited for, of infinity as many as can; else `InvalidOption`."""
    if isinstance(seconds, float) and seconds == math.inf:
        return _SECONDS_MAX
    check_seconds(seconds, "timeout")
    return seconds


def check_seconds(seconds: object, name: str, least: float = 0) -> None:
    """`InvalidOption` unless these are seconds, from `least` to 31 years; a clock may be ahead by what epochs can."""
    most = _AHEAD_MAX if name == "max_clock_ahead" else _SECONDS_MAX
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not least <= seconds <= most:  # type: ignore[operator]
        raise InvalidOption(f"{name} is {show_value(seconds)}; expected seconds, from {least} to {most}")


def check_writer(
    writer: str | None, batch_id: int | None, generation: int | None = None, source: str | None = None
) -> tuple[int | None, int | None]:
    """Check what makes a commit idempotent, and what fences it; returns the batch id and the generation."""
    if (writer is None) != (batch_id is None):
        raise InvalidOption(
            f"writer {show_value(writer)} and batch_id {show_value(batch_id)} go together: give both or neither"
        )
    for name, value in (("writer", writer), ("source", source)):
        if value is not None:
            check_name(value, name, WRITER_LENGTH_MAX)
    batch, opened = integer_of(batch_id), integer_of(generation, 1)
    if batch_id is not None and batch is None:
        raise InvalidOption(f"batch_id is {show_value(batch_id)}; expected an integer from 0 to 2**63-1")
    if generation is not None and opened is None:
        raise InvalidOption(f"generation is {show_value(generation)}; expected what store.open_writer() gave")
    for name, told in (("generation", generation), ("source", source)):
        if told is not None and writer is None:
            raise InvalidOption(f"{name} is {show_value(told)}, but no writer is named; it belongs to one")
    return batch, opened


def check_limits(
    of_store: Mapping[str, float | None], seconds: Mapping[str, float], cache_bytes: int, buffer_bytes: int
) -> None:
    """`InvalidOption` unless these options of `connect` are numbers that can work; `of_store`, also `None`."""
    given: dict[str, float] = {name: value for name, value in of_store.items() if value is not None}
    for name, value in {**given, **seconds}.items():
        check_seconds(value, name)
    for name, value in {"cache_bytes": cache_bytes, "buffer_bytes": buffer_bytes}.items():
        # They are used as they are given.
        if type(value) is not int or integer_of(value) is None:
            raise InvalidOption(f"{name} is {show_value(value)}; expected bytes, 0 or more")
