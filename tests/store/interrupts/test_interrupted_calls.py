"""Ctrl-C, or a signal whose handler raises, within any call of the main thread: the store serves its other threads."""

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from support.children import child_environment
from support.depth import DEPTH
from support.interrupts.points import Interrupt, interrupted_at, points_of, some_points
from support.service.platforms import Platform
from tussock.statestore import ObjectStoreUnavailable, StateStore, connect

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""What is raised within a finalizer Python prints and drops, and pytest takes for a failure."""

CACHE_BYTES = 1 << 20

SECONDS_MAX = 60
"""A call that takes longer waits for ever."""


def put(store: StateStore, key: bytes) -> None:
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(key, key)])


def put_many(store: StateStore, key: bytes) -> None:
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(key + b"%04d" % n, bytes(20)) for n in range(4000)])


def commit(store: StateStore, key: bytes) -> None:
    epoch = store.new_epoch()
    try:
        store.table("kv").ingest_batch([(key, key)], epoch)
        store.commit_epoch(epoch)
    except Interrupt:
        store.abort_epoch(epoch)
        raise


def read(store: StateStore, key: bytes) -> None:
    table = store.table("kv")
    table.get(b"old")
    table.multi_get([b"old", key])


def scan(store: StateStore, _: bytes) -> None:
    for _batch in store.table("large").scan():
        pass


def pin(store: StateStore, _: bytes) -> None:
    with store.pin_snapshot() as snapshot:
        snapshot.table("kv").get(b"old")


def create(store: StateStore, key: bytes) -> None:
    store.create_table(f"new{key.decode()}")
    store.drop_table(f"new{key.decode()}")


def backup(store: StateStore, key: bytes) -> None:
    store.backup(key.decode())
    store.delete_backup(key.decode())


def compact(store: StateStore, key: bytes) -> None:
    put(store, key)
    store.compact("kv")


def vacuum(store: StateStore, _: bytes) -> None:
    store.vacuum()


CALLS: dict[str, Callable[[StateStore, bytes], None]] = {
    "put": put,
    "put_many": put_many,
    "commit": commit,
    "read": read,
    "scan": scan,
    "pin": pin,
    "create": create,
    "backup": backup,
    "compact": compact,
    "vacuum": vacuum,
}


@pytest.fixture(params=["embedded", "meta"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    if request.param == "embedded":
        opened = connect("memory://", cache_bytes=CACHE_BYTES)
        yield from with_rows(opened)
        return
    with Platform((tmp_path / "store").as_uri(), compactors=1) as platform:
        yield from with_rows(platform.connect(cache_bytes=CACHE_BYTES))


def with_rows(store: StateStore) -> Iterator[StateStore]:
    store.create_table("kv")
    put(store, b"old")
    store.create_table("large")
    with store.transaction() as tx:
        # Several reads ahead, in the background.
        tx.table("large").ingest_batch([(b"%08d" % n, random.Random(n).randbytes(100)) for n in range(60_000)])
    yield store
    in_time(store.close)


def in_time(work: Callable[[], object]) -> None:
    """Do it in another thread, which has to end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive(), "another thread waits for ever"
    if failed:
        raise failed[0]


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_call_leaves_nobody_waiting(store: StateStore, name: str) -> None:
    """At each point of the call: another thread commits and reads then, and the main thread itself, too."""
    call = CALLS[name]
    count = points_of(partial(call, store, b"first"))
    for point in some_points(count, f"{name} {count}"):
        interrupted_at(point, partial(call, store, b"at%d" % point))
        in_time(partial(put, store, b"other%d" % point))
        assert store.table("kv").get(b"other%d" % point) == b"other%d" % point, f"point {point} of {count}"
    assert store.table("kv").get(b"old") == b"old"


HANDED_OVER = (
    "tussock.statestore.transactions.shared_commits",
    "tussock.statestore.base.together",
    "tussock.meta.log.appends.group_commit",
    "tussock.statestore.base.process.line",
    "tussock.statestore.base.pools",
    "concurrent",
    "threading",
)
"""Where one thread takes what others wait for."""


@pytest.mark.parametrize("name", ["put", "scan"])
def test_no_point_at_which_threads_hand_over_leaves_anybody_waiting(name: str) -> None:
    """Each of them, one after the other."""
    for store in with_rows(connect("memory://", cache_bytes=CACHE_BYTES)):
        count = points_of(partial(CALLS[name], store, b"first"), HANDED_OVER)
        for point in range(1, count + 1):
            interrupted_at(point, partial(CALLS[name], store, b"at%d" % point), HANDED_OVER)
            in_time(partial(put, store, b"other%d" % point))
            in_time(partial(scan, store, b""))
            assert store.table("kv").get(b"other%d" % point) == b"other%d" % point, f"point {point} of {count}"


def test_those_who_share_an_interrupted_commit_are_told(store: StateStore) -> None:
    """They have committed, or hear that nobody knows; what is said to hold can be read."""
    count = points_of(partial(put, store, b"first"))
    told: dict[bytes, BaseException | None] = {}

    def share(key: bytes, begin: threading.Barrier) -> None:
        begin.wait(SECONDS_MAX)
        try:
            put(store, key)
            told[key] = None
        except ObjectStoreUnavailable as error:
            told[key] = error

    for point in some_points(count, f"shared {count}"):
        begin = threading.Barrier(4)
        keys = [b"%d of %d" % (n, point) for n in range(3)]
        threads = [threading.Thread(target=share, args=(key, begin), daemon=True) for key in keys]
        for thread in threads:
            thread.start()
        begin.wait(SECONDS_MAX)
        interrupted_at(point, partial(put, store, b"main"))
        for thread in threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive(), f"point {point} of {count}: a thread waits for ever"
        held = store.table("kv").multi_get(keys).to_pylist()
        for key, value in zip(keys, held, strict=True):
            assert value == key or told[key] is not None
            assert told[key] is None or "not known" in str(told[key]) or "may or may not" in str(told[key])


def test_signals_that_come_all_the_time_leave_nobody_waiting() -> None:
    """A timer's handler raises every other millisecond, while the main thread of a process commits."""
    count = 200 * DEPTH
    command = [sys.executable, "-m", "support.interrupts.timer", str(count)]
    done = subprocess.run(
        command,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX * DEPTH,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{count} interrupts\n"), done.stderr
