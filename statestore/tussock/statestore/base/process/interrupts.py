"""Work that Ctrl-C must not end between two of its steps, as others wait for what it would leave behind.

Python runs the handlers of signals in the main thread, between any two steps of it; an error that one raises, such as
`KeyboardInterrupt`, comes up there. In other threads it cannot. So such work of the main thread is done by a helper,
and the main thread only waits, with a plain lock. That costs some 0.1 ms, so it is for what happens rarely: locks, and
lines that know what an interrupt leaves (`line.py`), cost nothing.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["run_uninterrupted"]

T = TypeVar("T")


def run_uninterrupted(work: Callable[[], T]) -> T:
    """Do `work`, in the main thread by a helper; returns what it returns, raises what it raises.

    If the main thread is interrupted, `work` goes on without it, and nobody hears of its end.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    try:
        # Each is one step; an interrupt between them costs an idle thread.
        helper = _idle.pop()
    except IndexError:
        try:
            helper = _Helper()
        except RuntimeError:
            # The interpreter is about to end, and begins no thread any more.
            return work()
    errand = _Errand(work)
    helper.errands.put(errand)
    return errand.result()


class _Errand(Generic[T]):
    """One call, and what became of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._context: Context = copy_context()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def run(self) -> None:
        try:
            self._results.append(self._context.run(self._work))
        except BaseException as error:  # noqa: BLE001  # raised by who waits
            self._error = error
        finally:
            self._ended.release()

    def result(self) -> T:
        with self._ended:
            if self._error is not None:
                raise self._error
            return self._results[0]


class _Helper:
    """A thread that does one errand after the other, idle between them."""

    def __init__(self) -> None:
        self.errands: SimpleQueue[_Errand[Any]] = SimpleQueue()
        threading.Thread(target=self._run, name="tussock-uninterrupted", daemon=True).start()

    def _run(self) -> None:
        while True:
            errand = self.errands.get()
            errand.run()
            del errand
            _idle.append(self)


_idle: deque[_Helper] = deque()
"""Mostly one; a signal's handler that calls in, while the main thread waits, needs another."""

# Of a forked process, the threads stay with the parent.
os.register_at_fork(after_in_child=_idle.clear)
