"""The low watermark: below it, compaction keeps one version of a key, the newest.

A compaction may use watermark `w` only if nobody reads below `w`, now or later. Pins are objects beside the log, so
two writers in two places must not miss each other:

* A pin of epoch `p`: its holder (P1) writes the pin, (P2) reads the log to its tail, (P3) keeps the pin only if `p` is
  not below the safe epoch found.
* A compaction: its owner (C1) lists the pins and chooses `w`, (C2) appends a log entry that raises the safe epoch to
  `w`, (C3) lists the pins again, and uses the smaller of `w` and the smallest live pin.

Proof that a pin at `p < w` which is kept is obeyed: either C2 came before P2; then P2 found a safe epoch of `w` or
more and P3 let go. Or P2 came before C2; then P1 did too, C3 came after, listed the pin and used `p`. C2 and the claim
of the task are one log entry, since all that the proof needs is that C3 comes after it. A later compaction either
sees that pin in its own C3, or the pin has been released.

Epochs without a pin are covered by the retention: `w` is at most the newest epoch that was committed before it.

A table with its own retention has its own `w` and its own safe epoch, and the proof is made for each table by
itself: P3 notes for which tables the pin came too late (`PinInfo.unkept`), and no read of these goes through it.
"""

from collections.abc import Callable, Sequence

from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.retention import AdvanceSafeEpoch
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import SstInfo, TableState

__all__ = ["Watermark", "claimed_watermark", "low_watermark"]

Watermark = Callable[[TableState], int]
"""The low watermark of a table."""


def low_watermark(version: Version, now_ms: int, retention_ms: int, smallest_pin: int | None) -> int:
    """The largest epoch below which neither the retention nor a pin keeps anything; 0: everything is kept."""
    edge = min(version.retention_epoch(now_ms, retention_ms), version.max_committed_epoch)
    return edge if smallest_pin is None else min(edge, smallest_pin)


def claimed_watermark(
    version: Version, table: TableState, inputs: Sequence[SstInfo], wanted: int
) -> tuple[list[Delta], int]:
    """What a claim appends beside itself (C2) to compact `inputs` at watermark `wanted`, and the watermark it gets.

    If all rows are newer than `wanted`, no row can be dropped at it, and the safe epoch is left alone.
    """
    safe = version.safe_epoch_of(table)
    if wanted <= safe or all(sst.min_epoch > wanted for sst in inputs):
        return [], min(wanted, safe)
    return [AdvanceSafeEpoch(epoch=wanted, table=table.spec.id if table.own_epochs else 0)], wanted
