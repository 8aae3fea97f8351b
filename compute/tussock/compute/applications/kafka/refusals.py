"""Rows that a topic refuses for their size: found one by one, so that the others go on.

Kafka refuses a batch of messages, and gives up the transaction, without saying which message was too large. So the rows
of one sequence are sent again, each in a batch of messages alone; those that are refused then stay out.
"""

from collections.abc import Callable
from typing import Any

from tussock.compute.applications.borders.sender import UnsentRow

__all__ = ["TopicRefusals"]


class TopicRefusals:
    """Of the sequence that is sent next; for one thread."""

    def __init__(self, too_large: tuple[int, ...]) -> None:
        """`too_large`: the codes that say it."""
        self.are_looked_for = False
        self._too_large = too_large
        self._found: dict[tuple[int, int], UnsentRow] = {}
        self._before = 0

    @property
    def found(self) -> list[UnsentRow]:
        """The rows that stay out."""
        return list(self._found.values())

    def has(self, sequence: int, position: int) -> bool:
        """Whether that row stays out."""
        return (sequence, position) in self._found

    @property
    def has_news(self) -> bool:
        """Whether this attempt has found some: its transaction is given up."""
        return len(self._found) > self._before

    def go_on(self) -> bool:
        """After a failure: whether one more attempt can help."""
        is_progress = not self.are_looked_for or self.has_news
        self.are_looked_for, self._before = True, len(self._found)
        return is_progress

    def note(
        self, sequence: int, position: int, key: bytes | None, value: bytes | None
    ) -> Callable[[Any, Any], None] | None:
        """What hears of the fate of a message; of most nobody has to."""
        if not self.are_looked_for:
            return None
        row = UnsentRow(sequence, position, "", key, value)
        return lambda error, _: self.add(row, error)

    def add(self, row: UnsentRow, error: Any) -> None:
        """A message has ended, well or not."""
        if error is not None and error.code() in self._too_large:
            self._found[row.sequence, row.position] = row._replace(cause=str(error.str()))
