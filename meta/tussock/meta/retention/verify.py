"""A drill: a backup, or the copy of one, is read as a restore would read it, all of it, and nothing is written."""

from collections.abc import Callable

from tussock.meta.retention.restore import find_restorable
from tussock.meta.retention.sst_copies import read_ssts
from tussock.meta.version.invariants import problems
from tussock.statestore.base.system import System
from tussock.statestore.contract.copies import BackupCheck
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import SstInfo, stored_bytes
from tussock.statestore.errors import CorruptLog

__all__ = ["verify_backup"]


def verify_backup(
    source: ObjectStore,
    system: System,
    *,
    backup: str,
    owner: str,
    open_source: Callable[[str], ObjectStore],
    on_bytes: Callable[[int], None] = lambda _: None,
) -> BackupCheck:
    """Read all of a backup, in the store in `source` or copied to the destination there.

    Each SST must have the checksums of its meta and its blocks, as many rows and deletes as the version says, and, in a
    destination, the digest of its manifest; and the version must be one that a store can begin with.

    Raises:
        BackupNotFound: there is no such backup.
        CorruptSst: an SST is missing or damaged; the message names the object.
        CorruptLog: the backup's object or the manifest is damaged.
    """
    at_ms = system.now_ms()
    found = find_restorable(source, system, backup, owner=owner, open_source=open_source)
    if wrong := problems(found.version):
        raise CorruptLog(f"backup {backup!r} in {source.url} has a version that no store can have: {wrong[0]}")
    rows = 0

    def note(sst: SstInfo, _: bytes) -> None:
        nonlocal rows
        rows += sst.rows
        on_bytes(stored_bytes(sst))

    copies = found.copies()
    read_ssts(copies, system, note)
    return BackupCheck(
        name=found.info.name,
        id=found.info.id,
        epoch=found.info.epoch,
        tables=len(found.version.tables),
        ssts=len(copies),
        rows=rows,
        bytes=sum(stored_bytes(copy.sst) for copy in copies),
        at_ms=at_ms,
    )
