"""Backups: named, immutable copies of a version, whose SSTs vacuum leaves alone. An object each, and no SST copied.

How a backup is made

    b1  append `BeginBackup` to the log; call its entry b
    b2  create `backup/<name>.<id>` with the version as it is now, which is that of entry b or a later one
    b3  append `FinishBackup`; refused if the backup was given up meanwhile

and what vacuum does about it

    v0  list `backup/`
    v1  read the log to its tail (appending the garbage horizon); call the version found x
    v2  read the object of each finished backup in x, and keep its SSTs; if x has an unfinished one that began with
        entry b, keep every dropped SST that left the tree after b
    v3  delete the rest of what x does not name, and the objects that v0 showed and x has no backup for

Proof that an SST s that a finished backup names is never deleted. Let y >= b be the version in its object, so s is in
the trees of y. If x < y: an SST that is not in the trees of x comes into those of a later version only if it is new to
the store and not below the horizon, and vacuum deletes it neither as dropped (it never was) nor as an orphan (those are
below the horizon in x); and if it is in the trees of x it is named. If x >= y and s is still in the trees of x, it is
named. Else it was dropped by an entry after y, so after b, and x has the backup: unfinished, then v2 keeps s for that;
finished, then v2 reads its object, which was there before b3. If x has it no longer, it was given up or deleted; given
up before b3, it never was a backup. No step compares clocks: `expires_ms` decides only when an unfinished backup may be
given up, and then b3 is refused. Where s lies in a log entry, "deleted" is said of that entry, which is deleted only if
it is at or below x's: then s, being in it, is no SST that is new to the store after x. The objects deleted in v3 are
dead: one that v0 showed was created after its entry b, so x, read later, has its backup unless it is over.

A backup of an older backup (`base`; the hold of a clone of it) has that one's contents. b1 and b3 are refused unless
the base is there; until b3 the base keeps the SSTs, from then on the new one does.

A crash between leaves an unfinished backup, which vacuum gives up once it has expired, or an object, which it deletes.
A backup needs of the log only the entries in which its SSTs lie; it may be truncated past it, and where it cannot be
read, the backup's object says all.
"""

import contextlib
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from tussock.meta.log.format import BackupContent, backup_path, decode_backup, encode_backup
from tussock.meta.log.log import VersionLog
from tussock.meta.log.objects import read_object
from tussock.meta.version.deltas.backups import BeginBackup, DropBackup, FinishBackup, check_backup_name
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Version
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import stored_bytes
from tussock.statestore.errors import (
    BackupExists,
    BackupNotFound,
    CorruptLog,
    ObjectNotFound,
    ObjectStoreUnavailable,
    StaleUpload,
)

__all__ = ["BACKUP_LEASE_MS", "Backups", "Held", "expired_backups"]

BACKUP_LEASE_MS = 900_000
"""How long the making of a backup holds up vacuum at most, if its maker dies."""

READ_ATTEMPTS_MAX = 20


class Held(NamedTuple):
    """What backups keep from vacuum."""

    version: Version
    """The version by which it was judged."""
    ssts: dict[str, int]
    """Of SSTs in the store's own bucket: how many backups name each."""
    entries: set[int]
    """Log entries in which some of these lie."""
    sources: set[str]
    """Other stores whose SSTs a backup names."""
    since_seq: int | None
    """What was dropped by a later entry than this waits for a backup that is being made; `None`: there is none."""

    def waits_for(self, dropped_seq: int) -> bool:
        """Whether an SST that was dropped by that entry may be in a backup that is being made.

        What left the tree by the very entry that announced the backup is in no version from there on.
        """
        return self.since_seq is not None and dropped_seq > self.since_seq


class Backups:
    """The backups of one store. Safe to share between threads."""

    def __init__(self, log: VersionLog, bucket: ObjectStore, system: System, *, owner: str) -> None:
        self._log = log
        self._bucket = bucket
        self._system = system
        self._owner = owner
        self._unsure: dict[str, str] = {}
        """Name -> id of backups whose making ended in an error that leaves open whether it happened."""
        self._dropping: set[str] = set()
        """Names whose deletion ended so."""

    def create(
        self, name: str, *, comment: str = "", backup_id: str = "", holder: str = "", base: str = ""
    ) -> BackupInfo:
        """Make a backup of the newest version; no SST is copied.

        Repeated after `ObjectStoreUnavailable`, it goes on or returns what the first call made.

        Args:
            name: letters, digits, `.`, `_` and `-`.
            comment: for people.
            backup_id: 32 hex digits; a caller that repeats the call from another process gives the same.
            holder: URL of the clone that it is made for; a repeated call for the same holder goes on with it.
            base: name of the backup whose contents it is to have, in place of the newest version's.

        Raises:
            BackupExists: the name is taken, or another process is making a backup of that name.
            BackupNotFound: `base` is not there.
            StaleUpload: it took longer than `BACKUP_LEASE_MS`; nothing was made, the call may be repeated.
        """
        check_backup_name(name)
        backup_id = backup_id or self._unsure.get(name) or self._system.random_bytes(16).hex()
        self._unsure[name] = backup_id
        try:
            begun = self._begin(name, backup_id, comment, holder, base)
            made = begun if not begun.expires_ms else self._finish(begun)
        except (BackupExists, BackupNotFound, StaleUpload):
            self._unsure.pop(name, None)
            raise
        self._unsure.pop(name, None)
        return made

    def list(self) -> list[BackupInfo]:
        """All backups by name, those being made too, with the bytes that only each one keeps; -1: its object is bad."""
        version = self._log.refresh()
        contents: dict[str, dict[str, int]] = {}
        for info in version.backups.values():
            with contextlib.suppress(CorruptLog, ObjectNotFound):
                contents[info.id] = {} if info.expires_ms else _own_ssts(self.content(info).version)
        names = [sst_id for ssts in contents.values() for sst_id in ssts]
        kept = version.live_sst_ids() | version.quarantined_ids()
        shared = kept | {one for one, count in _counts(names).items() if count > 1}
        found = []
        for info in sorted(version.backups.values(), key=lambda one: one.name):
            ssts = contents.get(info.id)
            held = -1 if ssts is None else sum(size for one, size in ssts.items() if one not in shared)
            found.append(replace(info, held_bytes=held))
        return found

    def delete(self, name: str) -> None:
        """Let go of a backup; what only it kept goes with the next vacuum. `BackupNotFound` if there is none."""

        def decide(version: Version) -> tuple[list[Delta], BackupInfo | None]:
            known = version.backups.get(name)
            if known is None:
                if name in self._dropping:
                    return [], None
                raise no_such_backup(name, version, self._bucket.url)
            return [DropBackup(name=name, id=known.id)], known

        try:
            gone = self._log.append(decide)
        except ObjectStoreUnavailable:
            self._dropping.add(name)
            raise
        self._dropping.discard(name)
        if gone is not None:
            # It is deleted once the log says so; vacuum takes the object if this does not.
            with contextlib.suppress(ObjectStoreUnavailable):
                self._bucket.delete([backup_path(name, gone.id)])

    def content(self, info: BackupInfo) -> BackupContent:
        """What a backup holds; `ObjectNotFound` or `CorruptLog` if its object is gone or damaged."""
        path = backup_path(info.name, info.id)
        return decode_backup(path, read_object(self._bucket, path))

    def held(self) -> Held:
        """What the backups in the newest version known keep from vacuum (v2 of the module's proof).

        Raises `CorruptLog` if one of them cannot be read: then nothing may be deleted.
        """
        for _ in range(READ_ATTEMPTS_MAX):
            version = self._log.version
            try:
                return self._held_in(version)
            except ObjectNotFound as error:
                # Deleted since; what it kept may be kept by another that the newest version has.
                if self._log.refresh().backups == version.backups:
                    raise _unreadable(error) from error
        raise ObjectStoreUnavailable(
            f"{self._bucket.url}: backups were deleted {READ_ATTEMPTS_MAX} times in a row while they were being read; "
            "nothing was deleted, try again"
        )

    def _held_in(self, version: Version) -> Held:
        counts: dict[str, int] = {}
        entries: set[int] = set()
        sources: set[str] = set()
        since: int | None = None
        for info in version.backups.values():
            if info.expires_ms:
                since = info.started_seq if since is None else min(since, info.started_seq)
                continue
            try:
                content = self.content(info)
            except CorruptLog as error:
                raise _unreadable(error) from error
            for sst in content.version.ssts():
                if sst.source:
                    sources.add(sst.source)
                else:
                    counts[sst.id] = counts.get(sst.id, 0) + 1
                    if sst.entry:
                        entries.add(sst.entry)
        return Held(version, counts, entries, sources, since)

    def _begin(self, name: str, backup_id: str, comment: str, holder: str, base: str) -> BackupInfo:
        """Announce the backup, or find that it was; returns it as the log has it."""

        def decide(version: Version) -> tuple[list[Delta], str]:
            known = version.backups.get(name)
            now_ms = self._system.now_ms()
            before: list[Delta] = []
            if known is not None:
                if known.id == backup_id or (holder and known.holder == holder):
                    self._check_same_point(version, known, base)
                    return [], known.id
                if known.expires_ms and known.expires_ms < now_ms:
                    before = [DropBackup(name=name, id=known.id)]
            begin = BeginBackup(
                name=name,
                id=backup_id,
                owner=self._owner,
                at_ms=now_ms,
                expires_ms=now_ms + BACKUP_LEASE_MS,
                comment=comment,
                holder=holder,
                base=self._base_id(version, base),
                identity=UNSET if version.identity else self._system.random_bytes(16).hex(),
            )
            return [*before, begin], backup_id

        wanted = self._log.append(decide)
        begun = self._log.version.backups.get(name)
        if begun is None or begun.id != wanted:
            raise StaleUpload(f"backup {name!r} was given up or deleted while it was being made; make it again", name)
        return begun

    def _finish(self, begun: BackupInfo) -> BackupInfo:
        content = self._write(begun)
        made = replace(content.info, expires_ms=0)

        def decide(version: Version) -> tuple[list[Delta], BackupInfo]:
            if version.backups.get(made.name) == made:
                return [], made
            finish = FinishBackup(
                name=made.name, id=made.id, seq=made.seq, epoch=made.epoch, ssts=made.ssts, bytes=made.bytes
            )
            return [finish], made

        return self._log.append(decide)

    def _write(self, begun: BackupInfo) -> BackupContent:
        """The backup's contents, which are in the bucket when this returns."""
        version = self._contents_of(begun)
        ssts = version.ssts()
        info = replace(
            begun,
            seq=version.seq,
            epoch=version.max_committed_epoch,
            ssts=len(ssts),
            bytes=sum(map(stored_bytes, ssts)),
        )
        content = BackupContent(info=info, version=replace(version, tasks={}, dropped=(), backups={}).with_gone({}))
        path = backup_path(info.name, info.id)
        try:
            if self._bucket.create(path, encode_backup(content)):
                return content
        except ObjectStoreUnavailable as error:
            with contextlib.suppress(ObjectNotFound):
                return self.content(begun)
            raise error
        # An earlier try of the same backup, or this one repeated on its way; either names what is kept.
        try:
            return self.content(begun)
        except ObjectNotFound as error:
            raise StaleUpload(f"{error}: the backup was given up while it was being made; make it again") from error

    def _contents_of(self, begun: BackupInfo) -> Version:
        if not begun.base:
            # At or after the entry that announced the backup.
            return self._log.version
        base = next((one for one in self._log.version.backups.values() if one.id == begun.base), None)
        if base is None:
            raise BackupNotFound(f"the backup with id {begun.base} was deleted while another was made from it")
        try:
            return self.content(base).version
        except ObjectNotFound as error:
            raise BackupNotFound(f"{error}: it was deleted while another backup was made from it") from error

    def _base_id(self, version: Version, base: str) -> str:
        if not base:
            return ""
        known = version.backups.get(base)
        if known is None or known.expires_ms:
            raise no_such_backup(base, version, self._bucket.url)
        return known.id

    def _check_same_point(self, version: Version, known: BackupInfo, base: str) -> None:
        """Refuse to take `known` for what is asked for if it was begun from another point."""
        asked = version.backups.get(base)
        # A base that was deleted since cannot be compared: the backup that has its contents stands for it.
        if bool(base) != bool(known.base) or (asked is not None and asked.id != known.base):
            raise BackupExists(
                f"{known.name!r} was made for {known.holder or 'another call'} from "
                f"{f'the backup with id {known.base}' if known.base else 'the newest version'}, and now "
                f"{f'backup {base!r}' if base else 'the newest version'} is asked for; delete it first if it is not "
                "needed",
                known.name,
                known.created_ms,
            )


def expired_backups(version: Version, now_ms: int) -> list[DropBackup]:
    """The deltas by which backups that are being made for too long are given up."""
    return [
        DropBackup(name=info.name, id=info.id)
        for info in version.backups.values()
        if info.expires_ms and info.expires_ms < now_ms
    ]


def no_such_backup(name: str, version: Version, url: str) -> BackupNotFound:
    """The error for a name that no complete backup has."""
    being_made = name in version.backups
    names = ", ".join(sorted(one.name for one in version.backups.values() if not one.expires_ms)) or "none"
    what = "is still being made, or was left unfinished" if being_made else "is not there"
    return BackupNotFound(f"backup {name!r} {what} in {url}; its backups: {names}", name)


def _own_ssts(version: Version) -> dict[str, int]:
    """The SSTs in the store's own bucket, with the bytes of each."""
    return {sst.id: stored_bytes(sst) for sst in version.ssts() if not sst.source}


def _counts(names: list[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _unreadable(error: Exception) -> CorruptLog:
    return CorruptLog(
        f"{error}; a backup that cannot be read may need any SST, so nothing is deleted: restore the object, or delete "
        "the backup"
    )
