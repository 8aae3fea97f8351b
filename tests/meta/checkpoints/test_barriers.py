"""The coordinator's rules one by one; `test_barriers_property.py` tests them together."""

from typing import Any

import pytest

from support.store.versions import sst
from tussock.meta.checkpoints import barriers
from tussock.meta.checkpoints.job import CheckpointJob, CommitBarrier, JoinRequest, Send, Step, greet
from tussock.statestore.contract.barriers import JobOptions
from tussock.statestore.contract.records import Run
from tussock.statestore.errors import DuplicateName, Fenced, InvalidOption

INTERVAL_MS, TIMEOUT_MS = 100, 1000
TABLE = 7


class Coordinator:
    """A job and the messages that it sent; time and epochs count up."""

    def __init__(self, on_missing: str = "abort", participants: int = 2, newest: tuple[int, int] = (0, 0)) -> None:
        self.options = JobOptions(
            participants=participants,
            interval_ms=INTERVAL_MS,
            timeout_ms=TIMEOUT_MS,
            on_missing=on_missing,  # type: ignore[arg-type]
        )
        self.newest = newest
        self.job: CheckpointJob | None = None
        self.now_ms = 0
        self.epochs = 100
        self.sent: list[Send] = []
        self.commits: list[CommitBarrier] = []

    def fresh(self) -> int:
        self.epochs += 1
        return self.epochs

    def take(self, step: Step) -> list[tuple[str, str]]:
        """Keep the state; returns (participant, message) of all that is sent."""
        self.job = step.job
        sends = [action for action in step.actions if isinstance(action, Send)]
        self.sent += sends
        self.commits += [action for action in step.actions if isinstance(action, CommitBarrier)]
        return [(send.participant, send.event.what) for send in sends]

    def join(self, name: str, session: str = "", incarnation: str = "1", **fields: Any) -> list[tuple[str, str]]:
        fields = {"options": self.options, **fields}
        request = JoinRequest(participant=name, session=session or f"session-{name}", incarnation=incarnation, **fields)
        return self.take(barriers.join(self.job, "job", request, self.newest, self.now_ms, self.fresh()))

    def tick(self, ms: int = 0) -> list[tuple[str, str]]:
        self.now_ms += ms
        return self.take(barriers.tick(self.live, self.now_ms, self.fresh()))

    def collect(self, name: str, barrier: int | None = None, *, key: bytes = b"") -> list[tuple[str, str]]:
        number = barrier if barrier is not None else self.live.number
        key = key or name.encode()
        tables = {TABLE: (Run(ssts=(sst(key, key),)),)}
        generation = self.live.members[name].generation
        return self.take(barriers.collect(self.live, name, generation, number, tables, self.now_ms))

    def collect_nothing(self, name: str) -> list[tuple[str, str]]:
        generation = self.live.members[name].generation
        return self.take(barriers.collect(self.live, name, generation, self.live.number, {}, self.now_ms))

    def lose(self, name: str) -> list[tuple[str, str]]:
        return self.take(barriers.lose(self.live, name, "its session ended", self.now_ms, self.fresh()))

    def leave(self, name: str, *, done: bool = True) -> list[tuple[str, str]]:
        generation = self.live.members[name].generation
        step = barriers.leave(
            self.live, name, generation, done=done, reason="it broke", now_ms=self.now_ms, fresh=self.fresh()
        )
        return self.take(step)

    def confirm(self, epoch: int) -> list[tuple[str, str]]:
        return self.take(barriers.confirm(self.live, epoch, self.now_ms, self.fresh()))

    @property
    def live(self) -> CheckpointJob:
        assert self.job is not None
        return self.job

    def two_joined(self) -> "Coordinator":
        self.join("a")
        self.join("b")
        return self

    def with_barrier(self) -> "Coordinator":
        self.two_joined()
        self.tick(INTERVAL_MS)
        return self

    def committing(self) -> "Coordinator":
        self.with_barrier()
        self.collect("a")
        self.collect("b")
        return self


def test_barrier_is_sent_when_all_have_joined_and_the_interval_is_over() -> None:
    """Neither of the two suffices; the wake-up time says when to look again."""
    job = Coordinator()
    assert job.join("a") == [("a", "started")]
    assert job.tick(INTERVAL_MS) == []
    assert barriers.wake_ms(job.live) is None
    job.join("b")
    assert job.tick() == [("a", "barrier"), ("b", "barrier")]
    job = Coordinator().two_joined()
    assert barriers.wake_ms(job.live) == INTERVAL_MS
    assert job.tick(INTERVAL_MS - 1) == []
    assert job.tick(1) == [("a", "barrier"), ("b", "barrier")]


def test_epochs_follow_each_other() -> None:
    """A barrier ends the epoch that all write to and names the next; the next barrier ends that one."""
    job = Coordinator().committing()
    started, barrier = job.sent[0].event, job.sent[-1].event
    assert (barrier.what, barrier.epoch) == ("barrier", started.next_epoch)
    assert job.confirm(500) == [("a", "committed"), ("b", "committed")]
    assert job.sent[-1].event.committed_epoch == 500
    job.tick(INTERVAL_MS)
    assert job.sent[-1].event.epoch == barrier.next_epoch
    assert job.sent[-1].event.barrier == barrier.barrier + 1


def test_a_commit_waits_for_the_last_part_and_holds_all() -> None:
    """Parts whose keys do not overlap become one sorted run."""
    job = Coordinator().with_barrier()
    job.collect("b")
    assert job.commits == []
    job.collect("a")
    (commit,) = job.commits
    (run,) = commit.tables[TABLE]
    assert [one.smallest for one in run.ssts] == [b"a", b"b"]
    assert (commit.barrier, commit.epoch) == (1, job.sent[0].event.next_epoch)


def test_parts_that_overlap_stay_separate_runs() -> None:
    """The participant whose name sorts first has the newer run."""
    job = Coordinator().with_barrier()
    job.collect("b", key=b"same")
    job.collect("a", key=b"same")
    assert len(job.commits[0].tables[TABLE]) == 2


def test_barrier_with_nothing_written_needs_no_commit() -> None:
    """The checkpoint is the previous one; an idle job writes nothing to the log."""
    job = Coordinator().with_barrier()
    job.collect_nothing("a")
    assert job.collect_nothing("b") == [("a", "committed"), ("b", "committed")]
    assert job.commits == []
    assert job.sent[-1].event.committed_epoch == 0


def test_next_barrier_waits_for_the_outcome() -> None:
    """Only one is under way; the next is due an interval after the last was sent, at once if that has passed."""
    job = Coordinator().committing()
    assert job.tick(10 * INTERVAL_MS) == []
    job.confirm(500)
    assert barriers.wake_ms(job.live) == job.now_ms


@pytest.mark.parametrize("repeated", ["under way", "committing", "committed"])
def test_repeated_collect_is_a_no_op(repeated: str) -> None:
    """A lost answer changes nothing: the first part counts."""
    job = Coordinator().with_barrier()
    job.collect("a", key=b"first")
    if repeated != "under way":
        job.collect("b")
    if repeated == "committed":
        job.confirm(500)
    before = job.live
    assert job.collect("a", key=b"second") == []
    assert job.live == before
    if repeated == "under way":
        job.collect("b")
    assert [run.ssts[-1].smallest for run in job.commits[0].tables[TABLE]] == [b"first"]


def test_collect_of_another_barrier_or_generation_is_fenced() -> None:
    """A late message of a barrier that was aborted, or of a participant that was replaced, counts for nothing."""
    job = Coordinator().with_barrier()
    job.tick(TIMEOUT_MS)
    job.tick(INTERVAL_MS)
    assert job.live.number == 2
    with pytest.raises(Fenced, match="barrier 1 is not under way"):
        job.collect("a", barrier=1)
    with pytest.raises(Fenced, match="barrier 3 is not under way"):
        job.collect("a", barrier=3)
    with pytest.raises(Fenced, match="is gone or was replaced"):
        barriers.collect(job.live, "a", 1, 2, {}, job.now_ms)
    with pytest.raises(Fenced, match="is gone or was replaced"):
        barriers.collect(job.live, "c", 1, 2, {}, job.now_ms)
    assert job.live.flight is not None
    assert job.live.flight.parts == {}


def test_a_participant_that_joins_during_a_barrier_begins_after_it() -> None:
    """The new participant has no part in the barrier, and receives nothing of it."""
    job = Coordinator().with_barrier()
    next_epoch = job.sent[-1].event.next_epoch
    assert job.join("c") == [("c", "started")]
    assert (job.sent[-1].event.epoch, job.sent[-1].event.next_epoch) == (0, next_epoch)
    with pytest.raises(Fenced, match="barrier 1 is not under way"):
        job.collect("c")
    job.collect("a")
    job.collect("b")
    assert job.confirm(500) == [("a", "committed"), ("b", "committed")]
    assert job.tick(INTERVAL_MS) == [("a", "barrier"), ("b", "barrier"), ("c", "barrier")]


def test_a_participant_that_joins_during_a_commit_begins_after_it() -> None:
    """Its state may be in that commit, so the outcome has to be known."""
    job = Coordinator("wait").committing()
    job.lose("b")
    assert job.join("b", "session-new") == []
    assert greet(job.live, "b") == ()
    assert job.confirm(500) == [("a", "committed"), ("b", "started")]
    assert job.sent[-1].event.committed_epoch == 500


@pytest.mark.parametrize("collected", [True, False])
def test_an_abort_takes_back_the_rows_of_all_participants(collected: bool) -> None:
    """Also if the dead one had collected: its later rows are lost, and others may have built upon them."""
    job = Coordinator().with_barrier()
    if collected:
        job.collect("b")
    assert job.lose("b") == [("a", "aborted")]
    event = job.sent[-1].event
    assert (event.barrier, event.committed_epoch) == (1, 0)
    assert event.next_epoch > job.sent[-2].event.next_epoch
    assert "'b' is gone: its session ended" in event.reason
    assert job.tick(INTERVAL_MS) == []
    job.join("anybody")
    assert job.tick() == [("a", "barrier"), ("anybody", "barrier")]


def test_a_death_during_a_commit_waits_for_its_outcome() -> None:
    """The log decides on the barrier; what came after the barrier is given up in either case."""
    job = Coordinator().committing()
    assert job.lose("b") == []
    assert job.confirm(500) == [("a", "committed"), ("a", "aborted")]
    assert job.sent[-1].event.committed_epoch == 500
    assert job.live.doomed == ""


def test_wait_keeps_the_parts_of_the_others() -> None:
    """The dead one's successor takes its place with an empty part, even if the dead one had collected."""
    job = Coordinator("wait").with_barrier()
    job.collect("b")
    assert job.lose("b") == []
    assert job.tick(10 * TIMEOUT_MS) == []
    assert job.join("b", "session-new") == [("b", "started")]
    job.collect("a")
    assert [one.smallest for run in job.commits[0].tables[TABLE] for one in run.ssts] == [b"a"]
    assert job.confirm(500) == [("a", "committed")]


def test_wait_commits_what_a_dead_participant_had_collected() -> None:
    """Without a successor its part is whole and durable; a successor is needed only afterwards."""
    job = Coordinator("wait").with_barrier()
    job.collect("b")
    job.lose("b")
    job.collect("a")
    assert [one.smallest for run in job.commits[0].tables[TABLE] for one in run.ssts] == [b"a", b"b"]
    assert job.confirm(500) == [("a", "committed")]
    assert job.tick(INTERVAL_MS) == []
    job.join("c")
    assert job.tick() == [], "another name is no successor"
    job.join("b", "session-new")
    assert job.tick() == [("a", "barrier"), ("b", "barrier"), ("c", "barrier")]


def test_slow_participant_is_aborted_after_the_timeout() -> None:
    """All participants get the name of the late one; with `wait` nothing happens."""
    job = Coordinator().with_barrier()
    job.collect("a")
    assert job.tick(TIMEOUT_MS - 1) == []
    assert job.tick(1) == [("a", "aborted"), ("b", "aborted")]
    assert job.sent[-1].event.reason == "barrier 1 was not collected by ['b'] within 1000 ms"


def test_refused_commit_aborts() -> None:
    """Numbers go on above the number of the ledger, no matter which job wrote it."""
    job = Coordinator().committing()
    step = barriers.reject(job.live, "the table was dropped", 17, job.now_ms, job.fresh())
    assert job.take(step) == [("a", "aborted"), ("b", "aborted")]
    job.tick(INTERVAL_MS)
    assert job.live.number == 18


def test_the_name_of_a_live_participant_cannot_be_used() -> None:
    """Another session is refused; the same incarnation may ask again; a new one of the session begins anew."""
    job = Coordinator().two_joined()
    with pytest.raises(DuplicateName, match="has a live participant 'a'"):
        job.join("a", "session-other")
    generation = job.live.members["a"].generation
    assert job.join("a") == [("a", "started")]
    assert job.live.members["a"].generation == generation
    assert job.join("a", incarnation="2") == [("b", "aborted"), ("a", "started")]
    assert job.live.members["a"].generation > generation


def test_participant_that_is_done_is_not_waited_for() -> None:
    """It has nothing uncommitted, so this barrier and later ones commit without it."""
    job = Coordinator().with_barrier()
    job.collect("a")
    assert job.leave("b") == []
    assert len(job.commits) == 1
    assert job.confirm(500) == [("a", "committed")]
    assert job.tick(INTERVAL_MS) == [("a", "barrier")]


def test_failed_participant_counts_as_dead() -> None:
    """Its reason reaches the others; a repeated or late leave changes nothing."""
    job = Coordinator().two_joined()
    generation = job.live.members["b"].generation
    assert job.leave("b", done=False) == [("a", "aborted")]
    assert "it failed: it broke" in job.sent[-1].event.reason
    before = job.live
    step = barriers.leave(before, "b", generation, done=False, reason="again", now_ms=0, fresh=job.fresh())
    assert step == Step(before)


def test_job_ends_with_its_last_participant() -> None:
    """Its collected parts are given up, unless the log has them already."""
    job = Coordinator("wait").with_barrier()
    job.collect("a")
    job.lose("a")
    job.lose("b")
    assert job.job is None
    job = Coordinator("wait").committing()
    job.lose("a")
    job.lose("b")
    assert job.live.flight is not None
    job.confirm(500)
    assert job.job is None


def test_numbers_continue_above_the_ledger_and_those_that_participants_know() -> None:
    """After a change of leader no barrier is committed twice, and no number that a participant knows is used again."""
    job = Coordinator(newest=(41, 700), participants=1)
    job.join("a", seen_barrier=44)
    assert (job.sent[-1].event.barrier, job.sent[-1].event.committed_epoch) == (41, 700)
    job.tick(INTERVAL_MS)
    assert job.live.number == 45


def test_greeting_says_where_a_participant_should_be() -> None:
    """Before the barrier, at it, behind it: the events that it may have missed follow."""
    job = Coordinator().two_joined()
    (start,) = greet(job.live, "a")
    assert (start.event.what, start.event.epoch, start.event.next_epoch) == ("started", 0, job.live.epoch)
    ended = job.live.epoch
    job.tick(INTERVAL_MS)
    start, barrier = greet(job.live, "a")
    assert (start.event.epoch, start.event.next_epoch, barrier.event.what) == (ended, job.live.epoch, "barrier")
    job.collect("a")
    assert [send.event.what for send in greet(job.live, "a")] == ["started"]
    job.collect("b")
    job.confirm(500)
    (start,) = greet(job.live, "a")
    assert (start.event.barrier, start.event.epoch, start.event.committed_epoch) == (1, 0, 500)


@pytest.mark.parametrize(
    ("field", "value"), [("participants", 3), ("interval_ms", 7), ("timeout_ms", 7), ("on_missing", "wait")]
)
def test_participants_agree_on_the_options(field: str, value: Any) -> None:
    """The message shows both; nothing changes."""
    job = Coordinator()
    job.join("a")
    values = {name: getattr(job.options, name) for name in JobOptions.__struct_fields__}
    with pytest.raises(InvalidOption, match="all participants have to give the same"):
        job.join("b", options=JobOptions(**{**values, field: value}))
    assert list(job.live.members) == ["a"]


@pytest.mark.parametrize("field", ["participants", "interval_ms", "timeout_ms"])
def test_options_that_cannot_work(field: str) -> None:
    job = Coordinator()
    values = {name: getattr(job.options, name) for name in JobOptions.__struct_fields__}
    with pytest.raises(InvalidOption, match="have to be 1 or more"):
        job.join("a", options=JobOptions(**{**values, field: 0}))
