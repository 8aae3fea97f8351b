"""Warnings of what is tried again and again: a failure that lasts is told at once, and then once a minute."""

import structlog

from tussock.statestore.base.system import System

__all__ = ["TOLD_SECONDS", "RepeatedWarnings"]

TOLD_SECONDS = 60.0
"""Between two lines about the same."""
TEXTS_MAX = 16
"""Different failures that are counted at a time; with one more, all are forgotten, and told anew."""


class RepeatedWarnings:
    """The warnings of one thread."""

    def __init__(self, log: structlog.stdlib.BoundLogger, system: System) -> None:
        self._log = log
        self._system = system
        self._told: dict[tuple[str, str], tuple[float, int]] = {}
        """Per event and error: when it was told last, and how often it was not since."""

    def warn(self, event: str, error: Exception) -> None:
        """Write the line, unless the same was written within a minute; then `repeated` in the next one counts it."""
        key, now = (event, str(error)), self._system.monotonic()
        told = self._told.get(key)
        if told is not None and now - told[0] < TOLD_SECONDS:
            self._told[key] = (told[0], told[1] + 1)
            return
        if told is None and len(self._told) >= TEXTS_MAX:
            self._told.clear()
        self._told[key] = (now, 0)
        if told is None:
            self._log.warning(event, error=str(error))
        else:
            self._log.warning(event, error=str(error), repeated=told[1])
