"""Vacuum: delete what no version names and no iterator can still be reading.

Two kinds of SSTs go. *Dropped* ones left the tree by a log entry and wait out the grace period, since an iterator may
hold an older version. *Orphans* are named by nothing: outputs of a crash or of a refused report, or an upload that is
about to be committed, and nothing about the object tells which. So the order is:

1. Read the log to its tail, then list the bucket.
2. Append the garbage horizon: from then on no commit may name an SST id below it.
3. Delete orphans that are below the horizon, older than the grace period by the bucket's own clock, and still unnamed
   in a version at or after that append. A commit that was faster is in that version; one that is slower is refused.

Where the horizon goes (`horizon_for`) is what keeps anyone from being locked out. It stays below every young orphan,
which may be an upload under way by a clock that lags; below what live compaction tasks may have uploaded since they
were claimed, and what this process has uploaded and not committed; and a grace period behind the bucket's clock, so
an orphan whose writer's clock was ahead simply goes later. It moves only if something can be deleted for it. A process
that is refused uploads under an id above the horizon.

If that append fails, what is garbage by the version as it is goes first, and makes room for the entry on a full disk.

Pins are on epochs, and a pinned epoch is read on the newest version, so no pin needs an old SST; but it may need a
table that was dropped since. So a drop leaves the table in the version, as *gone*, and vacuum makes its SSTs dropped
ones once it finds no pin at or below the epoch of the drop. It reads the log, then lists the pins; a pin is written,
then the log read, so one that was taken before the drop is listed, and one taken after it knows of it.

SSTs of history that no reader needs any more leave the version here, and are dropped ones from then on: the safe epoch
is raised in the entry with the horizon, the pins are listed again, and a second entry lets go.

A damaged SST that a repair has put aside (`deltas/losses.py`) stays, objects and entry, until it is discarded.

What backups name stays (`backups.py` has the order and the proof). SSTs that lie in another store, whose clone this
one is, are never touched; once none is named any more, the hold on them there is let go (`clone.py`). A crash
anywhere leaves garbage only, and a log, a backup or an SST name that cannot be read means that nothing is deleted.

An SST that lies in a log entry is never an orphan. Its entry goes once the log does not need it (`truncation.py`) and
no SST in it would be kept if it were an object: none is in a tree, dropped and waiting, or in a backup. That is judged
by one version, so of entries up to that version's only: a later one may bring SSTs of which it knows nothing, while an
SST that is in no tree of it, and lies in an entry up to it, comes into no tree again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from msgspec.structs import replace

from tussock.meta.log.bucket_clock import bucket_now_ms, is_clock_path
from tussock.meta.log.format import backup_path, is_backup_path
from tussock.meta.log.log import VersionLog
from tussock.meta.log.truncation import Truncation, first_entry_after, plan_truncation, truncate
from tussock.meta.retention.backups import Backups, Held, expired_backups
from tussock.meta.retention.clone import detach_sources
from tussock.meta.retention.pin_objects import pin_objects, smallest_live_pin
from tussock.meta.version.bounds import unused_writers
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.retention import (
    AdvanceHorizon,
    AdvanceSafeEpoch,
    ExpireHistory,
    ForgetDropped,
    ForgetWriters,
)
from tussock.meta.version.deltas.tasks import expired_tasks
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import VacuumReport
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import ObjectStoreUnavailable
from tussock.statestore.write.sst_ids import id_floor

__all__ = ["Vacuum", "horizon_for"]

ID_DIGITS = 32
_FOLDERS = {"applications", "backup", "leader", "log", "pins", "snapshot", "sst", "tmp"}
UNUSED_NAME_MS = 7 * 24 * 3600 * 1000
"""A name of a writer that was opened longer ago and has never committed is forgotten."""
LEFTOVER_AGE_MS_MIN = 3600 * 1000
"""Half-written files are left alone for an hour at least: a slow upload is not a leftover."""


class _Found(NamedTuple):
    objects: list[tuple[ObjectInfo, str]]
    forgettable: tuple[str, ...]
    young: int
    entries: AbstractSet[int]
    """Log entries in which SSTs lie that have to stay."""


class Vacuum:
    """One store's vacuum; `run` may be called from any process, at any time."""

    def __init__(
        self,
        log: VersionLog,
        bucket: ObjectStore,
        system: System,
        *,
        owner: str,
        grace_ms: int | None,
        pin_skew_ms: int,
        backups: Backups,
        open_source: Callable[[str], ObjectStore],
        watermark: Callable[[Version, TableState, int, int | None], int],
    ) -> None:
        """`open_source` opens the bucket of another store, by its URL, for a clone to let go of its hold there.

        `watermark` returns the largest low watermark of a table in a version, at a time in milliseconds since 1970 and
        beside a smallest pin if there is one.
        """
        self._log = log
        self._bucket = bucket
        self._system = system
        self._owner = owner
        self._own_grace_ms = grace_ms
        self._pin_skew_ms = pin_skew_ms
        self._backups = backups
        self._open_source = open_source
        self._watermark = watermark

    @property
    def _grace_ms(self) -> int:
        """The grace period that this process was told, else the store's."""
        return self._log.version.gc_grace_ms if self._own_grace_ms is None else self._own_grace_ms

    def run(self, *, dry_run: bool = False, in_flight: Callable[[], Sequence[str]] = tuple) -> VacuumReport:
        """Find the garbage, and delete it unless `dry_run`, which changes nothing at all in the bucket.

        A dry run does not see history that would expire, since that is named until it does.

        `in_flight` returns ids that the horizon must not pass: of uploads that this process knows to be under way. It
        is asked after the bucket was listed, so that it knows of every upload that the listing shows.
        """
        # Before the log is read: a backup whose object is listed is in the version, or over.
        backup_objects = list(self._bucket.list("backup/"))
        version = self._log.refresh()
        # A dry run may not write, so it has to trust this machine's clock.
        bucket_ms = self._system.now_ms() if dry_run else self._bucket_clock()
        listed = list(self._bucket.list("sst/"))
        if dry_run:
            held = self._backups.held()
            forget = ForgetDropped(ids=(), tables=self._unneeded_tables(version, bucket_ms))
            version = self._with_horizon(forget.apply(held.version), listed, bucket_ms, in_flight())
        else:
            known = in_flight()
            try:
                self._advance(listed, bucket_ms, known)
            except ObjectStoreUnavailable:
                if not self._make_room(listed, backup_objects, bucket_ms):
                    raise
                self._advance(listed, bucket_ms, known)
            held = self._backups.held()
            version = held.version
        ssts = self._garbage_ssts(version, held, listed, bucket_ms)
        cut = plan_truncation(self._bucket, bucket_ms, self._grace_ms, ssts.entries, version.seq)
        rest = [*_dead_backups(version, backup_objects), *self._expired_pins(bucket_ms), *self._leftovers(bucket_ms)]
        if not dry_run:
            self._delete(ssts, cut, rest)
            detach_sources(self._log, self._system, self._owner, held, self._open_source)
        deleted = [*ssts.objects, *cut.garbage, *rest]
        return VacuumReport(
            deleted=tuple((info.path, reason) for info, reason in deleted),
            kept_young=ssts.young,
            bytes_freed=sum(info.size for info, _ in deleted),
            gc_horizon=version.gc_horizon,
        )

    def _advance(self, listed: Sequence[ObjectInfo], bucket_ms: int, in_flight: Sequence[str]) -> None:
        unneeded = self._unneeded_tables(self._log.version, bucket_ms)
        expiring: dict[int, int] = {}
        now_ms = self._system.now_ms()
        if self._expirable(self._log.version, now_ms, None):
            # By the slower of both clocks: what one shows too early is still kept for others.
            now_ms = min(bucket_ms, self._log.clock.own_ms())
            expiring = self._expirable(self._log.version, now_ms, self._smallest_pin(now_ms))

        def decide(now: Version) -> tuple[list[Delta], None]:
            deltas = self._horizon_deltas(now, listed, bucket_ms, in_flight, unneeded)
            for table, epoch in expiring.items():
                state = now.tables.get(table)
                if table and (state is None or not state.own_epochs):
                    continue
                safe = now.safe_epoch if state is None else now.safe_epoch_of(state)
                if safe < epoch <= now.max_committed_epoch:
                    deltas.append(AdvanceSafeEpoch(epoch=epoch, table=table))
            return deltas, None

        self._log.append(decide)
        if expiring:
            self._expire(expiring, now_ms)

    def _smallest_pin(self, now_ms: int) -> int | None:
        return smallest_live_pin(self._bucket, now_ms, self._pin_skew_ms)

    def _expirable(self, version: Version, now_ms: int, pinned: int | None) -> dict[int, int]:
        """The epochs up to which history may expire beside that pin, where there is some that would.

        By the id of a table with its own epochs, and by 0 for all others, which have the store's retention.
        """
        found: dict[int, int] = {}
        for table_id, state in version.tables.items():
            epoch = self._watermark(version, state, now_ms, pinned)
            if _has_expired(state, epoch):
                found[table_id if state.own_epochs else 0] = epoch
        return found

    def _expire(self, wanted: Mapping[int, int], now_ms: int) -> None:
        """Drop what of history nobody needs at `wanted` or later; the safe epochs are there, and the pins come after.

        The order is that of a compaction, and so is the proof (`watermark.py`). By a time a moment ago, more pins live.
        """
        pinned = self._smallest_pin(now_ms)
        epochs = {table: epoch if pinned is None else min(epoch, pinned) for table, epoch in wanted.items()}

        def decide(now: Version) -> tuple[list[Delta], None]:
            own, others = {}, 0
            for table_id, state in now.tables.items():
                epoch = epochs.get(table_id if state.own_epochs else 0, 0)
                if epoch > now.safe_epoch_of(state) or not _has_expired(state, epoch):
                    continue
                if state.own_epochs:
                    own[table_id] = epoch
                else:
                    others = epoch
            expire = ExpireHistory(epoch=others, at_ms=self._system.now_ms(), tables=own)
            return [expire] if own or others else [], None

        self._log.append(decide)

    def _make_room(self, listed: Sequence[ObjectInfo], backup_objects: Sequence[ObjectInfo], bucket_ms: int) -> bool:
        """Delete what is garbage by the log as it is, without an entry more; whether there was any.

        A disk may be so full that not even the entry with the horizon has a place. What was dropped long enough ago
        comes into no tree again, and what is below the horizon of a version and unnamed there can no longer be
        committed: neither needs another entry.
        """
        self._log.refresh()
        held = self._backups.held()
        ssts = self._garbage_ssts(held.version, held, listed, bucket_ms)
        found = [*ssts.objects, *_dead_backups(held.version, backup_objects), *self._leftovers(bucket_ms)]
        self._bucket.delete([info.path for info, _ in found])
        return self._shorten_log(ssts.entries, held.version.seq, bucket_ms) or bool(found)

    def _shorten_log(self, needed: AbstractSet[int], known_seq: int, bucket_ms: int) -> bool:
        """Delete entries of the log that nobody needs, which may have rows in them; whether there were any.

        A marker is a few bytes, which may have a place where an entry has none.
        """
        for may_mark in (True, False):
            cut = plan_truncation(self._bucket, bucket_ms, self._grace_ms, needed, known_seq, may_mark=may_mark)
            try:
                truncate(self._bucket, cut)
            except ObjectStoreUnavailable:
                if not may_mark:
                    raise
            else:
                return bool(cut.garbage)
        raise AssertionError("unreachable: the last one returns or raises")

    def _delete(self, ssts: _Found, cut: Truncation, rest: Sequence[tuple[ObjectInfo, str]]) -> None:
        self._bucket.delete([info.path for info, _ in ssts.objects])
        if ssts.forgettable:
            # After the deletion: a crash between lets the next vacuum delete them once more, which is no error.
            self._log.append(lambda _: ([ForgetDropped(ids=ssts.forgettable)], None))
        truncate(self._bucket, cut)
        self._bucket.delete([info.path for info, _ in rest])

    def _bucket_clock(self) -> int:
        """The bucket's own time: ages of objects are reckoned by the clock that stamped them."""
        try:
            return bucket_now_ms(self._bucket, self._system)
        except ObjectStoreUnavailable:
            # A full disk may have no place for one file more. It is later than all that is there: by an early time,
            # less is old enough to go.
            stamps = [info.modified_ms for folder in ("log/", "sst/") for info in self._bucket.list(folder)]
            if not stamps:
                raise
            return max(stamps)

    def _unneeded_tables(self, version: Version, bucket_ms: int) -> tuple[int, ...]:
        """Ids of tables that were dropped in `version` or before, and that no pin needs, nor will."""
        if not version.gone:
            return ()
        # After the log was read: a pin from before the drop is found, and a later one reads of it.
        smallest = smallest_live_pin(self._bucket, min(bucket_ms, self._system.now_ms()), self._pin_skew_ms)
        return tuple(key for key, gone in version.gone.items() if smallest is None or smallest > gone.dropped_epoch)

    def _horizon_deltas(
        self,
        version: Version,
        listed: Sequence[ObjectInfo],
        bucket_ms: int,
        in_flight: Sequence[str],
        unneeded: Sequence[int],
    ) -> list[Delta]:
        now_ms = self._system.now_ms()
        deltas: list[Delta] = [*expired_tasks(version, self._owner, now_ms), *expired_backups(version, now_ms)]
        if tables := tuple(one for one in unneeded if one in version.gone):
            deltas.append(ForgetDropped(ids=(), tables=tables))
            version = deltas[-1].apply(version)
        if unused := unused_writers(version, min(bucket_ms, now_ms) - UNUSED_NAME_MS):
            deltas.append(ForgetWriters(writers=unused))
        horizon = horizon_for(version, listed, bucket_ms, now_ms, self._grace_ms, in_flight)
        if horizon > version.gc_horizon:
            deltas.append(AdvanceHorizon(horizon=horizon))
        return deltas

    def _with_horizon(
        self, version: Version, listed: Sequence[ObjectInfo], bucket_ms: int, in_flight: Sequence[str]
    ) -> Version:
        horizon = horizon_for(version, listed, bucket_ms, self._system.now_ms(), self._grace_ms, in_flight)
        return replace(version, gc_horizon=max(horizon, version.gc_horizon))

    def _garbage_ssts(self, version: Version, held: Held, listed: Sequence[ObjectInfo], bucket_ms: int) -> _Found:
        live = version.live_sst_ids() | version.quarantined_ids()
        # By the slower of both clocks: an iterator that started just before the drop must have its time.
        oldest_ms = min(bucket_ms, self._system.now_ms()) - self._grace_ms
        # Without a grace period the clocks do not matter: one that lags a little would keep what was just replaced.
        due = [sst for sst in version.dropped if sst.dropped_ms <= oldest_ms or not self._grace_ms]
        # The clock that noted the drop may lag as well, but the bucket has stamped the entry that it is in.
        since = first_entry_after(self._bucket, bucket_ms - self._grace_ms) if due and self._grace_ms else math.inf
        waited = {sst.id for sst in due if sst.seq < since and not held.waits_for(sst.seq)} - live
        waiting = {sst.id for sst in version.dropped} - waited
        objects: list[tuple[ObjectInfo, str]] = []
        young = 0
        for info in listed:
            sst_id = _sst_id(info.path)
            if sst_id is None or sst_id in live or sst_id in waiting or sst_id in held.ssts:
                continue
            if sst_id in waited:
                objects.append((info, "SST replaced by a compaction or of a dropped table"))
            elif info.modified_ms > bucket_ms - self._grace_ms:
                young += 1
            elif sst_id < version.gc_horizon:
                objects.append((info, "SST that no version names"))
        # An id that was in the store must never be committed again, so it is remembered until the horizon covers it.
        entries = {sst.entry for sst in (*version.kept_ssts(), *version.quarantined()) if not sst.source}
        entries |= {sst.entry for sst in version.dropped if sst.id in waiting and not sst.source} | held.entries
        return _Found(objects, tuple(sorted(one for one in waited if one < version.gc_horizon)), young, entries)

    def _expired_pins(self, bucket_ms: int) -> list[tuple[ObjectInfo, str]]:
        slack = self._pin_skew_ms + self._grace_ms
        return [
            (info, "expired pin")
            for pin, info in pin_objects(self._bucket)
            if pin.expires_ms + slack < min(bucket_ms, self._system.now_ms()) and info.modified_ms + slack < bucket_ms
        ]

    def _leftovers(self, bucket_ms: int) -> list[tuple[ObjectInfo, str]]:
        before_ms = bucket_ms - max(self._grace_ms, LEFTOVER_AGE_MS_MIN)
        listed = self._bucket.list("tmp/")
        clocks = [info for info in listed if info.modified_ms < before_ms and is_clock_path(info.path)]
        # A folder store may have files, and stores, of others in folders beside its own.
        ours = [info for info in self._bucket.leftovers(before_ms) if info.path.partition("/")[0] in _FOLDERS]
        return [(info, "interrupted write") for info in (*ours, *clocks)]


def _has_expired(state: TableState, epoch: int) -> bool:
    """Whether history of the table has an SST that nobody needs at that epoch or later."""
    return any(sst.until <= epoch for sst in state.levels.history_ssts())


def _dead_backups(version: Version, listed: Sequence[ObjectInfo]) -> list[tuple[ObjectInfo, str]]:
    """Objects of backups that are over; `listed` was listed before `version` was read. Foreign names are left alone."""
    named = {backup_path(info.name, info.id) for info in version.backups.values()}
    dead = [info for info in listed if info.path not in named and is_backup_path(info.path)]
    return [(info, "backup that was deleted or given up") for info in dead]


def horizon_for(
    version: Version,
    listed: Sequence[ObjectInfo],
    bucket_ms: int,
    now_ms: int,
    grace_ms: int,
    in_flight: Sequence[str] = (),
) -> str:
    """The garbage horizon that lets the most be deleted and locks nobody out; the present one if nothing is gained.

    `listed`: the objects under `sst/`. `bucket_ms` is the bucket's clock, `now_ms` this machine's. `in_flight`: ids
    that the caller knows to be needed.
    """
    named = version.live_sst_ids() | version.quarantined_ids() | {sst.id for sst in version.dropped}
    orphans = [(sst_id, info) for info in listed if (sst_id := _sst_id(info.path)) and sst_id not in named]
    oldest_ms = bucket_ms - grace_ms
    limits = [id_floor(max(0, oldest_ms))]
    limits += [sst_id for sst_id, info in orphans if info.modified_ms > oldest_ms]
    # Ids of a task's outputs come from the clock that stamped its claim.
    limits += [id_floor(task.claimed_ms) for task in version.tasks.values() if now_ms <= task.expires_ms]
    horizon = min([*limits, *in_flight])
    gained = [sst_id for sst_id, info in orphans if info.modified_ms <= oldest_ms]
    gained += [sst.id for sst in version.dropped if sst.dropped_ms <= oldest_ms]
    return horizon if any(version.gc_horizon <= sst_id < horizon for sst_id in gained) else version.gc_horizon


def _sst_id(path: str) -> str | None:
    """The id in the path of an SST's object; `None` for a foreign name, which is left alone."""
    sst_id, dot, kind = path.removeprefix("sst/").partition(".")
    is_id = len(sst_id) == ID_DIGITS and all(digit in "0123456789abcdef" for digit in sst_id)
    return sst_id if dot and kind in ("data", "meta") and is_id else None
