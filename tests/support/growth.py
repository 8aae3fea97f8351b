"""How the cost of something grows with the size of its input, whatever the speed of the machine."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 5
FLOOR_SECONDS = 0.002
"""Less is not told apart from the machine's noise."""


def cost_ratio(work: Callable[[T], object], few: T, many: T) -> float:
    """How many times as long the work takes with `many`: the shortest of a few runs, since others make one longer."""
    return _least_seconds(work, many) / max(_least_seconds(work, few), FLOOR_SECONDS)


def _least_seconds(work: Callable[[T], object], size: T) -> float:
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        work(size)
        took.append(time.perf_counter() - began)
    return min(took)
