"""`repair_clock`: epochs and times of a store that are far ahead of its bucket's clock become present ones.

It works on the bucket. What it does is in the rooms `compactor` (`clock_repair.py`) and `meta` (`repair.py`), which
are loaded by name as `connect` loads its backend.
"""

import contextlib
import functools
import importlib
import os
import socket
from typing import Any

from tussock.statestore.base.arguments import check_flag, check_limits
from tussock.statestore.base.system import RealSystem, System
from tussock.statestore.buckets import open_source
from tussock.statestore.contract.backend import ClockRepair
from tussock.statestore.errors import InvalidOption

__all__ = ["repair_clock"]


def repair_clock(
    url: str,
    *,
    dry_run: bool = False,
    max_clock_ahead: float = 3600.0,
    deadline: float = 30.0,
    system: System | None = None,
) -> ClockRepair:
    """Repair the store whose bucket is at `url` after commits at epochs, or by a clock, far in the future.

    Epochs more than `max_clock_ahead` seconds ahead of the bucket's clock get present numbers, in their old order, so
    that new ones follow the clock and retention counts from now. No row of any kept epoch is lost. A store that is not
    ahead is left as it is. Meant for a store at rest: stop its writers first, and on a platform the meta service. A
    crash changes nothing; the call may be repeated.

    Args:
        url: URL of the store's bucket.
        dry_run: say what would change, and change nothing.
        max_clock_ahead: as in `connect`.
        deadline: seconds after which a request to the bucket fails for good.
        system: replaces clocks, randomness and threads.

    Raises:
        InvalidOption: no store is there, or somebody holds a snapshot, makes a backup or serves it; the text says who.
        Conflict: the store was written to meanwhile; nothing changed.
        ClockAhead: this machine's clock is ahead itself.
        CorruptSst: an SST that has to be written anew is damaged; nothing changed.
    """
    check_flag(dry_run, "dry_run")
    check_limits({}, {"max_clock_ahead": max_clock_ahead, "deadline": deadline}, 0, 0)
    if isinstance(url, str) and url.startswith("tussock://"):
        raise InvalidOption(
            f"{url} is a meta service, and a store's clock is repaired at rest, on its bucket: stop the service, then "
            "give the URL of the bucket, which `tussock status` shows"
        )
    clocks = system or RealSystem()
    open_one: Any = functools.partial(open_source, deadline_seconds=deadline, system=clocks)
    with contextlib.closing(open_one(url)) as bucket:
        repaired: ClockRepair = importlib.import_module("tussock.compactor.clock_repair").repair_clock(
            bucket,
            clocks,
            owner=f"{socket.gethostname()}:{os.getpid()}:{clocks.random_bytes(4).hex()}",
            open_source=open_one,
            max_ahead_ms=int(max_clock_ahead * 1000),
            dry_run=dry_run,
        )
    return repaired
