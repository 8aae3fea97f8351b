"""The backend of a platform: the meta service keeps version, pins and compaction; this process reads and writes SSTs.

`tussock.statestore.connect` loads this module by name for `tussock://` URLs, as it loads the embedded one for others.
"""

import os
import socket
from collections.abc import Callable, Collection, Sequence

from tussock.meta.client.access import dial_with
from tussock.meta.client.addresses import addresses_in
from tussock.meta.client.buckets import open_session_bucket
from tussock.meta.client.checkpoints import PlatformChannel, PlatformChannels
from tussock.meta.client.commits.commits import PlatformCommits
from tussock.meta.client.connection import Attempts, Holdings, MetaConnection
from tussock.meta.client.pins import PlatformPin, PlatformPins
from tussock.meta.client.transport import Dial
from tussock.meta.client.versions import Freshness, PushedVersion
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.convert import (
    backup_from_message,
    change_to_message,
    pin_from_message,
    report_from_message,
    spec_from_message,
    spec_to_message,
)
from tussock.meta.rpc.errors import decode_error
from tussock.meta.version.version import Version
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.buckets import RequestCounts
from tussock.statestore.client import StateStore
from tussock.statestore.contract.backend import PAYLOAD_BYTES_MAX, BackupInfo, CommitRequest, PinInfo, VacuumReport
from tussock.statestore.contract.barriers import BarrierEvent, JobOptions
from tussock.statestore.contract.records import TableChange, TableSpec, TableState
from tussock.statestore.errors import (
    BackupNotFound,
    MetaUnavailable,
    TableExists,
    TableNotFound,
    WaitTimeout,
)
from tussock.statestore.parts import StoreParts
from tussock.statestore.settings import StoreSettings

__all__ = ["PlatformBackend", "open_store"]

log = get_logger("tussock.meta.client")

PUSH_SECONDS_MAX = 0.25
"""Seconds to wait for a version that a call has named, before asking for it."""
SUBSCRIPTION_SECONDS_MAX = 1.0
"""Seconds within which a version that a heartbeat's answer named is to be pushed."""
COMPACT_WAIT_SECONDS = 1.0
COMPACT_SECONDS_MAX = 600.0


class PlatformBackend:
    """A store whose version a meta service keeps. Safe to share between threads; satisfies `Backend`."""

    def __init__(self, connection: MetaConnection, system: System, settings: StoreSettings) -> None:
        """Not connected yet; `start` is."""
        self._limits = settings.limits
        self._connection = connection
        self._system = system
        self._deadline = settings.deadline
        self._pushed = PushedVersion(system)
        self._pins = PlatformPins(connection, self._pushed, system)
        self._in_flight: Callable[[], Sequence[str]] = tuple
        self._freshness = Freshness(settings.max_staleness)
        self._commits = PlatformCommits(connection, self._pushed, system, settings.deadline, self.refresh)
        self._channels = PlatformChannels(connection, system)

    def start(self) -> pb.OpenSessionResponse:
        """Open the session and load the version."""
        opened = self._connection.start(self, subscribe=False)
        # The version first, and then what follows it: a subscription from nothing would bring a base version once more.
        self.refresh()
        self._connection.subscribe()
        return opened

    # --- Versions -----------------------------------------------------------------------------------------------

    def version(self) -> Version:
        """The newest version known here; no request."""
        return self._pushed.version

    def refresh(self) -> Version:
        """Ask the leader, which reads the log to its tail."""
        began = self._freshness.asked_at = self._system.monotonic()
        answer = self._connection.call("GetVersion", pb.GetVersionRequest(after_seq=self._pushed.version.seq))
        assert isinstance(answer, pb.GetVersionResponse)
        self._pushed.learn(answer.update)
        self._freshness.confirm(began)
        return self._pushed.version

    def recent(self) -> Version:
        """The version as pushed; asked for only while no heartbeat is answered, or if it may be older than wanted."""
        if self._freshness.is_due(self._system.monotonic(), self._connection.lease_deadline):
            try:
                return self.refresh()
            except MetaUnavailable as error:
                # What is known stays readable while the service is away.
                log.warning("version refresh failed", error=str(error))
        return self._pushed.version

    def await_change(self, seq: int, seconds: float) -> Version:
        """A version newer than `seq`, or the newest there is after `seconds`."""
        deadline = self._system.monotonic() + seconds
        while True:
            left = deadline - self._system.monotonic()
            # Pushed as a rule; asked for once a second in case the subscription is broken.
            version = self._pushed.await_seq(seq + 1, min(max(left, 0.0), 1.0))
            if version.seq > seq or left <= 0:
                return version
            self.refresh()

    # --- Catalog and commits ------------------------------------------------------------------------------------

    def create_table(self, spec: TableSpec) -> TableState:
        """Add a table; its id is assigned by the leader."""
        attempts, request = Attempts(), pb.CreateTableRequest(spec=spec_to_message(spec))
        try:
            answer = self._connection.call("CreateTable", request, attempts=attempts)
        except TableExists:
            state = self.refresh().find_table(spec.name)
            # An attempt whose answer was lost may have made it; then it is just what was asked for, and empty.
            if not attempts.unknown or state is None or _without_id(state.spec) != _without_id(spec):
                raise
            return state
        assert isinstance(answer, pb.CreateTableResponse)
        self._catch_up(answer.seq)
        return TableState(spec=spec_from_message(answer.spec))

    def alter_table(self, name: str, change: TableChange) -> TableState:
        """Change a table; an attempt whose answer was lost is found done."""
        answer = self._connection.call("AlterTable", change_to_message(name, change))
        assert isinstance(answer, pb.AlterTableResponse)
        self._catch_up(answer.seq)
        return TableState(spec=spec_from_message(answer.spec))

    def drop_table(self, name: str) -> None:
        """Remove a table."""
        attempts = Attempts()
        try:
            answer = self._connection.call("DropTable", pb.DropTableRequest(name=name), attempts=attempts)
        except TableNotFound:
            if not attempts.unknown:
                raise
            self.refresh()
            return
        assert isinstance(answer, pb.DropTableResponse)
        self._catch_up(answer.seq)

    def open_writer(self, name: str) -> int:
        """Take over the writer's name; commits of an older generation are fenced from now on."""
        answer = self._connection.call("OpenWriter", pb.OpenWriterRequest(writer=name))
        assert isinstance(answer, pb.OpenWriterResponse)
        return answer.generation

    @property
    def payload_bytes_max(self) -> int:
        """Small SSTs go along with the commit: one request less for the client, and for the leader's check of them."""
        return PAYLOAD_BYTES_MAX

    def upload_horizon(self) -> str:
        """The newest garbage horizon known."""
        return self._pushed.version.gc_horizon

    def commit(self, request: CommitRequest) -> int:
        """Commit an epoch; waits while compaction is behind, and raises `WriteStalled` if that outlasts the deadline.

        When it returns, the version here has the epoch.
        """
        answer = self._commits.commit(request)
        self._catch_up(answer.seq)
        return answer.epoch

    def committed_batch(self, writer: str, batch_id: int, source: str | None, tables: Collection[int]) -> int | None:
        """The epoch that holds this (writer, batch) in the version known here, or `None`."""
        return self._pushed.version.committed_epoch_of(writer, batch_id, source, tables)

    def oldest_readable(self, state: TableState | None = None) -> int:
        """Smallest epoch that may be read now without a pin, of that table."""
        version = self._pushed.version
        return version.oldest_readable(state, self._system.now_ms(), version.retention_ms)

    def pin(self, epoch: int | None) -> PlatformPin:
        """Pin that epoch, or the newest committed one."""
        return self._pins.pin(epoch, self._catch_up)

    def pins(self) -> list[PinInfo]:
        """All live pins on the store, of all processes."""
        answer = self._connection.call("ListPins", pb.ListPinsRequest())
        assert isinstance(answer, pb.ListPinsResponse)
        return [pin_from_message(pin) for pin in answer.pins]

    def compact(self, table: str) -> None:
        """Have the whole table merged into one sorted run by the compactors, and wait for it."""
        started = self._system.monotonic()
        alone_since = started
        # At least 1, for an empty store too: what is asked for is everything in this version.
        request = pb.CompactRequest(table=table, since_seq=max(self.refresh().seq, 1))
        while True:
            seq = self._pushed.version.seq  # before the call: what comes with the answer is a reason to ask again
            answer = self._connection.call("Compact", request)
            assert isinstance(answer, pb.CompactResponse)
            if answer.HasField("error"):
                raise decode_error(answer.error.SerializeToString())
            if answer.done:
                self.refresh()
                return
            now = self._system.monotonic()
            if answer.compactors and not answer.paused:
                alone_since = now
            if now - alone_since >= self._limits.compactor_seconds or now - started >= COMPACT_SECONDS_MAX:
                raise WaitTimeout(
                    f"table {table!r} was not compacted within {now - started:.0f} s: {answer.compactors} compactors "
                    f"are connected{', compaction is paused' if answer.paused else ''}; start one with "
                    "`tussock compactor`, resume compaction, or try again later"
                )
            self.await_change(seq, COMPACT_WAIT_SECONDS)

    def protect(self, in_flight: Callable[[], Sequence[str]]) -> None:
        """From now on the leader is told what is uploaded and may yet be committed."""
        self._in_flight = in_flight

    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Have the leader delete what no version and no pin can reach."""
        answer = self._connection.call("Vacuum", pb.VacuumRequest(dry_run=dry_run), timeout=COMPACT_SECONDS_MAX)
        assert isinstance(answer, pb.VacuumResponse)
        self.refresh()
        return report_from_message(answer)

    def barrier_channel(
        self, job: str, participant: str, options: JobOptions, inbox: Callable[[BarrierEvent | None], None]
    ) -> PlatformChannel:
        """A line to the leader, which coordinates the job's checkpoints."""
        return self._channels.open(job, participant, options, inbox)

    def create_backup(self, name: str, comment: str = "") -> BackupInfo:
        """Have the leader keep the newest version under a name."""
        request = pb.CreateBackupRequest(name=name, comment=comment, backup_id=self._system.random_bytes(16).hex())
        answer = self._connection.call("CreateBackup", request, timeout=COMPACT_SECONDS_MAX)
        assert isinstance(answer, pb.CreateBackupResponse)
        return backup_from_message(answer.backup)

    def list_backups(self) -> list[BackupInfo]:
        """All backups and holds of clones, by name."""
        answer = self._connection.call("ListBackups", pb.ListBackupsRequest())
        assert isinstance(answer, pb.ListBackupsResponse)
        return [backup_from_message(backup) for backup in answer.backups]

    def delete_backup(self, name: str) -> None:
        """Let go of a backup; `BackupNotFound` if there is none."""
        attempts = Attempts()
        try:
            self._connection.call("DeleteBackup", pb.DeleteBackupRequest(name=name), attempts=attempts)
        except BackupNotFound:
            if not attempts.unknown:
                raise

    def close(self) -> None:
        """End the session, and with it its pins and its places in checkpoints."""
        self._channels.rejoin()
        self._connection.close()
        self._pins.forget_all()

    # --- As the owner of its session ------------------------------------------------------------------------------

    def holdings(self) -> Holdings:
        """The pins, and what is uploaded and may yet be committed."""
        return Holdings(pins=self._pins.shown(), oldest_upload=min(self._in_flight(), default=""))

    def after_seq(self) -> int:
        """The newest version known here."""
        return self._pushed.version.seq

    def on_opened(self, opened: pb.OpenSessionResponse) -> None:
        """Let go of pins that are lost, and join checkpoints again."""
        self._pins.lose(list(opened.lost_pins))
        self._channels.rejoin()

    def on_lost_tasks(self, task_ids: Sequence[str]) -> None:
        """It has none."""

    def on_event(self, event: pb.Event) -> None:
        """Apply what is pushed."""
        if event.HasField("barrier"):
            self._channels.deliver(event.barrier)
        if event.HasField("version") and not self._pushed.learn(event.version):
            self._connection.reconnect()

    def on_heartbeat(self, seq: int) -> None:
        """Let go of lost snapshots, and subscribe anew if no versions come: a stream may hang and not break."""
        self._pins.release_forgotten()
        if self._pushed.await_seq(seq, SUBSCRIPTION_SECONDS_MAX).seq < seq:
            log.warning("the subscription is behind, subscribing anew", seq=self._pushed.version.seq, leader_seq=seq)
            self._connection.reconnect()
        else:
            self._freshness.confirm(self._connection.acknowledged)

    def _catch_up(self, seq: int) -> None:
        """Make sure that the version here is at `seq`: as a rule it is pushed before the answer is back."""
        if self._pushed.await_seq(seq, PUSH_SECONDS_MAX).seq < seq:
            self.refresh()


def open_store(settings: StoreSettings, system: System, dial: Dial | None = None) -> StateStore:
    """Open the store that the meta service at `settings.url` keeps; its bucket is the one that the service names."""
    connection = MetaConnection(
        addresses_in(settings.url),
        system,
        dial or dial_with(settings.access, system),
        name=f"{socket.gethostname()}:{os.getpid()}",
        deadline_seconds=settings.deadline,
        first_request=lambda request: _tell_settings(request, settings),
    )
    backend = PlatformBackend(connection, system, settings)
    bucket = open_session_bucket(connection, backend.start().store_url, settings.deadline, system)
    requests = RequestCounts(bucket, lambda url: open_session_bucket(connection, url, settings.deadline, system))
    return StateStore(StoreParts(settings, system, bucket, requests, backend))


def _tell_settings(request: pb.OpenSessionRequest, settings: StoreSettings) -> None:
    if settings.retention is not None:
        request.retention_ms = int(settings.retention * 1000)
    if settings.gc_grace is not None:
        request.gc_grace_ms = int(settings.gc_grace * 1000)


def _without_id(spec: TableSpec) -> pb.TableSpec:
    message = spec_to_message(spec)
    message.id = 0
    return message
