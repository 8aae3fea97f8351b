"""What the store has to be, known from outside: the log entries that took effect, and what the workloads meant.

The oracle sees every object at the moment that it is written or deleted. It replays the log by itself, entry by entry
as they are created, and knows of each batch what it was to write; so it can say at any moment what every table holds
at every epoch, without a look into an SST, and compare: what SSTs hold, what readers get, what nodes believe.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from simulation.judge.contents import Row, SstContents
from simulation.machine.scheduler import Violation
from support.models.history import TableHistory
from tussock.meta.log.bucket_clock import MAX_AHEAD_MS
from tussock.meta.log.format import decode_entry, sequence_of
from tussock.meta.log.recovery import apply_entry
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.meta.version.deltas.delta import extend
from tussock.meta.version.deltas.losses import QuarantineSst
from tussock.meta.version.deltas.retention import ExpireHistory
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.invariants import problems
from tussock.meta.version.ledger import BATCHES_REMEMBERED
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import SstInfo, data_object, object_sizes, stored_bytes
from tussock.statestore.epochs import MAX_EPOCH, epoch_ms
from tussock.statestore.errors import TussockError

__all__ = ["Batch", "HeldPin", "Oracle", "State", "entries_of"]

State = dict[bytes, bytes]
DEEP_EPOCHS_MAX = 8


@dataclass
class Batch:
    """The rows of one commit, as its writer means them."""

    name: str
    writer: str | None
    batch_id: int | None
    rows: dict[str, dict[bytes, bytes | None]]
    """Its operations, by table; `None` deletes."""
    expect: dict[str, int] = field(default_factory=dict)
    epoch: int | None = None
    """Its epoch, once it has taken effect."""
    runner: str = ""
    """The only process that may commit it; empty: any of its writer's."""
    given_up: bool = False
    """Its writer was told that it is not committed and never will be."""


@dataclass
class HeldPin:
    """A pin, as its holder was told of it."""

    epoch: int
    node: str
    states: dict[str, State]
    unkept: tuple[int, ...]
    """Ids of the tables that it came too late for."""


class Oracle:
    """The truth about one bucket."""

    def __init__(self, objects: dict[str, tuple[bytes, int]], *, bank_total: int) -> None:
        self.version = Version()
        self.versions: dict[int, Version] = {0: self.version}
        self.commits: list[int] = []
        self.batches: dict[str, Batch] = {}
        self.pins: dict[int, HeldPin] = {}
        self.now_ms: Callable[[], int] = lambda: 1 << 62
        """The bucket's clock."""
        self.tasks_are_kept = False
        """No process dies or stands still, so no task may be taken from its owner."""
        names = ("entries", "commits", "compactions", "parted", "expiries", "losses", "deleted", "strays", "renewals")
        self.counts = dict.fromkeys(names, 0)
        self._objects = objects
        self._contents = SstContents(objects)
        self._tables: dict[int, TableHistory[bytes, bytes]] = defaultdict(TableHistory)
        """By table id."""
        self._names: dict[str, int] = {}
        self._live: set[str] = set()
        self._live_entries: set[int] = set()
        self._bank_total = bank_total

    # --- What the tables hold ------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The newest committed epoch."""
        return self.commits[-1] if self.commits else 0

    def state(self, table: str, epoch: int) -> State:
        """What a reader at `epoch` has to see."""
        return self.state_of(self._names.get(table, -1), epoch)

    def state_of(self, table_id: int, epoch: int) -> State:
        """What a reader at `epoch` has to see of the table with that id, even if another table has its name now."""
        return self._tables[table_id].at(epoch)

    def states(self, table: str, floor: int) -> Iterator[tuple[int, State]]:
        """All states that a reader that has seen `floor` may see now: epochs from `floor` on, ascending."""
        history = self._tables[self._names.get(table, -1)]
        if history.ttl_ms is None:
            return history.since(floor)
        # Any commit, to whichever table, may be the one by which rows expire.
        return ((epoch, history.at(epoch)) for epoch in (floor, *(one for one in self.commits if one > floor)))

    def changes(self, table: str, after: int, until: int) -> list[tuple[int, bytes, bytes | None]]:
        """All operations of (after, until], by epoch, then key."""
        return self._tables[self._names.get(table, -1)].changes(after, until)

    def hold(self, token: int, epoch: int, node: str, unkept: tuple[int, ...]) -> None:
        """A process was told that it holds a pin."""
        for state in self.version.tables.values():
            compacted = self.version.compacted_epoch_of(state)
            if epoch < compacted and state.spec.id not in unkept:
                raise Violation(
                    f"guarantee 3: {node} is said to hold epoch {epoch} of {state.spec.name}, of which rows below "
                    f"{compacted} are gone"
                )
        self.pins[token] = HeldPin(epoch, node, {name: self.state(name, epoch) for name in self._names}, unkept)

    # --- What happens to the objects -----------------------------------------------------------------------------

    def note_write(self, path: str, data: bytes, *, created: bool) -> None:
        """See `Observer`."""
        if path.startswith("log/") and not path.startswith("log/boundary/"):
            if not created:
                raise Violation(f"{path} was overwritten: log entries are created only")
            self._entry(path, data)

    def deleting(self, path: str) -> None:
        """See `Observer`."""
        self.counts["deleted"] += 1
        if path.startswith("sst/"):
            if path.removeprefix("sst/").partition(".")[0] in self._live:
                raise Violation(f"guarantee 7: {path} is deleted, and version {self.version.seq} names it")
        elif path.startswith("log/") and not path.startswith("log/boundary/"):
            seq = sequence_of(path) or 0
            if seq in self._live_entries:
                raise Violation(f"guarantee 7: {path} is deleted, and version {self.version.seq} names an SST in it")
            if seq > max(self._sequences("log/boundary/"), default=0):
                raise Violation(f"{path} is deleted with no marker at or above it: its number could be used again")
            if seq > max(self._sequences("snapshot/"), default=0):
                raise Violation(f"{path} is deleted, and no snapshot covers it")

    def _sequences(self, prefix: str) -> Iterable[int]:
        return [sequence_of(path) or 0 for path in self._objects if path.startswith(prefix)]

    def _entry(self, path: str, data: bytes) -> None:
        seq = sequence_of(path)
        assert seq is not None
        entry = decode_entry(path, seq, data)
        if seq <= self.version.seq:
            # A stalled writer has created a number again that was truncated; the marker tells everybody.
            if seq > max(self._sequences("log/boundary/"), default=0):
                raise Violation(f"{path} was created again, and no marker is at or above it")
            self.counts["strays"] += 1
            return
        if seq != self.version.seq + 1:
            raise Violation(f"{path} was created, but the log ends at {self.version.seq}: it has a hole")
        before = self.version
        if 0 < entry.term < before.term:
            raise Violation(f"guarantee 8: {path} is of term {entry.term}, and term {before.term} had begun before it")
        try:
            extend(before, entry.deltas, term=entry.term)
            after = apply_entry(before, entry)
        except TussockError as error:
            raise Violation(f"{path} does not fit the version that it lands on: {error}") from error
        self.version = after
        self.versions[seq] = after
        self._live = after.live_sst_ids() | after.quarantined_ids()
        self._live_entries = entries_of(after)
        self.counts["entries"] += 1
        for delta in entry.deltas:
            if isinstance(delta, CreateTable):
                self._names[delta.spec.name] = delta.spec.id
                self._tables[delta.spec.id].ttl_ms = delta.spec.ttl_ms
            if isinstance(delta, CommitEpoch):
                self._check_commit(before, delta)
            if isinstance(delta, ReportCompaction):
                self._check_compaction(before, delta)
            if isinstance(delta, ExpireHistory):
                self._check_expiry(delta)
            if isinstance(delta, QuarantineSst):
                self._check_loss(delta)
            if isinstance(delta, ClaimCompaction) and delta.is_renewal:
                self.counts["renewals"] += 1
            if isinstance(delta, ReleaseCompaction) and self.tasks_are_kept:
                task = before.tasks[delta.task_id]
                if task.owner != delta.owner:
                    raise Violation(f"{delta.owner} took task {task.id} from {task.owner}, which was at work on it")
        if wrong := problems(after):
            raise Violation(f"version {seq} is not sound: {'; '.join(wrong)}")

    def _check_commit(self, before: Version, delta: CommitEpoch) -> None:
        self.counts["commits"] += 1
        if epoch_ms(delta.epoch) > self.now_ms() + MAX_AHEAD_MS:
            raise Violation(f"epoch {delta.epoch} was committed, which is more than an hour ahead of the bucket")
        if delta.epoch <= self.newest:
            raise Violation(f"epoch {delta.epoch} was committed after epoch {self.newest}")
        batch = self._batch_of(delta)
        if batch.epoch is not None:
            raise Violation(f"batch {batch.name} was committed twice: at epochs {batch.epoch} and {delta.epoch}")
        if batch.given_up:
            raise Violation(f"batch {batch.name} took effect after its writer was told that it never will")
        by_id = {self._names[name]: rows for name, rows in batch.rows.items() if rows}
        if set(by_id) != set(delta.tables):
            raise Violation(f"batch {batch.name} was to write {sorted(batch.rows)}, its commit has {delta.tables}")
        for name, read_epoch in batch.expect.items():
            last = self._tables[self._names[name]].last_epoch
            if last > read_epoch:
                raise Violation(f"batch {batch.name} read {name} at {read_epoch}, and {last} was committed to it since")
        batch.epoch = delta.epoch
        self.commits.append(delta.epoch)
        for table_id, rows in by_id.items():
            self._check_rows(batch, delta, table_id, rows)
            self._tables[table_id].commit(delta.epoch, rows)
        self.check_bank(delta.epoch)

    def may_answer(self, batch: Batch, epoch: int) -> bool:
        """Whether a commit of the batch may return this epoch: its epoch, or the oldest that is known of its writer."""
        if epoch == batch.epoch or batch.epoch is None or batch.writer is None:
            return epoch == batch.epoch
        epochs = sorted(one.epoch for one in self.batches.values() if one.writer == batch.writer and one.epoch)
        return epoch > batch.epoch and epoch in epochs[: 1 - BATCHES_REMEMBERED]

    def _batch_of(self, delta: CommitEpoch) -> Batch:
        if delta.writer is not None:
            return self.batches[f"{delta.writer}:{delta.batch_id}"]
        # A commit without a writer is known by a key that no other batch has, which sorts first.
        marks = {sst.smallest for runs in delta.tables.values() for run in runs for sst in run.ssts}
        for mark in sorted(marks):
            if (batch := self.batches.get(mark[1:].decode("latin-1"))) is not None:
                return batch
        raise Violation(f"a commit at epoch {delta.epoch} that nobody asked for, its smallest keys are {marks}")

    def _check_rows(self, batch: Batch, delta: CommitEpoch, table_id: int, rows: dict[bytes, bytes | None]) -> None:
        """Check that the SSTs of the commit hold exactly the batch."""
        found: dict[bytes, bytes | None] = {}
        for run in reversed(delta.tables[table_id]):
            for sst in run.ssts:
                self._check_objects(sst)
                found.update({key: value for key, _, value in self._contents.rows(sst)})
        if found != rows:
            raise Violation(f"guarantee 4: batch {batch.name} was to write {rows}, its SSTs hold {found}")

    def _check_objects(self, sst: SstInfo) -> None:
        if sst.entry:
            found = self._objects.get(data_object(sst))
            if found is None or len(found[0]) < sst.offset + stored_bytes(sst):
                raise Violation(f"version {self.version.seq} names {sst}, and there are no such bytes in its entry")
        for path, size in object_sizes(sst).items():
            found = self._objects.get(path)
            if found is None or len(found[0]) != size:
                raise Violation(f"version {self.version.seq} names {path} of {size} bytes, which is not there")

    def check_bank(self, epoch: int) -> None:
        """Check that the sum over all accounts is that of the start."""
        accounts = [self.state(name, epoch) for name in self._names if name.startswith("bank")]
        total = sum(int(value) for state in accounts for value in state.values())
        if any(accounts) and total != self._bank_total:
            raise Violation(f"the accounts sum up to {total} at epoch {epoch}, expected {self._bank_total}")

    def _check_compaction(self, before: Version, delta: ReportCompaction) -> None:
        """Check that the table holds the same rows as before at every readable epoch."""
        self.counts["compactions"] += 1
        table_id = before.tasks[delta.task_id].table_id if delta.task_id in before.tasks else None
        self.counts["parted"] += bool(delta.history)
        for sst in (*delta.outputs, *delta.history):
            self._check_objects(sst)
        for pin in self.pins.values():
            if pin.epoch < delta.watermark and table_id not in pin.unkept:
                raise Violation(
                    f"guarantee 3: {pin.node} holds a pin on epoch {pin.epoch}, and a compaction has used the "
                    f"watermark {delta.watermark}"
                )
        if table_id is not None and table_id in self.version.tables:  # else the same entry dropped the table
            self._check_table(table_id, f"compaction {delta.task_id}")

    def _check_loss(self, delta: QuarantineSst) -> None:
        """Check that nothing but what the loss says is missing from now on."""
        self.counts["losses"] += 1
        loss, saved = delta.loss, delta.saved
        if saved is not None:
            self._check_objects(saved)
        rows = set(self._contents.rows(loss.sst))
        rest = set() if saved is None else set(self._contents.rows(saved))
        lost = rows - rest
        within = [
            any(one.first <= key < one.end or (one.closed and key == one.end) for one in loss.ranges)
            for key, _, _ in lost
        ]
        if not rest <= rows or len(lost) != loss.rows or not all(within):
            raise Violation(f"SST {loss.sst.id} loses {lost} and keeps {rest}, and its repair says {loss}")
        self._tables[loss.table_id].lose({(epoch, key) for key, epoch, _ in lost})
        self._check_table(loss.table_id, f"the loss of SST {loss.sst.id}")

    def _check_expiry(self, delta: ExpireHistory) -> None:
        """Check that all tables hold the same rows as before at every readable epoch."""
        self.counts["expiries"] += 1
        for table_id, state in self.version.tables.items():
            until = delta.tables.get(table_id, 0) if state.own_epochs else delta.epoch
            for pin in self.pins.values():
                if pin.epoch < until and table_id not in pin.unkept:
                    raise Violation(
                        f"guarantee 3: {pin.node} pins epoch {pin.epoch}, and history of {state.spec.name} expires to "
                        f"{until}"
                    )
            self._check_table(table_id, f"history expired up to {until}")

    def _check_table(self, table_id: int, after: str) -> None:
        """Check what SSTs hold at readable epochs, by the rule by which the live tree and history are read."""
        state = self.version.tables[table_id]
        readable = [epoch for epoch in self.commits if epoch >= self.version.compacted_epoch_of(state)]
        pinned = (pin.epoch for pin in self.pins.values() if table_id not in pin.unkept)
        epochs = {*readable[-DEEP_EPOCHS_MAX:], *readable[:1], *pinned}
        ttl_ms = state.spec.ttl_ms
        live = [(row, MAX_EPOCH + 1) for run in state.levels.runs() for sst in run for row in self._contents.rows(sst)]
        past = [
            (row, until)
            for run in reversed(state.levels.history)
            for sst in run.ssts
            for row, until in zip(self._contents.rows(sst), self._contents.untils(sst), strict=True)
        ]
        for sst in state.levels.history_ssts():
            if sst.until != max(self._contents.untils(sst)):
                raise Violation(f"SST {sst.id} of history has rows until {max(self._contents.untils(sst))}: {sst}")
        for epoch in sorted(epochs):
            found: dict[bytes, tuple[int, bytes | None]] = {}
            # Of two rows of one epoch the first one counts: history before live runs, which come newest first.
            for (key, at, value), until in (*past, *live):
                if at <= epoch < until and (key not in found or found[key][0] < at):
                    found[key] = at, value
            seen = {
                key: value
                for key, (at, value) in found.items()
                if value is not None and (ttl_ms is None or epoch_ms(at) + ttl_ms > epoch_ms(epoch))
            }
            if seen != self.state_of(table_id, epoch):
                raise Violation(
                    f"guarantee 6: after {after}, table {state.spec.name} at epoch {epoch} is "
                    f"{seen}, expected {self.state_of(table_id, epoch)}"
                )
        self._check_changes(table_id, readable[:1], [row for row, _ in (*past, *live)], after)

    def _check_changes(self, table_id: int, oldest: list[int], rows: list[Row], after: str) -> None:
        """Check that nothing that was committed after the oldest readable epoch is missing."""
        there = {(at, key) for key, at, _ in rows}
        for epoch, key, _ in self._tables[table_id].changes(min(oldest, default=0), self.newest) if oldest else ():
            if (epoch, key) not in there:
                raise Violation(f"guarantee 6: after {after}, the change of {key!r} at epoch {epoch} is nowhere")

    def check_nothing_lost(self) -> None:
        """Check that every SST of the version exists."""
        for state in self.version.tables.values():
            for sst in state.levels.ssts():
                if data_object(sst) not in self._objects:
                    raise Violation(f"version {self.version.seq} names {data_object(sst)}, which is not there")

    def check_nothing_left(self) -> None:
        """Check that no entry stays below the newest marker without a needed SST in it."""
        marker = max(self._sequences("log/boundary/"), default=0)
        paths = [path for path in self._objects if path.startswith("log/") and path.endswith(".delta")]
        left = [path for path in paths if (seq := sequence_of(path) or 0) <= marker and seq not in self._live_entries]
        if left:
            raise Violation(f"guarantee 7: nothing names these entries, and vacuum leaves them: {left}")


def entries_of(version: Version) -> set[int]:
    """The log entries that hold SSTs of the version, damaged ones that it keeps as well."""
    return {sst.entry for sst in (*version.kept_ssts(), *version.quarantined()) if sst.entry}
