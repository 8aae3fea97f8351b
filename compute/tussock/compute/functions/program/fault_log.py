"""The log of what functions raise: so that a bug is found, and what happens all day does not fill the disk.

One line for each function, class and place, and again after a while, with how often it has come since. It has neither
the text of the error nor an argument: these are the caller's, and may be secret.
"""

from collections.abc import Callable

from tussock.compute.functions.errors import TransactionAborted
from tussock.compute.functions.program.places import stack_of
from tussock.statestore.base.logs import get_logger

__all__ = ["FaultLog"]

log = get_logger("tussock.compute.functions")

AGAIN_SECONDS = 600.0
KINDS_MAX = 1000
"""That are kept in mind; beyond that all are forgotten, and told anew."""


class FaultLog:
    """Of one run, for the thread that runs the program."""

    def __init__(self, program: str, monotonic: Callable[[], float]) -> None:
        self._program = program
        self._monotonic = monotonic
        self._told: dict[tuple[str, str, str, str], tuple[float, int]] = {}
        """When a line was written, and how many errors have come since."""

    def note(self, aborted: TransactionAborted, feed: str = "") -> None:
        """A function has raised; with a `feed` a batch function, and a whole batch of its rows is without a result."""
        kind = (aborted.operator, aborted.function, aborted.kind, aborted.at)
        told = self._told.get(kind)
        now = self._monotonic()
        if told is not None and now < told[0] + AGAIN_SECONDS:
            self._told[kind] = told[0], told[1] + 1
            return
        if told is None and len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[kind] = now, 0
        cause = aborted.__cause__
        write = log.error if feed else log.warning
        write(
            "a batch of a feed failed" if feed else "a function raised",
            program=self._program,
            feed=feed or None,
            function=f"{aborted.operator}.{aborted.function}",
            kind=aborted.kind,
            at=aborted.at or None,
            times=1 if told is None else told[1] + 1,
            stack=aborted.stack or (None if cause is None else stack_of(cause)) or None,
        )
