"""The repair of a store's clock: epochs and times that are far ahead of the bucket's get present ones. Pure.

Commits that are so far ahead are refused (`log/bucket_clock.py`), but releases before took them, and so does one that
is told to (`max_clock_ahead`). Epochs only grow, so all that follow stay ahead, retention keeps everything until real
time has caught up, and after the largest epoch nothing can be committed at all.

Epochs above a limit get new numbers in their old order, without gaps: from the bucket's present time on, or from the
newest epoch that is not ahead, if that is later. So every read at a new number shows what a read at the old one did.
An SST of a commit has its epoch from the version, which is all that changes. One whose rows carry their own epochs
(compaction's) is written anew, row by row as it was, before the delta; the delta puts it in the place of the old one,
and is refused where it meets an SST or an epoch that it does not know: then somebody committed or compacted meanwhile.

What else the delta does is safe for processes at work. It ends all compaction tasks: their reports are refused, as of
a task that was taken back. It makes SSTs of gone tables dropped ones, as a vacuum does that finds no pin. It says which
numbers were taken back (`Renumbered`), so that pins on them, reads at them and commits that had read at them get a
named error. Pins on other epochs stay exact, since those keep their numbers and nothing of theirs is dropped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tussock.meta.version.deltas.commits import check_uploads
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import SstInfo, TableState
from tussock.statestore.contract.renumbered import Renumbered
from tussock.statestore.epochs import SERIAL_BITS
from tussock.statestore.errors import Conflict, InvalidBatch

__all__ = [
    "Numbers",
    "RepairClock",
    "epochs_ahead",
    "has_times_ahead",
    "named_epochs",
    "to_rewrite",
]


class RepairClock(msgspec.Struct, frozen=True, kw_only=True, tag="repair_clock", tag_field="type"):
    """Epochs that are ahead of the bucket's clock get other numbers, times that are ahead become that clock's."""

    at_ms: int
    """The bucket's time."""
    limit: int
    """Epochs up to this one keep their numbers."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(old, new), both ascending: all epochs above the limit that the version names, and the smallest there is."""
    rewritten: dict[str, SstInfo] = {}
    """By id of an SST with rows above the limit that carry their epochs: the one in its place."""

    def validate(self, version: Version) -> None:
        """Raise `Conflict` if the version has come to name what it does not know, `InvalidBatch` if it is no map."""
        old, new = [pair[0] for pair in self.epochs], [pair[1] for pair in self.epochs]
        known = dict(self.epochs)
        kept = max((epoch for epoch in named_epochs(version) if epoch <= self.limit), default=0)
        ascending = all(left < right for numbers in (old, new) for left, right in pairwise(numbers))
        if not ascending or (old and not (old[0] > self.limit and new[0] > kept)) or any(map(int.__lt__, old, new)):
            raise InvalidBatch(
                f"repair of the clock: the new numbers of {len(old)} epochs above {self.limit} do not keep their "
                "order; nothing changed"
            )
        unknown = epochs_ahead(version, self.limit) - known.keys()
        replaced = {sst.id: sst for _, sst in to_rewrite(version, self.limit)}
        if unknown or replaced.keys() != self.rewritten.keys():
            raise Conflict(
                f"the store was written to or compacted while it was being repaired ({len(unknown)} epochs and "
                f"{len(replaced.keys() ^ self.rewritten.keys())} SSTs are not those that were there): nothing changed; "
                "stop its processes, and repair it again"
            )
        check_uploads(version, [sst.id for sst in self.rewritten.values()])
        taken = version.live_sst_ids() | version.dropped_sst_ids() | version.quarantined_ids()
        for sst_id, sst in self.rewritten.items():
            was = replaced[sst_id]
            low, high = known.get(was.min_epoch, was.min_epoch), known.get(was.max_epoch, was.max_epoch)
            until = known.get(was.until, was.until)
            numbers = (sst.epoch, sst.min_epoch, sst.max_epoch, sst.until)
            if _rows_of(sst) != _rows_of(was) or numbers != (0, low, high, until):
                raise InvalidBatch(f"repair of the clock: SST {sst.id} has not the rows of {sst_id}; nothing changed")
            if sst.id in taken or sst.source or sst.entry:
                raise InvalidBatch(f"repair of the clock: SST {sst.id} is no new object; nothing changed")

    def apply(self, version: Version) -> Version:
        """The version with present epochs and times, without tasks and gone tables."""
        known = dict(self.epochs)

        def now(epoch: int) -> int:
            return known.get(epoch, epoch)

        def sst_now(sst: SstInfo) -> SstInfo:
            if max(sst.max_epoch, sst.until) <= self.limit:
                return sst
            stamped = replace(sst, epoch=now(sst.epoch), min_epoch=now(sst.min_epoch), max_epoch=now(sst.max_epoch))
            # One of history is always written anew: each row says until when it is for.
            return self.rewritten.get(sst.id, stamped)

        gone, before = version.gone, {sst.id: sst for sst in version.ssts()}
        dropped = tuple(replace(sst, dropped_ms=min(sst.dropped_ms, self.at_ms)) for sst in version.dropped)
        repair = Renumbered(seq=version.seq + 1, first=self.epochs[0][0], last=self.epochs[-1][0]) if known else None
        after = replace(
            version.with_ssts_changed(sst_now).with_gone({}),
            max_committed_epoch=now(version.max_committed_epoch),
            safe_epoch=now(version.safe_epoch),
            compacted_epoch=now(version.compacted_epoch),
            ledger={
                writer: tuple((batch_id, now(epoch)) for batch_id, epoch in batches)
                for writer, batches in version.ledger.items()
            },
            timeline=_timeline(version, known, self.at_ms),
            tasks={},
            dropped=dropped,
            repaired=repair or version.repaired,
        )
        tables = {key: _table_now(state, known) for key, state in after.tables.items()}
        after = replace(after, tables=tables)
        for one in gone.values():
            ms = min(one.dropped_ms, self.at_ms)
            after = after.with_ssts_dropped(one.state.levels.ssts(), ms, one.dropped_seq)
        return after.with_ssts_dropped([before[sst_id] for sst_id in self.rewritten], self.at_ms)


class Numbers(NamedTuple):
    """Which number each epoch above the limit gets."""

    ahead: npt.NDArray[np.uint64]
    """All epochs above the limit, ascending."""
    first: int
    """The new number of the first of them; the others follow one by one."""

    @classmethod
    def of(cls, epochs: Iterable[npt.NDArray[np.uint64]], limit: int, now_ms: int) -> "Numbers":
        """Numbers for those of all these epochs that are above the limit."""
        known = np.unique(np.concatenate([np.zeros(1, np.uint64), *epochs]))
        cut = int(np.searchsorted(known, np.uint64(limit), side="right"))
        return cls(known[cut:], max(now_ms << SERIAL_BITS, int(known[cut - 1]) + 1))

    def pairs(self, epochs: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """(old, new) of these epochs above the limit and of the smallest; `Conflict` if one of them is unknown."""
        wanted = np.unique(np.array([*epochs, *self.ahead[:1].tolist()], np.uint64))
        if not np.isin(wanted, self.ahead).all():
            raise Conflict(
                "an epoch was committed while the store was being repaired; stop its writers, and repair it again"
            )
        return tuple(zip(wanted.tolist(), self.given(wanted).tolist(), strict=True))

    def given(self, epochs: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The epochs of rows, those that are ahead by their new numbers."""
        ranks = np.searchsorted(self.ahead, epochs)
        is_ahead = epochs >= self.ahead[0] if len(self.ahead) else np.zeros(len(epochs), np.bool_)
        return np.where(is_ahead, np.uint64(self.first) + ranks.astype(np.uint64), epochs)


def epochs_ahead(version: Version, limit: int) -> set[int]:
    """The epochs above the limit that the version names; SSTs written by compaction may have more of them."""
    return {epoch for epoch in named_epochs(version) if epoch > limit}


def named_epochs(version: Version) -> Iterator[int]:
    """All epochs that the version names, but those of gone tables, which a repair forgets."""
    yield from (version.max_committed_epoch, version.safe_epoch, version.compacted_epoch)
    yield from (epoch for _, epoch in version.timeline)
    yield from (epoch for batches in version.ledger.values() for _, epoch in batches)
    for state in version.tables.values():
        yield from (state.last_epoch, state.created_epoch)
        yield from state.own_epochs or ()
        for sst in state.levels.ssts():
            yield from (sst.min_epoch, sst.max_epoch)
            if sst.until:
                yield sst.until


def has_times_ahead(version: Version, limit_ms: int) -> bool:
    """Whether a time of the version that others go by is later than that."""
    times = [ms for ms, _ in version.timeline[-1:]]
    times += [sst.dropped_ms for sst in version.dropped]
    times += [gone.dropped_ms for gone in version.gone.values()]
    times += [task.claimed_ms for task in version.tasks.values()]
    times += [backup.created_ms for backup in version.backups.values() if backup.expires_ms]
    return any(ms > limit_ms for ms in times)


def to_rewrite(version: Version, limit: int) -> list[tuple[TableState, SstInfo]]:
    """The SSTs whose rows carry epochs above the limit, those of history also with `until`, with their tables."""
    return [
        (state, sst)
        for state in version.tables.values()
        for sst in state.levels.ssts()
        if sst.epoch == 0 and max(sst.max_epoch, sst.until) > limit
    ]


def _table_now(state: TableState, known: Mapping[int, int]) -> TableState:
    state = replace(state, last_epoch=known.get(state.last_epoch, state.last_epoch))
    if state.own_epochs:
        safe, compacted = (known.get(epoch, epoch) for epoch in state.own_epochs)
        state = replace(state, own_epochs=(safe, compacted))
    if not state.created:
        return state
    epoch, seq = state.created
    return replace(state, created=(known.get(epoch, epoch), seq))


def _timeline(version: Version, known: Mapping[int, int], at_ms: int) -> tuple[tuple[int, int], ...]:
    """The samples, none later than the bucket's clock; of those that would be of one time the last."""
    kept: list[tuple[int, int]] = []
    for ms, epoch in version.timeline:
        if kept and kept[-1][0] >= min(ms, at_ms):
            kept.pop()
        kept.append((min(ms, at_ms), known.get(epoch, epoch)))
    return tuple(kept)


def _rows_of(sst: SstInfo) -> Sequence[object]:
    return sst.smallest, sst.largest, sst.rows, sst.deletes
