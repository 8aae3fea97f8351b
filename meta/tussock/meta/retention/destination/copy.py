"""Copying a backup into a destination: what copies before have brought is not copied again (`destination.py`)."""

import contextlib
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from tussock.meta.log.format import BackupContent
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.destination.destination import Destination
from tussock.meta.retention.destination.part_bucket import PartBucket
from tussock.meta.retention.destination.records import (
    Catalogue,
    Manifest,
    encode_manifest,
    manifest_path,
    part_folder,
)
from tussock.meta.retention.restore import as_own, check_apart, find_backup
from tussock.meta.retention.sst_copies import Copy, copy_ssts, own_sst
from tussock.statestore.base.system import System
from tussock.statestore.contract.copies import CopyInfo, CopyReport
from tussock.statestore.contract.object_store import OWNER_MARKER, ObjectStore
from tussock.statestore.contract.records import SstInfo, object_sizes, stored_bytes
from tussock.statestore.errors import (
    BackupExists,
    BackupNotFound,
    CorruptLog,
    InvalidOption,
    ObjectNotFound,
    ObjectStoreUnavailable,
    StaleUpload,
    StoreNotEmpty,
)

__all__ = ["copy_backup"]


def copy_backup(
    source: ObjectStore,
    target: ObjectStore,
    system: System,
    *,
    backup: str,
    owner: str,
    open_source: Callable[[str], ObjectStore],
    on_bytes: Callable[[int], None] = lambda _: None,
    other_server: bool = False,
) -> CopyReport:
    """Copy a backup of the store in `source` into the destination `target`; only reads `source`.

    Repeated, it goes on where it was interrupted, and does nothing once the copy is there.

    Args:
        source: the bucket of the store with the backup.
        target: an empty bucket, or one with copies of the same store's backups.
        system: clocks, entropy and threads.
        backup: name of the backup.
        owner: host and process, for people.
        open_source: opens the bucket of a further store, if `source` is a clone.
        on_bytes: hears of every SST that is in place, by its bytes; called in the caller's thread.
        other_server: `source` may be on another server than `target`, so that the same URL is not the same place.

    Raises:
        BackupNotFound: there is no such backup.
        BackupExists: another backup of that name was copied there.
        StoreNotEmpty: something else is in `target`, or copies of another store.
        CorruptSst: an SST of the backup is missing or damaged; the message names the object. There is no copy.
        StaleUpload: the copy was given up or deleted meanwhile; it may be repeated.
    """
    if not other_server:
        check_apart(source.url, target.url)
    content = find_backup(source, system, backup, owner=owner)
    store = _identity(content, source, system, owner)
    destination = Destination(target, system, owner=owner)
    catalogue = _begin(destination, content, store, source.url, system, owner)
    begun = catalogue.copies[backup]
    if begun.finished_ms:
        on_bytes(begun.bytes)
        return CopyReport(info=begun, copied_ssts=0, copied_bytes=0)
    ssts = content.version.ssts()
    present = {info.path: info.size for info in target.list("parts/")}
    places = _places_before(destination, catalogue, ssts, present)
    for sst in ssts:
        if sst.id in places:
            on_bytes(stored_bytes(sst))
    rest = [sst for sst in ssts if sst.id not in places]

    def note(sst: SstInfo, digest: bytes) -> None:
        places[sst.id] = (begun.part, digest)
        on_bytes(stored_bytes(sst))

    buckets = {url: open_source(url) for url in sorted({sst.source for sst in rest} - {""})}
    folder = part_folder(begun.part)
    own = {path.removeprefix(folder): size for path, size in present.items() if path.startswith(folder)}
    copies = [Copy(sst, buckets.get(sst.source, source)) for sst in rest]
    copy_ssts(copies, PartBucket(target, begun.part), own, system, note)
    _write_manifest(destination, begun, Manifest(info=content.info, version=as_own(content.version), places=places))
    made = _finish(destination, begun, system)
    return CopyReport(info=made, copied_ssts=len(rest), copied_bytes=sum(map(stored_bytes, rest)))


def _identity(content: BackupContent, source: ObjectStore, system: System, owner: str) -> str:
    """The identity of the store: as the backup has it, or, of one that was made before, as the log has it now."""
    identity = content.version.identity
    if not identity:
        with contextlib.suppress(CorruptLog):
            identity = VersionLog(source, system, owner=owner).refresh().identity
    if not identity:
        raise InvalidOption(
            f"backup {content.info.name!r} was made by a release that gave its store no identity, by which a "
            "destination tells stores apart: make another backup, after which both can be copied"
        )
    return identity


def _begin(
    destination: Destination, content: BackupContent, store: str, url: str, system: System, owner: str
) -> Catalogue:
    """The catalogue in which the copy is being made, or made."""
    info, bucket = content.info, destination.bucket

    def decide(now: Catalogue, seq: int) -> Catalogue | None:
        if not now.seq:
            _check_empty(bucket)
        elif now.store != store:
            raise StoreNotEmpty(
                f"{bucket.url} holds copies of another store, which was at {now.url} (its identity is {now.store}, "
                f"that of the store at {url} is {store}); take another place",
                bucket.url,
            )
        known = now.copies.get(info.name)
        if known is not None and known.id == info.id:
            return None
        if known is not None:
            state = "has a copy" if known.finished_ms else f"has a copy begun by {known.owner}"
            raise BackupExists(
                f"{bucket.url} {state} of another backup {info.name!r} of this store, with id {known.id}: delete that "
                "copy, or copy a backup of another name",
                info.name,
                known.created_ms,
            )
        begun = CopyInfo(
            name=info.name,
            id=info.id,
            part=seq,
            owner=owner,
            begun_ms=system.now_ms(),
            created_ms=info.created_ms,
            epoch=info.epoch,
            ssts=info.ssts,
            bytes=info.bytes,
            comment=info.comment,
        )
        return replace(now, store=store, url=url, copies={**now.copies, info.name: begun})

    found = destination.append(decide)
    known = found.copies.get(info.name)
    if known is None or known.id != info.id:
        raise StaleUpload(
            f"the copy of backup {info.name!r} was deleted while it was being begun; copy it again", info.name
        )
    return found


def _check_empty(bucket: ObjectStore) -> None:
    """`StoreNotEmpty` if something is where a destination is to begin: it would be among its objects."""
    foreign = [
        info.path
        for info in bucket.list("")
        if info.path != OWNER_MARKER and not info.path.startswith(("tmp/clock-", "catalogue/"))
    ]
    if foreign:
        raise StoreNotEmpty(
            f"{bucket.url} has no catalogue of copies, but holds {foreign[0]} ({len(foreign)} such): a store, files of "
            "others, or copies whose catalogue was lost; take an empty place",
            bucket.url,
        )


def _places_before(
    destination: Destination, catalogue: Catalogue, ssts: list[SstInfo], present: Mapping[str, int]
) -> dict[str, tuple[int, bytes]]:
    """Where finished copies have SSTs that are wanted: by id, and there with the right bytes.

    Their manifests name each with its digest, which was taken when it was copied; `verify` reads all of them again.
    """
    wanted = {sst.id: own_sst(sst) for sst in ssts}
    found: dict[str, tuple[int, bytes]] = {}
    finished = [one for one in catalogue.copies.values() if one.finished_ms]
    # The newest first: as a rule it has nearly all that is still wanted.
    for one in sorted(finished, key=lambda copy: copy.part, reverse=True):
        missing = wanted.keys() - found.keys()
        if not missing:
            break
        try:
            manifest = destination.manifest(one)
        except BackupNotFound:
            continue
        theirs = {sst.id: sst for sst in manifest.version.ssts() if sst.id in missing}
        for sst_id in missing & theirs.keys():
            part, digest = manifest.places[sst_id]
            sizes = object_sizes(wanted[sst_id])
            folder = part_folder(part)
            # Another record of the same id would be another SST: nothing that the store does makes one.
            if sizes == object_sizes(theirs[sst_id]) and all(
                present.get(folder + path) == sizes[path] for path in sizes
            ):
                found[sst_id] = (part, digest)
    return found


def _write_manifest(destination: Destination, begun: CopyInfo, manifest: Manifest) -> None:
    path = manifest_path(begun.part)
    data = encode_manifest(begun.part, manifest)
    try:
        is_created = destination.bucket.create(path, data)
    except ObjectStoreUnavailable as error:
        try:
            destination.manifest_of(begun.part)
        except ObjectNotFound:
            raise error from None
        return
    if not is_created:
        # By an earlier attempt, or another process that goes on with this copy: it has the same contents.
        try:
            destination.manifest_of(begun.part)
        except ObjectNotFound as error:
            raise StaleUpload(f"{error}: the copy was deleted while it was being made; copy it again") from error


def _finish(destination: Destination, begun: CopyInfo, system: System) -> CopyInfo:
    def decide(now: Catalogue, _: int) -> Catalogue | None:
        known = now.copies.get(begun.name)
        if known is None or known.part != begun.part:
            raise StaleUpload(
                f"the copy of backup {begun.name!r} in {destination.bucket.url} was given up or deleted while it was "
                "being made; copy it again",
                begun.name,
            )
        if known.finished_ms:
            return None
        finished = replace(known, finished_ms=system.now_ms())
        return replace(now, copies={**now.copies, begun.name: finished})

    return destination.append(decide).copies[begun.name]
