"""The live pins as a status shows them: listed in the bucket, for which no status waits longer than a moment.

The status is wanted most when the bucket is away, and a request to one that is away takes many seconds to fail.
"""

from collections.abc import Callable, Sequence

from tussock.meta.node.repeated_warnings import RepeatedWarnings
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.errors import TussockError

__all__ = ["ListedPins"]

log = get_logger("tussock.meta")
WAIT_SECONDS = 0.3


class ListedPins:
    """The newest listing that was answered. Safe to share between threads."""

    def __init__(self, listing: Callable[[], Sequence[PinInfo]], system: System) -> None:
        """`listing` asks the bucket; one call of it runs at a time."""
        self._listing = listing
        self._system = system
        self._warnings = RepeatedWarnings(log, system)
        self._changed = system.condition()
        self._is_asking = False
        self._answers = 0
        self._pins: Sequence[PinInfo] = ()

    def live(self) -> Sequence[PinInfo]:
        """The live pins; those of an earlier listing, if the bucket does not answer soon."""
        with self._changed:
            known = self._answers
            if not self._is_asking:
                self._is_asking = True
                self._system.spawn("tussock-pins", self._ask)
            self._changed.wait_for(lambda: self._answers > known, WAIT_SECONDS)
            return self._pins

    def _ask(self) -> None:
        pins: Sequence[PinInfo] | None = None
        try:
            pins = self._listing()
        except TussockError as error:
            self._warnings.warn("the pins could not be listed for a status", error)
        finally:
            with self._changed:
                self._is_asking = False
                self._answers += 1
                self._pins = self._pins if pins is None else pins
                self._changed.notify_all()
