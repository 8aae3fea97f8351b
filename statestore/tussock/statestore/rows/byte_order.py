"""Orders and searches of byte strings of any widths, by Polars; by Arrow for few, and where Polars cannot work.

Polars works in its own threads, which do not survive a fork: in the child its next sort waits for them for ever.
So a child of a process in which Polars had begun to work sorts with Arrow, one thread and some three times slower, but
it comes to an end. `multiprocessing` forks on Linux up to Python 3.13, and some schedulers of jobs do.

Polars is imported when something is sorted: it takes 0.2 s of a processor, a third of what commands and workers take to
start, and most of these sort nothing.
"""

import os
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.base.process.interrupts import run_uninterrupted

__all__ = ["equal_to_previous", "first_places", "stable_order"]

_FEW = 1024
"""Keys that Arrow sorts and compares: handing them to Polars' threads alone takes half a millisecond."""
_lost = False
"""Polars' threads stayed with the process that this one was forked from."""
_used = False
"""Polars has worked for this module."""
_module: Any = None
_at_fork = False
"""What a child that is being forked has to take for `_lost`."""


def _look_before_fork() -> None:
    """Note whether Polars has threads, started by any part of this process."""
    global _at_fork
    _at_fork = _lost or _used or _has_threads()


def _has_threads() -> bool:
    try:
        return any(task.read_bytes().startswith(b"polars-") for task in Path("/proc/self/task").glob("*/comm"))
    except OSError:
        return True  # A thread has just ended; of two mistakes this one costs only speed.


def _remember_in_child() -> None:
    global _lost
    _lost = _at_fork


os.register_at_fork(before=_look_before_fork, after_in_child=_remember_in_child)


def _polars() -> Any:
    """Polars, which works from now on."""
    global _used, _module
    if _module is None:
        # Half imported, it would stay so for the whole process.
        _module = run_uninterrupted(partial(import_module, "polars"))
    _used = True
    return _module


def stable_order(keys: pa.BinaryArray) -> npt.NDArray[np.intp]:
    """Indices that sort `keys` ascending, bytewise; of equal keys the earlier stays first."""
    if _lost or len(keys) <= _FEW:
        return _arrow_order(keys)
    pl = _polars()
    frame = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Binary)}).with_row_index("at")
    return frame.sort("key", maintain_order=True)["at"].to_numpy().astype(np.intp)


def first_places(ordered: pa.BinaryArray, wanted: pa.BinaryArray) -> npt.NDArray[np.intp]:
    """For each of `wanted` how many of the sorted keys `ordered` are smaller."""
    if _lost:
        # A stable sort puts each wanted key before those of `ordered` that are equal to it.
        order = _arrow_order(pa.concat_arrays([wanted, ordered]))
        is_wanted = order < len(wanted)
        places = np.empty(len(wanted), np.intp)
        places[order[is_wanted]] = np.cumsum(~is_wanted)[is_wanted]
        return places
    pl = _polars()
    found = pl.Series(ordered, dtype=pl.Binary).search_sorted(pl.Series(wanted, dtype=pl.Binary), side="left")
    return found.to_numpy().astype(np.intp)


def equal_to_previous(keys: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """For each key but the first whether it equals the one before; n - 1 booleans."""
    if _lost or len(keys) <= _FEW:
        same: npt.NDArray[np.bool_] = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(
            zero_copy_only=False
        )
        return same
    pl = _polars()
    series = pl.Series(keys, dtype=pl.Binary)
    return (series.slice(1) == series.slice(0, len(keys) - 1)).to_numpy()


def _arrow_order(keys: pa.BinaryArray) -> npt.NDArray[np.intp]:
    return pc.sort_indices(keys).to_numpy().astype(np.intp)
