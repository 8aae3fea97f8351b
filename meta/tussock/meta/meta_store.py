"""The meta room as a library: the version of one store, what changes it, and the parts that look after it.

An embedded store has one beside the thread that runs its compactions (`tussock.compactor.embedded`), a replica of the
meta service one beside its sessions. Any number of these, in any number of processes, may work on one bucket at once;
they meet in the log only.
"""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from tussock.meta.compaction.backpressure import Stall, hold_back, write_stall
from tussock.meta.compaction.claims import Claims
from tussock.meta.compaction.own_tasks import OwnTasks
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.compaction.watermark import low_watermark
from tussock.meta.log.appends.group_commit import Call
from tussock.meta.log.appends.unknown_commits import UnknownCommits, cannot_tell
from tussock.meta.log.bucket_clock import bucket_now_ms
from tussock.meta.log.format import as_known
from tussock.meta.log.log import BASE_EVERY, VersionLog
from tussock.meta.retention.backups import Backups
from tussock.meta.retention.periods import Periods
from tussock.meta.retention.pin_objects import live_pins, smallest_live_pin
from tussock.meta.retention.pins import PIN_LEASE_SECONDS, PinKeeper
from tussock.meta.retention.vacuum import Vacuum
from tussock.meta.version.bounds import check_altered_table, check_new_table, check_new_writer, idle_writers
from tussock.meta.version.deltas.commits import AlreadyCommitted, OpenWriter, check_uploads, stamp
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.retention import ForgetWriters
from tussock.meta.version.deltas.tables import CreateTable, DropTable, alter
from tussock.meta.version.deltas.tasks import PauseCompaction
from tussock.meta.version.version import Version
from tussock.statestore import buckets
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.contract.backend import CommitRequest, PinInfo, VacuumReport
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import TableChange, TableSpec, TableState
from tussock.statestore.errors import ObjectStoreUnavailable, StaleUpload, TableExists, TableNotFound, TussockError
from tussock.statestore.shown import show_value

__all__ = ["MetaStore"]

log = get_logger("tussock.meta")

REFRESH_SECONDS = 0.25
"""A read looks for newer versions if what is known is older than this, unless the store was opened with another bound:
no reads, no requests. A look that failed is repeated after that long, too."""
WAIT_SECONDS_MIN = 0.002
WAIT_SECONDS_MAX = 0.1


class MetaStore:
    """Keeps one store's version in this process; its parts share one log and one owner. Safe to share between threads.

    Attributes:
        owner: this process, as tasks, pins and log entries name it.
        config: when to compact.
        log: the version log, to follow it entry by entry, or to append to it.
        pins: the pins that this process holds.
        backups: the store's backups.
        claims: compaction tasks on behalf of others.
        own_tasks: compaction tasks of this process.
        unknown_commits: those of which this process does not know whether they happened.
        synced_at: by the monotonic clock: when the question was asked to which the log last answered that there is no
            more.
    """

    def __init__(
        self,
        bucket: ObjectStore,
        system: System,
        *,
        retention_seconds: float | None = None,
        gc_grace_seconds: float | None = None,
        pin_lease_seconds: float = PIN_LEASE_SECONDS,
        config: PickerConfig | None = None,
        base_every: int = BASE_EVERY,
        linger_seconds: float = 0.0,
        open_source: Callable[[str], ObjectStore] = buckets.open_source,
        staleness_seconds: float | None = None,
    ) -> None:
        """Read the log; raises `ObjectStoreUnavailable` or `CorruptLog` if that cannot be done.

        Args:
            bucket: the store; it stays the caller's to close.
            system: clocks and entropy.
            retention_seconds: for how long epochs stay readable without a pin after a newer one was committed; `None`
                is what the store says. What is given here becomes what the store says at the next write.
            gc_grace_seconds: how long vacuum leaves alone what was dropped, or uploaded and not committed; likewise.
            pin_lease_seconds: how long a pin outlives its process.
            config: when to compact.
            base_every: log entries between two base versions.
            linger_seconds: how long a log entry waits for as many calls as the last one had, if those were several.
            open_source: opens the bucket of the store that this one was cloned from, by its URL.
            staleness_seconds: how old a `recent` version may be; `None` is a quarter of a second.
        """
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{system.random_bytes(4).hex()}"
        self.config = config or PickerConfig()
        self._bucket = bucket
        self._system = system
        self._periods = Periods.of_seconds(retention_seconds, gc_grace_seconds)
        self.log = VersionLog(bucket, system, owner=self.owner, base_every=base_every, linger_seconds=linger_seconds)
        self.pins = PinKeeper(
            bucket,
            system,
            self.log,
            owner=self.owner,
            retention_ms=self._periods.own_retention_ms,
            lease_seconds=pin_lease_seconds,
        )
        self.backups = Backups(self.log, bucket, system, owner=self.owner)
        self._vacuum = Vacuum(
            self.log,
            bucket,
            system,
            owner=self.owner,
            grace_ms=self._periods.own_grace_ms,
            pin_skew_ms=self.pins.lease_ms,
            backups=self.backups,
            open_source=open_source,
            watermark=self._watermark,
        )
        self.claims = Claims(self.log, system, smallest_pin=self._smallest_pin, retention_ms=self._periods.retention_of)
        self.own_tasks = OwnTasks(self.claims, self.log, system, owner=self.owner, config=lambda: self.config)
        self._in_flight: Callable[[], Sequence[str]] = tuple
        self.unknown_commits = UnknownCommits()
        self._staleness_seconds = REFRESH_SECONDS if staleness_seconds is None else staleness_seconds
        self._asked_at = self.synced_at = system.monotonic()
        self.log.refresh()

    # --- Version, catalog, commits ------------------------------------------------------------------------------

    def version(self) -> Version:
        """The newest version known here; no request."""
        return self.log.version

    def refresh(self) -> Version:
        """Read the log to its tail."""
        began = self._asked_at = self._system.monotonic()
        version = self.log.refresh()
        # Not when it failed: of a log that cannot be read nobody knows where it ends.
        self.synced_at = max(self.synced_at, began)
        return version

    def recent(self) -> Version:
        """A recent version: the log's tail is looked up if that was not done for a while."""
        now = self._system.monotonic()
        bound = self._staleness_seconds
        if now - self.synced_at >= bound and now - self._asked_at >= min(bound, REFRESH_SECONDS):
            try:
                return self.refresh()
            except ObjectStoreUnavailable as error:
                # What is cached stays readable while the bucket is away; a read that needs the bucket will say so.
                log.warning("version refresh failed", url=self._bucket.url, error=str(error))
        return self.log.version

    def await_change(self, seq: int, seconds: float) -> Version:
        """A version newer than `seq`, or the newest there is after `seconds`."""
        deadline = self._system.monotonic() + seconds
        pause = WAIT_SECONDS_MIN
        while (version := self.refresh()).seq <= seq:
            left = deadline - self._system.monotonic()
            if left <= 0:
                break
            self._system.sleep(min(pause, left))
            pause = min(2 * pause, WAIT_SECONDS_MAX)
        return version

    def create_table(self, spec: TableSpec) -> TableState:
        """Add a table; its id is assigned here. `TableExists` if the name is taken."""

        def decide(version: Version) -> tuple[list[Delta], TableState]:
            if version.find_table(spec.name) is not None:
                raise TableExists(f"table {spec.name!r} exists already; open it, or drop it first")
            check_new_table(version, spec)
            numbered = replace(spec, id=version.next_table_id)
            return [*self._periods.deltas(version), CreateTable(spec=numbered, dated=True)], TableState(spec=numbered)

        return self.log.append(decide)

    def alter_table(self, name: str, change: TableChange) -> TableState:
        """Change a table, whatever others altered meanwhile; see `deltas.tables.alter`."""

        def decide(version: Version) -> tuple[list[Delta], TableState]:
            deltas, state = alter(version, name, change)
            if deltas:
                check_altered_table(version, state.spec)
            return [*deltas], state

        return self.log.append(decide)

    def drop_table(self, name: str) -> None:
        """Remove a table and its running compactions; `TableNotFound` if there is none."""

        def decide(version: Version) -> tuple[list[Delta], None]:
            state = version.find_table(name)
            if state is None:
                raise TableNotFound(f"table {show_value(name)} is not in the store; nothing was dropped")
            return [DropTable(table_id=state.spec.id, at_ms=self._system.now_ms(), keep=True)], None

        self.log.append(decide)

    def commit(self, request: CommitRequest, by: str = "") -> int:
        """Commit an epoch, all or nothing; returns the epoch that holds. See `commits.stamp` for what it refuses.

        `by` is the identity that asks for it at a service.

        SSTs that are among the request's payloads get a place in the log entry, so that one object is created for all.
        `ObjectStoreUnavailable` leaves open whether it happened; this object answers a repetition of the very same
        request right, any other process one with the same writer and batch. Where that cannot be told any more, since
        log and garbage horizon have passed an attempt without a writer, the repetition is refused with the same error.
        """
        call = self._commit_call(request, by)
        self.log.carry_out([call])
        return self._committed(request, call)

    def commit_each(self, requests: Sequence[CommitRequest], by: str = "") -> list[int | TussockError]:
        """Commit several epochs, each as by `commit` and in this order; for each its epoch, or why it was refused."""
        calls = [self._commit_call(request, by) for request in requests]
        self.log.carry_out(calls)
        outcomes: list[int | TussockError] = []
        for request, call in zip(requests, calls, strict=True):
            try:
                outcomes.append(self._committed(request, call))
            except TussockError as error:
                outcomes.append(error)
        return outcomes

    def _commit_call(self, request: CommitRequest, by: str) -> Call[int]:
        def decide(version: Version) -> tuple[list[Delta], int]:
            stamped = stamp(version, request, self._system.now_ms())
            if isinstance(stamped, AlreadyCommitted):
                return [], stamped.epoch
            self.log.clock.check_epoch(request.epoch, version.max_committed_epoch)
            if check_new_writer(version, request.writer, by) and by:
                stamped = replace(stamped, by=by)
            return [*self._periods.deltas(version), stamped], stamped.epoch

        key = ("commit", msgspec.msgpack.encode(replace(request, payloads={}), enc_hook=as_known))
        return self.log.call(decide, key=key, repeatable=request.writer is not None, payloads=request.payloads)

    def _committed(self, request: CommitRequest, call: Call[int]) -> int:
        try:
            epoch = call.answer()
        except ObjectStoreUnavailable as error:
            if not error.nothing_written:
                self.unknown_commits.add(request)
            raise
        except StaleUpload as error:
            if request not in self.unknown_commits:
                raise
            raise cannot_tell(request, error) from error
        self.unknown_commits.discard(request)
        return epoch

    def refused_or_known(self, request: CommitRequest) -> int | None:
        """What the log's tail says of a commit whose SST is not there; `None` if it has nothing against it.

        Another process's vacuum may have taken the upload for garbage: that is `StaleUpload`, which the client mends.
        Or the commit repeats one that happened, whose SSTs have been compacted away since.
        """
        version = self.refresh()
        stamped = stamp(version, request, self._system.now_ms())
        if isinstance(stamped, AlreadyCommitted):
            return stamped.epoch
        check_uploads(version, [sst.id for runs in request.tables.values() for run in runs for sst in run.ssts])
        return None

    def open_writer(self, name: str, by: str = "") -> int:
        """Take a writer's name over; returns its new generation, beside which older ones can commit nothing.

        `by` is the identity that asks for it at a service.
        """

        def decide(version: Version) -> tuple[list[Delta], int]:
            generation = version.newest_generation(name) + 1
            opening = OpenWriter(writer=name, generation=generation)
            if check_new_writer(version, name, by):
                opening = replace(opening, by=by, at_ms=self._system.now_ms())
            return [opening], generation

        return self.log.append(decide)

    def forget_writers(self, names: Iterable[str], idle_ms: int = 0) -> list[str]:
        """Forget names of writers, with what is known of their batches; returns those that were forgotten.

        Generations of them that were opened are fenced for ever. A batch that one had committed is new from then on.
        A name that was brought or has committed within the last `idle_ms` by the bucket's clock stays.
        """
        before_ms = min(bucket_now_ms(self._bucket, self._system), self._system.now_ms()) - idle_ms if idle_ms else 0

        def decide(version: Version) -> tuple[list[Delta], list[str]]:
            known = sorted(name for name in set(names) if version.knows_writer(name))
            if idle_ms:
                known = idle_writers(version, known, before_ms)
            return [ForgetWriters(writers=tuple(known))] if known else [], known

        return self.log.append(decide)

    # --- Reading: retention and pins ----------------------------------------------------------------------------

    def oldest_readable(self, state: TableState | None = None) -> int:
        """Smallest epoch that may be read now without a pin, of that table."""
        version = self.log.version
        return version.oldest_readable(state, self._system.now_ms(), self._periods.retention_ms(version))

    def live_pins(self, most: int | None = None) -> list[PinInfo]:
        """The live pins on the store, of all processes, by epoch ascending; `most` of them, the oldest, if given."""
        return list(islice(live_pins(self._bucket, self._system.now_ms(), self.pins.lease_ms), most))

    # --- Compaction tasks ---------------------------------------------------------------------------------------

    def pause_compaction(self, reason: str | None) -> None:
        """From now on nobody begins a compaction without being asked, for that reason; `None`: they do again."""

        def decide(version: Version) -> tuple[list[Delta], None]:
            wanted = PauseCompaction(paused=reason is not None, reason=reason or "")
            return [] if version.pause == reason else [wanted], None

        self.log.append(decide)

    def write_stall(self, table_id: int) -> Stall | None:
        """Why writes to the table should wait for compaction, or `None`; no request."""
        state = self.log.version.tables.get(table_id)
        return write_stall(state, self.config) if state else None

    def write_delay(self, tables: Iterable[int], waited_ms: int) -> tuple[int, str]:
        """For how long a commit to these tables, held back already for `waited_ms`, is to wait on, and why; or 0."""
        return hold_back((stall for table in tables if (stall := self.write_stall(table))), waited_ms)

    # --- Upkeep -------------------------------------------------------------------------------------------------

    def protect(self, in_flight: Callable[[], Sequence[str]]) -> None:
        """From now on vacuum leaves alone SSTs with the ids that `in_flight` returns, and those with larger ones."""
        self._in_flight = in_flight

    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Delete what no version and no running iterator can reach; see `vacuum.py`."""
        return self._vacuum.run(dry_run=dry_run, in_flight=self._in_flight)

    @property
    def grace_seconds(self) -> float:
        """The grace period that this process was told, else the store's."""
        return self._periods.grace_ms(self.log.version) / 1000

    def close(self) -> None:
        """Release this process's pins."""
        self.pins.release_all()

    def asks_for_change(self, retention_ms: int | None, gc_grace_ms: int | None) -> bool:
        """Whether `configure` with these would change the store; raises `InvalidOption` where it does."""
        return bool(self._periods.asked(self.log.version, retention_ms, gc_grace_ms))

    def configure(self, retention_ms: int | None, gc_grace_ms: int | None) -> None:
        """Make these the store's periods; `None` leaves one as it is. Raises what `Periods.asked` does."""
        self.log.append(lambda version: (self._periods.asked(version, retention_ms, gc_grace_ms), None))

    def _watermark(self, version: Version, table: TableState, now_ms: int, smallest_pin: int | None) -> int:
        return low_watermark(version, now_ms, self._periods.retention_of(version, table), smallest_pin)

    def _smallest_pin(self) -> int | None:
        return smallest_live_pin(self._bucket, self.log.clock.judging_ms(), self.pins.lease_ms)
