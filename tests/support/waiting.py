"""Waiting for what a service does by itself."""

import threading
from collections.abc import Callable

WAIT_SECONDS = 60
"""Far more than anything takes: a test that waits so long has failed, however busy the machine is."""


def eventually(what: Callable[[], object]) -> None:
    """Return once it holds."""
    pause = threading.Event()
    for _ in range(WAIT_SECONDS * 100):
        if what():
            return
        pause.wait(0.01)
    raise AssertionError(f"it did not happen within {WAIT_SECONDS} s")
