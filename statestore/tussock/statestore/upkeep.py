"""What an open store is asked about itself, and what is done to keep it in order."""

from tussock.statestore.base.arguments import check_flag, check_name, check_table
from tussock.statestore.base.process.shield import uninterrupted
from tussock.statestore.contract.backend import BackupInfo, VacuumReport, VersionView
from tussock.statestore.contract.known_tables import no_table
from tussock.statestore.parts import StoreParts

__all__ = ["StoreUpkeep"]


class StoreUpkeep:
    """The part of `StateStore` that reads and writes no rows."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    def version(self) -> VersionView:
        """The newest version: tables with their levels and SSTs, committed epoch, ledger; an immutable value."""
        return self._parts.views.refresh()

    def recent_version(self) -> VersionView:
        """The version as known here, at most about a quarter of a second old: few requests however often one asks."""
        self._parts.lifetime.check_usable()
        return self._parts.backend.recent()

    @uninterrupted
    def compact(self, table: str) -> None:
        """Merge the table into one sorted run at its bottom, dropping what no reader may ask for; waits for it."""
        self._parts.lifetime.check_usable()
        check_table(table)
        version = self._parts.views.refresh()
        if version.find_table(table) is None:
            raise no_table(self.url, table, sorted(state.spec.name for state in version.tables.values()))
        self._parts.backend.compact(table)

    @uninterrupted
    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Delete what no version, pin or upload of this client's has, once it is older than the grace period."""
        self._parts.lifetime.check_usable()
        check_flag(dry_run, "dry_run")
        report = self._parts.backend.vacuum(dry_run=dry_run)
        if not dry_run:
            self._parts.sstables.forget({path.split("/")[-1].split(".")[0] for path, _ in report.deleted})
        return report

    @uninterrupted
    def backup(self, name: str, comment: str = "") -> BackupInfo:
        """Keep the newest version under a name, for as long as you like; copies no SST. `BackupExists` if it is taken.

        After `ObjectStoreUnavailable` the same call can be repeated.
        """
        self._parts.lifetime.check_usable()
        check_name(name, "backup name", 1 << 16)
        if type(comment) is not str or comment:
            check_name(comment, "comment of a backup", 1 << 16)
        return self._parts.backend.create_backup(name, comment)

    def backups(self) -> list[BackupInfo]:
        """All backups, and holds of clones of this store, by name, with the bytes that only each one keeps."""
        self._parts.lifetime.check_usable()
        return self._parts.backend.list_backups()

    @uninterrupted
    def delete_backup(self, name: str) -> None:
        """Let go of a backup; what only it kept goes with the next vacuum. `BackupNotFound` if there is none."""
        self._parts.lifetime.check_usable()
        check_name(name, "backup name", 1 << 16)
        self._parts.backend.delete_backup(name)

    def requests(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Requests and bytes so far, per purpose and operation: what this client costs."""
        return self._parts.requests.counts()

    @property
    def url(self) -> str:
        """Where the store is, without credentials."""
        return self._parts.settings.url
