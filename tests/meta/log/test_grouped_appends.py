"""Group commit: waiting calls share one entry, each with its own result or error; listeners get every entry."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from support import inside
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket, where
from support.store.versions import ModelBucket, request, spec, sst
from support.waiting import eventually
from tussock.meta.log.appends.group_commit import AnyCall, Call, CallQueue
from tussock.meta.log.appends.limits import LogLimits
from tussock.meta.log.format import base_path, decode_entry, entry_path, marker_path
from tussock.meta.log.log import VersionLog
from tussock.meta.log.recovery import apply_entry
from tussock.meta.version.deltas.commits import AlreadyCommitted, stamp
from tussock.meta.version.deltas.delta import Delta, advance
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.deltas.terms import StartTerm
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import Version
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.errors import (
    Conflict,
    Fenced,
    InvalidOption,
    ObjectStoreUnavailable,
    TableExists,
    TussockError,
)


class Store:
    """A log over a faulty bucket, whose creates of entries a test can hold up."""

    def __init__(self, bucket: ModelBucket, base_every: int = 64, **options: Any) -> None:
        self.bucket = FaultyBucket(bucket)
        self.system = bucket.system
        self.log = VersionLog(self.bucket, self.system, owner="a", base_every=base_every, **options)

    def create(self, name: str) -> int:
        def decide(version: Version) -> tuple[list[Delta], int]:
            if version.find_table(name) is not None:
                raise TableExists(f"table {name!r} exists already")
            return [CreateTable(spec=spec(name, version.next_table_id))], version.next_table_id

        return self.log.append(decide)

    def commit(self, req: CommitRequest) -> int:
        def decide(version: Version) -> tuple[list[Delta], int]:
            stamped = stamp(version, req, self.system.now_ms())
            return ([], stamped.epoch) if isinstance(stamped, AlreadyCommitted) else ([stamped], stamped.epoch)

        return self.log.append(decide, key=repr(req), repeatable=req.writer is not None)

    def together(self, *calls: Callable[[], object], fate: Fate = Fate.PASS) -> list[object]:
        """Make the calls while another append is under way, so that they wait for one entry; returns the outcomes.

        `fate` is that of the create that they share.
        """
        outcomes: list[object] = [None] * len(calls)

        def run(index: int) -> None:
            try:
                outcomes[index] = calls[index]()
            except (TussockError, Crash) as error:
                outcomes[index] = error

        shared = entry_path(self.log.version.seq + 2)
        threads: list[threading.Thread] = []

        def pile_up() -> None:
            for index in range(len(calls)):
                threads.append(threading.Thread(target=run, args=(index,)))
                threads[-1].start()
                while len(inside.append_queue(self.log)) <= index:
                    pass
            self.bucket.script = where("create", shared, fate)

        self.bucket.stall(lambda call: call.operation == "create", pile_up)
        before = self.bucket.script
        self.bucket.script = None
        self.create(f"first-{self.log.version.seq}")
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        self.bucket.script = before
        return outcomes


def entry(bucket: ModelBucket, seq: int) -> list[str]:
    deltas = decode_entry("x", seq, bucket.objects[entry_path(seq)][0]).deltas
    return [type(delta).__name__ for delta in deltas]


def test_calls_that_wait_share_one_entry(bucket: ModelBucket) -> None:
    """Ten commits during an append are one create; each gets its own epoch, in the order of the log."""
    store = Store(bucket)
    store.create("kv")
    requests = [request(5) for _ in range(10)]
    store.bucket.calls.clear()
    epochs = store.together(*(lambda req=req: store.commit(req) for req in requests))
    assert [call.operation for call in store.bucket.calls] == ["create", "create"]
    assert entry(bucket, 3) == ["CommitEpoch"] * 10
    held = {run.ssts[0].id: run.ssts[0].epoch for run in store.log.version.tables[1].levels.l0}
    assert held == {req.tables[1][0].ssts[0].id: epoch for req, epoch in zip(requests, epochs, strict=True)}
    assert epochs == sorted(set(epochs))  # type: ignore[type-var]
    assert problems(store.log.version) == []
    assert Store(bucket).log.refresh() == store.log.version


def test_one_bad_call_fails_without_the_others(bucket: ModelBucket) -> None:
    """A refusal, a broken `decide` and good calls in one group: each gets its own outcome."""
    store = Store(bucket)
    store.create("kv")

    def broken(_: Version) -> tuple[list[Delta], int]:
        raise ZeroDivisionError

    def bad() -> object:
        try:
            return store.log.append(broken)
        except ZeroDivisionError as error:
            return error

    results = store.together(
        lambda: store.commit(request(5)),
        lambda: store.commit(request(6, 99)),
        bad,
        lambda: store.commit(request(7)),
        lambda: store.create("kv"),
    )
    assert [type(result).__name__ for result in results] == [
        "int",
        "TableNotFound",
        "ZeroDivisionError",
        "int",
        "TableExists",
    ]
    assert entry(bucket, 3) == ["CommitEpoch", "CommitEpoch"]


def test_a_call_is_decided_on_the_results_of_earlier_calls(bucket: ModelBucket) -> None:
    """Of two calls for one name one gets it; a repeated commit in the group counts once; `expect` sees the first."""
    store = Store(bucket)
    store.create("kv")
    store.commit(request(5))
    again = request(6, 1, sst(), writer="w", batch_id=1)
    results = store.together(
        lambda: store.create("same"),
        lambda: store.create("same"),
        lambda: store.commit(again),
        lambda: store.commit(again),
        lambda: store.commit(request(8, 1, expect={1: 5})),
    )
    assert [type(result) for result in results] == [int, TableExists, int, int, Conflict]
    assert results[2] == results[3] == 6
    assert entry(bucket, 4) == ["CreateTable", "CommitEpoch"]


def test_answers_that_rest_on_a_lost_entry_are_decided_again(bucket: ModelBucket) -> None:
    """Calls that were answered by deltas which then lose the race are decided again."""
    store, other = Store(bucket), Store(bucket)
    store.create("kv")
    again = request(6, 1, sst(), writer="w", batch_id=1)

    def overtake() -> None:
        other.create("theirs")

    def together() -> list[object]:
        return store.together(
            lambda: store.commit(again),
            lambda: store.commit(again),
            lambda: store.create("mine"),
            lambda: store.create("mine"),
            lambda: store.create("theirs"),
        )

    store.bucket.stall(lambda call: call.path == entry_path(3), overtake)
    results = together()
    assert [type(result) for result in results] == [int, int, int, TableExists, TableExists]
    assert entry(bucket, 3) == ["CreateTable"]
    assert entry(bucket, 4) == ["CommitEpoch", "CreateTable"]
    assert other.log.refresh() == store.log.version


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
def test_a_lost_answer_leaves_each_call_open_until_it_is_repeated(bucket: ModelBucket, landed: bool) -> None:
    """Every caller gets a separate error that leaves the outcome open, and its repetition gets the right answer."""
    store = Store(bucket)
    store.create("kv")
    requests = [request(epoch, 1, sst()) for epoch in (5, 6, 7)]
    dead = [False]
    inner = store.bucket.inner

    class Flaky(ModelBucket):
        """The second create is lost with its answer, and so is the reading back."""

        def __init__(self) -> None:
            super().__init__(bucket.system)
            self.objects = bucket.objects

        def create(self, path: str, data: bytes) -> bool:
            if path != entry_path(3):
                return super().create(path, data)
            dead[0] = True
            if landed:
                super().create(path, data)
            raise ObjectStoreUnavailable("timed out")

        def get(self, path: str, bytes_max: int | None = None) -> bytes:
            if dead[0]:
                raise ObjectStoreUnavailable("timed out")
            return super().get(path, bytes_max)

    store.bucket.inner = Flaky()
    errors = store.together(*(lambda req=req: store.commit(req) for req in requests))
    assert all(isinstance(error, ObjectStoreUnavailable) and "may or may not" in str(error) for error in errors)
    assert len({id(error) for error in errors}) == 3
    store.bucket.inner = inner
    assert [store.commit(req) for req in requests] == [5, 6, 7]
    assert len(store.log.version.tables[1].levels.ssts()) == 3
    assert Store(bucket).log.refresh() == store.log.version


def test_an_interrupted_appender_leaves_no_call_waiting(bucket: ModelBucket) -> None:
    """The thread that appends for all dies: the others get an error that leaves the outcome open; the log goes on."""
    store = Store(bucket)
    store.create("kv")
    results = store.together(*(lambda: store.commit(request(5)) for _ in range(3)), fate=Fate.CRASH)
    assert sorted(type(result).__name__ for result in results) == ["Crash"] + ["ObjectStoreUnavailable"] * 2
    store.bucket.dead = False
    store.create("more")
    assert problems(store.log.version) == []


def test_the_calls_of_one_entry_are_bounded(bucket: ModelBucket) -> None:
    """The other calls go into later entries, and none is left behind."""
    store = Store(bucket, limits=LogLimits(entry_calls=4))
    store.create("kv")
    epochs = store.together(*(lambda: store.commit(request(5)) for _ in range(10)))
    assert len(set(epochs)) == 10
    assert [len(entry(bucket, seq)) for seq in (3, 4, 5)] == [4, 4, 2]


def test_reading_the_version_does_not_wait_for_an_append(bucket: ModelBucket) -> None:
    """During a create another thread reads the previous version."""
    store = Store(bucket)
    store.create("kv")
    seen: list[int] = []

    def meanwhile() -> None:
        thread = threading.Thread(target=lambda: seen.append(store.log.version.seq))
        thread.start()
        thread.join(20)

    store.bucket.stall(lambda call: call.operation == "create", meanwhile)
    store.create("more")
    assert seen == [1]


def test_the_snapshot_is_written_after_other_callers_have_their_answers(bucket: ModelBucket) -> None:
    """Only one caller waits for the snapshot."""
    store = Store(bucket, base_every=3)
    store.create("kv")
    waiting: list[int] = []

    def look() -> None:
        queue = inside.append_queue(store.log)
        waiting.append(len(queue) + queue.is_working)

    store.bucket.stall(lambda call: call.path == base_path(3), look)
    store.together(lambda: store.commit(request(5)), lambda: store.commit(request(6)))
    assert waiting == [0]
    assert base_path(3) in bucket.objects


def test_listeners_get_each_entry_once_and_in_order(bucket: ModelBucket) -> None:
    """They get own and foreign entries as the bytes in the bucket; the versions are those of a replay."""
    store, other = Store(bucket), Store(bucket)
    store.create("kv")
    heard: list[tuple[bytes | None, Version]] = []
    start = store.log.subscribe(lambda data, version: heard.append((data, version)))
    assert start.seq == 1
    store.commit(request(5))
    other.create("theirs")
    other.create("too")
    store.commit(request(6))
    store.log.refresh()
    store.together(lambda: store.commit(request(7)), lambda: store.commit(request(8)))
    assert [data for data, _ in heard] == [bucket.objects[entry_path(seq)][0] for seq in range(2, 8)]
    version = start
    for data, after in heard:
        assert data is not None
        version = apply_entry(version, decode_entry("x", version.seq + 1, data))
        assert version == after


def test_listeners_get_a_jump_and_never_a_stray_entry(bucket: ModelBucket) -> None:
    """After a truncation they get a snapshot and no entry; an entry below the marker is no part of the log."""
    store, other = Store(bucket), Store(bucket, base_every=2)
    store.create("kv")
    heard: list[tuple[bytes | None, int]] = []
    store.log.subscribe(lambda data, version: heard.append((data, version.seq)))
    for epoch in (11, 12, 13, 14):
        other.commit(request(epoch))
    stray = bucket.objects[entry_path(3)]
    bucket.system.forward(31)
    bucket.create(marker_path(4), b"")
    bucket.delete([entry_path(seq) for seq in range(1, 5)])
    bucket.objects[entry_path(2)] = stray
    assert store.log.refresh() == other.log.version
    assert heard == [(None, 5)]


# --- Terms -----------------------------------------------------------------------------------------------------------


def start(store: Store, term: int, leader: str = "m") -> None:
    store.log.term = term
    delta = StartTerm(term=term, leader=leader, address=f"{leader}:7370")
    store.log.append(lambda _: ([delta], None))


def test_an_old_leader_is_fenced_before_it_sends_anything(bucket: ModelBucket) -> None:
    """It knows of the newer term: it makes only the request that found it, and nothing in the log changes."""
    old, new = Store(bucket), Store(bucket)
    start(old, 1, "old")
    old.create("kv")
    start(new, 2, "new")
    old.log.refresh()
    old.bucket.calls.clear()
    with pytest.raises(Fenced, match=r"term 1 is over: 'new' at 'new:7370' leads term 2") as caught:
        old.commit(request(5))
    assert caught.value.args[1:] == (1, 2)
    assert {call.operation for call in old.bucket.calls} <= {"get"}
    assert new.log.refresh().seq == 3


def test_an_old_leader_loses_the_race_for_a_number(bucket: ModelBucket) -> None:
    """Its create and the newer `StartTerm` race for one number: it lands before the new term, or never."""
    for new_is_first in (True, False):
        fresh = ModelBucket(bucket.system)
        old, new = Store(fresh), Store(fresh)
        start(old, 1, "old")
        old.create("kv")
        new.log.refresh()
        if new_is_first:
            old.bucket.stall(lambda call: call.operation == "create", lambda new=new: start(new, 2, "new"))
            with pytest.raises(Fenced):
                old.commit(request(5))
        else:
            new.bucket.stall(lambda call: call.operation == "create", lambda old=old: old.commit(request(5)) and None)
            start(new, 2, "new")
        version = new.log.refresh()
        assert version.term == 2
        assert len(version.tables[1].levels.l0) == (0 if new_is_first else 1)
        with pytest.raises(Fenced):
            old.create("more")


def test_an_old_leader_that_stalled_across_a_truncation_is_fenced_too(bucket: ModelBucket) -> None:
    """The number that it creates was deleted: its entry does not count, and on the true version its term is over."""
    old, new = Store(bucket), Store(bucket, base_every=2)
    start(old, 1, "old")
    old.create("kv")

    def meanwhile() -> None:
        start(new, 2, "new")
        for epoch in (5, 6, 7, 8):
            new.commit(request(epoch))
        bucket.system.forward(31)
        bucket.create(marker_path(6), b"")
        bucket.delete([entry_path(seq) for seq in range(1, 7)])

    old.bucket.stall(lambda call: call.operation == "create", meanwhile)
    with pytest.raises(Fenced):
        old.commit(request(5, writer="w", batch_id=1))
    assert entry_path(3) in bucket.objects, "left to vacuum: it might have been an entry, with SSTs in it"
    assert new.log.refresh().ledger == {}


def test_a_call_of_a_former_term_is_refused_in_a_later_one(bucket: ModelBucket) -> None:
    """A replica that leads again in a later term does not carry out calls of the former one."""
    store = Store(bucket)
    start(store, 1)
    store.create("kv")
    results: list[object] = []

    def pile_up() -> None:
        def late() -> None:
            try:
                results.append(store.commit(request(5)))
            except Fenced as error:
                results.append(error)

        def rise() -> None:
            start(store, 3)

        for number, work in enumerate((late, rise)):
            threads.append(threading.Thread(target=work))
            threads[-1].start()
            while len(inside.append_queue(store.log)) <= number:
                pass

    threads: list[threading.Thread] = []
    store.bucket.stall(lambda call: call.operation == "create", pile_up)
    # The number is lost to another process's later term, which the waiting call of term 1 does not survive.
    other = Store(bucket)
    other.log.refresh()
    store.bucket.stall(lambda call: call.path == entry_path(4), lambda: start(other, 2, "other"))
    store.create("more")
    for thread in threads:
        thread.join(20)
    assert [type(result) for result in results] == [Fenced]


def test_terms_begin_with_start_term_and_only_grow(bucket: ModelBucket) -> None:
    """An entry of a term without `StartTerm`, a term that is not new, a log that goes back: each refusal says why."""
    store = Store(bucket)
    start(store, 3)
    store.log.term = 4
    with pytest.raises(InvalidOption, match="term 4 has not begun: the newest is 3"):
        store.create("kv")
    with pytest.raises(InvalidOption, match="only grow"):
        store.log.term = 3
    other = Store(bucket)
    for term in (2, 3):
        with pytest.raises(Fenced, match=f"term {term} "):
            start(other, term)
    with pytest.raises(InvalidOption, match="from 1"):
        advance(Version(), [StartTerm(term=0, leader="m", address="")])


def test_a_store_without_a_leader_may_write_beside_one(bucket: ModelBucket) -> None:
    """An embedded process has term 0: its entries are validated as usual, and fence no leader."""
    leader, embedded = Store(bucket), Store(bucket)
    start(leader, 5)
    embedded.create("kv")
    leader.commit(request(5))
    assert decode_entry("x", 2, bucket.objects[entry_path(2)][0]).term == 0
    assert decode_entry("x", 3, bucket.objects[entry_path(3)][0]).term == 5


def test_an_entry_waits_for_the_number_of_calls_of_the_last_one() -> None:
    """Those of the last one, and those that waited then, are expected; each entry saved is a request and a push."""
    queue = CallQueue(RealSystem(), 60.0)
    entries: list[int] = []

    def append(calls: list[AnyCall]) -> None:
        entries.append(len(calls))
        if entries == [1]:
            eventually(lambda: len(queue) == 2)
        for call in calls:
            call.succeed(None)

    def join() -> threading.Thread:
        thread = threading.Thread(target=queue.carry_out, args=([a_call()], append))
        thread.start()
        return thread

    started = time.monotonic()
    first = [join() for _ in range(3)]
    eventually(lambda: not all(thread.is_alive() for thread in first))
    for thread in [*first, join()]:
        thread.join(60)
    for thread in [join() for _ in range(3)]:
        thread.join(60)
    assert entries == [1, 3, 3]
    assert time.monotonic() - started < 30


def test_a_single_caller_never_waits_for_others() -> None:
    """One writer alone does not pay for the lingering."""
    queue = CallQueue(RealSystem(), 60.0)
    started = time.monotonic()
    for _ in range(3):
        call = a_call()
        assert queue.carry_out([call], lambda calls: [one.succeed(None) for one in calls])
        assert call.done
    assert time.monotonic() - started < 30


def a_call() -> AnyCall:
    return Call(lambda version: ([], None), None, True, 0)
