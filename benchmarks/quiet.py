"""Whether the machine has nothing else to do: figures from a busy one are not published."""

import os
import resource
import time
from pathlib import Path

LOAD_MAX = 1.5
"""Load average above which nothing is published."""

OTHERS_MAX = 0.5
"""Cores that other processes may take meanwhile, on average; the load average then is mostly the benchmark's own."""


def refuse_if_busy() -> None:
    """End the program if the load average is above `LOAD_MAX` now, before it measures for an hour in vain."""
    load = os.getloadavg()[0]
    if load > LOAD_MAX:
        raise SystemExit(
            f"the load average is {load:.1f}, above {LOAD_MAX}: nothing is published from a busy machine; "
            "wait until it is idle, or measure without --publish"
        )


class Watch:
    """What other processes do to the machine from now on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def others(self) -> float:
        """Cores that others took since, on average."""
        took = max(time.monotonic() - self._began, 0.001)
        return max(_busy_seconds() - self._busy - (_own_seconds() - self._own), 0.0) / took

    def complaint(self) -> str | None:
        """Why the figures should not be published, if they should not."""
        others = self.others()
        if others <= OTHERS_MAX:
            return None
        return f"others took {others:.1f} cores of the machine meanwhile, above {OTHERS_MAX}: not published"


def _busy_seconds() -> float:
    """Processor time of the whole machine since it was started, in which it was not idle and was not taken away."""
    user, nice, system, _idle, _wait, hard, soft, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Processor time of this process and of its children that ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)
