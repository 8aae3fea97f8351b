"""What random applications and damage have found, each as its smallest story."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.procedures.deaths import die_after, open_quick
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import OBJECTS, open_on
from tussock.compute import procedures as ps
from tussock.compute.applications.limits import ApplicationLimits
from tussock.statestore import ObjectStoreUnavailable, StateStore
from tussock.statestore.contract.object_store import ObjectStore

X = pa.schema([("x", pa.int64())])
KV = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def store(bucket: ObjectStore) -> Iterator[StateStore]:
    with open_quick(bucket) as opened:
        yield opened


def adder(store: StateStore, before: Callable[[], None] = lambda: None, **options: Any) -> ps.App:
    """Adds x to the row with key 0; `before` comes first."""
    app = ps.App(store, "adder", **options)
    app.table("sum", KV, primary_key=["k"])

    @app.procedure("add", border=True)
    def add(tx: Any, batch: pa.Table) -> None:
        before()
        row = tx.table("sum").get(0)
        total = (row["v"] if row else 0) + sum(batch["x"].to_pylist())
        tx.table("sum").upsert([{"k": 0, "v": total}])
        tx.reply(total)

    return app


def test_who_waits_for_a_commit_hears_that_it_failed(store: StateStore) -> None:
    """With `checkpoint=0`, somebody else has written to the application's table: the caller waited for ever."""
    app = adder(store, checkpoint=0)
    app.start()
    assert app.submit("add", [{"x": 1}]).result(10) == 1
    epoch = store.new_epoch()
    store.table("sum").ingest_batch([{"k": 0, "v": 5}], epoch)
    store.commit_epoch(epoch)
    ticket = app.submit("add", [{"x": 1}])
    wait([ticket], 5)
    with suppress(ps.ApplicationFenced):
        app.stop()
    assert isinstance(ticket.exception(timeout=0), ps.ApplicationFenced)


def test_who_hears_of_a_takeover_finds_the_application_failed(bucket: ObjectStore) -> None:
    """The reply came first, and for a moment a node that had told its callers of the end still called itself ready."""
    with open_quick(bucket) as one, open_quick(bucket) as other:
        old, new = adder(one), adder(other)
        old.start()
        new.start()
        states: list[str] = []
        ticket = old.submit("add", [{"x": 1}])
        ticket.add_done_callback(lambda _: states.append(old.status()["state"]))
        assert isinstance(ticket.exception(10), ps.ApplicationFenced)
        with suppress(ps.ApplicationFenced):
            old.stop()
        new.stop()
        assert states == ["failed"]


def test_a_bucket_that_is_away_during_the_replay_is_no_other_result(bucket: ObjectStore) -> None:
    """The replay reads a row and cannot: the start has to say so, and not that the program draws numbers."""
    with open_on(bucket, QuickSystem(), limits=OBJECTS) as store, adder(store) as app:
        app.submit("add", [{"x": 1}]).result(10)
    die_after(bucket, lambda store: adder(store, checkpoint=3600), lambda app: app.submit("add", [{"x": 2}]).result(10))
    away = [False]

    def no_reads(call: Call) -> Fate:
        return Fate.LOSE_REQUEST if away[0] and call.path.startswith("sst/") else Fate.PASS

    with open_on(FaultyBucket(bucket, no_reads), QuickSystem(), cache_bytes=0) as store:
        app = adder(store, lambda: away.insert(0, True))
        with pytest.raises(ObjectStoreUnavailable):
            app.start()


def test_a_start_says_what_was_in_its_way(bucket: ObjectStore) -> None:
    """The bucket is away before the tables are read: `AttributeError` came instead."""
    with open_on(bucket, QuickSystem(), limits=OBJECTS) as store, adder(store) as app:
        app.submit("add", [{"x": 1}]).result(10)
    away = [False]

    def no_reads(call: Call) -> Fate:
        return Fate.LOSE_REQUEST if away[0] and call.path.startswith("sst/") else Fate.PASS

    with open_on(FaultyBucket(bucket, no_reads), QuickSystem(), cache_bytes=0) as store:
        app = adder(store)
        away[0] = True
        with pytest.raises(ObjectStoreUnavailable):
            app.start()


def test_a_call_that_was_refused_is_not_done_by_a_recovery(bucket: ObjectStore) -> None:
    """It asked outside, which refused, and its caller was told so; after a crash it was run again, and succeeded."""
    is_open = [False]

    def ask(key: str) -> str:
        if not is_open[0]:
            raise ValueError("closed")
        return key

    def with_order(store: StateStore, **options: Any) -> ps.App:
        app = adder(store, **options)

        @app.call_procedure("order")
        def order(tx: Any) -> None:
            tx.call_external(ask, "key")
            tx.table("sum").upsert([{"k": 1, "v": 1}])

        app.call_procedure("read")(lambda tx: tx.table("sum").get(1))
        return app

    fuse = Fuse(10**9, is_done=False, hiccups={})
    store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
    app = with_order(store, checkpoint=3600)
    app.start()
    with pytest.raises(ps.ProcedureError, match="closed"):
        app.call("order", timeout=10)
    fuse.blow()
    with suppress(Dead):
        app.stop()
    is_open[0] = True
    with open_quick(bucket) as again, with_order(again) as app:
        assert app.call("read", timeout=10) is None


def test_what_a_trigger_of_a_window_by_batches_emits_reaches_its_consumers(store: StateStore) -> None:
    """The procedure emits two streams; the trigger of a window on the second one emits into the first."""
    app = ps.App(store, "windows")
    first, second = app.stream("first", X), app.stream("second", X)
    window = app.window("window", on=second, batches=1)
    taken: list[int] = []

    @app.procedure("in", border=True, emits=[first, second])
    def enter(tx: Any, batch: pa.Table) -> None:
        tx.emit(second, batch)

    @app.procedure("out", consumes=first)
    def leave(tx: Any, batch: pa.Table) -> None:
        taken.extend(batch["x"].to_pylist())

    @app.trigger(window)
    def slid(tx: Any, rows: pa.Table) -> None:
        tx.emit(first, rows)

    with app:
        app.submit("in", [{"x": 7}]).result(10)
    assert taken == [7]


def test_the_reply_of_the_batch_before_the_last_is_kept(store: StateStore) -> None:
    """Ids may have gaps: two that differ by 10,000 have one place for their replies."""
    with adder(store) as app:
        first = app.submit("add", [{"x": 1}], batch_id=10_000).result(10)
        app.submit("add", [{"x": 2}], batch_id=20_000).result(10)
        assert app.submit("add", [{"x": 1}], batch_id=10_000).result(10) == first


class _GatedBucket:
    """A bucket whose input log is not written while the gate is closed."""

    def __init__(self, bucket: ObjectStore) -> None:
        self._bucket = bucket
        self.gate = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def create(self, path: str, data: bytes) -> bool:
        if path.startswith("applications/"):
            assert self.gate.wait(60)
        return self._bucket.create(path, data)


def test_clients_wait_while_the_log_does(bucket: ObjectStore) -> None:
    """Story: what had run and was not durable had no limit, so a client that asks without waiting filled memory."""
    limits = ApplicationLimits(queue_requests=10, log_groups=3)
    gated = _GatedBucket(bucket)
    gated.gate.set()
    with open_quick(gated) as store, adder(store, group_commit=None, checkpoint=3600, limits=limits) as app:
        gated.gate.clear()
        tickets: list[Any] = []
        asking = threading.Thread(target=lambda: [tickets.append(app.submit("add", [{"x": 1}])) for _ in range(60)])
        asking.start()
        asking.join(1.5)
        assert asking.is_alive()
        assert len(tickets) < 30
        gated.gate.set()
        asking.join(30)
        assert [ticket.result(30) for ticket in tickets] == list(range(1, 61))


def test_clients_wait_while_the_log_does_by_bytes(bucket: ObjectStore) -> None:
    """Story: ten thousand requests might wait, of a megabyte each; a request larger than the limit goes alone."""
    limits = ApplicationLimits(queue_bytes=1000, log_bytes=1000)
    gated = _GatedBucket(bucket)
    gated.gate.set()
    with open_quick(gated) as store, adder(store, group_commit=None, checkpoint=3600, limits=limits) as app:
        gated.gate.clear()
        tickets: list[Any] = []
        given = [[{"x": 1}] * 50, *([[{"x": 1}] * 5] * 300), [{"x": 1}] * 1000]
        asking = threading.Thread(target=lambda: [tickets.append(app.submit("add", rows)) for rows in given])
        asking.start()
        asking.join(1.5)
        assert asking.is_alive()
        assert 1 < len(tickets) < 150
        gated.gate.set()
        asking.join(30)
        assert [ticket.result(30) for ticket in tickets][-1] == 50 + 1500 + 1000
