"""Restores: a backup's SSTs are copied into an empty place, and then a store begins there.

First all objects, each checked by its checksums on the way, then entry 1 of the log with the whole version in it. So a
store is there at once or not at all, and a restore that was interrupted goes on where it stopped: what lies in the
place with the right name and size is checked, too, and copied again if it is damaged. Another process that begins a
store in that place meanwhile, if only by creating a table, wants entry 1 too: one of them gets it, and no commit is
ever lost.

A backup that was copied elsewhere (`destination/`) is restored from there alike.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tussock.meta.log.format import BackupContent, decode_backup, is_backup_path
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.retention.backups import Backups, no_such_backup
from tussock.meta.retention.destination.destination import Destination, holds_copies
from tussock.meta.retention.destination.placed_ssts import ssts_of_copy
from tussock.meta.retention.sst_copies import Copy, copy_ssts, own_sst
from tussock.meta.version.deltas.backups import BeginStore
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Origin, Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.object_store import OWNER_MARKER, ObjectStore
from tussock.statestore.contract.records import object_sizes, stored_bytes
from tussock.statestore.errors import (
    BackupNotFound,
    CorruptLog,
    InvalidOption,
    ObjectNotFound,
    StoreNotEmpty,
)

__all__ = [
    "Restorable",
    "as_own",
    "begin_store",
    "begun_before",
    "check_apart",
    "check_place",
    "find_backup",
    "find_restorable",
    "restore",
]

log = get_logger("tussock.meta")


def restore(
    source: ObjectStore,
    target: ObjectStore,
    system: System,
    *,
    backup: str,
    owner: str,
    open_source: Callable[[str], ObjectStore],
    on_bytes: Callable[[int], None] = lambda _: None,
    other_server: bool = False,
) -> Origin:
    """Make a store in `target` as the backup of that name in `source` was; repeated, it goes on, or does nothing.

    Args:
        source: the bucket of the store with the backup, or a destination with a copy of it. If the store's log is
            lost, the backup's object is enough.
        target: an empty bucket, or one with a part of this restore.
        system: clocks, entropy and threads.
        backup: name of the backup.
        owner: host and process, for people.
        open_source: opens the bucket of a further store, if `source` is a clone.
        on_bytes: hears of every SST that is in place, by its bytes; called in the caller's thread.
        other_server: `source` may be on another server than `target`, so that the same URL is not the same place.

    Raises:
        BackupNotFound: there is no such backup.
        StoreNotEmpty: something else is in `target`.
        CorruptSst: an SST of the backup is missing or damaged; the message names the object. No store was made.
    """
    if not other_server:
        check_apart(source.url, target.url)
    found = find_restorable(source, system, backup, owner=owner, open_source=open_source)
    info, version = found.info, found.version
    origin = Origin(kind="restore", url=source.url, backup=backup, backup_id=info.id, seq=version.seq)
    target_log = VersionLog(target, system, owner=owner, follows_copies=True)
    if target_log.refresh().seq == 0:
        wanted = {path for sst in version.ssts() for path in object_sizes(own_sst(sst))}
        present = check_place(target, wanted)
        copy_ssts(found.copies(), target, present, system, lambda sst, _: on_bytes(stored_bytes(sst)))
    return begin_store(target_log, target.url, BeginStore(version=as_own(version), origin=origin))


class Restorable(NamedTuple):
    """What a store can begin with."""

    info: BackupInfo
    version: Version
    copies: Callable[[], list[Copy]]
    """Its SSTs, and the buckets in which they are."""


def find_restorable(
    source: ObjectStore, system: System, name: str, *, owner: str, open_source: Callable[[str], ObjectStore]
) -> Restorable:
    """A backup of the store in `source`, or the copy of one in a destination."""
    if holds_copies(source):
        destination = Destination(source, system, owner=owner)
        copy = destination.find(name)
        return Restorable(copy.manifest.info, copy.manifest.version, lambda: ssts_of_copy(destination, copy))
    content = find_backup(source, system, name, owner=owner)

    def copies() -> list[Copy]:
        ssts = content.version.ssts()
        buckets = {url: open_source(url) for url in sorted({sst.source for sst in ssts} - {""})}
        return [Copy(sst, buckets.get(sst.source, source)) for sst in ssts]

    return Restorable(content.info, content.version, copies)


def find_backup(bucket: ObjectStore, system: System, name: str, *, owner: str) -> BackupContent:
    """The backup of that name: by the log, or, where that is lost or damaged, by the newest object of that name."""
    store_log = VersionLog(bucket, system, owner=owner)
    try:
        version = store_log.refresh()
    except CorruptLog as error:
        return _found_without_log(bucket, name, str(error))
    if version.seq == 0:
        return _found_without_log(bucket, name, f"{bucket.url} has no log")
    info = version.backups.get(name)
    if info is None or info.expires_ms:
        raise no_such_backup(name, version, bucket.url)
    if info.holder:
        raise InvalidOption(
            f"{name!r} is no backup: it holds SSTs for the clone at {info.holder}; clone or back up that"
        )
    try:
        return Backups(store_log, bucket, system, owner=owner).content(info)
    except ObjectNotFound as error:
        raise CorruptLog(f"{error}; the log names this backup, so it was lost: restore the object") from error


def check_apart(source: str, target: str) -> None:
    """`InvalidOption` if one of the two places is, or lies in, the other: each would have foreign objects."""
    if source == target:
        raise InvalidOption(f"{target} cannot be a clone of itself, nor be restored into itself; take an empty place")
    if target.startswith(("file://", "s3://", "gs://", "az://")):
        outer, inner = sorted((f"{source.rstrip('/')}/", f"{target.rstrip('/')}/"), key=len)
        if inner.startswith(outer):
            where = "has in it" if target.rstrip("/") + "/" == outer else "lies in"
            raise InvalidOption(
                f"{target} {where} the store at {source}: the objects of one would be foreign in the other; take an "
                "empty place beside it"
            )


def check_place(target: ObjectStore, wanted: Collection[str]) -> Mapping[str, int]:
    """The objects there, with their bytes; `StoreNotEmpty` if one is not `wanted`.

    Only for a place without a log: with what lies there, it may be a store whose log was lost, or have other stores in
    its folders.
    """
    # An attempt that was cut off leaves clocks, a meta service that waits there its lease, an operator its marker.
    listed = [
        info
        for info in target.list("")
        if not info.path.startswith(("tmp/clock-", "leader/")) and info.path != OWNER_MARKER
    ]
    present = {info.path: info.size for info in listed}
    foreign = sorted(present.keys() - set(wanted))
    if foreign:
        raise StoreNotEmpty(
            f"{target.url} has no log, but holds {foreign[0]} ({len(foreign)} such): copies of backups, an interrupted "
            "restore of another backup, a store whose log was lost, a folder with other stores or files of others; "
            "take an empty place, or delete what is there",
            target.url,
        )
    return present


def begin_store(target_log: VersionLog, url: str, begin: BeginStore) -> Origin:
    """Append the first entry, or find that this very store was begun before; returns its origin.

    Raises `StoreNotEmpty` if another one is there.
    """

    def decide(version: Version) -> tuple[list[Delta], Origin]:
        if version.seq == 0:
            return [begin], begin.origin
        return [], begun_before(version, begin.origin, url)

    return target_log.append(decide)


def begun_before(version: Version, wanted: Origin, url: str) -> Origin:
    """The origin of the store that is at `url` already, if it is the one wanted; else `StoreNotEmpty`."""
    there = version.origin
    if there is None:
        what = "a store"
    else:
        what = f"a {there.kind} of {there.url}" + (f", backup {there.backup!r}" if there.backup else "")
        same = (there.kind, there.url, there.backup) == (wanted.kind, wanted.url, wanted.backup)
        # Backups of one name may have followed each other; a clone's id is that of the clone's hold.
        if same and (wanted.kind == "clone" or there.backup_id == wanted.backup_id):
            return there
    raise StoreNotEmpty(f"{url} holds {what}, at entry {version.seq} of its log; take an empty place", url)


def as_own(version: Version) -> Version:
    """The version as a place has it that its SSTs are copied to."""
    return replace(version.with_ssts_changed(own_sst), sources={})


def _found_without_log(bucket: ObjectStore, name: str, why: str) -> BackupContent:
    """The newest intact backup object of that name; those that were never finished are told by nothing."""
    paths = [info.path for info in bucket.list(f"backup/{name}.") if is_backup_path(info.path)]
    contents = [decode_backup(path, read_object(bucket, path)) for path in paths]
    # "a." is also what the objects of a backup "a.b" begin with.
    found = [content for content in contents if content.info.name == name and not content.info.holder]
    if not found:
        raise BackupNotFound(f"backup {name!r} is not in {bucket.url}, nor can its log be read ({why})", name)
    log.warning("restoring without the log, which cannot be read", url=bucket.url, backup=name, error=why)
    return max(found, key=lambda content: (content.info.created_ms, content.info.id))
