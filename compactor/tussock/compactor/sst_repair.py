"""Carries out the repair of damaged SSTs: finds what cannot be read, saves the rest, and puts the SST aside.

What is decided, and why it is safe, is in `tussock.meta.version.deltas.losses`. The order is: read, upload an SST with
the rows of all blocks that can be read, append. A crash before the append leaves an orphan for vacuum and nothing else;
after it, all is done. Each SST is a separate repair, so one that is interrupted among many is repeated for the rest.

It may run while others read, commit and compact, beside a meta service, too: the delta is refused if the SST has left
its table meanwhile. A block is taken for lost only if two requests bring it damaged: the way may be what is bad.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from tussock.meta.log.log import VersionLog
from tussock.meta.retention.backups import Backups
from tussock.meta.retention.pin_objects import live_pins
from tussock.meta.retention.pins import PIN_LEASE_SECONDS
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.losses import RANGES_MAX, DiscardQuarantined, QuarantineSst, uncovered_ssts
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.losses import AcceptedLoss, LostRange
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableState
from tussock.statestore.errors import Conflict, CorruptLog, CorruptSst, InvalidOption, ObjectNotFound, StaleUpload
from tussock.statestore.format.meta import LoadedMeta
from tussock.statestore.format.parted_filter import PartedFilter
from tussock.statestore.rows.rows import Rows
from tussock.statestore.rows.wider_types import with_types
from tussock.statestore.sst.encoded_sst import EncodedSst
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter, history_schema, value_schema
from tussock.statestore.write.uploader import Uploader

__all__ = ["DamagedSst", "SstRepair", "lost_ranges"]

CACHE_BYTES = 16 << 20
"""For metas, and for small SSTs that are fetched whole; blocks are not cached."""
SST_BYTES = 1 << 62
"""What is saved of an SST is one, however large."""
UPLOADS_MAX = 3
"""An upload that vacuum may have taken for garbage, where there is no grace period, is made again."""


class DamagedSst(NamedTuple):
    """An SST that readers of its table meet, and what of it they cannot have."""

    state: TableState
    meta: LoadedMeta | None
    """`None` if it is damaged or gone, and nothing in the SST can be found without it."""
    blocks: tuple[int, ...]
    """The blocks that cannot be read; none if only the filter is damaged, which every row can do without."""
    why: str
    """What is wrong with the first of them, or with the meta."""
    loss: AcceptedLoss
    """What would be lost; without the id of the SST that takes its place, which is not there yet."""


class SstRepair:
    """Looks for damaged SSTs of one store and puts them aside. `close` it."""

    def __init__(
        self, bucket: ObjectStore, system: System, *, owner: str, open_source: Callable[[str], ObjectStore]
    ) -> None:
        """Reads the log; `open_source` opens the bucket of the store that this one was cloned from, by its URL."""
        self._bucket = bucket
        self._system = system
        self._owner = owner
        self.log = VersionLog(bucket, system, owner=owner)
        self._sstables = Sstables(bucket, CACHE_BYTES, system, open_source)
        self._uploader = Uploader(bucket, system, self._upload_horizon)
        self.log.refresh()

    def close(self) -> None:
        """Stop the threads that read and upload."""
        self._uploader.close()
        self._sstables.close()

    def named(self, ids: Sequence[str] = ()) -> list[tuple[TableState, SstInfo]]:
        """The SSTs with these ids in the trees and in history of the tables, or all; `InvalidOption` if one is not."""
        known = [(state, sst) for state in self.log.version.tables.values() for sst in state.levels.ssts()]
        if not ids:
            return known
        wanted = set(ids)
        if missing := sorted(wanted - {sst.id for _, sst in known}):
            raise InvalidOption(
                f"no table has SST {missing[0]} (of {len(missing)} such): `tussock ssts TABLE` lists those that there "
                "are; nothing changed"
            )
        return [(state, sst) for state, sst in known if sst.id in wanted]

    def examine(self, state: TableState, sst: SstInfo) -> DamagedSst | None:
        """What is wrong with the SST, all of which is read; `None` if nothing is.

        `ObjectStoreUnavailable` if it could not be read to its end: then nobody knows.
        """
        try:
            meta = self._meta(sst)
        except (CorruptSst, ObjectNotFound) as error:
            whole = LostRange(first=sst.smallest, end=sst.largest, closed=True)
            return DamagedSst(state, None, (), str(error), self._loss(state, sst, None, (), (whole,)))
        bad: list[int] = []
        why = self._filter_damage(sst)
        for numbers, rows in self._read(sst, meta):
            if isinstance(rows, Exception):
                why = why or str(rows)
                bad += numbers
        if not why:
            return None
        blocks = tuple(bad)
        ranges = lost_ranges(meta, blocks) if blocks else ()
        return DamagedSst(state, meta, blocks, why, self._loss(state, sst, meta, blocks, ranges))

    def put_aside(self, damaged: DamagedSst) -> AcceptedLoss:
        """Let the table go on without what of this SST cannot be read; its objects stay.

        Raises:
            Conflict: the SST left the table meanwhile, or more of it is damaged now; nothing changed.
            LimitReached: too many are kept already.
            ClockAhead: this machine's clock is far ahead of the bucket's.
        """
        for attempt in range(UPLOADS_MAX):
            saved = self._save(damaged)
            try:
                return self._append(damaged, saved)
            except StaleUpload:
                if attempt == UPLOADS_MAX - 1:
                    raise
        raise AssertionError("unreachable")

    def backups_with(self, ids: Collection[str]) -> dict[str, list[str]]:
        """By id of these SSTs, which backups name it; those that cannot be read say nothing."""
        found: dict[str, list[str]] = {sst_id: [] for sst_id in ids}
        backups = Backups(self.log, self._bucket, self._system, owner=self._owner)
        for info in sorted(self.log.version.backups.values(), key=lambda one: one.name):
            if not ids or info.expires_ms:
                continue
            with contextlib.suppress(CorruptLog, ObjectNotFound):
                what = f"the clone at {info.holder}" if info.holder else f"backup {info.name}"
                for sst in backups.content(info).version.ssts():
                    if sst.id in found:
                        found[sst.id].append(what)
        return found

    def open_snapshots(self, epoch: int) -> int:
        """How many pins there are on that epoch and later ones."""
        lease_ms = int(PIN_LEASE_SECONDS * 1000)
        return sum(pin.epoch >= epoch for pin in live_pins(self._bucket, self._system.now_ms(), lease_ms))

    def discard(self, ids: Sequence[str]) -> list[AcceptedLoss]:
        """Leave the objects of SSTs that were put aside to vacuum; the losses stay noted.

        `InvalidOption` if one is not kept.
        """

        def decide(version: Version) -> tuple[list[Delta], list[AcceptedLoss]]:
            gone = [loss for loss in version.losses if loss.sst.id in ids and not loss.discarded]
            return [DiscardQuarantined(ids=tuple(sorted(set(ids))), at_ms=self._system.now_ms())], gone

        return self.log.append(decide)

    def _upload_horizon(self) -> str:
        # By a clock that is far ahead the name of the SST would be, too.
        self.log.clock.own_ms()
        return self.log.version.gc_horizon

    def _loss(
        self,
        state: TableState,
        sst: SstInfo,
        meta: LoadedMeta | None,
        blocks: Sequence[int],
        ranges: tuple[LostRange, ...],
    ) -> AcceptedLoss:
        at = list(blocks)
        uncovered = len(uncovered_ssts(state.levels, sst, ranges))
        loss = AcceptedLoss(
            sst=sst,
            table_id=state.spec.id,
            table=state.spec.name,
            rows=sst.rows,
            deletes=sst.deletes,
            bytes=sst.data_bytes,
            min_epoch=sst.min_epoch,
            max_epoch=sst.max_epoch,
            ranges=ranges,
            uncovered=uncovered,
            by=self._owner,
        )
        if meta is None:
            return loss
        if not at:
            return replace(loss, rows=0, deletes=0, bytes=0)
        return replace(
            loss,
            rows=int(meta.block_rows[at].sum()),
            deletes=int(meta.block_deletes[at].sum()),
            bytes=int(meta.length[at].sum()),
            min_epoch=sst.epoch or int(meta.min_epoch[at].min()),
            max_epoch=sst.epoch or int(meta.max_epoch[at].max()),
        )

    def _meta(self, sst: SstInfo) -> LoadedMeta:
        try:
            return self._sstables.meta(sst)
        except CorruptSst:
            return self._sstables.meta(sst)

    def _filter_damage(self, sst: SstInfo) -> str:
        """What is wrong with a filter that lies apart from the meta; empty if nothing is."""
        error: Exception | None = None
        for _ in range(2):
            parted = PartedFilter(max(sst.filter_parts, 1))
            try:
                if sst.filter_parts:
                    self._sstables.fetch(sst, parted, 0, sst.filter_parts)
            except (CorruptSst, ObjectNotFound) as found:
                error = found
            else:
                return ""
        return str(error)

    def _read(self, sst: SstInfo, meta: LoadedMeta) -> Iterator[tuple[range, Rows | CorruptSst | ObjectNotFound]]:
        """The rows of all blocks in order, many at once, with their numbers; or what is wrong with these."""
        for first, last in pairwise(meta.segments):
            # All versions of one key are in one segment, which may not fit into memory then.
            step = last - first if meta.is_moderate(meta.segment_numbers[first]) else 1
            for start in range(first, last, step):
                yield from self._read_part(sst, meta, range(start, start + step))

    def _read_part(
        self, sst: SstInfo, meta: LoadedMeta, blocks: range
    ) -> Iterator[tuple[range, Rows | CorruptSst | ObjectNotFound]]:
        """Of blocks that cannot be read together the halves: few requests find one among many."""
        try:
            yield blocks, self._sstables.read(sst, meta, blocks.start, blocks.stop, fill=False)
            return
        except ObjectNotFound as error:
            yield blocks, error
            return
        except CorruptSst:
            self._sstables.forget([sst.id])
        if len(blocks) == 1:
            try:
                yield blocks, self._sstables.read(sst, meta, blocks.start, blocks.stop, fill=False)
            except (CorruptSst, ObjectNotFound) as error:
                yield blocks, error
            return
        middle = blocks.start + len(blocks) // 2
        yield from self._read_part(sst, meta, range(blocks.start, middle))
        yield from self._read_part(sst, meta, range(middle, blocks.stop))

    def _save(self, damaged: DamagedSst) -> SstInfo | None:
        """What can be read of the SST as another one, in the bucket; `None` if that is nothing."""
        meta, sst, state = damaged.meta, damaged.loss.sst, damaged.state
        if meta is None or len(damaged.blocks) == meta.blocks:
            return None
        (saved,) = self._uploader.upload(self._encode(state, sst, meta, damaged.blocks))
        return saved

    def _encode(self, state: TableState, sst: SstInfo, meta: LoadedMeta, bad: Sequence[int]) -> Iterator[EncodedSst]:
        spec, history = state.spec, sst.until > 0
        types = (history_schema(spec) if history else value_schema(spec)).types
        writer = SstWriter(spec, sst_bytes=SST_BYTES, epoch_inherited=False, history=history)
        for numbers, rows in self._read(sst, meta):
            if not isinstance(rows, Rows):
                if not set(numbers) <= set(bad):
                    raise Conflict(f"{rows}; more of SST {sst.id} is damaged than before: nothing changed, look again")
            elif set(numbers).isdisjoint(bad):
                yield from writer.add(with_types(rows, types))
            else:
                # Blocks that could not be read a moment ago, and can now, stay lost: that was agreed to.
                for number in (one for one in numbers if one not in bad):
                    one = self._sstables.read(sst, meta, number, number + 1, fill=False)
                    yield from writer.add(with_types(one, types))
        yield from writer.end()

    def _append(self, damaged: DamagedSst, saved: SstInfo | None) -> AcceptedLoss:
        loss = replace(damaged.loss, saved=saved.id if saved else "", at_ms=self._system.now_ms())

        def decide(version: Version) -> tuple[list[Delta], None]:
            # Two repairs of an SST of which nothing can be saved do the same.
            is_done = any(one.sst.id == loss.sst.id and one.saved == loss.saved for one in version.losses)
            return [] if is_done else [QuarantineSst(loss=loss, saved=saved)], None

        self.log.append(decide)
        return next(one for one in self.log.version.losses if one.sst.id == loss.sst.id)


def lost_ranges(meta: LoadedMeta, bad: Sequence[int]) -> tuple[LostRange, ...]:
    """The keys of these blocks, ascending, as `RANGES_MAX` ranges at most.

    If there are more, those between which the fewest rows lie are joined.
    """
    groups: list[tuple[int, int]] = []
    for block in bad:
        # Two parts of one key's versions are one range, though a block of that key between them can be read.
        if groups and (groups[-1][1] == block or _is_one_key(meta, groups[-1][1], block)):
            groups[-1] = groups[-1][0], block + 1
        else:
            groups.append((block, block + 1))
    between = [int(meta.block_rows[left[1] : right[0]].sum()) for left, right in pairwise(groups)]
    widest = sorted(range(len(between)), key=between.__getitem__, reverse=True)[: RANGES_MAX - 1]
    ranges: list[LostRange] = []
    first = 0
    for last in [*sorted(widest), len(groups) - 1]:
        ranges.append(_range_of(meta, groups[first][0], groups[last][1]))
        first = last + 1
    return tuple(ranges)


def _is_one_key(meta: LoadedMeta, after: int, block: int) -> bool:
    """Whether the key that goes on in block `after`, behind a lost one, is that of a later lost block."""
    return bool(meta.continues[after] and meta.continues[block]) and meta.first_keys[after] == meta.first_keys[block]


def _range_of(meta: LoadedMeta, first: int, after: int) -> LostRange:
    """The keys of the blocks first .. after-1, of which only the first ones are known."""
    if after == meta.blocks:
        return LostRange(first=meta.first_keys[first], end=meta.largest, closed=True)
    return LostRange(first=meta.first_keys[first], end=meta.first_keys[after], closed=bool(meta.continues[after]))
