"""What a running application waits for, for those who look: since when, and what was said of it last.

An outage of a bucket fails nobody, so nobody hears of it but by this.
"""

import threading
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.applications.arguments import clean_text
from tussock.statestore.base.system import System
from tussock.statestore.buckets.urls import without_secrets
from tussock.statestore.errors import WaitTimeout

__all__ = ["COMMIT", "FEED", "INPUT_LOG", "STATE", "WORKERS", "Trouble", "Troubles", "waits"]

INPUT_LOG, COMMIT, STATE, WORKERS = "input log", "commit", "state", "workers"
"""What waits: replies for their records, a commit for the store, and what runs for a state that it reads, or for
processes that run it."""
FEED = "feed"
"""With a name behind it: the newest batch of that feed failed as a whole. Nothing waits for it."""
_WAITING = frozenset((INPUT_LOG, COMMIT, STATE))
TEXT_MAX = 500
LOOK_TIMES, LOOK_SECONDS = 2, 5.0
"""Of a look: what runs and does not end by itself is given up after twice its time."""


class Trouble(NamedTuple):
    """One thing that waits."""

    what: str
    since_ms: int
    """By the wall clock."""
    error: str
    """Class and text of the newest attempt's error, without secrets."""


def waits(trouble: dict[str, Any]) -> str:
    """What a trouble, as `Troubles.told` has it, lets wait; empty if nothing."""
    what = trouble["what"]
    if what == WORKERS:
        return f"what runs waits for workers: {trouble['error']}"
    return f"the {what} waits: {trouble['error']}" if what in _WAITING else ""


class Troubles:
    """Of one run. In any thread."""

    def __init__(self, application: str, system: System) -> None:
        """All is well."""
        self._application = application
        self._system = system
        self._lock = threading.Lock()
        self._found: dict[str, Trouble] = {}

    def note(self, what: str, error: Exception) -> None:
        """An attempt has failed, and is repeated."""
        told = clean_text(without_secrets(f"{type(error).__name__}: {error}"))[:TEXT_MAX]
        with self._lock:
            known = self._found.get(what)
            self._found[what] = Trouble(what, self._system.now_ms() if known is None else known.since_ms, told)

    def end(self, what: str) -> None:
        """It goes on."""
        if what in self._found:
            with self._lock:
                self._found.pop(what, None)

    def told(self) -> list[dict[str, object]]:
        """As JSON can say it, the oldest first."""
        with self._lock:
            found = sorted(self._found.values(), key=lambda one: one.since_ms)
        return [one._asdict() for one in found]

    def __str__(self) -> str:
        """For the messages of errors; empty if all is well."""
        return "; ".join(text for one in self.told() if (text := waits(one)))

    def answer(self, asked: "Future[Any]", timeout: float) -> Any:
        """What a look has found, within twice the `timeout` of what runs and 5 s.

        `WaitTimeout` if there is nothing by then, which says what the application waits for.
        """
        seconds = LOOK_TIMES * timeout + LOOK_SECONDS
        try:
            return asked.result(seconds)
        except TimeoutError:
            if asked.done():
                return asked.result()
            asked.cancel()
            why = str(self) or "what runs does not end, or much else is before it; the status says what it does"
            raise WaitTimeout(f"application {self._application!r}: no answer within {seconds:g} s: {why}") from None
