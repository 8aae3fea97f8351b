"""Workers whose epochs commit together, over gRPC: what readers see, and the cost of dead, slow and failed workers."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import inside
from support.service.platforms import Platform
from support.waiting import eventually
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import (
    CheckpointAborted,
    DuplicateName,
    Fenced,
    InvalidOption,
    ObjectStoreUnavailable,
    StateStore,
    StoreClosed,
    TableNotFound,
    WaitTimeout,
    connect,
)
from tussock.statestore.checkpoint.checkpoint import Checkpoint
from tussock.statestore.contract.barriers import BarrierEvent

HEAR_SECONDS_MAX = 60.0
INTERVAL = 0.05


class Worker:
    """A client that takes part in the job and records its events."""

    def __init__(self, platform: Platform, name: str, **options: Any) -> None:
        self.name = name
        self.store: StateStore = platform.connect(deadline=30.0)
        self.kv = self.store.table("kv")
        self.heard: queue.Queue[BarrierEvent] = queue.Queue()
        options = {"participants": 2, "interval": INTERVAL, **options}
        for callback in ("on_barrier", "on_committed"):
            options.setdefault(callback, self.heard.put)
        self.checkpoint: Checkpoint = self.store.join_checkpoint("job", participant=name, **options)
        assert self.checkpoint.epoch > 0  # it has begun: barriers need not wait for it

    def write(self, value: str) -> None:
        with self.checkpoint.writing() as epoch:
            self.kv.upsert([(self.name.encode(), value.encode())], epoch)

    def write_on(self, value: str) -> None:
        """Write until a write is refused."""
        pause = threading.Event()
        for _ in range(int(HEAR_SECONDS_MAX / 0.005)):
            self.write(value)
            pause.wait(0.005)

    def hear(self, what: str, after: int = 0) -> BarrierEvent:
        """The next event of that kind, of a barrier beyond `after`."""
        while True:
            event = self.heard.get(timeout=HEAR_SECONDS_MAX)
            if event.what == what and event.barrier > after:
                return event

    def committed_write(self, value: str) -> BarrierEvent:
        """Write, and wait until the row is in a checkpoint."""
        self.write(value)
        newest = 0
        while not self.heard.empty():
            newest = max(newest, self.heard.get().barrier)
        # The newest barrier that was heard of by now may have come before the write; the one after it has not.
        return self.hear("committed", after=newest)


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path.as_uri(), session_lease_seconds=5.0) as platform:
        platform.connect().create_table("kv")
        yield platform


def state(store: StateStore) -> dict[str, str | None]:
    """The rows of the workers in a snapshot of the newest epoch."""
    with store.pin_snapshot() as snapshot:
        values = snapshot.table("kv").multi_get([b"a", b"b"]).to_pylist()
    return {name: value and value.decode() for name, value in zip("ab", values, strict=True)}


def test_no_snapshot_shows_one_worker_without_the_other(platform: Platform) -> None:
    """Both write the barrier's number when it comes; a reader sees the same number twice at any time."""
    workers: dict[str, Worker] = {}

    def write_number(name: str):
        def write(barrier: BarrierEvent) -> None:
            kv = workers[name].store.table("kv")
            kv.upsert([(name.encode(), str(barrier.barrier).encode())], barrier.epoch)

        return write

    reader = platform.connect()
    for name in "ab":
        ready = threading.Event()

        def on_barrier(barrier: BarrierEvent, name: str = name, ready: threading.Event = ready) -> None:
            ready.wait()
            write_number(name)(barrier)

        workers[name] = Worker(platform, name, on_barrier=on_barrier)
        ready.set()
    seen = set()
    while len(seen) < 6:
        shown = state(reader)
        assert shown["a"] == shown["b"], shown
        seen.add(shown["a"])


def test_own_writes_are_seen_at_once_and_others_after_the_checkpoint(platform: Platform) -> None:
    """A worker reads its rows while its epoch is open, sealed, and committed."""
    a, b = Worker(platform, "a", interval=60.0), Worker(platform, "b", interval=60.0)
    a.write("1")
    assert a.kv.get(b"a") == b"1"
    assert b.kv.get(b"a") is None
    assert state(b.store) == {"a": None, "b": None}


def test_barriers_wait_for_all_participants(platform: Platform) -> None:
    """Half a job makes no checkpoint; when the other half joins, earlier rows are in the first one."""
    a = Worker(platform, "a")
    a.write("early")
    with pytest.raises(WaitTimeout, match="no checkpoint was made"):
        a.checkpoint.leave(timeout=10 * INTERVAL)
    assert state(a.store) == {"a": None, "b": None}
    b = Worker(platform, "b")
    held = b.committed_write("late").committed_epoch
    b.store.wait_epoch(held)
    assert state(b.store) == {"a": "early", "b": "late"}


def test_leaving_commits_all_rows_first(platform: Platform) -> None:
    """`leave` returns when all rows are committed; the job goes on without the worker."""
    a, b = Worker(platform, "a"), Worker(platform, "b")
    a.write("done")
    a.checkpoint.leave()
    assert state(a.store)["a"] == "done"
    with pytest.raises(StoreClosed, match="has left"):
        a.write("too late")
    a.checkpoint.leave()
    b.store.wait_epoch(b.committed_write("alone").committed_epoch)
    assert state(b.store) == {"a": "done", "b": "alone"}


def test_dead_worker_makes_all_drop_uncommitted_rows(platform: Platform) -> None:
    """With `abort`, the others drop their rows since the newest checkpoint, get one event about it, and go on."""
    a, b = Worker(platform, "a"), Worker(platform, "b")
    a.committed_write("1")
    held = b.committed_write("1").committed_epoch
    b.store.close()
    with pytest.raises(CheckpointAborted, match="'b' is gone") as aborted:
        a.write_on("2")
    assert aborted.value.args[2] >= held
    # A barrier that both had collected when one died has committed; what is not committed is gone here too.
    assert a.kv.get(b"a").decode() == state(a.store)["a"]
    a.write("3")
    successor = Worker(platform, "b")
    assert successor.kv.get(b"b") == b"1"
    a.store.wait_epoch(successor.committed_write("4").committed_epoch)
    assert state(a.store) == {"a": "3", "b": "4"}


def test_dead_worker_is_waited_for(platform: Platform) -> None:
    """With `wait`, the others keep their rows, which are committed when a successor of the same name has come."""
    a, b = Worker(platform, "a", on_missing="wait"), Worker(platform, "b", on_missing="wait")
    b.committed_write("1")
    b.write("lost")
    b.store.close()
    a.write("kept")
    with pytest.raises(WaitTimeout):
        a.checkpoint.leave(timeout=10 * INTERVAL)
    assert state(a.store)["a"] is None
    successor = Worker(platform, "b", on_missing="wait")
    assert successor.kv.get(b"b") in (b"1", b"lost")  # what was lost may have been collected
    a.checkpoint.leave()
    assert state(a.store)["a"] == "kept"


@pytest.mark.parametrize("on_missing", ["abort", "wait"])
def test_slow_worker_is_aborted_or_waited_for(platform: Platform, on_missing: str) -> None:
    """A worker that delays a barrier makes all give it up after the timeout, or is waited for."""
    held_up, go_on = threading.Event(), threading.Event()

    def dawdle(barrier: BarrierEvent) -> None:
        held_up.set()
        assert go_on.wait(HEAR_SECONDS_MAX)

    options = {"on_missing": on_missing, "timeout": 3.0 if on_missing == "abort" else 0.1}
    b = Worker(platform, "b", **options, on_barrier=dawdle)
    restored: queue.Queue[BarrierEvent] = queue.Queue()
    a = Worker(platform, "a", **options, on_restore=restored.put)
    assert restored.get(timeout=HEAR_SECONDS_MAX).what == "started"
    a.write("fast")
    assert held_up.wait(HEAR_SECONDS_MAX)
    if on_missing == "abort":
        assert "was not collected by ['b']" in restored.get(timeout=HEAR_SECONDS_MAX).reason
        assert a.kv.get(b"a") is None
        go_on.set()
        with pytest.raises(CheckpointAborted, match="was not collected"):
            b.write_on("slow")
        b.write("again")
        a.write("again")
    else:
        with pytest.raises(queue.Empty):
            restored.get(timeout=0.5)
        go_on.set()
    a.checkpoint.leave()
    assert state(a.store)["a"] == ("again" if on_missing == "abort" else "fast")


def test_barrier_waits_for_a_worker_that_restores_its_state(platform: Platform) -> None:
    """`on_barrier` is called only after the worker has asked for its epoch: before, it could save a missing state."""
    a = Worker(platform, "a", timeout=3.0)
    barriers: queue.Queue[BarrierEvent] = queue.Queue()
    store = platform.connect()
    restoring = store.join_checkpoint(
        "job", participant="b", participants=2, interval=INTERVAL, timeout=3.0, on_barrier=barriers.put
    )
    began = inside.epoch_of(restoring)
    # It takes longer than a barrier may: the others are told, who restores is not.
    with pytest.raises(CheckpointAborted, match="was not collected"):
        a.write_on("1")
    eventually(lambda: inside.epoch_of(restoring) != began)
    assert barriers.empty()
    with restoring.writing() as epoch:
        store.table("kv").upsert([(b"b", b"1")], epoch)
    a.write("2")
    a.checkpoint.leave()
    assert not barriers.empty()
    assert state(a.store) == {"a": "2", "b": "1"}


def test_a_first_step_waits_for_the_barrier_that_has_waited_for_it(platform: Platform) -> None:
    """Which comes as soon as the worker asks: the step is in the epoch after it."""
    barriers: queue.Queue[BarrierEvent] = queue.Queue()
    store = platform.connect()
    restoring = store.join_checkpoint("job", participant="a", interval=INTERVAL, on_barrier=barriers.put)
    eventually(lambda: inside.holds_a_barrier_up(restoring))
    with restoring.writing() as epoch:
        store.table("kv").upsert([(b"a", b"1")], epoch)
    assert barriers.get(timeout=HEAR_SECONDS_MAX).epoch < epoch
    restoring.leave()
    assert state(store)["a"] == "1"


def test_failing_worker_gets_its_own_error_and_the_others_get_the_reason(platform: Platform) -> None:
    """An error in `on_barrier` reaches the worker; the others go back to the newest checkpoint."""

    def stumble(barrier: BarrierEvent) -> None:
        raise ZeroDivisionError("in the worker's code")

    a, b = Worker(platform, "a"), Worker(platform, "b", on_barrier=stumble)
    with pytest.raises(ZeroDivisionError, match="in the worker's code"):
        b.write_on("1")
    with pytest.raises(CheckpointAborted, match="ZeroDivisionError: in the worker's code"):
        a.write_on("1")


def test_leaving_after_a_failure_that_nobody_asked_for_raises_it(platform: Platform) -> None:
    """A worker that writes once and leaves would else take its lost rows for committed."""
    failed = threading.Event()

    def stumble(barrier: BarrierEvent) -> None:
        failed.set()
        raise ZeroDivisionError("in the worker's code")

    worker = Worker(platform, "a", participants=1, on_barrier=stumble)
    assert worker.checkpoint.epoch
    assert failed.wait(HEAR_SECONDS_MAX)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="in the worker's code"):
            worker.checkpoint.leave()


def test_worker_in_the_middle_of_a_step_gets_its_own_error(platform: Platform) -> None:
    """An error in `on_committed` gives up the epoch of the running step: the step raises that error."""

    def stumble(committed: BarrierEvent) -> None:
        assert in_a_step.wait(HEAR_SECONDS_MAX)
        raise ZeroDivisionError("in the worker's code")

    def step() -> None:
        with a.checkpoint.writing() as epoch:
            in_a_step.set()
            pause = threading.Event()
            for _ in range(int(HEAR_SECONDS_MAX / 0.005)):
                a.kv.upsert([(b"a", b"2")], epoch)
                pause.wait(0.005)

    in_a_step, passed = threading.Event(), threading.Event()
    a = Worker(platform, "a", participants=1, on_barrier=lambda _: passed.set(), on_committed=stumble)
    a.write("1")
    assert passed.wait(HEAR_SECONDS_MAX)
    with pytest.raises(ZeroDivisionError, match="in the worker's code"):
        step()
    assert state(platform.connect())["a"] == "1"


def test_checkpoint_that_cannot_be_committed_is_aborted(platform: Platform) -> None:
    """A table was dropped under the job: all workers get the reason, and nothing half is committed."""
    other = platform.connect().create_table("other")
    a, b = Worker(platform, "a", interval=0.5), Worker(platform, "b", interval=0.5)
    with b.checkpoint.writing() as epoch:
        b.store.table("other").upsert([(b"k", b"v")], epoch)
    a.write("1")
    a.store.drop_table("other")
    # The table may be gone before the upload, which fails its worker, or after it, which fails the commit.
    with pytest.raises(CheckpointAborted, match="dropped"):
        a.write_on("2")
    with pytest.raises((CheckpointAborted, TableNotFound), match="dropped"):
        b.write_on("2")
    assert state(a.store) == {"a": None, "b": None}
    assert other.name == "other"


def test_used_name_of_a_worker_is_refused(platform: Platform) -> None:
    """A live worker's name is refused to another client, and a client takes one place in a job."""
    a = Worker(platform, "a")
    impatient = connect(platform.url, deadline=0.6)
    with impatient, pytest.raises(DuplicateName, match="has a live participant 'a'"):
        impatient.join_checkpoint("job", participant="a", participants=2, interval=INTERVAL)
    with pytest.raises(DuplicateName, match="takes part in job 'job' already, as 'a'"):
        a.store.join_checkpoint("job", participant="c", participants=2, interval=INTERVAL)


def test_successor_waits_for_its_predecessors_session(platform: Platform) -> None:
    """A killed and restarted worker joins as soon as the session of the dead one has lapsed."""
    a = Worker(platform, "a")
    inside.silence(inside.backend(a.store))
    successor = Worker(platform, "a")
    assert successor.checkpoint.epoch > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"participants": 3}, "all participants have to give the same"),
        ({"participants": 0}, "participants is 0"),
        ({"interval": 0}, "interval is 0"),
        ({"timeout": -1.0}, "timeout is -1.0"),
        ({"on_missing": "ignore"}, "on_missing is 'ignore'"),
        ({"on_barrier": 3}, "on_barrier is 3; expected a function"),
        ({"on_restore": "again"}, "on_restore is 'again'; expected a function"),
    ],
)
def test_options_that_cannot_work(platform: Platform, options: dict[str, Any], message: str) -> None:
    """Options on which all have to agree, and senseless ones; the message names the option."""
    a = Worker(platform, "a")
    with pytest.raises(InvalidOption, match=message):
        Worker(platform, "b", **options)
    assert a.checkpoint.epoch > 0


def test_embedded_store_has_no_coordinator() -> None:
    """The error says what is needed."""
    with connect("memory://") as store, pytest.raises(InvalidOption, match="where a meta service coordinates them"):
        store.join_checkpoint("job")


def test_wait_needs_a_name_that_lasts(platform: Platform) -> None:
    """The name identifies a successor, so with a newly drawn name none could come."""
    with pytest.raises(InvalidOption, match="needs a name"):
        platform.connect().join_checkpoint("job", on_missing="wait")


def test_worker_that_slept_past_its_session_is_replaced(platform: Platform) -> None:
    """The sleeper's rows are given up, and it is told that a successor has its place."""
    a, b = Worker(platform, "a"), Worker(platform, "b")
    a.committed_write("1")
    backend: Any = inside.backend(a.store)
    # It sleeps: nothing is heard, neither of others nor of a barrier that it was about to collect.
    receive = inside.deafen(backend, "job", "a", a.checkpoint)
    leadership: Any = platform.leader.node.leadership
    inside.end_session(leadership, inside.connection(backend).session_id, "it slept")
    successor = Worker(platform, "a")
    with pytest.raises(CheckpointAborted, match="its session ended"):
        b.write_on("given up")
    b.write("again")
    successor.committed_write("2")
    receive(None)
    with pytest.raises(Fenced, match="a successor has its place"):
        a.write_on("stale")
    assert state(b.store)["a"] == "2"


def test_change_of_leader_loses_no_checkpoint(tmp_path: Path) -> None:
    """The leader ends in the middle of the job: committed rows stay, the rest is repeated, barriers go on."""
    with Platform(tmp_path.as_uri(), replicas=2, session_lease_seconds=20.0, leader_lease_seconds=4.0) as platform:
        platform.connect().create_table("kv")
        a, b = Worker(platform, "a"), Worker(platform, "b")
        a.committed_write("1")
        before = b.committed_write("1")
        platform.leader.stop(drain=False)
        for worker in (a, b):
            with pytest.raises(CheckpointAborted, match="begun anew"):
                worker.write_on("2")
            assert worker.kv.get(worker.name.encode()) in (b"1", b"2")
            worker.write("3")
        after = b.hear("committed", after=before.barrier)
        while state(b.store) != {"a": "3", "b": "3"}:
            after = b.hear("committed", after=after.barrier)
        assert after.committed_epoch > before.committed_epoch


def test_commit_that_the_bucket_delays_happens_once(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt without an answer may have succeeded: the same commit is repeated, and nothing is aborted."""
    commits: Any = platform.leader.node.leadership.commits
    commit, attempts = commits.commit, []

    def trouble(request: Any, identity: Any) -> int:
        attempts.append(request.batch_id)
        epoch = commit(request, identity)
        if len(attempts) == 1:
            raise ObjectStoreUnavailable("the answer was lost")
        return epoch

    monkeypatch.setattr(commits, "commit", trouble)
    a, b = Worker(platform, "a"), Worker(platform, "b")
    a.write("1")
    held = b.committed_write("1")
    a.write("2")
    b.committed_write("2")
    assert attempts[:2] == [attempts[0], attempts[0]]
    ledger = platform.leader.node.meta.version().ledger["checkpoint:job"]
    assert [batch for batch, _ in ledger] == sorted({batch for batch, _ in ledger})
    assert held.committed_epoch in [epoch for _, epoch in ledger]


def test_broken_subscriptions_lose_no_event(platform: Platform) -> None:
    """Events lost with one stream are sent again on the next one: no abort, and no row is missing."""
    restored: list[str] = []
    workers = [Worker(platform, name, on_restore=lambda event: restored.append(event.what)) for name in ("a", "b")]
    for number in range(20):
        for worker in workers:
            worker.write(str(number))
            connection: Any = inside.connection(inside.backend(worker.store))
            connection.reconnect()
    leaving = [threading.Thread(target=worker.checkpoint.leave) for worker in workers]
    for thread in leaving:
        thread.start()
    for thread in leaving:
        thread.join(HEAR_SECONDS_MAX)
    assert restored == ["started", "started"]
    assert state(platform.connect()) == {"a": "19", "b": "19"}


def test_vacuum_spares_the_part_of_a_dead_worker(platform: Platform) -> None:
    """Its session protects the part no more; the barrier under way does."""
    held_up, go_on = threading.Event(), threading.Event()

    def dawdle(barrier: BarrierEvent) -> None:
        held_up.set()
        assert go_on.wait(HEAR_SECONDS_MAX)

    a = Worker(platform, "a", on_missing="wait", interval=0.5, on_barrier=dawdle)
    b = Worker(platform, "b", on_missing="wait", interval=0.5)
    b.write("precious")
    assert held_up.wait(HEAR_SECONDS_MAX)
    leadership: Any = platform.leader.node.leadership
    eventually(leadership.checkpoints.uploads_in_flight)
    (job,) = leadership.checkpoints.status()
    assert [(one.name, one.connected, one.collected) for one in job.participants] == [
        ("a", True, False),
        ("b", True, True),
    ]
    b.store.close()
    (collected,) = leadership.checkpoints.uploads_in_flight()
    assert collected in inside.uploads_in_flight(leadership)
    assert a.store.vacuum().deleted == ()
    go_on.set()
    eventually(lambda: state(a.store)["b"] == "precious")
    eventually(lambda: leadership.checkpoints.status()[0].state == "waiting")
    (job,) = leadership.checkpoints.status()
    assert [one.connected for one in job.participants] == [True, False]
    assert leadership.checkpoints.uploads_in_flight() == []


def test_call_from_another_session_is_fenced(platform: Platform) -> None:
    """No client collects for another client's worker, even if it knows the generation."""
    a, other = Worker(platform, "a"), platform.connect()
    connection: Any = inside.connection(inside.backend(other))
    request = pb.CollectBarrierRequest(
        session_id=connection.session_id,
        job="job",
        participant="a",
        generation=inside.generation_of(a.checkpoint),
        barrier=1,
    )
    with pytest.raises(Fenced, match="is gone or was replaced"):
        connection.call("CollectBarrier", request)
    with pytest.raises(Fenced, match="not known to this leader"):
        connection.call("CollectBarrier", pb.CollectBarrierRequest(session_id=connection.session_id, job="none"))
