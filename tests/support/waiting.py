"""Waiting for a service's own actions, and bounds for their duration."""

import threading
import time
from collections.abc import Callable

WAIT_SECONDS = 120
"""Far more than anything takes: a test that waits until then has failed, however busy the machine is."""


def eventually(what: Callable[[], object]) -> None:
    """Return once the condition holds."""
    pause = threading.Event()
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline, f"it did not happen within {WAIT_SECONDS} s"
        pause.wait(0.01)


TRIES = 4


def is_in_time(seconds: float, attempt: Callable[[], Callable[[], object]]) -> None:
    """One of a few attempts has to be in time; a machine that is busy at one moment is no reason to fail.

    `attempt` prepares something, and answers what is measured.
    """
    took = []
    for _ in range(TRIES):
        measured = attempt()
        began = time.monotonic()
        measured()
        took.append(time.monotonic() - began)
        if took[-1] < seconds:
            return
    raise AssertionError(f"not once within {seconds} s: {took}")
