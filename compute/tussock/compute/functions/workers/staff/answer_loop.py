"""What a worker does as long as its program is there: it answers questions, and says that it works."""

import os
from collections.abc import Callable
from typing import Any

from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.workers.messages import Refused, StillAlive
from tussock.compute.functions.workers.staff.members import WorkerLink
from tussock.statestore.base.system import System
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable

__all__ = ["Answering"]

ALIVE_SECONDS = 0.5


class Answering:
    """For one link; `run` in the thread of the functions."""

    def __init__(self, link: WorkerLink, answer: Callable[[Any], Any], system: System, *, tells_always: bool) -> None:
        """`answer` does what is asked for. `tells_always`: say that it works also while nothing is asked for."""
        self._link = link
        self._answer = answer
        self._system = system
        self._tells_always = tells_always
        self._is_busy = False
        self._is_over = False
        self._process = os.getpid()

    def run(self, on_lost: Callable[[], None]) -> None:
        """Return once the other end is gone; raises what an answer raises that cannot be asked for again.

        `on_lost` is called, in another thread, if the other end is gone while a function runs.
        """
        self._system.spawn("tussock worker alive", lambda: self._tell_alive(on_lost))
        try:
            while True:
                question = self._link.receive(None)
                self._is_busy = True
                reply = self._reply(question)
                self._end_if_forked()
                self._is_busy = False
                self._link.send(reply, None)
        except WorkerLost:
            return
        finally:
            self._is_over = True

    def _reply(self, question: Any) -> Any:
        try:
            return self._answer(question)
        except (ObjectStoreUnavailable, MetaUnavailable) as error:
            # All questions may be asked again.
            return Refused(str(error), is_passing=True)
        except Exception as error:
            self._end_if_forked()
            self._link.send(Refused(f"{type(error).__name__}: {error}", is_passing=False), None)
            raise

    def _end_if_forked(self) -> None:
        """A function has forked, and both processes came back from it: the program hears the first one alone."""
        if os.getpid() != self._process:
            os._exit(1)

    def _tell_alive(self, on_lost: Callable[[], None]) -> None:
        while not self._is_over:
            self._system.sleep(ALIVE_SECONDS)
            if self._is_busy or (self._tells_always and not self._is_over):
                try:
                    self._link.send(StillAlive(), None)
                except WorkerLost:
                    if self._is_busy:
                        on_lost()
                    return
