"""The backlog: what would be handed out if slots were without number, and nothing that would not."""

import pytest
from msgspec.structs import replace

from support.store.versions import run, sst
from tussock.meta.compaction.assignment import Assignments, SchedulerConfig
from tussock.meta.compaction.backlog import LOOK_SECONDS, SSTS_PER_SECOND, Backlog, Backlogs, Outlook, waiting_picks
from tussock.meta.compaction.picker import pick
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.tasks import ClaimCompaction
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.records import TableLevels, TableSpec, TableState

PICKER = PickerConfig(l0_small_bytes=1, base_bytes=10**9, l0_runs_max=10**6, l0_merge_max=8)
PER_TABLE = 2
MOST = 4
"""Looked for in one table."""
RUN_BYTES = 100


def table(number: int, runs: int) -> TableState:
    """A table with that many equal runs in L0, of 100 bytes each: each eight of them are one task."""
    made = [run(sst(b"a", b"z", data_bytes=RUN_BYTES, meta_bytes=0)) for _ in range(runs)]
    return TableState(spec=TableSpec(id=number, name=f"t{number}"), levels=TableLevels(l0=tuple(made)), last_epoch=1)


def version_of(*tables: TableState) -> Version:
    return Version(seq=1, max_committed_epoch=1, tables={state.spec.id: state for state in tables}, next_table_id=9)


def claim(version: Version, table_id: int, name: str) -> Version:
    """The version with one more task of the table, as the picker wants it."""
    picked = pick(version.tables[table_id], list(version.tasks.values()), PICKER, 0)
    assert picked is not None
    task = CompactionTask(
        id=name, table_id=table_id, kind=picked.kind, inputs=picked.inputs, target_level=picked.target_level,
        bottom=picked.bottom, watermark=0, owner="compactor/a", claimed_ms=0, expires_ms=1,
    )  # fmt: skip
    return advance(version, [ClaimCompaction(task=task)])


def backlog(version: Version, outlook: Outlook | None = None) -> Backlog:
    return Backlogs(PICKER, PER_TABLE).total(version, outlook or Outlook(), 0.0)


@pytest.mark.parametrize(("runs", "waiting"), [(0, 0), (3, 0), (4, 1), (8, 1), (12, 2), (24, 3)])
def test_what_waits_is_what_the_picker_would_pick_one_after_the_other(runs: int, waiting: int) -> None:
    """No input is in two of them."""
    picks = waiting_picks(table(1, runs), [], PICKER, 0, MOST)
    inputs = [one.id for picked in picks for files in picked.inputs for one in files]
    assert len(picks) == waiting
    assert len(inputs) == len(set(inputs)) <= runs
    assert backlog(version_of(table(1, runs))).bytes == RUN_BYTES * len(inputs)


def test_tasks_are_those_that_could_begin_at_once() -> None:
    """No more of a table than the schedule allows beside those that run; the bytes of all that wait count."""
    version = version_of(table(1, 24), table(2, 8), table(3, 3))
    assert backlog(version) == Backlog(PER_TABLE + 1, RUN_BYTES * 32)
    version = claim(version, 1, "one")
    assert backlog(version) == Backlog(1 + 1, RUN_BYTES * 24)
    version = claim(version, 1, "two")
    assert backlog(version) == Backlog(0 + 1, RUN_BYTES * 16)
    version = claim(claim(version, 1, "three"), 2, "four")
    assert backlog(version) == Backlog(0, 0)


def test_it_grows_with_what_is_written() -> None:
    """Until the most that is looked for in one table."""
    sizes = [backlog(version_of(table(1, runs))).bytes for runs in range(0, 8 * MOST + 1, 8)]
    assert sizes == sorted(set(sizes))
    assert backlog(version_of(table(1, 16 * MOST))).bytes == sizes[-1]


def test_what_could_not_begin_does_not_wait() -> None:
    """Inputs of a task that failed a moment ago, and a table in which the leader has found nothing to do."""
    version = version_of(table(1, 8), table(2, 8))
    failed = claim(version, 1, "failed").tasks["failed"]
    assert backlog(version, Outlook(suspects=[failed])) == Backlog(1, RUN_BYTES * 8)
    assert backlog(version, Outlook(idle=frozenset({2}))) == Backlog(1, RUN_BYTES * 8)


def test_a_merge_that_somebody_asked_for_waits() -> None:
    """Of the whole table, as one task, even where nothing else would be done."""
    version = version_of(table(1, 3))
    asked = Outlook(idle=frozenset({1}), manual=frozenset({1}))
    assert backlog(version) == Backlog(0, 0)
    assert backlog(version, asked) == Backlog(1, RUN_BYTES * 3)


def test_work_waits_while_compaction_is_paused() -> None:
    """It will be there when the pause ends."""
    version = version_of(table(1, 8))
    assert backlog(replace(version, pause="the disk")) == backlog(version) == Backlog(1, RUN_BYTES * 8)


def test_a_table_that_has_not_changed_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until a while has passed; one that has changed, or another task on it, is found at once."""
    searched: list[int] = []

    def counted(state: TableState, *rest: object, **named: object) -> list:
        searched.append(state.spec.id)
        return []

    monkeypatch.setattr("tussock.meta.compaction.backlog.waiting_picks", counted)
    kept = Backlogs(PICKER, PER_TABLE)
    version = version_of(table(1, 8), table(2, 8))
    kept.total(version, Outlook(), 0.0)
    kept.total(version, Outlook(), LOOK_SECONDS - 1)
    assert searched == [1, 2]
    version = claim(version, 2, "one")
    kept.total(version, Outlook(), LOOK_SECONDS - 1)
    assert searched == [1, 2, 2]
    kept.total(version, Outlook(), LOOK_SECONDS)
    assert searched == [1, 2, 2, 1]


def test_a_large_table_that_changes_all_the_time_is_searched_now_and_then() -> None:
    """A search takes longer in a larger tree, and the leader has other things to do."""
    kept = Backlogs(PICKER, PER_TABLE)
    assert kept.total(version_of(table(1, 24)), Outlook(), 0.0).bytes == RUN_BYTES * 24
    pause = 24 / SSTS_PER_SECOND
    assert kept.total(version_of(table(1, 32)), Outlook(), 0.9 * pause).bytes == RUN_BYTES * 24
    assert kept.total(version_of(table(1, 32)), Outlook(), pause).bytes == RUN_BYTES * 32


def test_a_trivial_move_waits_for_a_slot_and_reads_nothing() -> None:
    """A level that is too large, over one that has nothing in its range."""
    level = (sst(b"a", b"b", data_bytes=2000, meta_bytes=0, epoch=0, min_epoch=1, max_epoch=1),)
    state = TableState(spec=TableSpec(id=1, name="t"), levels=TableLevels(levels=(level,)), last_epoch=1)
    small = replace(PICKER, base_bytes=1000)
    assert [picked.kind for picked in waiting_picks(state, [], small, 0, MOST)] == ["trivial-move"]
    assert Backlogs(small, PER_TABLE).total(version_of(state), Outlook(), 0.0) == Backlog(1, 0)


def test_a_schedule_says_in_which_tables_it_has_found_nothing() -> None:
    """Of the table as it is now; a commit to it ends that."""
    schedule = Assignments(SchedulerConfig(tasks_per_table=PER_TABLE, orphan_seconds=20), PICKER)
    version = version_of(table(1, 3))
    schedule.heartbeat("a", 1, {}, version, 0.0)
    assert schedule.choose(version, lambda _: 0, (), 0.0) is None
    assert schedule.outlook(version, 1.0).idle == {1}
    assert schedule.outlook(version_of(table(1, 4)), 1.0).idle == frozenset()
    schedule.want_manual(1)
    assert schedule.outlook(version, 1.0).manual == {1}
