"""Steps of a paused flow that make themselves, with a time between them."""

import threading
from collections.abc import Callable
from typing import Any

from tussock.compute.changelog.loop.debugger import Step
from tussock.statestore import TussockError
from tussock.statestore.base.system import System

__all__ = ["AutoStep"]


class AutoStep:
    """Until it is stopped, or the flow is not paused any more."""

    def __init__(self, system: System, name: str, seconds: float, what: Step, step: Callable[[], Any]) -> None:
        """Begins with a step after `seconds`. `name`: of the thread."""
        self.seconds = seconds
        self.what: Step = what
        self._step = step
        self._over = threading.Event()
        system.spawn(name, self._work)

    @property
    def is_over(self) -> bool:
        """Whether it makes no more steps."""
        return self._over.is_set()

    def stop(self) -> None:
        """Make no more; one that is being made comes to its end."""
        self._over.set()

    def _work(self) -> None:
        while not self._over.wait(self.seconds):
            try:
                self._step()
            except TussockError:
                self._over.set()  # somebody has resumed the flow, or it has ended
