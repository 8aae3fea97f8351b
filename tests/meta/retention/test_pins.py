"""Pins and the low watermark: leases, clocks, and every interleaving of a pin with a compaction."""

import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from msgspec.structs import replace

from support.buckets.faulty_bucket import Fate, FaultyBucket, where
from support.store.versions import FakeSystem, ModelBucket, request, run, spec, sst
from tussock.meta.compaction.picker import PickerConfig
from tussock.meta.compaction.watermark import low_watermark
from tussock.meta.log.format import encode_pin
from tussock.meta.log.log import VersionLog
from tussock.meta.meta_store import MetaStore
from tussock.meta.retention.pin_objects import live_pins, smallest_live_pin
from tussock.meta.retention.pins import RENEWED_AT_ONCE, PinKeeper
from tussock.statestore.buckets import RequestCounts
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.contract.readable import check_exact
from tussock.statestore.errors import InvalidOption, ObjectStoreUnavailable, SnapshotExpired, StoreClosed

EAGER = PickerConfig(base_bytes=1, l0_small_bytes=1)
LEASE = 60.0


def meta(bucket: ModelBucket | FaultyBucket, system: FakeSystem, retention: float = 0.0) -> MetaStore:
    return MetaStore(bucket, system, retention_seconds=retention, config=EAGER)


@pytest.fixture
def store(bucket: ModelBucket, system: FakeSystem) -> MetaStore:
    """Two commits of the same keys, at epochs 1 and 2."""
    made = meta(bucket, system)
    made.create_table(spec())
    for epoch in (1, 2):
        system.forward(1)
        made.commit(request(epoch))
    return made


def test_a_pin_is_on_the_newest_or_the_given_epoch(store: MetaStore, bucket: ModelBucket, system: FakeSystem) -> None:
    """The pin is listed with owner and times, smallest epoch first, until its release."""
    keeper = meta(bucket, system, retention=100)
    newest, older = store.pins.pin(None), keeper.pins.pin(1)
    assert [pin.epoch for pin in store.live_pins()] == [1, 2]
    assert store.live_pins()[1] == replace(newest.info, seq=0)
    assert newest.info.seq == store.version().seq, "it shows the tables that are there now"
    assert newest.info.expires_ms - newest.info.created_ms == 60_000
    newest.release()
    newest.release()
    assert store.live_pins() == [older.info]
    with pytest.raises(StoreClosed):
        newest.check()
    older.release()
    assert store.live_pins() == []


def test_pins_write_nothing_to_the_log(store: MetaStore) -> None:
    """Any number of pins leaves the log as it is."""
    seq = store.version().seq
    for _ in range(5):
        store.pins.pin(None).release()
    assert store.refresh().seq == seq


def test_an_epoch_that_an_older_pin_holds_can_be_pinned(bucket: ModelBucket, system: FakeSystem) -> None:
    """With a retention of 0, workers can pin their job's epoch although a newer one was committed."""
    store = meta(bucket, system)
    store.create_table(spec())
    store.commit(request(1))
    job = store.pins.pin(None)
    system.forward(1)
    store.commit(request(2))
    worker = meta(bucket, system).pins.pin(1)
    job.release()
    worker.check()
    assert worker.info.epoch == 1


def test_the_newest_epoch_can_be_pinned_while_others_commit(bucket: ModelBucket, system: FakeSystem) -> None:
    """The newest epoch of the moment can be pinned past its retention if no row of it was dropped."""
    writer, slow = meta(bucket, system), FaultyBucket(bucket)
    reader = meta(slow, system)
    writer.create_table(spec())
    writer.commit(request(1))

    def commit_two() -> None:
        for epoch in (2, 3):
            system.forward(1)
            writer.commit(request(epoch))

    slow.stall(lambda call: call.operation == "put", commit_two)
    pin = reader.pins.pin(None)
    assert pin.info.epoch == 1
    pin.check()


def test_a_pin_finds_commits_of_other_processes(store: MetaStore, bucket: ModelBucket, system: FakeSystem) -> None:
    """The newest epoch is that of the store, not of this process."""
    other = meta(bucket, system)
    other.commit(request(9))
    assert store.pins.pin(None).info.epoch == 9


def test_a_lost_answer_to_a_pin_leaves_no_pin(store: MetaStore, system: FakeSystem, bucket: ModelBucket) -> None:
    """A pin that its holder does not know of is deleted again."""
    faulty = FaultyBucket(bucket)
    other = meta(faulty, system)
    faulty.script = where("put", "pins/", Fate.LOSE_ANSWER)
    with pytest.raises(ObjectStoreUnavailable):
        other.pins.pin(None)
    assert store.live_pins() == []


def test_renewal_moves_the_expiry_and_a_lapsed_lease_stays_lapsed(bucket: ModelBucket, system: FakeSystem) -> None:
    """The holder measures by its monotonic clock; a lapsed pin is not brought back."""
    log = VersionLog(bucket, system, owner="a")
    keeper = PinKeeper(bucket, system, log, owner="a", retention_ms=0, lease_seconds=LEASE)
    pin = keeper.pin(None)
    for _ in range(10):
        system.forward(LEASE / 3)
        keeper.renew()
        pin.check()
    assert pin.info.expires_ms == system.now_ms() + 60_000
    system.forward(LEASE)
    with pytest.raises(SnapshotExpired, match="stood still"):
        pin.check()
    keeper.renew()
    with pytest.raises(SnapshotExpired, match="stood still"):
        pin.check()
    system.forward(1)
    assert smallest_live_pin(bucket, system.now_ms(), 0) is None


def test_one_failed_renewal_loses_no_pin(bucket: ModelBucket, system: FakeSystem) -> None:
    """The lease lasts for two renewals."""
    faulty = FaultyBucket(bucket)
    keeper = PinKeeper(faulty, system, VersionLog(faulty, system, owner="a"), owner="a", retention_ms=0)
    pin = keeper.pin(None)
    system.forward(LEASE / 3)
    faulty.script = where("put", "pins/", Fate.LOSE_REQUEST)
    keeper.renew()
    system.forward(LEASE / 3)
    keeper.renew()
    system.forward(LEASE - 1)
    pin.check()
    pin.release()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_neither_ends_a_lease_nor_makes_it_eternal(
    bucket: ModelBucket, system: FakeSystem, hours: int
) -> None:
    """The wall clock jumps by an hour: the holder goes on; after a crash the pin ends a lease after its renewal."""
    keeper = PinKeeper(bucket, system, VersionLog(bucket, system, owner="a"), owner="a", retention_ms=0)
    pin = keeper.pin(None)
    system.wall_ms += hours * 3_600_000
    pin.check()
    keeper.renew()
    pin.check()
    assert list(live_pins(bucket, system.now_ms() + 60_000, 0)) == [pin.info]
    assert list(live_pins(bucket, system.now_ms() + 60_001, 0)) == []


def test_a_pin_by_a_clock_years_ahead_ends_a_day_after_it_was_written(bucket: ModelBucket, system: FakeSystem) -> None:
    """If its writer is gone, it holds back compaction for a day by the bucket's clock, then vacuum deletes it."""
    store = meta(bucket, system)
    pin = store.pins.pin(None)
    years = 5 * 365 * 86_400_000
    bucket.put(f"pins/{pin.info.id}", encode_pin(replace(pin.info, expires_ms=pin.info.expires_ms + years)))
    store.pins.abandon_all()
    system.forward(86_400)
    assert smallest_live_pin(bucket, system.now_ms(), 0) == pin.info.epoch
    system.forward(1)
    assert smallest_live_pin(bucket, system.now_ms(), 0) is None
    system.forward(86_400)
    store.vacuum()
    assert [path for path in bucket.objects if path.startswith("pins/")] == []


def test_a_lease_shorter_than_two_renewals_is_refused(bucket: ModelBucket, system: FakeSystem) -> None:
    """Exactly two is allowed."""
    log = VersionLog(bucket, system, owner="a")
    for lease, renew in ((10.0, 5.1), (0.0, 0.0), (-1.0, None)):
        with pytest.raises(InvalidOption, match="lease"):
            PinKeeper(bucket, system, log, owner="a", retention_ms=0, lease_seconds=lease, renew_seconds=renew)
    PinKeeper(bucket, system, log, owner="a", retention_ms=0, lease_seconds=10, renew_seconds=5)


class ThreadSystem(FakeSystem):
    """It knows the threads that were started with it."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[threading.Thread] = []

    def spawn(self, name: str, work: Callable[[], None]) -> threading.Thread:
        self.started.append(super().spawn(name, work))
        return self.started[-1]


def test_the_renewing_thread_ends_with_the_last_pin(bucket: ModelBucket, system: FakeSystem) -> None:
    """It is a daemon thread, one for all pins; a later pin starts another one."""
    threads = ThreadSystem()
    keeper = PinKeeper(bucket, threads, VersionLog(bucket, system, owner="a"), owner="a", retention_ms=0)
    for number in range(2):
        pins = [keeper.pin(None), keeper.pin(None)]
        assert len(threads.started) == number + 1
        thread = threads.started[number]
        assert thread.daemon
        keeper.release_all()
        thread.join(timeout=5)
        assert not thread.is_alive()
        assert len(pins) == 2


FORGETFUL = """
import sys, threading, time
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.pins import PinKeeper
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket

bucket = open_bucket(sys.argv[1])
log = VersionLog(bucket, RealSystem(), owner="a")
keeper = PinKeeper(bucket, RealSystem(), log, owner="a", retention_ms=0, lease_seconds=1, renew_seconds=0.02)
pins = [keeper.pin(None) for _ in range(20)]
threading.Thread(target=time.sleep, args=(0.5,)).start()  # It holds the end of the interpreter up.
"""


def test_a_program_that_ends_with_pins_says_nothing_of_them(tmp_path: Path) -> None:
    """Story: the thread that renews printed a traceback, since an ending interpreter begins no more tasks."""
    command = [sys.executable, "-c", FORGETFUL, (tmp_path / "store").as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(list((tmp_path / "store" / "pins").iterdir())) == 20


def test_a_damaged_pin_holds_its_epoch_and_a_foreign_object_none(
    store: MetaStore, bucket: ModelBucket, system: FakeSystem
) -> None:
    """A damaged pin holds the epoch in its name for a day; a foreign object is no pin."""
    store.pins.pin(None)
    path = next(path for path in bucket.objects if path.startswith("pins/"))
    bucket.put(path, b"damage")
    bucket.put("pins/readme", b"hello")
    assert [pin.owner for pin in store.live_pins()] == ["unreadable"]
    assert smallest_live_pin(bucket, system.now_ms() + 23 * 3_600_000, 0) == 2
    assert smallest_live_pin(bucket, system.now_ms() + 25 * 3_600_000, 0) is None


def test_the_low_watermark_is_the_smallest_of_retention_pins_and_commits(store: MetaStore, system: FakeSystem) -> None:
    """Without an old enough epoch everything is kept."""
    version = store.version()
    now = system.now_ms()
    assert low_watermark(version, now, 0, None) == 2
    assert low_watermark(version, now, 1000, None) == 1
    assert low_watermark(version, now, 0, 1) == 1
    assert low_watermark(version, now, 60_000, 7) == 0


def four_runs(store: MetaStore, system: FakeSystem) -> None:
    for epoch in (3, 4):
        system.sleep(1)
        store.commit(CommitRequest(epoch=epoch, tables={1: (run(sst()),)}))


@pytest.mark.parametrize("at", range(1, 12))
@pytest.mark.parametrize("outer", ["pin", "claim"])
def test_no_interleaving_lets_a_compaction_drop_pinned_rows(outer: str, at: int) -> None:
    """At each request of one, the other runs whole: a granted pin is at or above the task's watermark."""
    system = FakeSystem()
    bucket = ModelBucket(system)
    setup = meta(bucket, system, retention=1000)
    setup.create_table(spec())
    setup.commit(request(1))
    setup.commit(request(2))
    keeper = meta(bucket, system)
    keeper_pin = keeper.pins.pin(2)
    four_runs(setup, system)
    # The older pin makes epoch 2 eligible; it goes before the race is decided.
    reader_bucket, writer_bucket = FaultyBucket(bucket), FaultyBucket(bucket)
    reader, writer = meta(reader_bucket, system, retention=1000), meta(writer_bucket, system)
    keeper_pin.release()
    got: dict[str, object] = {}

    def pin() -> None:
        try:
            got["pin"] = reader.pins.pin(2)
        except SnapshotExpired:
            got["pin"] = None

    def claim() -> None:
        got["task"] = writer.own_tasks.claim("kv")

    outer_bucket, outer_action, inner_action = (
        (reader_bucket, pin, claim) if outer == "pin" else (writer_bucket, claim, pin)
    )
    start = len(outer_bucket.calls)
    outer_bucket.stall(start + at, inner_action)
    outer_action()
    if "pin" not in got or "task" not in got:
        inner_action()
    task, held = got["task"], got["pin"]
    assert task is not None
    if held is not None:
        assert task.watermark <= 2  # type: ignore[attr-defined]
        writer.own_tasks.report(task, [sst(epoch=0, min_epoch=1, max_epoch=4, id="f" * 32)])  # type: ignore[arg-type]
        reader.refresh()
        held.check()  # type: ignore[attr-defined]
    else:
        assert task.watermark == 4  # type: ignore[attr-defined]


def test_a_compaction_that_ignored_a_pin_stops_its_holder(
    store: MetaStore, bucket: ModelBucket, system: FakeSystem
) -> None:
    """Where the bucket's clock jumped, too, a process saw the pin as expired: its holder gets an error, no answer."""
    ahead = FakeSystem()
    ahead.wall_ms = system.wall_ms + 3_000_000
    ahead.drawn = 10**6
    pin = store.pins.pin(None)
    four_runs(store, system)
    other = meta(bucket, ahead)
    bucket.system = ahead
    task = other.own_tasks.claim("kv")
    bucket.system = system
    assert task is not None
    assert task.watermark == 4
    other.own_tasks.report(task, [sst(epoch=0, min_epoch=1, max_epoch=4, id="f" * 32)])
    pin.check()
    check_exact(store.version(), store.version().tables[1], pin.info.epoch)
    version = store.refresh()
    with pytest.raises(SnapshotExpired, match="clock"):
        check_exact(version, version.tables[1], pin.info.epoch)


def test_the_watermark_of_any_pins_is_the_smallest_live_one(bucket: ModelBucket, system: FakeSystem) -> None:
    """For any set of pinned epochs it is the smallest live one that a listing shows."""
    store = meta(bucket, system, retention=1000)
    store.create_table(spec())
    for epoch in (1, 2, 3):
        store.commit(request(epoch))
    for size in (1, 2, 3):
        for epochs in combinations((1, 2, 3), size):
            held = [store.pins.pin(epoch) for epoch in epochs]
            assert smallest_live_pin(bucket, system.now_ms(), 0) == min(epochs)
            for pin in held:
                pin.release()


def test_releasing_a_pin_renews_no_other(bucket: ModelBucket, system: FakeSystem) -> None:
    """Once each release woke the renewing thread, which wrote all other pins anew: twice the puts or more."""
    counts = RequestCounts(bucket)
    keeper = MetaStore(counts.for_purpose("pins"), system)
    with_others = keeper.pins.pin(None)
    for _ in range(50):
        keeper.pins.pin(None).release()
    assert counts.counts()["pins"]["put"][0] == 51
    with_others.release()


@pytest.mark.parametrize(("pins", "at_once"), [(20, 4), (2 * RENEWED_AT_ONCE, RENEWED_AT_ONCE)])
def test_many_pins_are_renewed_concurrently(system: FakeSystem, pins: int, at_once: int) -> None:
    """One after the other, renewing a thousand would outlast the lease of the last; so it takes less than 5 s."""
    bucket = ModelBucket(system)
    store = meta(bucket, system, retention=1000)
    store.create_table(spec())
    store.commit(request(1))
    held = [store.pins.pin(None) for _ in range(pins)]
    together = threading.Barrier(at_once, timeout=30)
    keeper = store.pins
    put = bucket.put

    def slow(path: str, data: bytes) -> None:
        if path.startswith("pins/"):
            together.wait()
        put(path, data)

    bucket.put = slow  # type: ignore[method-assign,assignment]
    system.forward(20)
    keeper.renew()
    bucket.put = put  # type: ignore[method-assign]
    assert {pin.expires_ms for pin in store.live_pins()} == {system.now_ms() + 60_000}
    for pin in held:
        pin.release()
    assert store.live_pins() == []
    seconds_a_request = 0.1  # of a bucket that is far away
    assert 1000 / RENEWED_AT_ONCE * seconds_a_request < 5
