"""SST ids: 32 lower-case hex digits, 48 bits of milliseconds and 80 random bits, so that ids sort by time.

An id is minted when its upload starts, not when its rows are collected: vacuum tells by the id whether an object that
no version names may still be on its way to a commit.
"""

from tussock.statestore.base.system import System

__all__ = ["id_floor", "new_sst_id"]


def new_sst_id(system: System, horizon: str = "") -> str:
    """A fresh id of this moment, or of the garbage `horizon` if the clock lags behind that.

    Without the second, a writer with a slow clock would be refused at each commit: its ids look like garbage.
    """
    moment = id_floor(system.now_ms())[:12]
    if horizon[:12] >= moment:
        moment = id_floor(int(horizon[:12], 16) + 1)[:12]
    return moment + system.random_bytes(10).hex()


def id_floor(ms: int) -> str:
    """The smallest id of that millisecond: every id minted before it is smaller. A clock before 1970 counts as then."""
    return f"{max(ms, 0):012x}" + "0" * 20
