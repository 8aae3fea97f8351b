"""How fast counters grow: by what they were when somebody looked a moment before. Nobody looks: nothing is done."""

import threading
from collections import deque
from collections.abc import Mapping

__all__ = ["GrowthRates"]

APART_SECONDS, WINDOW_SECONDS = 0.5, 5.0
"""Between two samples, and how far back they go."""


class GrowthRates:
    """Of some counters. In any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def of(self, now: float, counters: Mapping[str, int]) -> dict[str, float]:
        """How many a second of each, over the last seconds; 0 at the first look."""
        with self._lock:
            samples = self._samples
            while len(samples) > 1 and now - samples[1][0] >= WINDOW_SECONDS:
                samples.popleft()
            began, first = samples[0] if samples else (now, counters)
            if not samples or now - samples[-1][0] >= APART_SECONDS:
                samples.append((now, dict(counters)))
        seconds = now - began
        return {
            name: max(count - first.get(name, 0), 0) / seconds if seconds > 0 else 0.0
            for name, count in counters.items()
        }
