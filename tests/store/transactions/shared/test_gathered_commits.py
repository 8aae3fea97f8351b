"""How many transactions a commit carries, and how long it waits for them: on the simulator's clock.

A transaction takes no time there, and a request takes `SECONDS` at most, each way.
"""

import random
from collections.abc import Callable

import pytest

from simulation.machine.bucket import Faults, NodeBucket, SimBucket
from simulation.machine.scheduler import Node, Scheduler
from simulation.machine.system import SimSystem
from support.store.stores import open_on
from tussock.statestore import StateStore
from tussock.statestore.transactions.shared_commits import GATHER_SECONDS_MAX

THREADS = 16
EACH = 10
SECONDS = 0.005


class Creates:
    """Counts the log's entries."""

    def __init__(self) -> None:
        self.entries = 0

    def note_write(self, path: str, data: bytes, *, created: bool) -> None:
        self.entries += created and path.startswith("log/")

    def deleting(self, path: str) -> None: ...


class Crowd:
    """Threads of one process with a store, each with a number and its work."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.seen = Creates()
        self.node = Node("p", 1)
        self.system = SimSystem(self.scheduler, self.node)
        bucket = SimBucket(self.scheduler, self.seen, 0.0)
        self.bucket = NodeBucket(bucket, self.node, lambda: Faults(latency=SECONDS))
        self.ended = 0
        self.rows: dict[bytes, bytes] = {}

    def run(self, threads: int, work: Callable[[StateStore, int], None]) -> None:
        """`work` of all of them; then what the table holds is in `rows`."""

        def one(store: StateStore, number: int) -> None:
            work(store, number)
            self.ended += 1

        def main() -> None:
            store = open_on(self.bucket, self.system, compaction=False)
            store.create_table("kv")
            put(store, b"first")
            self.seen.entries = 0
            spawned = [
                self.scheduler.spawn(self.node, f"t{number}", lambda number=number: one(store, number))
                for number in range(threads)
            ]
            for thread in spawned:
                thread.join()
            self.rows = {row["key"]: row["value"] for batch in store.table("kv").scan() for row in batch.to_pylist()}
            store.close()
            self.ended += 1

        self.scheduler.spawn(self.node, "main", main)
        try:
            self.scheduler.run(lambda: self.ended == threads + 1, seconds_max=10_000, steps_max=1_000_000)
        finally:
            self.scheduler.end()


def put(store: StateStore, key: bytes) -> None:
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(key, key)])


@pytest.mark.parametrize("seed", range(5))
def test_threads_that_go_on_at_once_come_together_again(seed: int) -> None:
    """Without a wait they would be two groups in turn, and 160 commits of 16 threads about 20 entries."""
    crowd = Crowd(seed)

    def work(store: StateStore, number: int) -> None:
        for at in range(EACH):
            put(store, b"%02d-%02d" % (number, at))

    crowd.run(THREADS, work)
    assert len(crowd.rows) == THREADS * EACH + 1
    # One with the thread that is first, one for each round, and what is left over for that thread.
    assert crowd.seen.entries <= EACH + 2


@pytest.mark.parametrize("seed", range(5))
def test_nobody_waits_longer_for_others_than_a_commit_takes(seed: int) -> None:
    """One thread commits all the time, others come seldom: their last commit was long ago, and is not waited for."""
    crowd = Crowd(seed)
    chance = random.Random(seed)
    took: list[float] = []

    def work(store: StateStore, number: int) -> None:
        for at in range(50 if number == 0 else 5):
            if number:
                crowd.system.sleep(chance.random() / 5)
            began = crowd.system.monotonic()
            put(store, b"%02d-%02d" % (number, at))
            took.append(crowd.system.monotonic() - began)

    crowd.run(3, work)
    # The commit under way, as long a wait for others, and the own one.
    assert max(took) <= 3 * (2 * SECONDS)
    assert 2 * SECONDS < GATHER_SECONDS_MAX


def test_a_single_thread_waits_for_nobody() -> None:
    """Each commit takes what its one request takes."""
    crowd = Crowd(1)
    took: list[float] = []

    def work(store: StateStore, number: int) -> None:
        for at in range(EACH):
            began = crowd.system.monotonic()
            put(store, b"%02d" % at)
            took.append(crowd.system.monotonic() - began)

    crowd.run(1, work)
    assert crowd.seen.entries == EACH
    assert max(took) <= 2 * SECONDS
