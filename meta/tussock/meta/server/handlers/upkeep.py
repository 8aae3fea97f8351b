"""Upkeep of the store by the leader: vacuum by schedule and on demand, backups."""

from tussock.meta.node.auth.caller import Caller, Handlers
from tussock.meta.retention.recurring import Recurring
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import backup_to_message, report_to_message
from tussock.meta.server.context import Context
from tussock.meta.server.part import Part
from tussock.meta.server.status.document import UpkeepStatus, VacuumStatus
from tussock.statestore.base.logs import get_logger
from tussock.statestore.contract.backend import VacuumReport
from tussock.statestore.errors import TussockError

__all__ = ["Upkeep"]

log = get_logger("tussock.meta")


class Upkeep(Part):
    """Serves the RPCs about upkeep, and runs what is due; its vacuum is run by one thread at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # A new leader knows of uploads in flight only once the clients have come back to it.
        interval = context.options.vacuum_interval_seconds
        first = max(interval, context.options.session_lease_seconds)
        self._schedule = Recurring(context.system, lambda: interval, first_seconds=first)
        self._running = context.system.lock()
        self._last: VacuumStatus | None = None

    def handlers(self) -> Handlers:
        """The RPCs answered here."""
        return {
            "Vacuum": self._vacuum,
            "CreateBackup": self._create_backup,
            "ListBackups": self._list_backups,
            "DeleteBackup": self._delete_backup,
        }

    def status(self) -> UpkeepStatus:
        """What was done last, and when the next is due."""
        return UpkeepStatus(vacuum=self._last, next_vacuum_ms=self._schedule.due_ms)

    def run(self) -> None:
        """Vacuum if it is due; errors are logged, and it is tried again soon."""
        if not self._schedule.is_due:
            return
        try:
            report = self._run_vacuum(dry_run=False)
        except TussockError as error:
            self._schedule.note_failure()
            self._last = VacuumStatus(
                finished_ms=self._context.system.now_ms(), deleted=0, bytes_freed=0, kept_young=0, error=str(error)
            )
            log.warning("vacuum failed, the next one tries again", error=str(error))
        else:
            self._schedule.note_success()
            log.info("vacuumed", deleted=len(report.deleted), bytes_freed=report.bytes_freed)

    def _run_vacuum(self, *, dry_run: bool) -> VacuumReport:
        with self._running:
            report = self._context.meta.vacuum(dry_run=dry_run)
        if not dry_run:
            self._last = VacuumStatus(
                finished_ms=self._context.system.now_ms(),
                deleted=len(report.deleted),
                bytes_freed=report.bytes_freed,
                kept_young=report.kept_young,
            )
        return report

    def _vacuum(self, request: pb.VacuumRequest, _: Caller) -> pb.VacuumResponse:
        return report_to_message(self._run_vacuum(dry_run=request.dry_run))

    def _create_backup(self, request: pb.CreateBackupRequest, _: Caller) -> pb.CreateBackupResponse:
        backup = self._context.meta.backups.create(request.name, comment=request.comment, backup_id=request.backup_id)
        return pb.CreateBackupResponse(backup=backup_to_message(backup))

    def _list_backups(self, _: pb.ListBackupsRequest, __: Caller) -> pb.ListBackupsResponse:
        return pb.ListBackupsResponse(backups=[backup_to_message(one) for one in self._context.meta.backups.list()])

    def _delete_backup(self, request: pb.DeleteBackupRequest, _: Caller) -> pb.DeleteBackupResponse:
        self._context.meta.backups.delete(request.name)
        return pb.DeleteBackupResponse()
