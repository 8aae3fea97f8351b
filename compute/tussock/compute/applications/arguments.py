"""Checks of what users give."""

from tussock.statestore import InvalidOption

__all__ = ["check_seconds"]


def check_seconds(value: object, what: str, *, none: bool) -> None:
    """`InvalidOption` unless these are seconds from 0 to a day, or `None` where that has a meaning."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 86_400:
        raise InvalidOption(f"{what} is {value!r:.100}; expected seconds from 0 to 86,400{' or None' if none else ''}")
