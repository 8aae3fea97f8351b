"""Which of dated things, such as backups or their copies, a rule of count and age does not keep."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

__all__ = ["Dated", "age_of", "unkept"]


class Dated(Protocol):
    """Something with a name and a time."""

    @property
    def name(self) -> str:
        """What tells it from the others."""

    @property
    def created_ms(self) -> int:
        """Unix time in milliseconds."""


DatedT = TypeVar("DatedT", bound=Dated)


def unkept(dated: Iterable[DatedT], count: int | None, seconds: float | None, now_ms: float) -> list[DatedT]:
    """Those that are neither among the newest `count` nor as young as `seconds`, the oldest first.

    The newest always stays: where making new ones fails for a long time, age must not take the last one.
    """
    newest_first = sorted(dated, key=age_of, reverse=True)
    kept = {one.name for one in newest_first[: max(1, count or 0)]}
    if seconds is not None:
        kept |= {one.name for one in newest_first if one.created_ms > now_ms - seconds * 1000}
    return [one for one in reversed(newest_first) if one.name not in kept]


def age_of(one: Dated) -> tuple[int, str]:
    """By which they are in order of time."""
    return one.created_ms, one.name
