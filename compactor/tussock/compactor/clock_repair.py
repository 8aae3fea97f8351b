"""Carries out the repair of a store's clock: reads which epochs are ahead, writes SSTs anew, appends one delta.

What is decided, and why it is safe, is in `tussock.meta.version.deltas.repair`. The order is: look, read all epochs of
SSTs whose rows carry them, upload these SSTs with the new numbers, append. A crash before the append leaves orphans
for vacuum and nothing else. Meant for a store at rest: it refuses while somebody is seen to use the store. That is a
courtesy to them, who would get errors, and to the operator, as a busy store is never done.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tussock.meta.log.bucket_clock import bucket_now_ms
from tussock.meta.log.format import sequence_of
from tussock.meta.log.leases import decode_lease
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.retention.backups import BACKUP_LEASE_MS
from tussock.meta.retention.pin_objects import pin_objects
from tussock.meta.version.deltas.backups import DropBackup
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.repair import (
    Numbers,
    RepairClock,
    epochs_ahead,
    has_times_ahead,
    named_epochs,
    to_rewrite,
)
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import ClockRepair
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, TableState, stored_bytes
from tussock.statestore.epochs import epoch_at_ms
from tussock.statestore.errors import CorruptLog, InvalidOption, ObjectNotFound
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.encoded_sst import EncodedSst
from tussock.statestore.sst.history import history_range, until_array, with_untils
from tussock.statestore.sst.iterators import ReadRange, SSTableIterator
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import SstWriter, value_schema
from tussock.statestore.write.uploader import Uploader

__all__ = ["repair_clock"]

CACHE_BYTES = 32 << 20
"""Half of it is for metas; blocks are not cached."""
PIN_LEASE_MS = 60_000
"""A live pin was written less than this long ago; judged with one more, as everywhere."""
LEASE_MS = 60_000
"""The same of a leader whose lease cannot be read."""
SST_BYTES = 1 << 62
"""An SST is written anew as one, however large."""


def repair_clock(
    bucket: ObjectStore,
    system: System,
    *,
    owner: str,
    open_source: Callable[[str], ObjectStore],
    max_ahead_ms: int,
    dry_run: bool = False,
) -> ClockRepair:
    """Give epochs and times more than `max_ahead_ms` ahead of the bucket's clock present ones.

    Answers what was changed, or with `dry_run` would be; then nothing is written but the object that asks the time.

    Raises:
        InvalidOption: there is no store, or somebody holds pins, makes a backup or leads it as a meta service.
        Conflict: the store was written to meanwhile; nothing changed.
        ClockAhead: this machine's own clock is ahead.
        CorruptSst: an SST that has to be written anew is damaged; nothing changed.
    """
    store_log = VersionLog(bucket, system, owner=owner)
    store_log.clock.max_ahead_ms = max_ahead_ms
    version = store_log.refresh()
    if version.seq == 0:
        raise InvalidOption(f"no store to repair at {bucket.url}: it has no log")
    now_ms = bucket_now_ms(bucket, system)
    limit_ms = now_ms + max_ahead_ms
    limit = epoch_at_ms(limit_ms)
    found = ClockRepair(bucket_ms=now_ms, times=has_times_ahead(version, limit_ms))
    if not (found.times or epochs_ahead(version, limit)):
        return found
    _check_at_rest(bucket, version, now_ms, limit_ms)
    sstables = Sstables(bucket, CACHE_BYTES, system, open_source)
    uploader = Uploader(bucket, system, lambda: store_log.version.gc_horizon)
    try:
        old = to_rewrite(version, limit)
        numbers = Numbers.of(_all_epochs(sstables, version, old), limit, now_ms)
        if not dry_run:
            # Before anything is uploaded: by a clock that is ahead, ids would be, too.
            store_log.clock.check([RepairClock(at_ms=now_ms, limit=limit)])
            fresh = uploader.upload(_rewrite(sstables, old, numbers)) if old else ()
            rewritten = {sst.id: new for (_, sst), new in zip(old, fresh, strict=True)}
            _append(store_log, RepairClock(at_ms=now_ms, limit=limit, rewritten=rewritten), numbers, limit_ms)
        return _report(found, numbers, [sst for _, sst in old])
    finally:
        uploader.close()
        sstables.close()


def _append(store_log: VersionLog, repair: RepairClock, numbers: Numbers, limit_ms: int) -> None:
    def decide(version: Version) -> tuple[list[Delta], None]:
        given = numbers.pairs(epochs_ahead(version, repair.limit))
        delta = replace(repair, epochs=given)
        # Their commit ends with `StaleUpload`: when they began cannot be told.
        begun = [one for one in version.backups.values() if one.expires_ms and one.created_ms > limit_ms]
        return [*(DropBackup(name=one.name, id=one.id) for one in begun), delta], None

    store_log.append(decide)


def _report(found: ClockRepair, numbers: Numbers, old: Sequence[SstInfo]) -> ClockRepair:
    if not len(numbers.ahead):
        return found
    ends = numbers.ahead[[0, -1]]
    (low, high), (first, last) = ends.tolist(), numbers.given(ends).tolist()
    return replace(
        found,
        epochs=len(numbers.ahead),
        old=(low, high),
        new=(first, last),
        rewritten=len(old),
        rewritten_bytes=sum(map(stored_bytes, old)),
    )


def _all_epochs(
    sstables: Sstables, version: Version, old: list[tuple[TableState, SstInfo]]
) -> Iterator[npt.NDArray[np.uint64]]:
    yield np.array(list(named_epochs(version)), np.uint64)
    want = ReadRange(columns=(), fill=False)
    for _, sst in old:
        for rows in SSTableIterator(sstables, sst, history_range(want) if sst.until else want):
            yield np.unique(rows.epoch_array())
            if sst.until:
                yield np.unique(until_array(rows))


def _rewrite(sstables: Sstables, old: list[tuple[TableState, SstInfo]], numbers: Numbers) -> Iterator[EncodedSst]:
    for state, sst in old:
        want = ReadRange(fill=False, types=value_schema(state.spec).types)
        parts = SSTableIterator(sstables, sst, history_range(want) if sst.until else want)
        rows = (_renumber(part, numbers, history=sst.until > 0) for part in parts)
        writer = SstWriter(state.spec, sst_bytes=SST_BYTES, epoch_inherited=False, history=sst.until > 0)
        yield from writer.write(rows)


def _renumber(rows: Rows, numbers: Numbers, *, history: bool) -> Rows:
    given = rows.with_epochs(numbers.given(rows.epoch_array()))
    return with_untils(given, numbers.given(until_array(rows))) if history else given


def _check_at_rest(bucket: ObjectStore, version: Version, now_ms: int, limit_ms: int) -> None:
    """Raise `InvalidOption` if somebody is seen to use the store, judged by the bucket's clock."""
    # A clock that is ahead writes leases that end in years; the holder of one has written its object just now.
    for pin, info in pin_objects(bucket):
        if now_ms <= min(pin.expires_ms + PIN_LEASE_MS, info.modified_ms + 2 * PIN_LEASE_MS):
            raise _in_use(bucket, f"{pin.owner} holds a snapshot at epoch {pin.epoch}", "close it")
    for backup in version.backups.values():
        if backup.expires_ms and backup.created_ms <= limit_ms and now_ms <= backup.created_ms + BACKUP_LEASE_MS:
            raise _in_use(bucket, f"{backup.owner} is making backup {backup.name!r}", "wait for it, or delete it")
    if leader := _leader(bucket, now_ms):
        raise _in_use(bucket, f"the meta service at {leader} leads it", "stop the service, with all its replicas")


def _leader(bucket: ObjectStore, now_ms: int) -> str:
    """The address of the replica that leads the store; empty if none does."""
    leases = [(term, info) for info in bucket.list("leader/") if (term := sequence_of(info.path)) is not None]
    if not leases:
        return ""
    term, info = max(leases, key=lambda one: one[0])
    try:
        lease = decode_lease(info.path, term, read_object(bucket, info.path))
    except ObjectNotFound:
        return ""
    except CorruptLog:
        return info.path if now_ms <= info.modified_ms + LEASE_MS else ""
    return lease.address if not lease.resigned and now_ms <= info.modified_ms + 2 * lease.lease_ms else ""


def _in_use(bucket: ObjectStore, who: str, what: str) -> InvalidOption:
    return InvalidOption(
        f"the clock of {bucket.url} is repaired at rest, and {who}: nothing changed; {what}, stop the store's "
        "processes, and try again two minutes later"
    )
