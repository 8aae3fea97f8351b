"""Checks the backups of a store: each object, and that the log and the bucket have the same ones."""

from collections.abc import Sequence
from typing import NamedTuple

from tussock.cli.check.findings import Findings
from tussock.meta.log.format import backup_path, decode_backup, is_backup_path
from tussock.meta.log.objects import read_object
from tussock.meta.version.version import Version
from tussock.statestore.contract.object_store import ObjectInfo, ObjectStore
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.errors import CorruptLog, ObjectNotFound

__all__ = ["Kept", "check_backups"]


class Kept(NamedTuple):
    """An SST that backups name."""

    spec: TableSpec
    sst: SstInfo
    backups: list[str]


def check_backups(
    bucket: ObjectStore, listed: Sequence[ObjectInfo], version: Version, findings: Findings
) -> dict[str, Kept]:
    """Check what lies under `backup/`, and answer the SSTs that finished backups name, by their ids."""
    for info in listed:
        if not is_backup_path(info.path):
            findings.problem(info.path, "foreign object: no backup has such a name")
    named: dict[str, Kept] = {}
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
        for state in content.version.tables.values():
            for sst in state.levels.ssts():
                named.setdefault(sst.id, Kept(state.spec, sst, [])).backups.append(backup.name)
    return named
