"""Restores: a backup's SSTs are copied into an empty place, and then a store begins there.

First all objects, each checked by its checksums on the way, then entry 1 of the log with the whole version in it. So a
store is there at once or not at all, and a restore that was interrupted goes on where it stopped: what lies in the
place with the right name and size is checked, too, and copied again if it is damaged. Another process that begins a
store in that place meanwhile, if only by creating a table, wants entry 1 too: one of them gets it, and no commit is
ever lost.

Memory: `WORKERS` SSTs at a time, each held whole (64 MiB before compression as a rule).
"""

import struct
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from crc32c import crc32c
from msgspec.structs import replace

from tussock.meta.log.format import BackupContent, decode_backup, is_backup_path
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.retention.backups import Backups, no_such_backup
from tussock.meta.version.deltas.backups import BeginStore
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Origin, Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.object_store import OWNER_MARKER, ObjectStore
from tussock.statestore.contract.records import (
    SstInfo,
    data_object,
    data_path,
    meta_object,
    object_sizes,
    sst_text,
    stored_bytes,
)
from tussock.statestore.errors import (
    BackupNotFound,
    CorruptLog,
    CorruptSst,
    InvalidOption,
    ObjectNotFound,
    StoreNotEmpty,
)
from tussock.statestore.format.meta import LoadedMeta, decode_meta

__all__ = ["begin_store", "begun_before", "check_apart", "check_place", "find_backup", "restore"]

log = get_logger("tussock.meta")

WORKERS = 4
CHUNK_BYTES = 8 << 20
"""SSTs are fetched by ranges of about this size."""

_CRC = struct.Struct("<I")


class Copy(NamedTuple):
    """One SST to copy."""

    sst: SstInfo
    bucket: ObjectStore
    """Where its objects are."""


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
        source: the bucket of the store with the backup. If its log is lost, the backup's object is enough.
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
    content = find_backup(source, system, backup, owner=owner)
    origin = Origin(kind="restore", url=source.url, backup=backup, backup_id=content.info.id, seq=content.version.seq)
    target_log = VersionLog(target, system, owner=owner, follows_copies=True)
    if target_log.refresh().seq == 0:
        ssts = content.version.ssts()
        present = check_place(target, {path for sst in ssts for path in object_sizes(_own(sst))})
        buckets = {url: open_source(url) for url in sorted({sst.source for sst in ssts} - {""})}
        copies = [Copy(sst, buckets.get(sst.source, source)) for sst in ssts]
        _copy_all(copies, target, present, system, on_bytes)
    return begin_store(target_log, target.url, BeginStore(version=_as_own(content.version), origin=origin))


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
            f"{target.url} has no log, but holds {foreign[0]} ({len(foreign)} such): an interrupted restore of another "
            "backup, a store whose log was lost, a folder with other stores or files of others; take an empty place, "
            "or delete what is there",
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


def _as_own(version: Version) -> Version:
    return replace(version.with_ssts_changed(_own), sources={})


def _own(sst: SstInfo) -> SstInfo:
    """The SST as the restored store has it: always as a separate object."""
    return replace(sst, source="", entry=0, offset=0)


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


def _copy_all(
    copies: list[Copy],
    target: ObjectStore,
    present: Mapping[str, int],
    system: System,
    on_bytes: Callable[[int], None],
) -> None:
    """Copy what is not there yet, or not as it should be; all of it is durable when this returns."""
    with system.pool("tussock-restore", WORKERS) as pool:
        running = []
        for copy in copies:
            there = all(present.get(path) == size for path, size in object_sizes(_own(copy.sst)).items())
            running.append((stored_bytes(copy.sst), pool.submit(_copy, copy, target, is_there=there)))
        try:
            for size, one in running:
                one.result()
                on_bytes(size)
        finally:
            # After a failure: what has not begun does not begin.
            for _, one in running:
                one.cancel()


def _copy(copy: Copy, target: ObjectStore, *, is_there: bool) -> None:
    sst = copy.sst
    # A copy of an attempt before is read, not trusted: a disk may have failed since.
    if is_there and _is_whole(Copy(_own(sst), target)):
        return
    try:
        meta_start = sst.offset + sst.data_bytes if sst.meta_in_data else 0
        meta_bytes = bytes(_range(copy, meta_object(sst), meta_start, sst.meta_bytes))
        meta = _read_meta(copy, meta_bytes)
        parts = [bytes(part) for part in _read_data(copy, meta)]
    except ObjectNotFound as error:
        raise CorruptSst(f"{error}; the backup names it: it was lost, or the backup deleted meanwhile") from error
    if sst.meta_in_data:
        target.put(data_path(sst.id), [*parts, meta_bytes])
    else:
        target.put(data_path(sst.id), parts)
        target.put(meta_object(sst), meta_bytes)  # a separate object there too


def _is_whole(copy: Copy) -> bool:
    sst = copy.sst
    try:
        start = sst.data_bytes if sst.meta_in_data else 0
        _read_data(copy, _read_meta(copy, bytes(_range(copy, meta_object(sst), start, sst.meta_bytes))))
    except (CorruptSst, ObjectNotFound) as error:
        log.warning("a copy of an earlier attempt is damaged, and is made again", error=str(error))
        return False
    return True


def _range(copy: Copy, path: str, start: int, length: int) -> memoryview:
    data = copy.bucket.get_range(path, start, length)
    if len(data) != length:
        raise CorruptSst(
            f"{copy.bucket.url}/{path}: {len(data)} bytes from offset {start}, the backup says {length}; truncated"
        )
    return data


def _read_meta(copy: Copy, data: bytes) -> LoadedMeta:
    sst, where = copy.sst, sst_text(f"{copy.bucket.url}/{meta_object(copy.sst)}", copy.sst)
    meta = decode_meta(data, sst.id, where)
    said = (sst.rows, sst.deletes, sst.data_bytes, sst.smallest, sst.largest)
    if (meta.rows, meta.deletes, meta.data_bytes, meta.smallest, meta.largest) != said:
        raise CorruptSst(f"{where}: its rows, bytes or key range are not those that the backup names")
    return meta


def _read_data(copy: Copy, meta: LoadedMeta) -> list[memoryview]:
    """The `.data` up to the end of its blocks, every block compared with its checksum in the index."""
    path, begin = data_object(copy.sst), copy.sst.offset
    where = sst_text(f"{copy.bucket.url}/{path}", copy.sst)
    ends = (meta.offset + meta.length).tolist()
    if ends[-1] != copy.sst.data_bytes:
        raise CorruptSst(f"{where}: its blocks end at {ends[-1]}, not at {copy.sst.data_bytes}")
    parts = [_range(copy, path, begin, int(meta.offset[0]))]
    first = 0
    while first < meta.blocks:
        start, last = int(meta.offset[first]), first + 1
        while last < meta.blocks and ends[last] - start <= CHUNK_BYTES:
            last += 1
        part = _range(copy, path, begin + start, ends[last - 1] - start)
        for block in range(first, last):
            body = part[int(meta.offset[block]) - start : ends[block] - start]
            # The trailer's last field is the checksum of all before it, and the index repeats it.
            found, stored = crc32c(body[: -_CRC.size]), _CRC.unpack(body[-_CRC.size :])[0]
            if not found == stored == meta.crc[block]:
                raise CorruptSst(
                    f"{where} block {block} at offset {int(meta.offset[block])}: checksum mismatch, "
                    f"the index says {meta.crc[block]:#010x}, the bytes give {found:#010x}"
                )
        parts.append(part)
        first = last
    return parts
