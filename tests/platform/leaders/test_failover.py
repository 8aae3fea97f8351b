"""A change of leader, as clients see it: within five seconds, with their pins, and nothing done twice."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import grpc
import pytest

from support import inside
from support.service.platforms import QUIET, Platform, addresses
from support.store.stores import pairs
from support.waiting import WAIT_SECONDS, eventually, is_in_time
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.statestore import StateStore, connect
from tussock.statestore.errors import InvalidOption, MetaUnavailable, SnapshotExpired
from tussock.statestore.snapshot import Snapshot

FAILOVER_SECONDS_MAX = 5.0
_names = count(1)


@pytest.fixture
def platform() -> Iterator[Platform]:
    with Platform(f"memory://failover-{next(_names)}", replicas=3, picker=QUIET) as made:
        yield made


def commit(store: StateStore, rows: list[tuple[bytes, bytes | None]], **how: object) -> int:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch(rows, epoch)
    return store.commit_epoch(epoch, **how)


def depose(platform: Platform, *, drain: bool) -> None:
    """End the leader, in order or as by `kill -9`."""
    leader = platform.leader
    leader.stop(drain=drain)
    platform.replicas.remove(leader)


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "killed"])
def test_commits_continue_within_five_seconds(drain: bool) -> None:
    """The call waits for the new leader."""
    with ExitStack() as stack:

        def attempt() -> Callable[[], object]:
            platform = stack.enter_context(Platform(f"memory://failover-{next(_names)}", replicas=2, picker=QUIET))
            store = platform.connect()
            store.create_table("kv")
            depose(platform, drain=drain)
            return lambda: commit(store, [(b"a", b"1")])

        is_in_time(FAILOVER_SECONDS_MAX, attempt)


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "killed"])
def test_commits_and_reads_continue_with_the_new_leader(platform: Platform, drain: bool) -> None:
    """Acknowledged rows are there afterwards; a batch that is repeated across the change is not committed twice."""
    store = platform.connect()
    store.create_table("kv")
    first = commit(store, [(b"a", b"1")], writer="w", batch_id=1)
    depose(platform, drain=drain)
    second = commit(store, [(b"a", b"2")], writer="w", batch_id=2)
    assert second > first
    assert commit(store, [(b"a", b"never")], writer="w", batch_id=1) == first
    assert store.table("kv").get(b"a") == b"2"
    assert store.table("kv").get(b"a", epoch=first) == b"1"
    assert platform.wait_for_leader().node.meta.version().term == 2


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "killed"])
def test_pins_outlive_the_leader(platform: Platform, drain: bool) -> None:
    """The new leader takes them over: neither its compactions nor its vacuum touch what they need."""
    store = platform.connect(retention=0, gc_grace=0)
    store.create_table("kv")
    commit(store, [(b"a", b"1"), (b"b", b"1")])
    with store.pin_snapshot() as snapshot:
        commit(store, [(b"a", b"2"), (b"b", None)])
        depose(platform, drain=drain)
        commit(store, [(b"a", b"3")])
        store.vacuum()
        assert [pin.epoch for pin in store.pins()] == [snapshot.epoch]
        assert pairs(snapshot.table("kv").scan()) == [(b"a", b"1"), (b"b", b"1")]
    assert store.pins() == []


def test_a_client_that_comes_back_does_not_set_old_settings_again(platform: Platform) -> None:
    """Another client changed the settings that it had opened the store with, and they stay so at the next leader."""
    first, second = platform.connect(retention=500), platform.connect(retention=700)
    depose(platform, drain=False)
    for store in (first, second):
        store.create_table(f"of-{store.version().retention_ms}-{next(_names)}")
        assert store.version().retention_ms == 700_000


def test_subscribers_follow_to_the_new_leader(platform: Platform) -> None:
    """New versions are pushed to a client that only reads, and its version never goes back."""
    writer, reader = platform.connect(), platform.connect()
    writer.create_table("kv")
    seen = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.append(inside.version(reader).seq)
            stop.wait(0.002)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for round_ in range(3):
            epoch = commit(writer, [(b"a", b"%d" % round_)])
            reader.wait_epoch(epoch, timeout=WAIT_SECONDS)
            assert reader.table("kv").get(b"a") == b"%d" % round_
            if round_ < 2:
                depose(platform, drain=round_ == 0)
    finally:
        stop.set()
        watching.join()
    assert seen == sorted(seen)


def test_a_client_that_knows_one_replica_finds_the_leader(platform: Platform) -> None:
    """The follower names the leader."""
    for replica in platform.replicas:
        with connect(f"tussock://{replica.address}") as store:
            assert store.committed_epoch == 0


def test_a_replica_that_joins_later_takes_over() -> None:
    """All that it needs is in the bucket."""
    url = f"memory://failover-{next(_names)}"
    with Platform(url) as platform:
        store = platform.connect()
        store.create_table("kv")
        epoch = commit(store, [(b"a", b"1")])
    with Platform(url) as platform, connect(platform.url) as store:
        assert (store.committed_epoch, store.table("kv").get(b"a")) == (epoch, b"1")
        assert platform.leader.node.meta.version().term == 2


def test_the_error_names_all_replicas_if_none_answers() -> None:
    """The error names each address with its answer; it comes when the deadline is over, not before."""
    one, two = addresses(2)
    started = time.monotonic()
    with pytest.raises(MetaUnavailable, match=one) as raised:
        connect(f"tussock://{one},{two}", deadline=1.0)
    assert two in str(raised.value)
    assert 0.9 < time.monotonic() - started < 20, "well below what is waited without a deadline"


@pytest.mark.parametrize("url", ["tussock://", "tussock://host", "tussock://h:0", "tussock://h:1/x", "tussock://u@h:1"])
def test_a_wrong_url_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="expected HOST:PORT") as raised:
        connect(url)
    assert "u@h" not in str(raised.value)


def _has_lapsed(snapshot: Snapshot) -> bool:
    try:
        snapshot.table("kv").get(b"a")
    except SnapshotExpired:
        return True
    return False


def test_without_a_leader_reads_continue_and_pins_end_with_their_lease() -> None:
    """Known versions stay readable; a pin is not trusted any more once it was not renewed for its lease."""
    with Platform(f"memory://failover-{next(_names)}", session_lease_seconds=4.0) as platform:
        store = platform.connect(deadline=0.5)
        store.create_table("kv")
        commit(store, [(b"a", b"1")])
        snapshot = store.pin_snapshot()
        platform.leader.stop(drain=False)
        assert store.table("kv").get(b"a") == b"1"
        assert snapshot.table("kv").get(b"a") == b"1"
        with pytest.raises(MetaUnavailable):
            commit(store, [(b"a", b"2")])
        eventually(lambda: _has_lapsed(snapshot))
        with pytest.raises(SnapshotExpired, match="lease"):
            snapshot.table("kv").get(b"a")
        assert store.table("kv").get(b"a") in (b"1", b"2")


def test_the_pins_of_a_dead_client_end() -> None:
    """They are not renewed once no heartbeat has come for the session's lease."""
    with Platform(f"memory://failover-{next(_names)}", session_lease_seconds=3.0) as platform:
        store = platform.connect()
        store.create_table("kv")
        commit(store, [(b"a", b"1")])
        with grpc.insecure_channel(platform.leader.address) as channel:
            for method, request in (
                ("OpenSession", pb.OpenSessionRequest(session_id="d" * 32, kind=pb.CLIENT, name="dies")),
                ("Pin", pb.PinRequest(session_id="d" * 32, token="0" * 16)),
            ):
                described = METHODS[method]
                stub = channel.unary_unary(described.path, described.request.SerializeToString)
                stub(request, timeout=60, metadata=(("tussock-protocol", "1"),))
        with store.pin_snapshot() as kept:
            assert sorted(pin.owner == "dies" for pin in store.pins()) == [False, True]
            eventually(lambda: len(store.pins()) == 1)
            assert [pin.epoch for pin in store.pins()] == [kept.epoch]
            assert all(pin.owner != "dies" for pin in store.pins())


def test_a_hanging_subscription_is_opened_anew() -> None:
    """Heartbeats have the leader's sequence, which reveals a stream that brings nothing and does not break."""
    with Platform(f"memory://failover-{next(_names)}", session_lease_seconds=2.0) as platform:
        writer, reader = platform.connect(), platform.connect()
        writer.create_table("kv")
        epoch = commit(writer, [(b"a", b"1")])
        reader.wait_epoch(epoch)
        for session in platform.leader.node.leadership.sessions.all():
            assert session.mailbox is not None
            session.mailbox.on_ready(lambda: None)  # nobody hears of news any more
        epoch = commit(writer, [(b"a", b"2")])
        backend = inside.backend(reader)
        eventually(lambda: backend.version().max_committed_epoch == epoch)
