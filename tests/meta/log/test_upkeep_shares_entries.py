"""Upkeep, which nobody waits for, gets into the entry of a call that comes soon, and else has its own."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from support import inside
from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import TickingSystem
from support.store.versions import ModelBucket, spec
from tussock.meta.log.format import decode_entry, entry_path
from tussock.meta.log.log import VersionLog
from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.deltas.tasks import PauseCompaction
from tussock.meta.version.version import Version
from tussock.statestore import Conflict, TableExists
from tussock.statestore.base.together import LOST_SECONDS, PAUSE_SECONDS


class Waits(threading.Condition):
    """Waits with an end are as long as the test says: without one, or over at once."""

    def __init__(self, system: "WaitingSystem") -> None:
        super().__init__()
        self._system = system

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if timeout is None or timeout == LOST_SECONDS:
            return super().wait_for(predicate, 60)
        self._system.waits.append(timeout)
        if self._system.is_impatient:
            return predicate()
        return super().wait_for(predicate, 60)


class WaitingSystem(TickingSystem):
    """Its clock stands still unless the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.is_impatient = False

    def condition(self) -> Any:
        return Waits(self)


class Store:
    def __init__(self) -> None:
        self.system = WaitingSystem()
        self.bucket = FaultyBucket(ModelBucket(self.system))
        self.log = VersionLog(self.bucket, self.system, owner="a")
        self.create("first")

    def create(self, name: str) -> int:
        def decide(version: Version) -> tuple[list[Delta], int]:
            if version.find_table(name) is not None:
                raise TableExists(f"table {name!r} exists already")
            return [CreateTable(spec=spec(name, version.next_table_id))], version.next_table_id

        return self.log.append(decide)

    def upkeep(self, number: int = 7) -> int:
        def decide(_: Version) -> tuple[list[Delta], int]:
            if not number:
                raise Conflict("nothing to do any more")
            return [PauseCompaction(paused=True, reason=f"{number}")], number

        return self.log.append(decide, is_upkeep=True)

    def beside(self, work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
        """Run `work` in a thread, until it waits for an entry."""
        outcome: list[object] = []

        def run() -> None:
            try:
                outcome.append(work())
            except Conflict as error:
                outcome.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while not len(inside.append_queue(self.log)):
            pass
        return thread, outcome

    def entries(self) -> list[list[str]]:
        inner: Any = self.bucket.inner
        found = []
        for seq in range(2, self.log.version.seq + 1):
            deltas = decode_entry("x", seq, inner.objects[entry_path(seq)][0]).deltas
            found.append([type(delta).__name__ for delta in deltas])
        return found


@pytest.fixture
def store() -> Store:
    return Store()


def test_upkeep_gets_into_the_entry_of_the_next_call(store: Store) -> None:
    """Where another call came lately; it costs no further create."""
    thread, outcome = store.beside(store.upkeep)
    assert store.entries() == []
    assert store.create("second") == 2
    thread.join(60)
    assert outcome == [7]
    assert store.entries() == [["PauseCompaction", "CreateTable"]]
    assert store.system.waits == [PAUSE_SECONDS]
    assert store.log.version.pause == "7"


def test_upkeep_goes_alone_if_no_call_comes(store: Store) -> None:
    """After a moment."""
    store.system.is_impatient = True
    assert store.upkeep() == 7
    assert store.system.waits == [PAUSE_SECONDS]
    assert store.entries() == [["PauseCompaction"]]


def test_upkeep_does_not_wait_where_no_call_came_lately(store: Store) -> None:
    """Other upkeep is no such call."""
    store.system.forward(2 * PAUSE_SECONDS)
    assert [store.upkeep(6), store.upkeep(7)] == [6, 7]
    assert store.system.waits == []
    assert store.entries() == [["PauseCompaction"]] * 2


def test_calls_do_not_wait_for_upkeep(store: Store) -> None:
    """A thread that appends for upkeep and itself has its own answer, whatever became of that."""
    thread, outcome = store.beside(lambda: store.upkeep(0))
    assert store.create("second") == 2
    thread.join(60)
    assert isinstance(outcome[0], Conflict)
    assert store.entries() == [["CreateTable"]]
    thread, outcome = store.beside(store.upkeep)
    with pytest.raises(TableExists):
        store.create("second")
    thread.join(60)
    assert outcome == [7]
    assert store.entries() == [["CreateTable"], ["PauseCompaction"]]
