"""How long a call waits for its refusal when its caller comes too often.

A refusal given at once would be followed by the next call at once. One that is held takes one of the calls that the
connection may have at the same time, so a flood waits for its own refusals. They leave one by one: were all of a flood
to end at the same moment, the service would be busy with them for a quarter of a second, and so would everybody's
commits.

Pure: told the time, and used by the event loop only.
"""

from tussock.meta.server.wire.rate_limits import Who

__all__ = ["HELD_MAX", "HELD_SECONDS_MAX", "HOST_HELD_MAX", "SPACING_SECONDS", "HeldRefusals"]

HELD_MAX = 2000
HOST_HELD_MAX = 1000
SPACING_SECONDS = 0.01
"""Between two refusals of one caller; so the last of `HOST_HELD_MAX` leaves after 10 s."""
HELD_SECONDS_MAX = 3.0
"""How long the first of a caller waits at most, whatever wait its refusal names."""


class HeldRefusals:
    """The calls that wait for their refusal, by caller."""

    def __init__(self) -> None:
        self._held: dict[Who, int] = {}
        self._last_leaves_at: dict[Who, float] = {}
        self._all = 0

    def enter(self, who: Who, wait_ms: int, now: float) -> float | None:
        """Count one more call in; returns the seconds it waits, or None if too many wait already.

        `wait_ms` is what its refusal names, and `now` is in seconds. Each waits behind those of its caller that wait
        already, and leaves `SPACING_SECONDS` after the last of them at the earliest. `leave` counts it out.
        """
        held = self._held.get(who, 0)
        if self._all >= HELD_MAX or held >= HOST_HELD_MAX:
            return None
        self._held[who] = held + 1
        self._all += 1
        at = now + min((held + 1) * wait_ms / 1000, HELD_SECONDS_MAX)
        if held:
            at = max(at, self._last_leaves_at[who] + SPACING_SECONDS)
        self._last_leaves_at[who] = at
        return at - now

    def leave(self, who: Who) -> None:
        """Count one out again."""
        self._all -= 1
        self._held[who] -= 1
        if not self._held[who]:
            del self._held[who], self._last_leaves_at[who]
