"""What the client needs of the keeper of the version: the seam between `statestore` and the rooms above it.

The embedded backend (`tussock.compactor.embedded`) puts the version log and a compaction thread into this process;
a platform's backend talks to a meta service. Both are loaded by name in `connect`, because the rooms import one
way: `statestore` knows these protocols and nothing of who implements them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from tussock.statestore.contract.barriers import BarrierChannel, BarrierEvent, JobOptions
from tussock.statestore.contract.losses import AcceptedLoss
from tussock.statestore.contract.records import GoneTable, Run, TableChange, TableSpec, TableState
from tussock.statestore.contract.renumbered import Renumbered

__all__ = [
    "PAYLOAD_BYTES_MAX",
    "Backend",
    "BackupInfo",
    "ClockRepair",
    "CommitRequest",
    "PinHandle",
    "PinInfo",
    "VacuumReport",
    "VersionView",
]

PAYLOAD_BYTES_MAX = 64 << 10
"""SSTs of at most this many bytes may travel with their commit and lie in its log entry: one object instead of two."""


class VersionView(Protocol):
    """A version of the store: immutable, so it can be read from any thread."""

    @property
    def seq(self) -> int:
        """Sequence of the last log entry in it; 0 for an empty store."""

    @property
    def max_committed_epoch(self) -> int:
        """The newest epoch committed; 0 if none."""

    @property
    def safe_epoch(self) -> int:
        """The same for all tables that have the retention of the store."""

    def safe_epoch_of(self, state: TableState) -> int:
        """Compaction may have dropped what of the table is only visible below this epoch."""

    def compacted_epoch_of(self, state: TableState) -> int:
        """Reads of the table at this epoch or a later one are exact."""

    def newest_generation(self, writer: str) -> int:
        """The generation after which the next one of this writer comes."""

    @property
    def gc_horizon(self) -> str:
        """A commit may not name an SST id below this; empty at first."""

    @property
    def tables(self) -> Mapping[int, TableState]:
        """Tables by id."""

    @property
    def gone(self) -> Mapping[int, GoneTable]:
        """Dropped tables that a pin may need, by id."""

    @property
    def renumbered(self) -> Renumbered | None:
        """The newest repair of the store's clock."""

    @property
    def losses(self) -> Sequence[AcceptedLoss]:
        """Damaged SSTs that a repair has put aside, and which rows were lost with them."""

    def find_table(self, name: str) -> TableState | None:
        """The table of that name, if there is one."""


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch to commit; its SSTs are in the bucket already, or among its payloads."""

    epoch: int
    tables: dict[int, tuple[Run, ...]] = {}
    """Per table id the sorted runs of this epoch, newest first (several where the shared buffer was spilled)."""
    writer: str | None = None
    batch_id: int | None = None
    payloads: dict[str, bytes] = {}
    """By id, the bytes of small SSTs that are not in the bucket: they get a place in the log entry of the commit."""
    expect: dict[int, int] = {}
    """Per table id the epoch that the writer had read: the commit fails if the table has a newer one."""
    generation: int | None = None
    """Of the writer, as `open_writer` gave it: the commit fails with `Fenced` once a newer one was opened."""
    source: str | None = None
    """Whose batches the writer's are: the commit fails with `Fenced` if they are known to be another's."""
    uploaded: bool = False
    """Its SSTs were named to the client by others, so they have to be proven; a meta service proves all anyway."""


class PinInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease on an epoch, as found in the bucket."""

    id: str
    epoch: int
    owner: str
    """Host and process, for people."""
    created_ms: int
    expires_ms: int
    seq: int = 0
    """The last log entry when the newest epoch was pinned; 0: an epoch was asked for by its number."""
    unkept: tuple[int, ...] = ()
    """Ids of the tables whose rows at the epoch were not all kept any more when it was pinned."""


class PinHandle(Protocol):
    """A pin that this process holds and renews until it is released."""

    @property
    def info(self) -> PinInfo:
        """The lease as last written."""

    def check(self) -> None:
        """Raise `SnapshotExpired` if the lease was lost (this process slept past its expiry)."""

    def release(self) -> None:
        """Let go; a second call is no error."""

    def forget(self) -> None:
        """Nobody reads through it any more, and nobody released it: the next renewal lets go, with a warning.

        Takes no lock and makes no request: the garbage collector calls it, in any thread at any point.
        """


class BackupInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A backup, or what a clone holds in the store that it was made from."""

    name: str
    id: str
    """32 hex digits, random; the object is `backup/<name>.<id>`."""
    created_ms: int
    owner: str
    """Host and process that made it, for people."""
    comment: str = ""
    holder: str = ""
    """URL of the clone that needs it; empty for a backup."""
    base: str = ""
    """Id of the older backup whose contents it has; empty if it has those of the version when it was made."""
    started_seq: int = 0
    """The log entry that announced it: what left the tree after that waits for it."""
    expires_ms: int = 0
    """Being made, and given up by the next process after this; 0: it is complete."""
    seq: int = 0
    """The version that it holds, by its last log entry."""
    epoch: int = 0
    """The newest committed epoch in it."""
    ssts: int = 0
    bytes: int = 0
    """Of all its SSTs."""
    held_bytes: int = 0
    """Of those that only this one keeps from vacuum; reckoned by a listing, 0 elsewhere."""


class VacuumReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a vacuum found and did."""

    deleted: tuple[tuple[str, str], ...]
    """(object path, reason); with `dry_run`, what would be deleted."""
    kept_young: int
    """Objects that no version names, younger than the grace period."""
    bytes_freed: int
    gc_horizon: str
    """SST ids below this that no version names are garbage; a commit that names one is refused."""


class ClockRepair(msgspec.Struct, frozen=True, kw_only=True):
    """What the repair of a store's clock changed; with `dry_run`, what it would change."""

    bucket_ms: int
    """The bucket's time, which is the present one."""
    epochs: int = 0
    """Epochs that were ahead."""
    old: tuple[int, int] = (0, 0)
    """The smallest and the largest of them."""
    new: tuple[int, int] = (0, 0)
    """The numbers that these two got; the others lie between."""
    rewritten: int = 0
    """SSTs that were written anew."""
    rewritten_bytes: int = 0
    times: bool = False
    """Times in the version were ahead."""

    @property
    def is_needed(self) -> bool:
        """Whether anything was ahead at all."""
        return self.times or self.epochs > 0


class Backend(Protocol):
    """Keeps the version, commits to it, and looks after the tree."""

    def version(self) -> VersionView:
        """The newest version known here; no I/O."""

    def refresh(self) -> VersionView:
        """Read the tail of the log, then answer the newest version."""

    def recent(self) -> VersionView:
        """A recent version, at most a fraction of a second old; asks for news only if nobody brings it by itself."""

    def await_change(self, seq: int, seconds: float) -> VersionView:
        """A version newer than `seq`, or the newest there is after `seconds`."""

    def create_table(self, spec: TableSpec) -> TableState:
        """Add a table (its `id` is assigned here); `TableExists` if the name is taken."""

    def alter_table(self, name: str, change: TableChange) -> TableState:
        """Change a table, all or nothing; see `schema_changes.altered_schema` for what it refuses."""

    def drop_table(self, name: str) -> None:
        """Remove a table, but for pins that are there; `TableNotFound` if there is none."""

    @property
    def payload_bytes_max(self) -> int:
        """SSTs whose object has at most this many bytes are payloads of a commit of an epoch; 0: none is."""

    def upload_horizon(self) -> str:
        """The newest garbage horizon known; ids of SSTs that are uploaded from now on are above it.

        Vacuum goes by the time in an id, and what is years ahead would stay for years if it was not committed: so
        `ClockAhead` where this machine's clock is known to be too far ahead.
        """

    def commit(self, request: CommitRequest) -> int:
        """Commit an epoch; returns the epoch that holds.

        A repeated (writer, batch) is a no-op that returns the first one's epoch. Raises `Conflict` if `expect` no
        longer holds, `TableNotFound` if a table was dropped meanwhile, `Fenced` if a newer generation of the writer
        was opened or its batch is another one's, `CorruptObject` never.
        """

    def open_writer(self, name: str) -> int:
        """Take a writer's name over; returns its new generation, beside which older ones can commit nothing."""

    def committed_batch(self, writer: str, batch_id: int, source: str | None, tables: Collection[int]) -> int | None:
        """The epoch that holds this (writer, batch) in the newest version known here, if it is committed.

        `Fenced` as a commit from that source, with rows in the tables of these ids, would raise it.
        """

    def oldest_readable(self, state: TableState | None = None) -> int:
        """Smallest epoch that may be read now without a pin: the retention's edge or the safe epoch, the larger.

        Of that table; of one that has the store's retention if none is given.
        """

    def pin(self, epoch: int | None) -> PinHandle:
        """Pin that epoch, or the newest committed one; `SnapshotExpired` if it is no longer kept."""

    def pins(self) -> list[PinInfo]:
        """All live pins on the store, of all processes."""

    def compact(self, table: str) -> None:
        """Merge the whole table into one sorted run at its bottom level, and return when that is done."""

    def protect(self, in_flight: Callable[[], Sequence[str]]) -> None:
        """From now on vacuum leaves alone SSTs with the ids that `in_flight` returns, and those with larger ones.

        They are what the client has uploaded and may yet commit.
        """

    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Delete what no version and no pin can reach."""

    def create_backup(self, name: str, comment: str = "") -> BackupInfo:
        """Keep the newest version under a name, copying no SST; `BackupExists` if the name is taken.

        After `ObjectStoreUnavailable` this object recognises a repetition.
        """

    def list_backups(self) -> list[BackupInfo]:
        """All backups and holds of clones, by name, with the bytes that only each one keeps."""

    def delete_backup(self, name: str) -> None:
        """Let go of a backup; what only it kept goes with the next vacuum. `BackupNotFound` if there is none."""

    def barrier_channel(
        self, job: str, participant: str, options: JobOptions, inbox: Callable[[BarrierEvent | None], None]
    ) -> BarrierChannel:
        """A line to the coordinator of a job's checkpoints; `InvalidOption` where there is none.

        Events come to `inbox`, which must not wait; `None` asks the participant to join again, or to see that the
        store was closed. Raises `DuplicateName` if this client takes part in the job already.
        """

    def close(self) -> None:
        """Stop background work and release pins."""
