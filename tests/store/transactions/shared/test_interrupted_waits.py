"""A thread that is interrupted while it waits to commit with others: it commits nothing, and they go on."""

import threading
from collections.abc import Callable, Iterator

import pytest

from support.buckets.faulty_bucket import Call, FaultyBucket
from support.store.stores import open_on, pairs
from support.waiting import eventually
from tussock.statestore import StateStore
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket


class Waits(threading.Condition):
    """Notes which threads wait, and interrupts the thread `interrupted` as its wait ends."""

    names: list[str]

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        name = threading.current_thread().name
        if not predicate():
            self.names.append(name)
        held = super().wait_for(predicate, timeout)
        if name == "interrupted":
            raise KeyboardInterrupt
        return held


class Interrupting(RealSystem):
    """A system with such waits."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def condition(self) -> Waits:
        made = Waits()
        made.names = self.names
        return made


@pytest.fixture
def system() -> Interrupting:
    return Interrupting()


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket(open_bucket("memory://"))


@pytest.fixture
def store(bucket: FaultyBucket, system: Interrupting) -> Iterator[StateStore]:
    with open_on(bucket, system, compaction=False) as opened:
        opened.create_table("kv")
        yield opened


def test_one_that_was_to_commit_for_the_others(store: StateStore, bucket: FaultyBucket, system: Interrupting) -> None:
    """It has waited longest, so the first hands over to it; the next one commits in its place, without its rows."""
    raised: list[BaseException] = []
    begun = threading.Barrier(4)
    may_end = {name: threading.Event() for name in ("first", "interrupted", "last")}

    def put(name: str) -> None:
        try:
            with store.transaction() as tx:
                tx.table("kv").ingest_batch([(name.encode(), b"")])
                begun.wait(60)
                assert may_end[name].wait(60)
        except BaseException as error:
            raised.append(error)

    threads = {name: threading.Thread(target=put, args=(name,), name=name) for name in may_end}

    def others_come() -> None:
        for name in ("interrupted", "last"):
            may_end[name].set()
            eventually(lambda name=name: name in system.names)

    bucket.stall(is_log, others_come)
    for thread in threads.values():
        thread.start()
    begun.wait(60)
    may_end["first"].set()
    for thread in threads.values():
        thread.join(60)
        assert not thread.is_alive()
    assert [type(error) for error in raised] == [KeyboardInterrupt]
    assert [key for key, _ in pairs(store.table("kv").scan())] == [b"first", b"last"]
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(b"after", b"")])
    assert [key for key, _ in pairs(store.table("kv").scan())] == [b"after", b"first", b"last"]


def is_log(call: Call) -> bool:
    return call.operation == "create" and call.path.startswith("log/")
