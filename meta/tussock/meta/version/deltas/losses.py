"""Damaged SSTs that are put aside: what can be read of one takes its place, and what was lost is noted. Pure.

A damaged SST fails every read and every merge of its range. Its rows can be had back only from a copy of its objects;
where there is none, somebody agrees to the loss, and the table goes on without them. Nothing of this is silent: the
version keeps the record of each loss (`AcceptedLoss`), and the objects stay until they are discarded.

Why the tree stays sound: what takes the place has rows of that SST only, so its range and its epochs lie within those
that were there, and no rule about order or overlaps can break (`ranges.py`). No row of it moves past another. Tasks
that have claimed the SST end, as they do when a table is dropped: their reports are refused.

What readers see is another matter, and is what the person agrees to. In the live tree a lost row, put or delete, hid
what older runs have of its key: that is the newest there is now, at the lost row's epoch and at later ones. A lost row
of history is missed by readers at the epochs for which it was kept, who may find an older one instead; nobody else
looks for it, since every row of history says until when it is for.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tussock.meta.version.deltas.commits import check_uploads
from tussock.meta.version.ranges import find_in_run, overlap_in_run, ranked_runs
from tussock.meta.version.version import Version
from tussock.statestore.contract.chunked import Chunked
from tussock.statestore.contract.losses import AcceptedLoss, LostRange
from tussock.statestore.contract.records import Run, SstInfo, TableLevels
from tussock.statestore.errors import Conflict, InvalidBatch, InvalidOption, LimitReached

__all__ = ["KEPT_MAX", "LOSSES_MAX", "RANGES_MAX", "DiscardQuarantined", "QuarantineSst", "uncovered_ssts"]

LOSSES_MAX = 1_000
"""Records that a version keeps; the oldest whose objects were discarded go first."""
KEPT_MAX = 1_000
"""Damaged SSTs whose objects are kept at once."""
RANGES_MAX = 32
"""Lost ranges of one SST that are told apart; of more, neighbours are one range with what lies between them."""


class QuarantineSst(msgspec.Struct, frozen=True, kw_only=True, tag="quarantine_sst", tag_field="type"):
    """A damaged SST leaves its table, with what of it cannot be read; what can be is in another one in its place."""

    loss: AcceptedLoss
    """Without `seq`, which is that of this entry."""
    saved: SstInfo | None = None

    def validate(self, version: Version) -> None:
        """Raise `Conflict` if the SST left the tree meanwhile, `InvalidBatch` unless the rest is some of its rows."""
        loss, sst, saved = self.loss, self.loss.sst, self.saved
        state = version.tables.get(loss.table_id)
        if state is None or _place_of(state.levels, sst) is None:
            raise Conflict(
                f"SST {sst.id} is no longer what table {loss.table!r} has: it was compacted, repaired or dropped "
                "meanwhile; nothing changed, look again"
            )
        if sum(not one.discarded for one in version.losses) >= KEPT_MAX:
            raise LimitReached(
                f"SST {sst.id} was not put aside: the store keeps {KEPT_MAX} damaged SSTs already; discard some of "
                "them by `tussock repair sst --discard`",
                KEPT_MAX,
            )
        rest = 0 if saved is None else saved.rows
        if (saved.id if saved else "") != loss.saved or rest + loss.rows != sst.rows or loss.discarded:
            raise InvalidBatch(
                f"repair of SST {sst.id}: {rest} rows are saved and {loss.rows} lost, of {sst.rows}; nothing changed"
            )
        if not loss.table or len(loss.ranges) > RANGES_MAX or bool(loss.ranges) != bool(loss.rows):
            raise InvalidBatch(f"repair of SST {sst.id}: {len(loss.ranges)} ranges of lost keys; nothing changed")
        if saved is not None:
            check_uploads(version, [saved.id])
            self._check_saved(version, sst, saved)

    def _check_saved(self, version: Version, sst: SstInfo, saved: SstInfo) -> None:
        within = sst.smallest <= saved.smallest <= saved.largest <= sst.largest
        epochs = saved.epoch == 0 and sst.min_epoch <= saved.min_epoch <= saved.max_epoch <= sst.max_epoch
        until = bool(saved.until) == bool(sst.until) and saved.max_epoch <= (saved.until or saved.max_epoch)
        if not (within and epochs and until and saved.until <= sst.until and saved.deletes <= sst.deletes):
            raise InvalidBatch(f"repair of SST {sst.id}: SST {saved.id} is not a part of it; nothing changed")
        taken = version.live_sst_ids() | version.dropped_sst_ids() | version.quarantined_ids()
        if saved.id in taken or saved.source or saved.entry:
            raise InvalidBatch(f"repair of SST {sst.id}: SST {saved.id} is no new object; nothing changed")

    def apply(self, version: Version) -> Version:
        """The version with the rest in its place, and the loss among its losses."""
        state = version.tables[self.loss.table_id]
        levels = _with_replaced(state.levels, self.loss.sst, self.saved)
        tasks = {
            key: task
            for key, task in version.tasks.items()
            if not any(one.id == self.loss.sst.id for one in task.ssts())
        }
        losses = _bounded((*version.losses, replace(self.loss, seq=version.seq + 1)))
        tables = {**version.tables, state.spec.id: replace(state, levels=levels)}
        return replace(version, tables=tables, tasks=tasks, accepted_losses=losses)


class DiscardQuarantined(msgspec.Struct, frozen=True, kw_only=True, tag="discard_quarantined", tag_field="type"):
    """The objects of these damaged SSTs are not kept any longer; that their rows were lost stays noted."""

    ids: tuple[str, ...]
    at_ms: int

    def validate(self, version: Version) -> None:
        """Raise `InvalidOption` unless all of them are kept."""
        if unknown := sorted(set(self.ids) - version.quarantined_ids()):
            raise InvalidOption(
                f"SST {unknown[0]} (of {len(unknown)} such) is not one that was put aside, or was discarded before; "
                "nothing was discarded"
            )

    def apply(self, version: Version) -> Version:
        """The version that leaves their objects to vacuum."""
        gone = [one.sst for one in version.losses if one.sst.id in self.ids and not one.discarded]
        losses = tuple(replace(one, discarded=True) if one.sst in gone else one for one in version.losses)
        return replace(version, accepted_losses=_bounded(losses)).with_ssts_dropped(gone, self.at_ms)


def uncovered_ssts(levels: TableLevels, sst: SstInfo, ranges: Sequence[LostRange]) -> list[SstInfo]:
    """SSTs of runs older than that SST's with keys in one of these ranges: what it hid there may be seen again.

    Of an SST of history, those of the whole live tree: a reader at an older epoch may find them where it finds no row
    of history.
    """
    found: dict[str, SstInfo] = {}
    is_below = bool(sst.until)
    for _, run in ranked_runs(levels):
        if is_below:
            for one in ranges:
                for older in overlap_in_run(run, (one.first, one.end)):
                    if one.closed or older.smallest < one.end:
                        # Of history, only what is old enough to be seen in its place.
                        found.update({older.id: older} if not sst.until or older.min_epoch < sst.until else {})
        elif find_in_run(run, sst) is not None:
            is_below = True
    return list(found.values())


def _place_of(levels: TableLevels, sst: SstInfo) -> int | None:
    """Which run of the table has exactly this SST: by its number among all, history's after those of the tree."""
    runs: list[Sequence[SstInfo]] = [*(run.ssts for run in levels.l0), *levels.levels]
    runs += [run.ssts for run in levels.history]
    return next((at for at, run in enumerate(runs) if run and find_in_run(run, sst) == sst), None)


def _with_replaced(levels: TableLevels, sst: SstInfo, saved: SstInfo | None) -> TableLevels:
    """The levels with `saved`, or nothing, in the place of the SST, which is there."""
    new = () if saved is None else (saved,)

    def runs(old: tuple[Run, ...]) -> tuple[Run, ...]:
        changed = (Run(ssts=tuple(_spliced(run.ssts, sst, new))) if sst in run.ssts else run for run in old)
        return tuple(run for run in changed if run.ssts)

    below: list[Sequence[SstInfo]] = [
        _spliced(level, sst, new) if level and find_in_run(level, sst) == sst else level for level in levels.levels
    ]
    while below and not below[-1]:
        below.pop()
    return TableLevels(l0=runs(levels.l0), levels=tuple(below), history=runs(levels.history))


def _spliced(run: Sequence[SstInfo], sst: SstInfo, new: tuple[SstInfo, ...]) -> Sequence[SstInfo]:
    at = list(run).index(sst)
    return Chunked.of(run).replace_items(at, at + 1, new)


def _bounded(losses: tuple[AcceptedLoss, ...]) -> tuple[AcceptedLoss, ...]:
    """The newest records of those that are only kept for people, and all others."""
    excess = len(losses) - LOSSES_MAX
    oldest = [one for one in losses if one.discarded][: max(excess, 0)]
    return tuple(one for one in losses if one not in oldest)
