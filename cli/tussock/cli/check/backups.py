"""Checks the backups of a store: each object, and that the log and the bucket have the same ones."""

from collections.abc import Sequence

from tussock.cli.check.findings import Findings
from tussock.meta.log.format import backup_path, decode_backup, is_backup_path
from tussock.meta.log.objects import read_object
from tussock.meta.version.version import Version
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.errors import CorruptLog, ObjectNotFound

__all__ = ["check_backups"]


def check_backups(
    bucket: ObjectStore, listed: Sequence[ObjectInfo], version: Version, findings: Findings
) -> list[tuple[TableSpec, SstInfo]]:
    """Check what lies under `backup/`, and answer the SSTs that finished backups name, with their tables."""
    for info in listed:
        if not is_backup_path(info.path):
            findings.problem(info.path, "foreign object: no backup has such a name")
    named = []
    for backup in version.backups.values():
        path = backup_path(backup.name, backup.id)
        if backup.expires_ms:
            continue
        try:
            content = decode_backup(path, read_object(bucket, path))
        except ObjectNotFound:
            findings.problem(path, "missing, although the log names this backup; restore it, or delete the backup")
            continue
        except CorruptLog as error:
            findings.problem(path, error)
            continue
        findings.count("backups")
        states = content.version.tables.values()
        named += [(state.spec, sst) for state in states for sst in state.levels.ssts()]
    return named
