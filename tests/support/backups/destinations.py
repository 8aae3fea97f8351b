"""Copies of backups between buckets of the test."""

from support.backups.backed_up import InlineSystem, fill
from support.store.stores import open_on
from support.store.versions import ModelBucket
from tussock.meta.retention.destination.copy import copy_backup
from tussock.meta.retention.destination.deletion import delete_copies
from tussock.meta.retention.destination.destination import Destination
from tussock.meta.retention.verify import verify_backup
from tussock.statestore.contract.copies import BackupCheck, CopyReport
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["add_backup", "copy", "delete", "destination_on", "verify", "verify_all"]


def no_other(url: str) -> ObjectStore:
    raise AssertionError(f"nothing lies in {url}")


def destination_on(bucket: ObjectStore, system: InlineSystem) -> Destination:
    """The destination in a bucket."""
    return Destination(bucket, system, owner="test")


def copy(source: ObjectStore, target: ObjectStore, system: InlineSystem, backup: str = "b") -> CopyReport:
    """Copy a backup."""
    return copy_backup(source, target, system, backup=backup, owner="test", open_source=no_other)


def delete(target: ObjectStore, system: InlineSystem, *names: str, missing_ok: bool = False) -> tuple[str, ...]:
    """Delete copies."""
    return delete_copies(destination_on(target, system), names, missing_ok=missing_ok)


def verify(bucket: ObjectStore, system: InlineSystem, name: str = "b") -> BackupCheck:
    """Read a backup, or the copy of one, whole."""
    return verify_backup(bucket, system, backup=name, owner="test", open_source=no_other)


def verify_all(target: ObjectStore, system: InlineSystem) -> list[str]:
    """Read all finished copies whole; returns their names."""
    copies = destination_on(target, system).read().copies.values()
    names = sorted(one.name for one in copies if one.finished_ms)
    for name in names:
        verify(target, system, name)
    return names


def add_backup(source: ModelBucket, system: InlineSystem, name: str, count: int = 3) -> None:
    """Commit a few rows more, and make a backup: it shares SSTs with those before, and has one that is new."""
    with open_on(source, system, retention=0, gc_grace=0) as store:
        fill(store, name.encode(), count)
        store.backup(name)
