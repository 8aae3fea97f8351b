"""Breakpoints: conditions on the records of a stream that pause its flow."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from tussock.compute.applications.arguments import cause_of
from tussock.compute.changelog.changes.record import ChangeRecord
from tussock.statestore.errors import InvalidOption

__all__ = ["BREAKPOINTS_MAX", "Breakpoint", "Side"]

Side = Literal["input", "output"]
BREAKPOINTS_MAX = 1000
"""Of one stream."""
EVERY_MAX = 1_000_000_000


class Breakpoint:
    """On the input of a stream, before a record is computed, or on its output, after that."""

    def __init__(
        self,
        forget: Callable[["Breakpoint"], None],
        number: int,
        stream: str,
        side: Side,
        condition: Callable[..., Any] | None,
        every: int,
        text: str = "",
    ) -> None:
        """`condition` gets the input record and, if it takes two arguments, the list of what was computed.

        `text`: what it was given as, to be shown.
        """
        if side not in ("input", "output"):
            raise InvalidOption(f"stream {stream!r}: a breakpoint on {side!r:.100}; expected 'input' or 'output'")
        if condition is not None and not callable(condition):
            raise InvalidOption(
                f"stream {stream!r}: the condition of a breakpoint is {condition!r:.100}; expected a function"
            )
        if type(every) is not int or not 1 <= every <= EVERY_MAX:
            raise InvalidOption(f"stream {stream!r}: every={every!r:.100}; expected 1 to {EVERY_MAX:,}")
        self._forget = forget
        self._condition = condition
        self._takes_two = side == "output" and condition is not None and _parameters(condition) >= 2
        self.number = number
        """Unique in the flow."""
        self.stream = stream
        self.side: Side = side
        self.every = every
        """It pauses at each n-th record for which the condition holds."""
        self.condition = text or (condition and "a function") or ""
        """As text; empty: each record."""
        self.is_enabled = True
        self.hits = 0
        """Records for which the condition held."""
        self.error = ""
        """What the condition has raised; it pauses then, and is disabled."""

    def enable(self) -> None:
        """Pause again."""
        self.error = ""
        self.is_enabled = True

    def disable(self) -> None:
        """Do not pause until it is enabled."""
        self.is_enabled = False

    def remove(self) -> None:
        """Be gone; a second call is no error."""
        self._forget(self)

    def __repr__(self) -> str:
        more = f", {self.condition!r}" if self.condition else ""
        more += f", every={self.every}" if self.every > 1 else ""
        return (
            f"Breakpoint({self.number}: {self.side} of {self.stream!r}{more}{'' if self.is_enabled else ', disabled'})"
        )

    def is_hit(self, row: ChangeRecord, out_row: Sequence[ChangeRecord]) -> bool:
        """Whether it pauses at this record; in the thread of the flow."""
        if not self.is_enabled:
            return False
        try:
            if self._condition is not None:
                given = (row, list(out_row)) if self._takes_two else (row,)
                if not self._condition(*given):
                    return False
        except Exception as error:  # noqa: BLE001 - a user's function
            self.error = cause_of(error)[:1000]
            self.is_enabled = False
            return True
        self.hits += 1
        return self.hits % self.every == 0


def _parameters(condition: Callable[..., Any]) -> int:
    try:
        found = inspect.signature(condition).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(
        one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty for one in found
    )
