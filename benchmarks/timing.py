"""What the cases of all engines share: the sizes of the work, timing, and forgetting what the kernel has cached."""

import gc
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GETS = 50_000
"""Single gets in one pass."""

LISTS = 10
LIST_KEYS = 10_000
"""Lists of keys in one pass of multi_get, and keys in each."""

LARGE_LISTS = {10: 2_000, 100: 500, 1_000: 50, 10_000: 10}
"""Keys in a list of the cases with many rows, and how many such lists there are in one pass."""

LARGE_CACHE_BYTES = 4 << 30
"""Block cache of every engine in these cases: all rows fit."""

MIX_LISTS = {10: 500, 100: 50, 1_000: 10, 10_000: 2}
"""The same for the reads in turn."""

MIX_SHORT_SCANS = 1_000

VERSIONS = 100
"""Of each key, in the scans beside retained versions."""

VERSION_SCANS = 200
"""Scans of all keys in one pass."""

COLD_GETS = 1_000
SHORT_SCANS = 2_000
SHORT_SCAN_ROWS = 10
SMALL_COMMITS = 200
COMMITTERS = 16
"""Threads that commit one row after the other, `SMALL_COMMITS` each."""

PASSES = 3
"""Timed passes of a hot case in one process, after one that is not timed; the middle one counts."""

CACHE_BYTES = 256 << 20
"""Block cache of every engine in every case but those of memory."""


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes; garbage is collected before, not meanwhile."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    finally:
        gc.enable()


def threads_seconds(work: Callable[[int], object]) -> float:
    """How long `COMMITTERS` threads take for `work` with the number of each."""

    def all_together() -> None:
        with ThreadPoolExecutor(COMMITTERS) as pool:
            for done in [pool.submit(work, number) for number in range(COMMITTERS)]:
                done.result()

    return seconds(all_together)


def hot_seconds(work: Callable[[], object]) -> float:
    """The median of some passes of `work` after one that warms up."""
    work()
    return statistics.median(seconds(work) for _ in range(PASSES))


def processor_seconds(work: Callable[[], object]) -> float:
    """As `seconds`, the processor time of this process: for figures that are compared with themselves."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.enable()


def passes(work: Callable[[], object]) -> list[float]:
    """The processor time of some passes of `work` after one that warms up."""
    work()
    return [processor_seconds(work) for _ in range(PASSES)]


def forget(folder: Path) -> None:
    """Make the kernel drop what it has cached of the files in `folder`, so that reads go to the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
