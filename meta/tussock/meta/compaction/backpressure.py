"""Back-pressure: how long writes to a table are held back while compaction is behind. Pure.

A write that is held back early costs little, one that is stopped late costs minutes: users of Hummock met a limit that
came too late and then hit hard. So there are two limits to each of three measures of L0: runs, which every read has to
look through, files, which every version carries, and bytes, which have to be merged before L0 gets shorter. From half
of the limit on each commit waits for a moment that grows with the excess, up to a second; at the limit writes stop
until compaction has caught up. Each table has its own: a table that nobody compacts does not stop the others.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.version.ranges import total_bytes
from tussock.statestore.contract.records import TableState

__all__ = ["Stall", "hold_back", "write_stall"]

DELAY_MS_MAX = 1000
"""What a commit waits just below the limit."""

STOPPED_MS = 500
"""Milliseconds after which a stopped writer looks again."""


class Stall(NamedTuple):
    """Writes to a table are held back."""

    delay_ms: int
    """What each commit waits; while writes are stopped, after how long to look again."""
    stopped: bool
    """No commit goes through, however long it has waited."""
    reason: str


def write_stall(state: TableState, config: PickerConfig) -> Stall | None:
    """Whether, for how long and why writes to the table are held back; `None` if they are not."""
    l0 = state.levels.l0
    ssts = [sst for run in l0 for sst in run.ssts]
    measures = [
        (len(l0) / config.l0_stall_runs, f"{len(l0)} uncompacted runs", f"{config.l0_stall_runs}"),
        (len(ssts) / config.l0_stall_files, f"{len(ssts)} uncompacted files", f"{config.l0_stall_files}"),
    ]
    size = total_bytes(ssts)
    measures.append(
        (size / config.l0_stall_bytes, f"{size >> 20} MiB uncompacted", f"{config.l0_stall_bytes >> 20} MiB")
    )
    share, has, limit = max(measures)
    if share < 0.5:
        return None
    if share >= 1:
        return Stall(STOPPED_MS, True, f"table {state.spec.name!r} has {has}; writes wait from {limit} on")
    delay_ms = max(1, round(DELAY_MS_MAX * (2 * share - 1)))
    reason = f"table {state.spec.name!r} has {has}; writes are slowed down from half of {limit} on"
    return Stall(delay_ms, False, reason)


def hold_back(stalls: Iterable[Stall], waited_ms: int) -> tuple[int, str]:
    """For how long a commit that has waited already is to wait on, and why; 0 if it may go through."""
    found = max(stalls, key=lambda stall: (stall.stopped, stall.delay_ms), default=None)
    if found is None or (not found.stopped and waited_ms >= found.delay_ms):
        return 0, ""
    return (found.delay_ms if found.stopped else found.delay_ms - waited_ms), found.reason
