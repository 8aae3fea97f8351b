"""The deltas of backups, restores and clones; pure, as all deltas are.

A backup is announced, written and then reported, as a compaction task is claimed and reported: `BeginBackup` fixes in
the log from where on nothing that leaves the tree may be deleted, and `FinishBackup` says that the object with the
backup's contents is there. `backups.py` has the proof. A store that is restored or cloned begins with `BeginStore`,
which is always entry 1: another process that wants to begin a store in that place wants that entry too, and one gets
it.
"""

import re

import msgspec
from msgspec.structs import replace

from tussock.meta.version.version import Origin, Version
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.epochs import iso
from tussock.statestore.errors import BackupExists, BackupNotFound, Conflict, InvalidOption, StaleUpload, StoreNotEmpty

__all__ = [
    "BackupChange",
    "BeginBackup",
    "BeginStore",
    "DetachSource",
    "DropBackup",
    "FinishBackup",
    "check_backup_name",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


class BeginBackup(msgspec.Struct, frozen=True, kw_only=True, tag="begin_backup", tag_field="type"):
    """A backup is being made: until it is finished or given up, vacuum keeps what leaves the tree from now on."""

    name: str
    id: str
    owner: str
    at_ms: int
    expires_ms: int
    """After this anyone may give it up."""
    comment: str = ""
    holder: str = ""
    base: str = ""
    """Id of the backup whose contents it takes over."""
    identity: str | msgspec.UnsetType = msgspec.UNSET
    """32 hex digits: what the store is to be known by, for one that has no identity yet."""

    def validate(self, version: Version) -> None:
        """Raise `InvalidOption`, `BackupExists` or `BackupNotFound` unless such a backup can be begun."""
        check_backup_name(self.name)
        if not _ID.fullmatch(self.id):
            raise InvalidOption(f"backup {self.name!r}: its id is {self.id!r}; expected 32 lower-case hex digits")
        if self.identity and (version.identity or not _ID.fullmatch(self.identity)):
            raise InvalidOption(
                f"backup {self.name!r}: it gives the store the identity {self.identity!r}; expected 32 lower-case hex "
                f"digits, for a store that has none, and this one has {version.identity or 'none'}"
            )
        if self.expires_ms <= 0:
            raise InvalidOption(f"backup {self.name!r}: a backup that is being made needs a time to give it up")
        known = version.backups.get(self.name)
        if known is not None:
            state = f"is being made by {known.owner}" if known.expires_ms else f"was made by {known.owner}"
            when = iso(known.created_ms)
            raise BackupExists(
                f"backup {self.name!r} {state} at {when}; backups never change: take another name, or delete that one",
                self.name,
                known.created_ms,
            )
        _check_base(version, self.base)

    def apply(self, version: Version) -> Version:
        """The version in which the backup is being made."""
        begun = BackupInfo(
            name=self.name,
            id=self.id,
            created_ms=self.at_ms,
            owner=self.owner,
            comment=self.comment,
            holder=self.holder,
            base=self.base,
            started_seq=version.seq + 1,
            expires_ms=self.expires_ms,
        )
        identity = version.store_identity or self.identity
        return replace(version, backups={**version.backups, self.name: begun}, store_identity=identity)


class FinishBackup(msgspec.Struct, frozen=True, kw_only=True, tag="finish_backup", tag_field="type"):
    """The backup's object is in the bucket: from now on vacuum keeps what that names."""

    name: str
    id: str
    seq: int
    epoch: int
    ssts: int
    bytes: int

    def validate(self, version: Version) -> None:
        """Raise `StaleUpload` if the backup is no longer being made, `BackupNotFound` if its base is gone."""
        known = version.backups.get(self.name)
        if known is None or known.id != self.id or not known.expires_ms:
            raise StaleUpload(
                f"backup {self.name!r} ({self.id}) is not being made any more: it took too long and was given up, so "
                "vacuum may have deleted what it names; make it again",
                self.name,
            )
        _check_base(version, known.base)

    def apply(self, version: Version) -> Version:
        """The version in which the backup is made."""
        made = replace(
            version.backups[self.name],
            expires_ms=0,
            seq=self.seq,
            epoch=self.epoch,
            ssts=self.ssts,
            bytes=self.bytes,
        )
        return replace(version, backups={**version.backups, self.name: made})


class DropBackup(msgspec.Struct, frozen=True, kw_only=True, tag="drop_backup", tag_field="type"):
    """The backup of that name and id is deleted, or the making of it is given up."""

    name: str
    id: str

    def validate(self, version: Version) -> None:
        """Raise `BackupNotFound` unless the backup is there."""
        known = version.backups.get(self.name)
        if known is None or known.id != self.id:
            raise BackupNotFound(
                f"backup {self.name!r} ({self.id}) is not in the store; nothing was deleted", self.name
            )

    def apply(self, version: Version) -> Version:
        """The version without the backup."""
        return replace(version, backups={key: one for key, one in version.backups.items() if key != self.name})


class BeginStore(msgspec.Struct, frozen=True, kw_only=True, tag="begin_store", tag_field="type"):
    """The store begins as this version, which another store had; only as entry 1."""

    version: Version
    """Its SSTs are in place, or have a `source`; what it says of tasks, dropped SSTs, backups and a leader is void."""
    origin: Origin

    def validate(self, version: Version) -> None:
        """Raise `StoreNotEmpty` unless the store has not begun."""
        if version != Version():
            raise StoreNotEmpty(
                f"the store is at entry {version.seq} of its log and cannot begin anew; take an empty place"
            )

    def apply(self, version: Version) -> Version:
        """The version that the store begins as."""
        # The leader of the other store does not lead this one, and terms count anew.
        led = {"term": version.term, "leader": version.leader, "leader_address": version.leader_address}
        # Its own log counts from here, so no table of it was created after a pin.
        tables = {key: replace(state, created=msgspec.UNSET) for key, state in self.version.tables.items()}
        # It is another store than the one that it was made from, though it began with the same SSTs.
        own = replace(self.version, store_identity=msgspec.UNSET)
        bare = replace(own, tasks={}, dropped=(), backups={}, repaired=msgspec.UNSET).with_gone({})
        # What the other store has lost is missing here, too; the objects are kept there, if they are.
        losses = tuple(replace(loss, discarded=True) for loss in self.version.losses) or msgspec.UNSET
        begun = replace(bare, accepted_losses=losses)
        return replace(begun, seq=version.seq, tables=tables, origin=self.origin, **led)


class DetachSource(msgspec.Struct, frozen=True, kw_only=True, tag="detach_source", tag_field="type"):
    """The store names no SST of that source any more, and does not hold any there."""

    url: str

    def validate(self, version: Version) -> None:
        """Raise `Conflict` if the source is not attached, or still needed."""
        if self.url not in version.sources:
            raise Conflict(f"the store takes no SSTs from {self.url}; it was detached before")
        if self.url in named_sources(version) or any(one.expires_ms for one in version.backups.values()):
            raise Conflict(
                f"the store still names SSTs of {self.url}, or is making a backup that may; it stays attached"
            )

    def apply(self, version: Version) -> Version:
        """The version without the source."""
        return replace(version, sources={key: hold for key, hold in version.sources.items() if key != self.url})


BackupChange = BeginBackup | FinishBackup | DropBackup | BeginStore | DetachSource


def check_backup_name(name: str) -> str:
    """The name, if it may be one: it becomes part of an object's path. Else `InvalidOption`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidOption(
            f"backup name {name!r}: expected 1 to 100 letters, digits, '.', '_' or '-', the first a letter or a digit"
        )
    return name


def named_sources(version: Version) -> set[str]:
    """The sources of which the trees, the dropped SSTs or damaged ones name one; the empty one is the store itself."""
    kept = {sst.source for sst in (*version.kept_ssts(), *version.quarantined())}
    return kept | {sst.source for sst in version.dropped}


def _check_base(version: Version, base: str) -> None:
    if base and not any(one.id == base and not one.expires_ms for one in version.backups.values()):
        raise BackupNotFound(
            f"the backup with id {base} is not in the store (any more); nothing was made from it", base
        )
