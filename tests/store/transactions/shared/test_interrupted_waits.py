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
    """Notes which threads wait, and interrupts the thread `interrupted` as its wait ends, and later if `twice`."""

    system: "Interrupting"

    def __enter__(self) -> bool:
        if threading.current_thread().name == "interrupted" and self.system.is_dying:
            raise KeyboardInterrupt
        return super().__enter__()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        name = threading.current_thread().name
        if not predicate():
            self.system.names.append(name)
        held = super().wait_for(predicate, timeout)
        if name == "interrupted" and held:
            self.system.is_dying = self.system.twice
            raise KeyboardInterrupt
        return held


class Interrupting(RealSystem):
    """A system with such waits."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.twice = self.is_dying = False

    def condition(self) -> Waits:
        made = Waits()
        made.system = self
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


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_one_that_was_to_commit_for_the_others(
    store: StateStore, bucket: FaultyBucket, system: Interrupting, twice: bool
) -> None:
    """It has waited longest, so the first hands over to it; the next one commits in its place, without its rows.

    If it is interrupted again before it can say so, its rows may be committed, and the others find out by themselves.
    """
    system.twice = twice
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
    unknown = [b"interrupted"] if twice else []
    assert [key for key, _ in pairs(store.table("kv").scan())] in ([b"first", b"last"], [b"first", *unknown, b"last"])
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(b"after", b"")])
    assert {b"after", b"first", b"last"} <= {key for key, _ in pairs(store.table("kv").scan())}


def is_log(call: Call) -> bool:
    return call.operation == "create" and call.path.startswith("log/")
