"""The decisions of the scheduler, on versions and moments that the tests choose."""

import pytest
from msgspec.structs import replace

from support.store.versions import make_id, run, sst
from tussock.meta.compaction.assignment import (
    IDLE_SECONDS_MAX,
    ORPHANED,
    SESSION_OVER,
    Assignments,
    SchedulerConfig,
    owner_of,
    worker_of,
)
from tussock.meta.compaction.claims import Chosen
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.tables import DropTable
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.records import SstInfo, TableLevels, TableSpec, TableState
from tussock.statestore.epochs import epoch_at_ms

PICKER = PickerConfig(l0_small_bytes=1, base_bytes=10**9, l0_runs_max=10**6)
CONFIG = SchedulerConfig(
    tasks_per_table=2, stuck_seconds=60, orphan_seconds=20, failure_seconds=5, failure_seconds_max=60
)


def table(number: int, runs: int, *, parts: int = 1) -> TableState:
    """A table with that many runs in L0, each of `parts` SSTs of 100 rows."""
    made = [run(*(sst(b"%d" % part, b"%d~" % part) for part in range(parts))) for _ in range(runs)]
    return TableState(spec=TableSpec(id=number, name=f"t{number}"), levels=TableLevels(l0=tuple(made)), last_epoch=1)


def version_of(*tables: TableState) -> Version:
    return Version(seq=1, max_committed_epoch=1, tables={state.spec.id: state for state in tables}, next_table_id=9)


class Leader:
    """A schedule and the version that it decides on; claims and reports take effect at once."""

    def __init__(self, *tables: TableState, config: SchedulerConfig = CONFIG) -> None:
        self.schedule = Assignments(config, PICKER)
        self.version = version_of(*tables)
        self.now = 100.0
        self.serial = 0

    def beat(self, worker: str, slots: int = 1, **rows_read: int) -> list[str]:
        return self.schedule.heartbeat(worker, slots, rows_read, self.version, self.now)

    def choose(self) -> Chosen | None:
        return self.schedule.choose(self.version, lambda _: 0, (), self.now)

    def claim(self, *, answered: bool = True) -> CompactionTask | None:
        """Claim the chosen task; without `answered` the leader does not learn that it succeeded."""
        chosen = self.choose()
        if chosen is None:
            return None
        self.serial += 1
        task = CompactionTask(
            id=f"task{self.serial}", table_id=chosen.table_id, kind=chosen.pick.kind, inputs=chosen.pick.inputs,
            target_level=chosen.pick.target_level, bottom=chosen.pick.bottom, watermark=0, owner=chosen.owner,
            claimed_ms=self.serial, expires_ms=10**6,
        )  # fmt: skip
        self.version = advance(self.version, [ClaimCompaction(task=task)])
        if answered:
            self.schedule.assign(task, self.now)
        return task

    def report(self, task: CompactionTask) -> None:
        out = sst(b"0", b"0", epoch=0, min_epoch=1, max_epoch=1)
        delta = ReportCompaction(task_id=task.id, owner=task.owner, outputs=(out,), watermark=0, at_ms=1)
        self.version = advance(self.version, [delta])
        self.schedule.note_success(task)
        self.schedule.end(task.id)

    def take_back(self, now_ms: int = 0) -> list[tuple[str, str]]:
        found = self.schedule.overdue_tasks(self.version, self.now, now_ms)
        for task, _ in found:
            release = ReleaseCompaction(task_id=task.id, owner=task.owner, at_ms=now_ms)
            self.version = advance(self.version, [release])
            self.schedule.take_back(task)
        return [(task.id, reason) for task, reason in found]


def claim_task(leader: Leader) -> CompactionTask:
    task = leader.claim()
    assert task is not None
    return task


# --- Which node gets which task ----------------------------------------------------------------------------------


def test_without_a_compactor_nothing_is_claimed() -> None:
    """With only a compactor without slots, which is about to stop, nothing is claimed, either."""
    leader = Leader(table(1, 8))
    assert leader.choose() is None
    leader.beat("a", slots=0)
    assert leader.choose() is None
    leader.beat("a", slots=1)
    assert leader.choose() is not None


def test_two_tables_share_two_slots_and_the_fullest_comes_first() -> None:
    """The longest L0 comes first; then every other table has its turn before the first one has a second."""
    leader = Leader(table(1, 5), table(2, 40))
    leader.beat("a", slots=3)
    assert [claim_task(leader).table_id for _ in range(3)] == [2, 1, 2]
    assert leader.claim() is None


def test_a_table_has_a_limit_of_tasks() -> None:
    """Free slots wait for tasks of other tables."""
    leader = Leader(table(1, 64))
    leader.beat("a", slots=8)
    assert [claim_task(leader).table_id for _ in range(2)] == [1, 1]
    assert leader.claim() is None
    leader = Leader(table(1, 64), table(2, 4))
    leader.beat("a", slots=8)
    assert sorted(claim_task(leader).table_id for _ in range(3)) == [1, 1, 2]


def test_a_compactor_with_the_largest_share_of_free_slots_is_next() -> None:
    """Work spreads over nodes of different sizes, and a new node has work at once."""
    leader = Leader(*(table(number, 4) for number in range(1, 9)))
    leader.beat("big", slots=4)
    leader.beat("small", slots=2)
    owners = [worker_of(claim_task(leader).owner) for _ in range(6)]
    assert owners == ["big", "small", "big", "big", "small", "big"]
    assert leader.claim() is None
    leader.beat("new", slots=1)
    assert worker_of(claim_task(leader).owner) == "new"


def test_a_task_that_is_chosen_for_the_same_entry_counts() -> None:
    """Several claims in one log entry fill the slots like single claims."""
    leader = Leader(table(1, 4), table(2, 4))
    leader.beat("a", slots=1)
    leader.beat("b", slots=1)
    first = leader.choose()
    assert first is not None
    task = CompactionTask(
        id="t", table_id=first.table_id, kind=first.pick.kind, inputs=first.pick.inputs, target_level=0, bottom=True,
        watermark=0, owner=first.owner, claimed_ms=1, expires_ms=2,
    )  # fmt: skip
    version = advance(leader.version, [ClaimCompaction(task=task)])
    second = leader.schedule.choose(version, lambda _: 0, [task], leader.now)
    assert second is not None
    assert (first.owner, second.owner) == (owner_of("a"), owner_of("b"))
    assert {first.table_id, second.table_id} == {1, 2}


def test_a_reported_task_frees_its_slot_before_its_report_is_in_the_log() -> None:
    """One slot; A's job is finished and not committed: B's is scheduled at once, A's inputs are still reserved."""
    leader = Leader(table(1, 5), table(2, 4))
    leader.beat("a", slots=1)
    first = claim_task(leader)
    assert leader.claim() is None
    leader.schedule.free_slot(first.id, leader.now)
    second = claim_task(leader)
    assert (first.table_id, second.table_id) == (1, 2)
    assert first.id in leader.version.tasks
    leader.report(first)
    assert leader.claim() is None


# --- Life of a task ----------------------------------------------------------------------------------------------


def test_progress_keeps_a_task_alive_and_a_heartbeat_alone_does_not() -> None:
    """A task that is alive and stuck expires, with a message on how far it got."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    task = claim_task(leader)
    for rows in (10, 20, 30):
        leader.now += 50
        assert leader.beat("a", task1=rows) == []
        assert leader.take_back() == []
    leader.now += 59.9
    leader.beat("a", task1=30)
    assert leader.take_back() == []
    leader.now += 0.1
    leader.beat("a", task1=30)
    assert leader.take_back() == [(task.id, "no progress for 60 s at row 30 of 400")]


def test_a_task_that_was_taken_back_is_done_by_another() -> None:
    """The next task has the same inputs and another id; the late report changes nothing."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    leader.beat("b")
    first = claim_task(leader)
    leader.now += 61
    leader.take_back()
    second = claim_task(leader)
    assert (second.inputs, worker_of(second.owner)) == (first.inputs, "b")
    assert second.id != first.id
    before = leader.version
    with pytest.raises(Exception, match=f"compaction task {first.id} is not held by"):
        leader.report(first)
    assert leader.version is before
    leader.report(second)


def test_a_compactor_stops_a_lost_task_before_its_slot_is_free() -> None:
    """Its heartbeat names the lost task: the answer says so; the other node's task and progress stay as they are."""
    leader = Leader(table(1, 4), table(2, 4))
    leader.beat("a")
    first = claim_task(leader)
    leader.now += 61
    leader.take_back()
    leader.beat("b")
    second = claim_task(leader)
    assert worker_of(second.owner) == "b"
    leader.beat("b", **{second.id: 7})
    assert leader.claim() is None, "a is still busy with what it lost"
    assert leader.beat("a", **{first.id: 50}) == [first.id]
    assert leader.claim() is None
    assert leader.schedule.rows_read() == {second.id: 7}
    assert leader.version.tasks[second.id].owner == owner_of("b")
    assert leader.beat("a") == []
    assert worker_of(claim_task(leader).owner) == "a"


def test_tasks_of_a_silent_compactor_are_taken_back() -> None:
    """At the end of its session, without a further wait: the session's lease was the wait."""
    leader = Leader(table(1, 4), table(2, 4))
    leader.beat("a", slots=2)
    tasks = [claim_task(leader), claim_task(leader)]
    leader.schedule.leave("a")
    assert leader.take_back() == [(task.id, SESSION_OVER) for task in tasks]
    leader.beat("b", slots=2)
    assert {claim_task(leader).table_id, claim_task(leader).table_id} == {1, 2}


def test_a_compactor_that_comes_back_learns_of_a_lost_task() -> None:
    """Its session lapsed and the task was taken back: the new session's first heartbeat names it in vain."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    task = claim_task(leader)
    leader.schedule.leave("a")
    leader.take_back()
    assert leader.beat("a", **{task.id: 9}) == [task.id]


def test_a_compactor_that_comes_back_in_time_keeps_its_task() -> None:
    """The session was opened again before the task was taken back."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    task = claim_task(leader)
    leader.schedule.leave("a")
    assert leader.beat("a", **{task.id: 9}) == []
    assert leader.take_back() == []


def test_compactors_keep_their_tasks_over_a_change_of_leader() -> None:
    """The version names the tasks; a compactor that does not come back within a lease loses its tasks."""
    old = Leader(table(1, 4), table(2, 4))
    old.beat("a")
    old.beat("b")
    kept, lost = claim_task(old), claim_task(old)
    assert (worker_of(kept.owner), worker_of(lost.owner)) == ("a", "b")
    new = Leader()
    new.version = old.version
    assert new.take_back() == []
    new.now += 5
    assert new.beat("a", **{kept.id: 40}) == []
    assert new.schedule.tasks_of("a") == [], "what the version says of its watermark may be too much"
    new.now += 15
    assert new.take_back() == [(lost.id, ORPHANED)]
    assert new.beat("b", **{lost.id: 80}) == [lost.id]
    new.report(kept)


def test_a_claim_with_a_lost_answer_is_taken_back_though_its_compactor_lives() -> None:
    """The compactor does not know of the task, so it never names it."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    task = leader.claim(answered=False)
    assert task is not None
    assert leader.take_back() == []
    leader.now += 20
    leader.beat("a")
    assert leader.take_back() == [(task.id, ORPHANED)]
    assert claim_task(leader).inputs == task.inputs


def test_tasks_of_embedded_processes_expire_with_their_lease() -> None:
    """They have no session; any process may take them back once they have expired, and not before."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    task = leader.claim(answered=False)
    assert task is not None
    foreign = replace(task, owner="host:1:ab", expires_ms=5000)
    leader.version = replace(leader.version, tasks={task.id: foreign})
    leader.now += 1000
    assert leader.take_back(now_ms=5000) == []
    assert leader.take_back(now_ms=5001) == [(task.id, "its lease ran out")]


def test_leases_of_tasks_are_renewed_while_their_compactor_is_there() -> None:
    """Also those of an earlier leader, once their compactor names them; not those of a compactor that has gone."""
    leader = Leader(table(1, 4), table(2, 4), table(3, 4))
    leader.beat("a")
    leader.beat("b")
    first, second = claim_task(leader), claim_task(leader)
    assert sorted(leader.schedule.live_task_ids()) == [first.id, second.id]
    leader.schedule.leave("b")
    assert leader.schedule.live_task_ids() == [first.id]
    successor = Leader(table(1, 4))
    successor.version = leader.version
    assert successor.schedule.live_task_ids() == []
    successor.beat("a", **{first.id: 1})
    assert successor.schedule.live_task_ids() == [first.id]


def test_a_task_of_a_dropped_table_is_stopped() -> None:
    """The task is not in the version any more; its compactor's next heartbeat is answered with that."""
    leader = Leader(table(1, 4), table(2, 4))
    leader.beat("a")
    task = claim_task(leader)
    leader.version = advance(leader.version, [DropTable(table_id=task.table_id, at_ms=1)])
    assert leader.take_back() == []
    assert leader.claim() is None
    assert leader.beat("a", **{task.id: 1}) == [task.id]
    leader.beat("a")
    assert claim_task(leader).table_id != task.table_id


def test_a_new_subscription_gets_the_running_tasks_again() -> None:
    """The old subscription may have lost the event; tasks that are reported already are not sent."""
    leader = Leader(table(1, 4), table(2, 4))
    leader.beat("a", slots=2)
    first, second = claim_task(leader), claim_task(leader)
    assert leader.schedule.tasks_of("a") == [first, second]
    leader.schedule.free_slot(first.id, leader.now)
    assert leader.schedule.tasks_of("a") == [second]
    assert leader.schedule.tasks_of("b") == []


# --- Failures ----------------------------------------------------------------------------------------------------


def failing(leader: Leader) -> tuple[CompactionTask, float]:
    task = claim_task(leader)
    leader.version = advance(leader.version, [ReleaseCompaction(task_id=task.id, owner=task.owner, at_ms=1)])
    leader.schedule.end(task.id)
    return task, leader.schedule.note_failure(task, leader.now)


def test_the_pause_of_a_failed_task_grows() -> None:
    """Damaged data must not keep a slot busy for ever."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    for pause in (5, 10, 20, 40, 60, 60):
        _, found = failing(leader)
        assert found == pause
        leader.take_back()
        assert leader.claim() is None
        leader.now += pause - 0.1
        assert leader.claim() is None
        leader.now += 0.1
    leader.report(claim_task(leader))
    leader.version = replace(leader.version, tables={1: table(1, 4)})
    assert failing(leader)[1] == 5


def test_other_runs_of_a_table_with_a_failed_task_are_merged() -> None:
    """Other runs of the table are merged meanwhile."""
    leader = Leader(table(1, 20))
    leader.beat("a")
    broken, _ = failing(leader)
    other = claim_task(leader)
    assert {one.id for one in other.ssts()}.isdisjoint(one.id for one in broken.ssts())


# --- Asked for by hand -------------------------------------------------------------------------------------------


def test_a_manual_compaction_waits_for_the_tables_tasks_and_starts_none() -> None:
    """It takes the whole table, and new tasks could make it wait for ever; other tables go on."""
    leader = Leader(table(1, 20), table(2, 4))
    leader.beat("a", slots=4)
    first = claim_task(leader)
    assert first.table_id == 1
    leader.schedule.want_manual(1)
    assert claim_task(leader).table_id == 2
    assert leader.claim() is None
    leader.report(first)
    task = claim_task(leader)
    assert (task.table_id, task.kind) == (1, "manual")
    leader.report(task)
    assert leader.claim() is None


def test_a_manual_compaction_that_would_change_nothing_is_forgotten() -> None:
    """A table of one run needs none; it can be compacted as usual when it has more."""
    only: SstInfo = sst()
    state = TableState(spec=TableSpec(id=1, name="t1"), levels=TableLevels(levels=((only,),)))
    leader = Leader(state)
    leader.beat("a")
    leader.schedule.want_manual(1)
    leader.take_back()
    leader.version = version_of(table(1, 4))
    task = claim_task(leader)
    assert task.kind == "intra-l0"


def test_a_tree_without_work_is_searched_again_after_a_change_or_some_time() -> None:
    """Rows may have expired when the retention moves on, though the tree does not change."""
    epoch, early, late = (epoch_at_ms(ms) for ms in (1, 10, 11))
    expiring = sst(b"a", b"z", epoch=0, min_epoch=epoch, max_epoch=epoch, id=make_id(1))
    state = TableState(spec=TableSpec(id=1, name="t1", ttl_ms=10), levels=TableLevels(levels=((expiring,),)))
    leader = Leader(state)
    leader.beat("a")
    assert leader.schedule.choose(leader.version, lambda _: early, (), leader.now) is None
    assert leader.schedule.choose(leader.version, lambda _: late, (), leader.now) is None
    found = leader.schedule.choose(leader.version, lambda _: late, (), leader.now + IDLE_SECONDS_MAX)
    assert found is not None
    assert found.pick.kind == "tombstone"


def test_the_pause_after_a_failure_stays_bounded_for_ever() -> None:
    """A table that stays damaged for days fails some thousand times; once the doubling ended in an `OverflowError`."""
    leader = Leader(table(1, 4))
    leader.beat("a")
    task = claim_task(leader)
    pauses = [leader.schedule.note_failure(task, leader.now) for _ in range(3000)]
    assert max(pauses) == pauses[-1] == CONFIG.failure_seconds_max
