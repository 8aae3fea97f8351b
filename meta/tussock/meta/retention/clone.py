"""Clones: a store that begins as a version of another one and names that one's SSTs where they are.

The clone's SSTs have a `source`, the URL of the store whose bucket they lie in. A hold there, which is a backup with a
`holder`, keeps them from that store's vacuum; it has no lease, so it outlives everyone until the clone lets go of it
or somebody deletes it. The order is: hold first, then the clone's first log entry. A crash between leaves a hold,
which a repetition takes up again: its name is reckoned from the clone's URL.

A clone of a clone names each SST in the bucket where it really is, and has its own hold in each of those stores,
so it depends on no store in between. Its hold in such a store is taken from that of the clone it is made from, which
stays until then, because the hold in that clone is a backup that names the same SSTs.

What the clone compacts is written into its own bucket, and in time it names nothing foreign. Its vacuum then lets go:
first the hold is deleted, then `DetachSource` is appended. That order is safe, since a store that names no SST of a
source (in its trees, among its dropped SSTs, in a backup, or in one that is being made) never names one again: commits
and compactions bring its own SSTs. The idea of the shallow clone is SlateDB's.
"""

import hashlib
from collections.abc import Callable

from msgspec.structs import replace

from tussock.meta.log.log import VersionLog
from tussock.meta.retention.backups import Backups, Held
from tussock.meta.retention.restore import begin_store, begun_before, check_apart, check_place
from tussock.meta.version.deltas.backups import BeginStore, DetachSource, DropBackup, named_sources
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Origin, Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import BackupInfo
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["clone", "detach_sources", "hold_name"]

log = get_logger("tussock.meta")


def hold_name(target_url: str) -> str:
    """The name of the hold that the clone at `target_url` has in each store whose SSTs it names."""
    return f"clone-{hashlib.sha256(target_url.encode()).hexdigest()[:16]}"


def clone(
    source: ObjectStore,
    target: ObjectStore,
    system: System,
    *,
    owner: str,
    open_source: Callable[[str], ObjectStore],
    backup: str = "",
) -> Origin:
    """Make a store in `target` that begins as the newest version of `source`, or as a backup of it; copies no SST.

    Repeated, it goes on where it was interrupted, and does nothing once the clone is there.

    Args:
        source: the bucket of the store to clone; its URL must lead to it from wherever the clone is opened.
        target: an empty bucket.
        system: clocks and entropy.
        owner: host and process, for people.
        open_source: opens the bucket of a further store, if `source` is a clone itself.
        backup: name of a backup in `source`.

    Raises:
        StoreNotEmpty: something else is in `target`, or a clone of another point.
        BackupNotFound: `source` has no such backup.
        BackupExists: an interrupted clone into this place was begun from another point.
        InvalidOption: `source` holds no store, or is `target`, or cannot be found by its URL.
    """
    check_apart(source.url, target.url)
    if source.url == "memory://":
        raise InvalidOption("a private memory store cannot be cloned, because its URL leads nowhere; give it a name")
    target_log = VersionLog(target, system, owner=owner, follows_copies=True)
    begun = target_log.refresh()
    wanted = Origin(kind="clone", url=source.url, backup=backup, backup_id="", seq=0)
    if begun.seq:
        return begun_before(begun, wanted, target.url)
    check_place(target, frozenset())
    version, origin = _held_version(source, target.url, system, owner, open_source, wanted)
    return begin_store(target_log, target.url, BeginStore(version=version, origin=origin))


def _held_version(
    source: ObjectStore,
    target_url: str,
    system: System,
    owner: str,
    open_source: Callable[[str], ObjectStore],
    wanted: Origin,
) -> tuple[Version, Origin]:
    """The version that the clone begins as, every SST in it held where it is."""
    name = hold_name(target_url)
    source_log = VersionLog(source, system, owner=owner)
    if source_log.refresh().seq == 0:
        raise InvalidOption(f"no store to clone at {source.url}: it has no log")
    kept = Backups(source_log, source, system, owner=owner)
    hold = kept.create(name, comment="for a clone", holder=target_url, base=wanted.backup)
    version = kept.content(hold).version
    foreign = {sst.source for sst in version.ssts()} - {""}
    for url in sorted(foreign):
        _hold_further(open_source(url), version.sources[url], name, target_url, system, owner)
    sources = {source.url: name, **dict.fromkeys(sorted(foreign), name)}
    sourced = replace(
        version.with_ssts_changed(lambda sst: replace(sst, source=sst.source or source.url)), sources=sources
    )
    return sourced, replace(wanted, backup_id=hold.id, seq=hold.seq)


def _hold_further(bucket: ObjectStore, base: str, name: str, target_url: str, system: System, owner: str) -> BackupInfo:
    """Hold in a store further back what the hold named `base` keeps there for the clone that is being cloned."""
    further = Backups(VersionLog(bucket, system, owner=owner), bucket, system, owner=owner)
    return further.create(name, comment="for a clone of a clone", holder=target_url, base=base)


def detach_sources(
    store_log: VersionLog, system: System, owner: str, held: Held, open_source: Callable[[str], ObjectStore]
) -> None:
    """Let go of the holds in stores of which nothing is named any more; what fails is tried at the next vacuum."""
    version = store_log.version
    if not version.sources or held.since_seq is not None:
        return
    for url in sorted(version.sources.keys() - named_sources(version) - held.sources):
        try:
            _drop_hold(open_source(url), version.sources[url], system, owner)
            _detach(store_log, url)
        except TussockError as error:
            log.warning("could not let go of the store cloned from; the next vacuum tries again", error=str(error))


def _detach(store_log: VersionLog, url: str) -> None:
    def decide(version: Version) -> tuple[list[Delta], None]:
        return ([DetachSource(url=url)] if url in version.sources else []), None

    store_log.append(decide)


def _drop_hold(bucket: ObjectStore, name: str, system: System, owner: str) -> None:
    def decide(version: Version) -> tuple[list[Delta], None]:
        known = version.backups.get(name)
        return ([DropBackup(name=name, id=known.id)] if known else []), None

    # Its object goes with the source's next vacuum.
    VersionLog(bucket, system, owner=owner).append(decide)
