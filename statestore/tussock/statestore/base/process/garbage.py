"""How often Python looks for garbage that counting references does not find."""

import gc
import threading

__all__ = ["OldObjects", "collect_rarely"]

YOUNG_MAX = 50_000
"""Objects more than were freed, until Python looks at the young ones."""
DEFAULTS = (700, 2000)
"""Of Python: up to 3.12, and since."""


def collect_rarely() -> None:
    """Let this process look for circles of garbage after every 50,000 new objects, where Python's default is 700.

    Requests under way are many objects that live long enough to be looked at again and again: of a program of small
    functions half of the processor's time went there. A process that has chosen a threshold itself keeps it, and so
    does one that collects nothing.
    """
    young, middle, old = gc.get_threshold()
    if gc.isenabled() and young in DEFAULTS:
        gc.set_threshold(YOUNG_MAX, middle, old)


class OldObjects:
    """Lets the collector pass over all that a process has made before, while at least one application runs.

    What an application has at its start stays as long as it runs, and all of it was looked at again and again: of a
    small program that took the processor for 50 to 110 ms, in which nobody was answered. A process that has chosen a
    threshold itself, has frozen objects itself, or collects nothing goes on as it is.
    """

    _lock = threading.Lock()
    _runs = 0
    _has_frozen = False

    @classmethod
    def spare(cls) -> None:
        """An application has started."""
        with cls._lock:
            cls._runs += 1
            if gc.isenabled() and gc.get_threshold()[0] == YOUNG_MAX and not gc.get_freeze_count():
                gc.freeze()
                cls._has_frozen = True

    @classmethod
    def end(cls) -> None:
        """One has ended: with the last of them objects are looked at again."""
        with cls._lock:
            cls._runs -= 1
            if not cls._runs and cls._has_frozen:
                gc.unfreeze()
                cls._has_frozen = False
