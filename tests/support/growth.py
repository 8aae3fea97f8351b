"""How the cost of something grows with the size of its input, whatever the speed of the machine."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 5
FLOOR_SECONDS = 0.002
"""Less is not told apart from the machine's noise."""


def cost_ratio(work: Callable[[T], object], few: T, many: T) -> float:
    """How many times as much processor time of this thread the work takes with `many`.

    The least of a few runs counts, in turn with few and with many: what else the machine does slows all of them down.
    """
    pairs = [(_seconds(work, few), _seconds(work, many)) for _ in range(TRIES)]
    least_few, least_many = (min(side) for side in zip(*pairs, strict=True))
    return least_many / max(least_few, FLOOR_SECONDS)


def _seconds(work: Callable[[T], object], size: T) -> float:
    began = time.thread_time()
    work(size)
    return time.thread_time() - began
