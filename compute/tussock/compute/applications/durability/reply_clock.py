"""The age of kept replies, by two clocks: no jump of one of them lets a reply go before its time.

The wall clock may jump, ahead too; the clock of the time that has passed since the start may stand still while the
machine sleeps. So a reply is stamped by the later of the two, and is old by the earlier one.
"""

from tussock.statestore.base.system import System

__all__ = ["ReplyClock"]


class ReplyClock:
    """Of one run. What the wall clock says at its start is believed."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._began_ms = system.now_ms()
        self._began = system.monotonic()

    def stamp_ms(self) -> int:
        """For a reply of now."""
        return max(self._system.now_ms(), self._passed_ms())

    def expiry_ms(self) -> int:
        """Against which stamps are compared."""
        return min(self._system.now_ms(), self._passed_ms())

    def _passed_ms(self) -> int:
        return self._began_ms + int((self._system.monotonic() - self._began) * 1000)
