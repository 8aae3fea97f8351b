"""A closed store, and options with which no store can be opened."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from support import inside
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.statestore import InvalidOption, MetaUnavailable, StateStore, StoreClosed, connect

CALLS: dict[str, Callable[[StateStore, Any], object]] = {
    "get": lambda _, kv: kv.get(b"k"),
    "multi_get": lambda _, kv: kv.multi_get([b"k"]),
    "scan": lambda _, kv: list(kv.scan()),
    "changes": lambda _, kv: kv.changes(0),
    "ingest_batch": lambda _, kv: kv.ingest_batch([(b"k", b"2")], 1 << 62),
    "new_epoch": lambda store, _: store.new_epoch(),
    "version": lambda store, _: store.version(),
    "pin_snapshot": lambda store, _: store.pin_snapshot(),
    "vacuum": lambda store, _: store.vacuum(),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_on_a_closed_store_says_so(call: str) -> None:
    """Also a call that the cache could serve: once a `get` succeeded while a scan raised an error of the library."""
    store = connect("memory://")
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"k", b"1")], epoch)
    store.commit_epoch(epoch)
    assert kv.get(b"k") == b"1"
    assert [batch.num_rows for batch in kv.scan()] == [1]
    store.close()
    with pytest.raises(StoreClosed):
        CALLS[call](store, kv)


@pytest.mark.parametrize("option", ["retention", "gc_grace", "deadline"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1"])
def test_seconds_have_to_be_a_finite_number(option: str, value: object) -> None:
    """Infinity and NaN once ended in an error of Python that did not name the option."""
    with pytest.raises(InvalidOption, match=option):
        connect("memory://", **{option: value})  # type: ignore[arg-type]


def _rows(store: StateStore, *, commit: bool) -> Any:
    """A table with 8 MiB of incompressible rows in one epoch."""
    kv = store.create_table("kv")
    chance = random.Random(1)
    kv.ingest_batch([(b"%06d" % number, chance.randbytes(4000)) for number in range(2000)], 1)
    if commit:
        store.commit_epoch(1)
    return kv


def read_by_compaction(store: StateStore) -> Any:
    return inside.execution_tools(inside.backend(store))[0]


def written_by_compaction(store: StateStore) -> Any:
    return inside.execution_tools(inside.backend(store))[1]


IN_FLIGHT: dict[str, tuple[Callable[[Any], Any], Callable[[StateStore, Any], object]]] = {
    "commit": (inside.uploader, lambda store, _: store.commit_epoch(1)),
    "scan": (inside.sstables, lambda _, kv: list(kv.scan())),
    "scan backwards": (inside.sstables, lambda _, kv: list(kv.scan(reverse=True))),
    "change_feed": (inside.sstables, lambda _, kv: list(kv.change_feed(0))),
    "changes": (inside.sstables, lambda _, kv: list(kv.changes(0))),
    "compact, as it reads": (read_by_compaction, lambda store, _: store.compact("kv")),
    "compact, as it uploads": (written_by_compaction, lambda store, _: store.compact("kv")),
}


@pytest.mark.parametrize("call", IN_FLIGHT)
def test_a_close_in_the_middle_of_a_call_says_so(call: str) -> None:
    """A call that waits in another thread gets `StoreClosed`, not what the pool of reads or uploads raises."""
    part, run = IN_FLIGHT[call]
    store = connect("memory://", compaction=False, cache_bytes=0)
    kv = _rows(store, commit=call != "commit")
    if call.startswith("compact"):
        # Of one sorted run nothing could change.
        kv.ingest_batch([(b"", b"")], 2)
        store.commit_epoch(2)
    pool = inside.pool(part(store))
    begun, closed = threading.Event(), threading.Event()

    def busy() -> None:
        begun.set()
        closed.wait(30)

    for _ in range(64):
        pool.submit(busy)
    begun.wait(30)
    found: list[BaseException] = []

    def work() -> None:
        try:
            run(store, kv)
        except BaseException as error:
            found.append(error)

    working = threading.Thread(target=work)
    working.start()
    ending = threading.Thread(target=store.close)
    ending.start()
    working.join(30)
    closed.set()
    ending.join(30)
    assert [type(error) for error in found] == [StoreClosed]


def test_a_compaction_that_a_close_cuts_short_says_so() -> None:
    """It checks between batches whether it is to stop; then `compact` raises an error of the store."""
    store = connect("memory://", compaction=False, cache_bytes=0)
    kv = _rows(store, commit=True)
    kv.ingest_batch([(b"", b"")], 2)
    store.commit_epoch(2)
    backend: Any = inside.backend(store)
    sstables, _ = inside.execution_tools(backend)
    reading = sstables.meta
    ending: list[threading.Thread] = []

    def meta(sst: Any) -> Any:
        if not ending:
            ending.append(threading.Thread(target=store.close))
            ending[0].start()
            while not inside.is_closing(backend):
                threading.Event().wait(0.001)
        return reading(sst)

    sstables.meta = meta
    with pytest.raises(StoreClosed, match=r"'kv' was compacted|closed while it was read"):
        store.compact("kv")
    ending[0].join(30)


def test_a_scan_that_was_begun_ends_with_the_store() -> None:
    """Rows that are read ahead may still come, then it raises that the store was closed."""
    store = connect("memory://", compaction=False, cache_bytes=0)
    scan = _rows(store, commit=True).scan()
    next(scan)
    store.close()
    with pytest.raises(StoreClosed, match="closed"):
        list(scan)


def test_a_channel_that_another_thread_closed_is_not_the_answer() -> None:
    """After a close or a renewal of credentials the call is repeated, or finds that the store was closed."""
    transport = GrpcTransport("127.0.0.1:1")
    transport.close()
    with pytest.raises(MetaUnavailable, match="closed"):
        transport.call(METHODS["ListPins"], pb.ListPinsRequest(), 1.0)
    with pytest.raises(MetaUnavailable, match="closed"):
        transport.subscribe(pb.SubscribeRequest())
