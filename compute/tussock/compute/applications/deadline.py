"""Ends what a user's code does not end by itself.

A thread that looks four times a second raises `Overdue` in the thread that runs for too long. Python does that between
two of its instructions; code that waits in a library does not notice, and after twice the time it is given up. Python
drops what it raises in a destructor or in a callback of the garbage collector, so one `Overdue` may not be enough.
"""

import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tussock.statestore.base.system import System

__all__ = ["Deadline", "Overdue"]

T = TypeVar("T")

LOOK_SECONDS = 0.25
AGAIN_SECONDS = (0.05, 1.0)
"""Between two `Overdue`s a quarter of the time, within these: a `finally` has that long after the first one."""
TRIES_MIN = 3
"""Before a call is given up: the machine may have stood still meanwhile, and the thread could not notice."""


class Overdue(BaseException):
    """Not an `Exception`, so that a user's `except Exception` lets it pass."""


class Deadline:
    """Guards one thread's calls, one at a time."""

    def __init__(self, system: System, seconds: float, give_up: Callable[[], None]) -> None:
        """`give_up` is called once, in another thread, if a call does not even end by `Overdue`."""
        self.seconds = seconds
        least, most = AGAIN_SECONDS
        self._again_seconds = min(max(seconds / 4, least), most)
        self._system = system
        self._give_up = give_up
        self._lock = threading.Lock()
        self._began: float | None = None
        self._thread = 0
        self._raised = 0
        """How often in the call that runs."""
        self._first = self._newest = 0.0
        """When, for the first and for the last time."""
        self._is_over = False
        system.spawn("tussock deadline", self._look)

    def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        """What `fn` returns for the arguments; `Overdue` if it takes longer than that, also where it catches that."""
        self._thread = threading.get_ident()
        self._raised = 0
        self._began = self._system.monotonic()
        is_late = has_ended_so = False
        try:
            return fn(*arguments)
        except Overdue:
            has_ended_so = True
            raise
        finally:
            # Not in a function: `Overdue` could arrive as that begins, and the call would never end.
            while True:
                try:
                    with self._lock:
                        self._began = None
                        is_late |= self._raised > 0
                        is_coming, self._raised = self._raised > 0, 0
                    while is_coming:
                        # It may not have arrived yet, and must not in what comes. CPython cannot take it back: it would
                        # look for it for ever, in all threads, and under a profiler do nothing else. So it comes here.
                        _raise_in(self._thread, Overdue)
                        self._system.sleep(0)
                    break
                except Overdue:
                    continue
            if is_late and not has_ended_so:
                # A bare `except` in the user's code has caught it; how far that code was depends on the machine.
                raise Overdue

    def excuse(self, wait: Callable[[], T]) -> T:
        """What `wait` returns, of the engine, while a call runs: the time that it takes does not count.

        It is not interrupted. Raises `Overdue` where the call is late already.
        """
        with self._lock:
            if self._raised:
                # One that is on its way would arrive in the engine.
                raise Overdue
            began, self._began = self._began, None
        paused = self._system.monotonic()
        try:
            return wait()
        finally:
            with self._lock:
                self._began = None if began is None else began + self._system.monotonic() - paused

    def stop(self) -> None:
        """Guard no more."""
        self._is_over = True

    def _look(self) -> None:
        while not self._is_over:
            self._system.sleep(min(LOOK_SECONDS, self.seconds / 4))
            with self._lock:
                is_hanging = self._began is not None and self._warn(self._began, self._system.monotonic())
            if is_hanging:
                self._is_over = True
                self._give_up()

    def _warn(self, began: float, now: float) -> bool:
        """Raise `Overdue` in a call that lasts too long; whether it has not ended by those that came."""
        if now - began <= self.seconds or (self._raised and now - self._newest < self._again_seconds):
            return False
        if not self._raised:
            self._first = now
        elif self._raised >= TRIES_MIN and now - self._first > self.seconds + 1:
            return True
        self._raised += 1
        self._newest = now
        _raise_in(self._thread, Overdue)
        return False


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """`PyThreadState_SetAsyncExc` of CPython: the thread has at most one, so it takes the place of one on its way."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
