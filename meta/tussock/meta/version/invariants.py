"""What must hold of every version, as one pure function; tests call it after every delta, `tussock check` on a store.

Each rule names the guarantee that would fall with it.
"""

from collections.abc import Iterator
from itertools import pairwise

from tussock.meta.version.deltas.tasks import targets_collide
from tussock.meta.version.history import is_history_run
from tussock.meta.version.ledger import RANGES_MAX
from tussock.meta.version.ranges import is_sorted_run, older_overlap, ranks
from tussock.meta.version.version import Version
from tussock.statestore.contract.records import TableState

__all__ = ["problems"]


def problems(version: Version) -> list[str]:
    """Everything that is wrong with the version, in words; empty if it is sound."""
    return [
        *_about_tables(version),
        *_about_epochs(version),
        *_about_tasks(version),
        *_about_backups(version),
        *_about_places(version),
        *_about_fences(version),
        *(problem for state in version.tables.values() for problem in _about_runs(state)),
    ]


def _about_tables(version: Version) -> Iterator[str]:
    names = [state.spec.name for state in version.tables.values()]
    if len(set(names)) != len(names):
        yield f"two tables share a name: {sorted(names)}"
    for table_id, state in version.tables.items():
        if state.spec.id != table_id or table_id >= version.next_table_id:
            yield f"table {state.spec.name!r} has id {state.spec.id} under {table_id}, next is {version.next_table_id}"
    for table_id, gone in version.gone.items():
        if gone.state.spec.id != table_id or table_id in version.tables or table_id >= version.next_table_id:
            yield f"table {gone.state.spec.name!r} is gone under {table_id}, where another one is or may come"
        if gone.dropped_seq > version.seq or gone.dropped_epoch > version.max_committed_epoch:
            yield f"table {gone.state.spec.name!r} was dropped by entry {gone.dropped_seq}, after {version.seq}"
    ids = [sst.id for sst in version.kept_ssts()]
    live = set(ids)
    if len(live) != len(ids):
        yield "an SST stands in two places: its rows would be read twice"
    # Vacuum deletes what is dropped.
    for dropped in version.dropped:
        if dropped.id in live:
            yield f"SST {dropped.id} is dropped and live: vacuum would delete it"
    for kept in version.quarantined_ids() & (live | {dropped.id for dropped in version.dropped}):
        yield f"SST {kept} was put aside as damaged, and is live or dropped: vacuum would delete it, or readers fail"
    for dropped in version.dropped:
        if dropped.seq > version.seq:
            yield f"SST {dropped.id} was dropped by entry {dropped.seq}, which is after {version.seq}"


def _about_epochs(version: Version) -> Iterator[str]:
    newest = version.max_committed_epoch
    # Equal is fine: with nothing retained, only the newest epoch can be read.
    if not version.compacted_epoch <= version.safe_epoch <= newest:
        yield f"epochs out of order: compacted {version.compacted_epoch}, safe {version.safe_epoch}, committed {newest}"
    if any(left[0] >= right[0] or left[1] >= right[1] for left, right in pairwise(version.timeline)):
        yield "the timeline does not ascend: the retention edge would be wrong"
    repair = version.renumbered
    if repair and not (repair.seq <= version.seq and repair.first <= repair.last):
        yield f"the repair of the clock is of entry {repair.seq}, epochs {repair.first}..{repair.last}: pins would end"
    for writer, batches in version.ledger.items():
        if any(left[0] >= right[0] or left[1] >= right[1] for left, right in pairwise(batches)):
            yield f"the ledger of writer {writer!r} does not ascend: a batch could be committed twice"
    for writer, known in version.writers.items():
        batches, ends = version.ledger.get(writer, ()), [end for one in known.ranges for end in one]
        if not batches or len(known.tables) != len(batches) or known.known_from > ends[0]:
            yield f"what is known of writer {writer!r} does not fit its batches {batches}: {known}"
        elif ends != sorted(ends) or ends[-1] != batches[-1][0] or len(known.ranges) > RANGES_MAX:
            yield f"the ranges of writer {writer!r} do not ascend to its newest batch: one could be committed twice"
    for state in version.tables.values():
        if state.own_epochs and not state.own_epochs[1] <= state.own_epochs[0] <= newest:
            yield f"epochs of table {state.spec.name!r} out of order: safe, compacted {state.own_epochs}, of {newest}"
        if state.last_epoch > newest:
            yield f"table {state.spec.name!r} has epoch {state.last_epoch}, newer than the newest committed, {newest}"
        for sst in state.levels.ssts():
            if not 0 < sst.min_epoch <= sst.max_epoch <= newest or sst.epoch not in (0, sst.min_epoch):
                yield f"SST {sst.id} has epochs {sst.min_epoch}..{sst.max_epoch}, stamp {sst.epoch}; newest is {newest}"


def _about_fences(version: Version) -> Iterator[str]:
    if version.term < 0 or bool(version.term) != bool(version.leader):
        yield f"term {version.term} is led by {version.leader!r}: a leader that was replaced might not be told"
    for writer, generation in version.generations.items():
        if generation < 1 or not writer:
            yield f"writer {writer!r} has generation {generation}; they count from 1"


def _about_tasks(version: Version) -> Iterator[str]:
    claimed: set[str] = set()
    for task_id, task in version.tasks.items():
        state = version.tables.get(task.table_id)
        live = {sst.id for sst in state.levels.ssts()} if state else set()
        for sst in task.ssts():
            if sst.id not in live:
                yield f"task {task_id} claims SST {sst.id}, which its table has not"
            if sst.id in claimed:
                yield f"SST {sst.id} is claimed by two tasks"
            claimed.add(sst.id)
        safe = version.safe_epoch_of(state) if state else version.safe_epoch
        if task.watermark > safe:
            yield f"task {task_id} may use watermark {task.watermark}, above the safe epoch {safe}"
        for other_id, other in version.tasks.items():
            if task_id < other_id and task.kind != "trivial-move" and targets_collide(task, other):
                yield f"tasks {task_id} and {other_id} write into the same range of level {task.target_level}"


def _about_places(version: Version) -> Iterator[str]:
    # An entry is created whole, so what it brings along is named by it and by later versions only.
    for sst in version.kept_ssts():
        if not sst.source and sst.entry > version.seq:
            yield f"SST {sst.id} lies in log entry {sst.entry}, which is after {version.seq}"
        if sst.entry and not (sst.meta_in_data and sst.offset > 0):
            yield f"SST {sst.id} lies in log entry {sst.entry} at offset {sst.offset}: no entry brings such a one"


def _about_backups(version: Version) -> Iterator[str]:
    for name, backup in version.backups.items():
        if backup.name != name or backup.started_seq > version.seq or backup.seq > version.seq:
            yield f"backup {backup.name!r} stands under {name!r}, or comes after entry {version.seq}"
    # Without a hold there, that store's vacuum deletes them.
    named = [(sst.id, sst.source) for sst in (*version.kept_ssts(), *version.quarantined())]
    named += [(sst.id, sst.source) for sst in version.dropped]
    for sst_id, source in named:
        if source and source not in version.sources:
            yield f"SST {sst_id} lies in {source}, where the version has no hold"


def _about_runs(state: TableState) -> Iterator[str]:
    name = state.spec.name
    for number, run in enumerate(state.levels.runs()):
        if not is_sorted_run(run):
            yield f"table {name!r}: sorted run {number} is not sorted, or its SSTs overlap: {[sst.id for sst in run]}"
    for number, past in enumerate(state.levels.history):
        if not past.ssts or not is_history_run(past.ssts):
            yield f"table {name!r}: run {number} of history is empty or not sorted: {[sst.id for sst in past.ssts]}"
    for sst in state.levels.history_ssts():
        # `until` is the epoch of a row that was in the tree.
        if sst.epoch or not sst.max_epoch <= sst.until <= state.last_epoch:
            yield f"table {name!r}: SST {sst.id} of history has epochs up to {sst.max_epoch} until {sst.until}"
    for sst in state.levels.live_ssts():
        if sst.until:
            yield f"table {name!r}: SST {sst.id} of history stands in the live tree, where it may hide rows"
    if any(not sub.ssts for sub in state.levels.l0) or (state.levels.levels and not state.levels.levels[-1]):
        yield f"table {name!r}: has an empty run or an empty deepest level"
    where = ranks(state.levels)
    for sst in state.levels.ssts():
        if sst.smallest > sst.largest or not 0 <= sst.deletes <= sst.rows:
            yield f"table {name!r}: SST {sst.id} has impossible bounds or counts"
    for sst in state.levels.live_ssts():
        # Only within L0: a commit is younger than all below it, and merges there take neighbours whole. Files of
        # levels mix rows of several runs, so their epochs may interleave with those above, though no key's do.
        if where[sst.id] < len(state.levels.l0):
            for older in older_overlap(state.levels, sst, where[sst.id], len(state.levels.l0) - 1):
                if older.max_epoch > sst.min_epoch:
                    yield f"table {name!r}: SST {older.id} lies below {sst.id} and holds newer rows: wrong reads"
