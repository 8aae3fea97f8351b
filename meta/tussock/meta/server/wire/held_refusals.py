"""How long a call waits for its refusal when its caller comes too often.

A refusal given at once would be followed by the next call at once. One that is held takes one of the calls that the
connection may have at the same time, so a flood waits for its own refusals. They leave one by one: were all of a flood
to end at the same moment, the service would be busy with them for a quarter of a second, and so would everybody's
commits.

Pure; used by the event loop only.
"""

from collections import Counter

from tussock.meta.node.wire.rate_limits import Who

__all__ = ["HELD_MAX", "HELD_SECONDS_MAX", "HOST_HELD_MAX", "SPACING_SECONDS", "HeldRefusals"]

HELD_MAX = 2000
HOST_HELD_MAX = 1000
"""Of one caller on one host."""
SPACING_SECONDS = 0.01
"""Between two refusals of one caller that came at the same moment."""
HELD_SECONDS_MAX = 3.0
"""How long the first of a caller waits at most, whatever wait its refusal names; so the last waits 13 s."""


class HeldRefusals:
    """The calls that wait for their refusal, by caller."""

    def __init__(self) -> None:
        self._held: Counter[Who] = Counter()
        self._all = 0

    def enter(self, who: Who, wait_ms: int) -> float | None:
        """Count one more call in; returns the seconds it waits, or None if too many wait already.

        `wait_ms` is what its refusal names. The more of its caller wait already, the longer it does; those that were
        given up count no more. `leave` counts it out.
        """
        held = self._held[who]
        if self._all >= HELD_MAX or held >= HOST_HELD_MAX:
            return None
        self._held[who] += 1
        self._all += 1
        return min((held + 1) * wait_ms / 1000, HELD_SECONDS_MAX) + held * SPACING_SECONDS

    def leave(self, who: Who) -> None:
        """Count one out again: it was refused, or its caller waits no longer."""
        self._all -= 1
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who]
