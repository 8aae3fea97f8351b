"""Refuses what a procedure asks of its own application: it would wait for itself, until the application ends.

The runner relies on it, and what waits for the runner.
"""

import threading
from types import TracebackType

from tussock.statestore.errors import InvalidOption

__all__ = ["Nesting"]


class Nesting:
    """Entered by the one thread that runs requests, while it runs one."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._thread: int | None = None

    def __enter__(self) -> None:
        self._thread = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread = None

    def check(self) -> None:
        """Raise `InvalidOption` in the thread of requests, while one runs. Other threads, and callbacks, may ask."""
        if self._thread == threading.get_ident():
            raise InvalidOption(
                f"application {self._application!r} is asked by one of its own procedures, for which it would wait, "
                "and graphs do not nest; emit to a stream whose consumer does the rest, read with tx.table(), and "
                "look, drain and stop from outside"
            )
