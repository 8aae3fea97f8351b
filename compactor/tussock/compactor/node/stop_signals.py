"""SIGTERM and SIGINT for a process without an event loop."""

import os
import queue
import signal
import sys

__all__ = ["StopSignals"]


class StopSignals:
    """From its making on, which is in the main thread, the first of the signals is noted, and a second ends at once.

    A handler runs between any two steps of the main thread, also within `threading.Event.wait`, where it holds the
    lock that `Event.set` needs: that handler would wait for ever. `SimpleQueue.put` may be called from handlers.
    """

    def __init__(self) -> None:
        self.came = False
        """Whether one has come."""
        self._noted: queue.SimpleQueue[None] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def wait(self) -> None:
        """Return once one has come; in the main thread, once."""
        self._noted.get()

    def _note(self, *_: object) -> None:
        if self.came:
            sys.stderr.flush()
            os._exit(1)
        self.came = True
        self._noted.put(None)
