"""The shared buffer: what this client has written and not yet committed (cf. Hummock's shared buffer).

Own writes are read from here at once. Per epoch and table it holds sorted runs, newest first: in memory, or spilled
to uncommitted SSTs when the buffer is over its bytes. Readers take an immutable tuple of runs and need no lock.
Above the runs of a table are those rows of its newest epoch that were written one by one since its newest run.

An epoch is open, then sealed by a commit or an abort. A sealed epoch takes no more rows; it stays buffered until its
commit has succeeded, so that a commit that failed can be repeated.
"""

import threading
import weakref
from collections.abc import Container, Sequence
from contextlib import AbstractContextManager

from tussock.statestore.base.limits import DEFAULT_LIMITS, Limits
from tussock.statestore.base.process.half_done import mending
from tussock.statestore.base.system import System
from tussock.statestore.contract.records import Run
from tussock.statestore.errors import EpochOutOfOrder, EpochTooOld
from tussock.statestore.rows.row_codec import ABSENT, Absent, Row
from tussock.statestore.rows.rows import Rows
from tussock.statestore.write.buffered_run import BufferedRun, neighbours
from tussock.statestore.write.epoch_buffer import EpochBuffer
from tussock.statestore.write.loose_rows import EncodeRows, LooseRows

__all__ = ["SharedBuffer"]

_RUNS_TOGETHER = 4
"""This many runs of about one size become one: of n batches about log n runs stay, and a row is copied as often."""

_SMALL_BYTES = 1 << 20
"""Runs are merged to no more than this while there are few: the commit merges large ones anyway."""

_RUNS_MAX = 32
"""From this many runs of one epoch and table on, large ones are merged, too."""

_RUN_BYTES_MAX = 64 << 20
"""And these to no more than this."""

_NOTHING_WAITS = "no rows wait at it to be committed; for others"
"""What a commit is told whose epoch takes no rows any more, as the one before it held."""


_Written = Sequence[tuple[bytes, Row | None]]


class SharedBuffer:
    """All uncommitted writes of a client, over its tables and epochs."""

    def __init__(self, system: System, limits: Limits = DEFAULT_LIMITS) -> None:
        self._system = system
        self._issued_max = limits.issued_epochs
        self._lock = threading.Lock()
        self._epochs: dict[int, EpochBuffer] = {}
        self._issued: dict[int, None] = {}
        self._newest_sealed = 0
        self._taken: dict[int, None] = {}
        """Epochs that cannot be used again and are no bound for others: by which commits were stamped, and refused
        ones."""
        self._by_table: dict[int, tuple[BufferedRun, ...]] = {}
        self._loose: dict[int, LooseRows] = {}
        """Per table, above all of its runs."""
        self.nbytes = 0
        self._guests: weakref.WeakSet[SharedBuffer] = weakref.WeakSet()
        """Buffers of transactions: nobody else sees their rows, and their uploads are this client's. One that was never
        begun goes with its buffer."""

    def add_guest(self, guest: "SharedBuffer") -> None:
        """From now on `uploads` and `spilled_ids` have those of this buffer as well."""
        with self._lock:
            self._guests.add(guest)

    def remove_guest(self, guest: "SharedBuffer") -> None:
        """What it holds is committed or given up."""
        with self._lock:
            self._guests.discard(guest)

    def runs(self, table: int, epoch: int | None = None) -> tuple[BufferedRun, ...]:
        """The table's buffered runs with an epoch <= `epoch` (all if `None`), newest first; loose rows become one."""
        if table in self._loose:
            with self._changing():
                self._bind(table)
        runs = self.bound_runs(table)
        if epoch is None or not runs:
            return runs
        return tuple(run for run in runs if run.epoch <= epoch)

    def find_loose(self, table: int, key: bytes) -> Rows | Absent | None:
        """A row of the table, or a delete, that is above all runs; `ABSENT` if `bound_runs` has what there is."""
        loose = self._loose.get(table)
        return ABSENT if loose is None else loose.find(key)

    def bound_runs(self, table: int) -> tuple[BufferedRun, ...]:
        """The table's buffered runs of all epochs, newest first, without the loose rows above them."""
        return self._by_table.get(table, ())

    def tables_of(self, epoch: int) -> list[int]:
        """Ids of the tables that have rows at an uncommitted epoch."""
        with self._changing():
            self._bind_epoch(epoch)
            buffer = self._epochs.get(epoch)
            return list(buffer.runs) if buffer is not None else []

    def issue(self, epoch: int) -> bool:
        """Note an epoch to hand out: it may be used even after a later one was sealed. `False` if it was before."""
        with self._lock:
            if epoch in self._issued or epoch in self._epochs or epoch in self._taken:
                return False
            self._issued[epoch] = None
            if len(self._issued) > self._issued_max:
                del self._issued[next(iter(self._issued))]
            return True

    def check_open(self, epoch: int, effect: str = "nothing was stored") -> None:
        """Raise `EpochTooOld` unless rows may be written at `epoch`; `effect` says what became of the call."""
        buffer = self._epochs.get(epoch)
        usable = not buffer.sealed if buffer else epoch in self._issued or epoch > self._newest_sealed
        if not usable or epoch in self._taken:
            sealed = f"is sealed: this client has sealed or committed epochs up to {self._newest_sealed}"
            raise EpochTooOld(
                f"epoch {epoch} {'is committed: a commit of this client holds at it' if usable else sealed}; "
                f"{effect}, take a later one from store.new_epoch()",
                epoch,
                self._newest_sealed,
            )

    def add(self, table: int, epoch: int, rows: Rows) -> None:
        """Buffer a sorted run of unique keys of one epoch; visible to this client's reads when this returns."""
        with self._changing():
            self.check_open(epoch)
            self._bind(table)
            self._add_run(table, epoch, rows)

    def add_alone(self, table: int, epoch: int, written: _Written, nbytes: int, encode: EncodeRows) -> None:
        """Buffer a few rows, or deletes, which may have one key; the last wins. They take `nbytes`."""
        with self._lock:
            try:
                self._add_alone(table, epoch, written, nbytes, encode)
            except BaseException:
                self._repair()
                raise

    def _add_alone(self, table: int, epoch: int, written: _Written, nbytes: int, encode: EncodeRows) -> None:
        self.check_open(epoch)
        loose = self._loose.get(table)
        if loose is None or loose.epoch != epoch:
            if loose is not None and loose.epoch < epoch:
                self._bind(table)
            newest = max((run.epoch for run in self.bound_runs(table)), default=0)
            loose = LooseRows(epoch, encode)
            if epoch < newest or table in self._loose:
                # They are not above all others, so they cannot stay loose.
                loose.add(written, nbytes)
                self._add_run(table, epoch, loose.as_run())
                return
            if epoch not in self._epochs:
                self._open_epoch(epoch)
            self._loose[table] = loose
        loose.add(written, nbytes)
        self.nbytes += nbytes
        if loose.are_many:
            self._bind(table)

    def add_uploaded(self, table: int, epoch: int, run: Run) -> None:
        """The same for a run that another process has uploaded: from now on `uploads` has its SSTs, too."""
        with self._changing():
            self.check_open(epoch)
            self._bind(table)
            buffer = self._epochs.get(epoch) or self._open_epoch(epoch)
            buffer.runs[table] = (BufferedRun(epoch, None, run), *buffer.runs.get(table, ()))
            oldest = min(sst.id for sst in run.ssts)
            buffer.oldest_upload = min(oldest, buffer.oldest_upload or oldest)
            self._publish(table)

    def seal(self, epoch: int) -> EpochBuffer:
        """Close an epoch for writing and answer its runs; `EpochTooOld` if it was committed or given up before.

        Sealing a sealed epoch again returns the same: that is how a failed commit is repeated. Raises
        `EpochOutOfOrder` if an older epoch of this client still has rows for one of its tables: committed later,
        these would win over the newer ones.
        """
        with self._changing():
            for table in [*self._loose]:
                self._bind(table)
            buffer = self._epochs.get(epoch)
            if buffer is None:
                self.check_open(epoch, _NOTHING_WAITS)
                buffer = self._open_epoch(epoch)
            for older in sorted(self._epochs):
                common = buffer.runs.keys() & self._epochs[older].runs.keys()
                if older < epoch and common:
                    raise EpochOutOfOrder(
                        f"epoch {epoch} cannot be committed while this client's older epoch {older} holds rows for the "
                        "same table; commit or abort that one first, and this one then; threads that write to one "
                        "table each use a store.transaction()",
                        epoch,
                        older,
                    )
            if not buffer.sealed or buffer.refused:
                buffer.sealed_before = self._newest_sealed
            buffer.sealed, buffer.refused = True, False
            self._issued.pop(epoch, None)
            self._newest_sealed = max(self._newest_sealed, epoch)
            return buffer

    def refuse(self, epoch: int) -> None:
        """A sealed epoch is too far in the future: its rows are kept, and smaller epochs can be used as before."""
        with self._lock:
            buffer = self._epochs.get(epoch)
            if buffer is not None and not buffer.refused:
                buffer.refused = True
                if self._newest_sealed == epoch:
                    self._newest_sealed = buffer.sealed_before

    def check_held(self, buffer: EpochBuffer) -> None:
        """Raise `EpochTooOld` if a sealed epoch was committed or given up by now."""
        if self._epochs.get(buffer.epoch) is not buffer:
            self.check_open(buffer.epoch, _NOTHING_WAITS)

    def drop(self, epoch: int) -> None:
        """Forget an epoch that was committed or given up; it stays sealed."""
        with self._changing():
            self._bind_epoch(epoch)
            buffer = self._epochs.pop(epoch, None)
            self._issued.pop(epoch, None)
            if buffer is not None and buffer.refused:
                self._taken[epoch] = None
            else:
                self._newest_sealed = max(self._newest_sealed, epoch)
            for table, runs in buffer.runs.items() if buffer else ():
                self.nbytes -= sum(run.nbytes for run in runs)
                self._publish(table)

    def mark(self, epoch: int) -> dict[int, tuple[BufferedRun, ...]]:
        """What an open epoch holds now, for `undo`."""
        with self._changing():
            self._bind_epoch(epoch)
            buffer = self._epochs.get(epoch)
            return dict(buffer.runs) if buffer is not None else {}

    def undo(self, epoch: int, mark: dict[int, tuple[BufferedRun, ...]]) -> None:
        """Be as at the mark: what was added to the open epoch since is given up."""
        with self._changing():
            self._bind_epoch(epoch)
            buffer = self._epochs.get(epoch)
            if buffer is None:
                return
            changed = {table for table, runs in buffer.runs.items() if mark.get(table) is not runs}
            for table in changed:
                self.nbytes -= sum(run.nbytes for run in buffer.runs.pop(table))
                if table in mark:
                    buffer.runs[table] = mark[table]
                    self.nbytes += sum(run.nbytes for run in mark[table])
                self._publish(table)

    def note_committed(self, epoch: int) -> None:
        """A commit of this client holds at `epoch`: nothing can be written there any more."""
        with self._lock:
            # One that is open keeps its rows, and its commit gets another number; one that was handed out to another
            # thread meanwhile, as stamps and epochs come from the same clock, is still to be opened.
            if epoch not in self._epochs and epoch not in self._issued:
                self._taken[epoch] = None
                if len(self._taken) > self._issued_max:
                    del self._taken[next(iter(self._taken))]

    def note_upload(self, epoch: int, sst_id: str) -> None:
        """SSTs of the epoch are about to be uploaded, with ids from `sst_id` on."""
        with self._lock:
            buffer = self._epochs.get(epoch)
            if buffer is not None and buffer.oldest_upload is None:
                buffer.oldest_upload = sst_id

    def uploads(self) -> list[str]:
        """Per epoch that has SSTs in the bucket and is not committed, an id that none of them is below."""
        with self._lock:
            found = [buffer.oldest_upload for buffer in self._epochs.values() if buffer.oldest_upload is not None]
            return [*found, *(upload for guest in self._guests for upload in guest.uploads())]

    def spilled_ids(self) -> list[str]:
        """Ids of the SSTs that uncommitted rows were spilled to."""
        runs = [run for runs in self._by_table.values() for run in runs]
        found = [sst.id for run in runs if run.spilled_to is not None for sst in run.spilled_to.ssts]
        with self._lock:
            return [*found, *(sst_id for guest in self._guests for sst_id in guest.spilled_ids())]

    def spill_candidate(self, tables: Container[int]) -> tuple[int, int, tuple[BufferedRun, ...]] | None:
        """(table, epoch, in-memory runs) of an open epoch and one of `tables`: neighbours that hold the most memory."""
        with self._changing():
            for table in [*self._loose]:
                self._bind(table)
            best, most = None, 0
            for epoch, buffer in self._epochs.items():
                if buffer.sealed:
                    continue
                for table, runs in buffer.runs.items():
                    if table not in tables:
                        continue
                    for some in neighbours(runs):
                        size = sum(run.nbytes for run in some)
                        if size > most:
                            best, most = (table, epoch, some), size
            for run in best[2] if best else ():
                run.spilling = True
            return best

    def replace_by_ssts(self, table: int, epoch: int, runs: tuple[BufferedRun, ...], spilled_to: Run) -> bool:
        """Put the SSTs in the place of the runs that went into them; `False` if the epoch was dropped meanwhile."""
        with self._changing():
            buffer = self._epochs.get(epoch)
            if buffer is None:
                return False
            kept = buffer.runs[table]
            # Newer runs may have come in front meanwhile; others stand behind.
            at = kept.index(runs[0])
            buffer.runs[table] = (*kept[:at], BufferedRun(epoch, None, spilled_to), *kept[at + len(runs) :])
            self.nbytes -= sum(run.nbytes for run in runs)
            self._publish(table)
            return True

    def _changing(self) -> AbstractContextManager[None]:
        """The lock, for changes that an interrupt of the main thread may end between two steps."""
        return mending(self._lock, self._repair)

    def _repair(self) -> None:
        """Reads see what the open epochs have, and no more, whatever was left half done."""
        self._loose = {table: loose for table, loose in self._loose.items() if loose.epoch in self._epochs}
        held = [runs for buffer in self._epochs.values() for runs in buffer.runs.values()]
        self.nbytes = sum(run.nbytes for runs in held for run in runs)
        self.nbytes += sum(loose.nbytes for loose in self._loose.values())
        for table in {*self._by_table, *(table for buffer in self._epochs.values() for table in buffer.runs)}:
            self._publish(table)

    def _open_epoch(self, epoch: int) -> EpochBuffer:
        buffer = self._epochs[epoch] = EpochBuffer(epoch, self._system.lock())
        return buffer

    def _add_run(self, table: int, epoch: int, rows: Rows) -> None:
        buffer = self._epochs.get(epoch) or self._open_epoch(epoch)
        if len(rows):
            run = BufferedRun(epoch, rows)
            buffer.runs[table] = (run, *buffer.runs.get(table, ()))
            self.nbytes += run.nbytes
            self._merge_small(buffer, table)
            self._publish(table)

    def _bind(self, table: int) -> None:
        """Make a run of the table's loose rows; readers without the lock meet them at least once."""
        loose = self._loose.get(table)
        if loose is not None:
            self._add_run(table, loose.epoch, loose.as_run())
            self.nbytes -= loose.nbytes
            del self._loose[table]

    def _bind_epoch(self, epoch: int) -> None:
        for table in [table for table, loose in self._loose.items() if loose.epoch == epoch]:
            self._bind(table)

    def _merge_small(self, buffer: EpochBuffer, table: int) -> None:
        """Merge the newest runs, if there are some that no older one is much larger than; later batches win."""
        runs = buffer.runs[table]
        count, size = 1, runs[0].nbytes
        most = _SMALL_BYTES if len(runs) < _RUNS_MAX else _RUN_BYTES_MAX
        while (
            count < len(runs)
            and runs[count].joins(runs[0])
            and runs[count].nbytes <= 2 * size
            and size + runs[count].nbytes <= most
        ):
            size += runs[count].nbytes
            count += 1
        if count >= _RUNS_TOGETHER:
            parts = [run.block.rows for run in runs[:count] if run.block is not None]
            merged = BufferedRun(buffer.epoch, Rows.merge(parts).newest().with_epochs(parts[0].epochs))
            buffer.runs[table] = (merged, *runs[count:])
            self.nbytes += merged.nbytes - size

    def _publish(self, table: int) -> None:
        runs = [run for epoch in sorted(self._epochs, reverse=True) for run in self._epochs[epoch].runs.get(table, ())]
        if runs:
            self._by_table[table] = tuple(runs)
        else:
            self._by_table.pop(table, None)
