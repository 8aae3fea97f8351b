"""A system whose monotonic clock a test moves on, besides the time that passes; all else is real."""

from tussock.statestore.base.system import RealSystem

__all__ = ["ForwardSystem"]


class ForwardSystem(RealSystem):
    """Real time, and what was added to it. In any thread."""

    def __init__(self) -> None:
        self._added = 0.0

    def forward(self, seconds: float) -> None:
        """Let that many seconds have passed."""
        self._added += seconds

    def monotonic(self) -> float:
        """Both together."""
        return super().monotonic() + self._added

    def sleep(self, seconds: float) -> None:
        """Pauses between attempts are short."""
        super().sleep(min(seconds, 0.002))
