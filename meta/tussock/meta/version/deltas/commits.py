"""Committing an epoch: the stamp that makes it final, and the delta that puts its SSTs on top of L0.

Everything is checked on the version at the tail of the log, inside the append's retry loop: of two writers that
commit at once, the second is stamped again on the version that the first left. Pure; the clock is a parameter.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from tussock.meta.version.ledger import BATCHES_REMEMBERED, check_source, record
from tussock.meta.version.names import NameOrigin
from tussock.meta.version.ranges import find_in_run, is_sorted_run
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, entry_path
from tussock.statestore.epochs import MAX_EPOCH, check_epoch, next_epoch
from tussock.statestore.errors import (
    Conflict,
    EpochTooOld,
    Fenced,
    InvalidBatch,
    InvalidOption,
    StaleUpload,
    TableNotFound,
)
from tussock.statestore.keys.key_bytes import KEY_BYTES_MAX

__all__ = [
    "AlreadyCommitted",
    "CommitEpoch",
    "OpenWriter",
    "check_uploads",
    "stamp",
    "with_payloads",
]

TIMELINE_SAMPLES_MAX = 2048
TIMELINE_RESOLUTION = 32
"""After thinning, two samples of age `a` are about `a / 32` apart: retention is exact to 3 %."""


class CommitEpoch(msgspec.Struct, frozen=True, kw_only=True, tag="commit_epoch", tag_field="type"):
    """An epoch becomes final: its sorted runs go on top of L0, all or none."""

    epoch: int
    at_ms: int
    tables: dict[int, tuple[Run, ...]] = {}
    """Per table id the sorted runs, newest first; every SST carries `epoch`."""
    writer: str | None = None
    batch_id: int | None = None
    generation: int | None = None
    """Of the writer, where it was opened; the delta is refused once a newer one is."""
    source: str | None = None
    """Whose batch it is, where that was told."""
    recorded: bool = False
    """The writer's record is kept; releases before format 5 kept none."""
    by: str | msgspec.UnsetType = msgspec.UNSET
    """The identity that brought the writer's name, if it is new."""

    def validate(self, version: Version) -> None:
        """Raise a named error unless it may be applied to `version`."""
        if not version.max_committed_epoch < self.epoch <= MAX_EPOCH:
            raise EpochTooOld(
                f"epoch {self.epoch} cannot be committed: epoch {version.max_committed_epoch} is the newest committed "
                "one, and epochs only grow; take one from store.new_epoch()"
            )
        _check_generation(version, self.writer, self.generation)
        check_uploads(version, [sst.id for sst in _all_ssts(self)])
        named: set[str] = set()
        for table_id, runs in self.tables.items():
            state = version.tables.get(table_id)
            if state is None:
                raise TableNotFound(
                    f"table with id {table_id} is not in the store (dropped meanwhile?); epoch not committed"
                )
            for run in runs:
                if not run.ssts or not is_sorted_run(run.ssts):
                    raise InvalidBatch(
                        f"table {state.spec.name!r}, epoch {self.epoch}: a sorted run is empty or its SSTs overlap: "
                        f"{[sst.id for sst in run.ssts]}; nothing was committed"
                    )
                for sst in run.ssts:
                    if (sst.epoch, sst.min_epoch, sst.max_epoch) != (self.epoch,) * 3 or sst.until or sst.id in named:
                        raise InvalidBatch(
                            f"SST {sst.id} is named twice or not of epoch {self.epoch}; nothing was committed"
                        )
                    if sst.source or sst.entry not in (0, version.seq + 1):
                        raise InvalidBatch(
                            f"SST {sst.id} is said to lie in {sst.source or entry_path(sst.entry)}; a commit brings "
                            "SSTs along, or such as were uploaded to the store's own bucket"
                        )
                    named.add(sst.id)
                    held = _find(state.levels, sst)
                    if held is not None:
                        raise InvalidBatch(
                            f"SST {sst.id} is in table {state.spec.name!r} already, since epoch {held.min_epoch}: it "
                            "was committed before; a commit brings new SSTs"
                        )
        if known := min((named & version.dropped_sst_ids()) | (named & version.quarantined_ids()), default=""):
            raise InvalidBatch(
                f"SST {known} was committed before, and has been compacted away since, or put aside as damaged: if "
                "this repeats a commit, that one happened, and its epoch is no longer known; nothing was committed "
                "now, since a commit brings new SSTs"
            )

    def apply(self, version: Version) -> Version:
        """The version with the epoch in it; O(tables + runs of the touched tables), not O(SSTs)."""
        tables = dict(version.tables)
        for table_id, runs in self.tables.items():
            state = tables[table_id]
            levels = replace(state.levels, l0=runs + state.levels.l0)
            tables[table_id] = replace(state, levels=levels, last_epoch=self.epoch)
        ledger, writers = version.ledger, version.writers
        if self.writer is not None and self.batch_id is not None:
            before, batch = ledger.get(self.writer, ()), (self.batch_id, self.epoch)
            ledger = {**ledger, self.writer: (*before, batch)[-BATCHES_REMEMBERED:]}
            if self.recorded:
                known = record(before, writers.get(self.writer), self.batch_id, self.source, self.tables)
                writers = {**writers, self.writer: known}
            elif self.writer in writers:
                writers = {name: known for name, known in writers.items() if name != self.writer}
            if self.by is not msgspec.UNSET:
                version = version.with_name(self.writer, NameOrigin(by=self.by))
        return replace(
            version,
            tables=tables,
            ledger=ledger,
            writers=writers,
            max_committed_epoch=self.epoch,
            timeline=_with_sample(version.timeline, self.at_ms, self.epoch),
        )


class OpenWriter(msgspec.Struct, frozen=True, kw_only=True, tag="open_writer", tag_field="type"):
    """A writer is opened once more, by the job that takes its name over: older generations can commit no more."""

    writer: str
    generation: int
    """One more than before; the first is 1, or one more than that of any name that was forgotten."""
    by: str | msgspec.UnsetType = msgspec.UNSET
    """The identity that brought the name, if it is new."""
    at_ms: int | msgspec.UnsetType = msgspec.UNSET
    """When, if it is new."""

    def validate(self, version: Version) -> None:
        """Raise unless it is the next generation of its writer."""
        newest = version.newest_generation(self.writer)
        if not self.writer:
            raise InvalidOption("a writer needs a name that is not empty")
        if self.generation != newest + 1:
            raise Conflict(
                f"writer {self.writer!r} was to get generation {self.generation}, but the newest is {newest}; open it "
                "again"
            )

    def apply(self, version: Version) -> Version:
        """The version in which that generation of the writer is the newest."""
        if self.by is not msgspec.UNSET:
            version = version.with_name(self.writer, NameOrigin(by=self.by, opened_ms=self.at_ms or 0))
        return replace(version, generations={**version.generations, self.writer: self.generation})


class AlreadyCommitted(msgspec.Struct, frozen=True):
    """The (writer, batch) was committed before; nothing is to be appended."""

    epoch: int
    """The epoch that holds it."""


def stamp(version: Version, request: CommitRequest, now_ms: int) -> CommitEpoch | AlreadyCommitted:
    """Turn a request into the delta that may be appended to `version`, with its final epoch.

    A request of a (writer, batch) that is committed, or one without a writer whose SSTs all stand in the tables as
    they were committed in one epoch, repeats a commit, and is answered with that epoch.

    Where another writer has committed the request's epoch or a newer one, the commit gets a fresh epoch, and its SSTs
    are rewritten to carry that one (their rows carry none). What the delta holds is checked by its own `validate`,
    where it lands.

    Raises:
        Fenced: a newer generation of the writer was opened; the batch is older than one that the writer has
            committed, and was never committed itself; or its id is taken by a batch of something else.
        Conflict: a table of `expect` has a newer epoch than the writer had read, is newer itself, or was dropped.
        TableNotFound: a table is not in `version`.
        InvalidOption, InvalidBatch: the request contradicts itself.
    """
    if (request.writer is None) != (request.batch_id is None):
        raise InvalidOption(
            f"writer is {request.writer!r}, batch_id is {request.batch_id!r}: give both, for an "
            "idempotent commit, or none"
        )
    check_epoch(request.epoch)
    check_source(request.source, request.writer)
    _check_generation(version, request.writer, request.generation)
    if request.writer is not None and request.batch_id is not None:
        rows_in = [table for table, runs in request.tables.items() if runs]
        holding = version.committed_epoch_of(request.writer, request.batch_id, request.source, rows_in)
        if holding is not None:
            return AlreadyCommitted(holding)
    if request.writer is None:
        holding = _epoch_of_ssts(version, request)
        if holding is not None:
            return AlreadyCommitted(holding)
    if any(len(key) > KEY_BYTES_MAX for sst in _all_ssts(request) for key in (sst.smallest, sst.largest)):
        raise InvalidBatch(f"a key of the commit has more than {KEY_BYTES_MAX} bytes; nothing was committed")
    for table_id, read_epoch in request.expect.items():
        _check_expected(version, table_id, read_epoch)
    for table_id in request.tables:
        if table_id not in version.tables:
            raise TableNotFound(
                f"table with id {table_id} is not in the store (dropped meanwhile?); epoch not committed"
            )
    epoch = request.epoch
    if epoch <= version.max_committed_epoch:
        epoch = next_epoch(now_ms, version.max_committed_epoch)
    if epoch > MAX_EPOCH:
        raise EpochTooOld(
            f"epoch {version.max_committed_epoch} is committed and is the largest there is: no commit can follow, "
            "until `tussock repair clock` has given it a present number"
        )
    return CommitEpoch(
        epoch=epoch,
        at_ms=now_ms,
        tables={table: _at_epoch(runs, epoch) for table, runs in request.tables.items() if runs},
        writer=request.writer,
        batch_id=request.batch_id,
        generation=request.generation,
        source=request.source,
        recorded=request.writer is not None,
    )


def with_payloads(
    delta: CommitEpoch, payloads: Mapping[str, bytes], seq: int, start: int
) -> tuple[CommitEpoch, list[bytes]]:
    """The commit with those of its SSTs that have payloads placed in log entry `seq`, and their bytes in that order.

    The first one begins at `start` in the object of that entry, and each further one where the one before ends.
    """
    brought: list[bytes] = []

    def place(sst: SstInfo) -> SstInfo:
        nonlocal start
        payload = payloads.get(sst.id)
        if payload is None:
            return sst
        brought.append(payload)
        start += len(payload)
        return replace(sst, entry=seq, offset=start - len(payload))

    tables = {
        table: tuple(Run(ssts=tuple(map(place, run.ssts))) for run in runs) for table, runs in delta.tables.items()
    }
    return replace(delta, tables=tables), brought


def check_uploads(version: Version, ids: Sequence[str]) -> None:
    """Raise `StaleUpload` if one of the SST ids lies below the GC horizon: vacuum may have deleted it."""
    stale = [sst_id for sst_id in ids if sst_id < version.gc_horizon]
    if stale:
        raise StaleUpload(
            f"SST {stale[0]} (of {len(stale)} such) is below the garbage horizon {version.gc_horizon}: its upload "
            "is old enough for vacuum to have deleted it; upload again under a new id at or above the horizon"
        )


def _check_generation(version: Version, writer: str | None, generation: int | None) -> None:
    """Raise `Fenced` if a newer generation of the writer was opened; a commit that names none is not held to it."""
    if generation is None:
        return
    if writer is None:
        raise InvalidOption(f"generation is {generation}, but no writer is named; it belongs to one")
    newest = version.generations.get(writer, 0)
    if generation < newest:
        raise Fenced(
            f"generation {generation} of writer {writer!r} is over: generation {newest} was opened since, by the "
            "process that took this job over; nothing was committed, stop this one",
            writer,
            generation,
            newest,
        )
    if newest < generation <= version.names.generation_floor:
        raise Fenced(
            f"writer {writer!r} was forgotten since its generation {generation} was opened, by an admin or as it had "
            "not committed; nothing was committed, stop this process, or open the writer again",
            writer,
            generation,
        )
    if generation > newest:
        raise InvalidOption(
            f"generation {generation} of writer {writer!r} was never opened, the newest is {newest}; take it from "
            "store.open_writer()"
        )


def _check_expected(version: Version, table_id: int, read_epoch: int) -> None:
    """Raise `Conflict` unless the table is still as it was read at that epoch."""
    state = version.tables.get(table_id)
    if state is None:
        if table_id >= version.next_table_id:
            raise TableNotFound(f"table with id {table_id} is not in the store; epoch not committed")
        gone = version.gone.get(table_id)
        name = repr(gone.state.spec.name) if gone else f"with id {table_id}"
        raise Conflict(
            f"table {name} was read at epoch {read_epoch}, and has been dropped since, though another may have its "
            "name; nothing of this commit is visible: open it and read again, and retry"
        )
    if version.renumbered and version.renumbered.means_nothing(read_epoch, version.max_committed_epoch):
        raise Conflict(
            f"table {state.spec.name!r} was read at epoch {read_epoch}, which was far ahead of the bucket's clock "
            "and has another number since a repair of the store; nothing of this commit is visible: read again and "
            "retry"
        )
    if state.created_epoch > read_epoch:
        raise Conflict(
            f"table {state.spec.name!r} was read at epoch {read_epoch}, but it was created after epoch "
            f"{state.created_epoch}; nothing of this commit is visible: read again and retry"
        )
    if state.last_epoch > read_epoch:
        raise Conflict(
            f"table {state.spec.name!r} was read at epoch {read_epoch}, but epoch {state.last_epoch} has been "
            "committed to it since; nothing of this commit is visible: read again and retry"
        )


def _at_epoch(runs: Sequence[Run], epoch: int) -> tuple[Run, ...]:
    return tuple(
        Run(ssts=tuple(replace(sst, epoch=epoch, min_epoch=epoch, max_epoch=epoch) for sst in run.ssts)) for run in runs
    )


def _all_ssts(commit: CommitEpoch | CommitRequest) -> Iterator[SstInfo]:
    for runs in commit.tables.values():
        for run in runs:
            yield from run.ssts


def _find(levels: TableLevels, sst: SstInfo) -> SstInfo | None:
    """The SST of that id as the tree has it; found by its smallest key, so that a commit does not scan all SSTs."""
    key = sst.smallest
    for run in (*levels.runs(), *(one.ssts for one in levels.history)):
        # Compared first: most SSTs that are looked for are new.
        if run[0].smallest <= key <= run[-1].smallest:
            found = find_in_run(run, sst)
            if found is not None:
                return found
    return None


def _epoch_of_ssts(version: Version, request: CommitRequest) -> int | None:
    """The epoch in which exactly the request's SSTs were committed, if all of them still stand in the tables."""
    epochs: set[int] = set()
    for table_id, runs in request.tables.items():
        state = version.tables.get(table_id)
        for run in runs:
            for sst in run.ssts:
                held = None if state is None else _find(state.levels, sst)
                # The outputs of compactions have their own ids, so what is found is as it was committed. As a rule
                # the very first one is new, and nothing more is looked at.
                if held is None or held.epoch == 0:
                    return None
                epochs.add(held.epoch)
    return epochs.pop() if len(epochs) == 1 else None


def _with_sample(timeline: tuple[tuple[int, int], ...], at_ms: int, epoch: int) -> tuple[tuple[int, int], ...]:
    """The timeline with one more commit.

    Times are made to ascend: a commit by a clock that lags is taken to be as late as the one before it. The other
    choice, to believe it, could end the retention of a row before its time; this one can only keep rows longer.
    """
    last_ms = timeline[-1][0] if timeline else at_ms
    kept = timeline[:-1] if timeline and at_ms <= last_ms else timeline
    grown = (*kept, (max(at_ms, last_ms), epoch))
    return grown if len(grown) <= TIMELINE_SAMPLES_MAX else _thin(grown)


def _thin(timeline: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Keep samples as far apart as a thirty-second of their age: about `32 * ln(span)` of them, under a thousand.

    Dropping every second sample was the other idea; repeated, it forgets everything that is older than a few
    thousand commits, and a busy store would never find an epoch old enough for its retention.
    """
    newest_ms = timeline[-1][0]
    kept = [timeline[-1]]
    for sample in reversed(timeline[:-1]):
        if (kept[-1][0] - sample[0]) * TIMELINE_RESOLUTION >= newest_ms - sample[0]:
            kept.append(sample)
    return tuple(reversed(kept))
