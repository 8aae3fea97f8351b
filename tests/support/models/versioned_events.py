"""Changes with versions, as a source of changes delivers them, and what a table has after all of them."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Event", "final_rows"]


class Event(NamedTuple):
    """One change of a key; the same key and version are the same change, whenever it is delivered."""

    key: int
    version: int

    @property
    def is_delete(self) -> bool:
        """A third of all changes."""
        return (self.key * 7 + self.version * 5) % 3 == 0

    @property
    def value(self) -> str:
        """Tells it from all other changes."""
        return f"{self.key}@{self.version}"


def final_rows(events: Sequence[Event]) -> dict[int, tuple[int, str]]:
    """What a table has after all of them in the order of their versions, each once."""
    rows: dict[int, tuple[int, str]] = {}
    for event in sorted(events, key=lambda event: event.version):
        if event.is_delete:
            rows.pop(event.key, None)
        else:
            rows[event.key] = event.version, event.value
    return rows
