"""Ends what a user's code does not end by itself.

A thread that looks four times a second raises `Overdue` in the thread that runs for too long. Python does that between
two of its instructions; code that waits in a library does not notice, and after twice the time it is given up.
"""

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

from tussock.statestore.base.system import System

__all__ = ["Deadline", "Overdue"]

T = TypeVar("T")

LOOK_SECONDS = 0.25
AGAIN_SECONDS = 1.0


class Overdue(BaseException):
    """Not an `Exception`, so that a user's `except Exception` lets it pass."""


class Deadline:
    """Guards one thread's calls, one at a time."""

    def __init__(self, system: System, seconds: float, give_up: Callable[[], None]) -> None:
        """`give_up` is called once, in another thread, if a call does not even end by `Overdue`."""
        self.seconds = seconds
        self._system = system
        self._give_up = give_up
        self._lock = threading.Lock()
        self._began: float | None = None
        self._thread = 0
        self._raised = 0
        """How often in the call that runs: where it arrives in a callback of the garbage collector, Python drops it."""
        self._is_over = False
        system.spawn("tussock deadline", self._look)

    def run(self, fn: Callable[[], T]) -> T:
        """What `fn` returns; `Overdue` if it takes longer than that."""
        self._thread = threading.get_ident()
        self._raised = 0
        self._began = self._system.monotonic()
        try:
            return fn()
        finally:
            self._end()

    def stop(self) -> None:
        """Guard no more."""
        self._is_over = True

    def _end(self) -> None:
        while True:
            try:
                with self._lock:
                    self._began = None
                    is_coming, self._raised = self._raised > 0, 0
                if is_coming:
                    # It may not have arrived yet, and must not in what comes. CPython cannot take it back: it would
                    # look for it for ever, in all threads, and under a profiler do nothing else. So it arrives here.
                    _raise_in(self._thread, Overdue)
                    while True:
                        self._system.sleep(0)
                return
            except Overdue:
                continue

    def _look(self) -> None:
        while not self._is_over:
            self._system.sleep(min(LOOK_SECONDS, self.seconds / 4))
            with self._lock:
                lasts = 0.0 if self._began is None else self._system.monotonic() - self._began
                if lasts > self.seconds + self._raised * AGAIN_SECONDS:
                    self._raised += 1
                    _raise_in(self._thread, Overdue)
            if lasts > 2 * self.seconds + 1:
                self._is_over = True
                self._give_up()


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """`PyThreadState_SetAsyncExc` of CPython: the thread has at most one, so it takes the place of one on its way."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
