"""Work that Ctrl-C must not end between two of its steps, as it would leave something half done behind.

Python runs the handlers of signals in the main thread, between any two steps of it; an error that one raises, such as
`KeyboardInterrupt`, comes up there. In other threads it cannot. So such work of the main thread is done by a helper,
and the main thread only waits, with a plain lock. That costs some 0.1 ms, so what is called a hundred thousand times a
second goes without: locks, and lines that know what an interrupt leaves (`line.py`), cost nothing.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["run_uninterrupted"]

GRACE_SECONDS = 2.0
"""For which an interrupt waits for what is under way."""
IDLE_SECONDS = 30.0
"""After these a helper without work ends."""

T = TypeVar("T")


def run_uninterrupted(work: Callable[[], T], unwanted: Callable[[T], object] | None = None) -> T:
    """Do `work`, in the main thread by a helper; returns what it returns, raises what it raises.

    If the main thread is interrupted, `work` does not begin, or comes to its end: the interrupt waits for that, so that
    nothing happens later, but not for long, and another one not at all. `unwanted` gets what it returned then, to let
    go of it.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    errand = _Errand(work)
    try:
        _helpers.send(errand)
        return errand.result()
    except _NoThreads:
        # The interpreter is about to end, and begins no thread any more; one that there is may have it already.
        errand.run()
        return errand.result()
    except BaseException as error:
        if errand.error is error:
            raise
        errand.is_wanted = False
        # Again, as the interrupt may have come before it was sent; it is run once.
        _helpers.send(errand)
        if unwanted is not None:
            _helpers.send(_Errand(lambda: errand.let_go(unwanted)))
        errand.await_end(GRACE_SECONDS)
        raise


class _NoThreads(Exception):
    """No thread can be started."""


class _Errand(Generic[T]):
    """One call, and what became of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._context = copy_context()
        self._results: list[T] = []
        self.error: BaseException | None = None
        """What the call raised."""
        self._runs = [None]
        self._ended = threading.Lock()
        self._ended.acquire()
        self.is_wanted = True
        """Whether somebody waits for it: if not, it does not begin."""

    def run(self) -> None:
        """Do it; a second time nothing happens."""
        try:
            self._runs.pop()
        except IndexError:
            return
        try:
            if self.is_wanted:
                self._results.append(self._context.run(self._work))
        except BaseException as error:  # noqa: BLE001  # raised by who waits
            self.error = error
        finally:
            self._ended.release()

    def result(self) -> T:
        with self._ended:
            if self.error is not None:
                raise self.error
            return self._results[0]

    def await_end(self, seconds: float) -> None:
        """Return when it has ended, or that many seconds later."""
        if self._ended.acquire(timeout=seconds):
            self._ended.release()

    def let_go(self, unwanted: Callable[[T], object]) -> None:
        """Wait for its end, and let go of what it returned."""
        with self._ended:
            results = self._results
        for result in results:
            unwanted(result)


class _Helpers:
    """Threads that do one errand after the other; as many as are needed at once, which is one as a rule.

    A signal's handler that calls in while the main thread waits needs another, and so does the next call after an
    interrupt, while the errand from before goes on.
    """

    def __init__(self) -> None:
        self._errands: SimpleQueue[_Errand[Any]] = SimpleQueue()
        self._idle: deque[None] = deque()
        """One for each helper that waits; changed by helpers only."""

    def send(self, errand: "_Errand[Any]") -> None:
        """Have it done. An interrupt at any step of this loses no helper."""
        self._errands.put(errand)
        if self._errands.qsize() > len(self._idle):
            try:
                threading.Thread(target=self._run, name="tussock-uninterrupted", daemon=True).start()
            except RuntimeError as error:
                raise _NoThreads from error

    def _run(self) -> None:
        with suppress(Empty):
            while True:
                self._idle.append(None)
                try:
                    errand = self._errands.get(timeout=IDLE_SECONDS)
                finally:
                    self._idle.pop()
                errand.run()
                del errand


_helpers = _Helpers()


def _renew_helpers() -> None:
    """Of a forked process, the threads stay with the parent."""
    global _helpers
    _helpers = _Helpers()


os.register_at_fork(after_in_child=_renew_helpers)
