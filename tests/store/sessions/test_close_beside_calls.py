"""`close` beside every call: what is under way ends by itself, or with `StoreClosed`, whenever the close comes.

The store runs on the simulator's scheduler: two threads make calls, a third closes the store, and the seed decides who
goes on at each request, wait and lock. No thread sleeps to win a race.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from simulation.machine.bucket import Faults, NodeBucket, SimBucket
from simulation.machine.scheduler import Node, Scheduler
from simulation.machine.system import SimSystem
from support.depth import DEPTH
from support.store.stores import open_on
from tussock.statestore import (
    Conflict,
    RawTable,
    Snapshot,
    StateStore,
    StoreClosed,
    Transaction,
    TussockError,
    TypedTable,
    WaitTimeout,
)
from tussock.statestore.base.limits import Limits

SMALL = Limits(segment_bytes=2000, batch_bytes=4000, merge_bytes=4000, one_object_bytes=500, sst_bytes=8000)
SECONDS = 1.0
"""Until the close, at most: some twenty requests."""
ROWS = [(b"%03d" % key, bytes(40)) for key in range(120)]
RECORDS = [{"k": key, "v": "x" * 40} for key in range(120)]


class Faces:
    """What the calls are made on."""

    snapshot: Snapshot

    def __init__(self, store: StateStore, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        self.raw: RawTable = store.create_table("raw", block_bytes=512)
        schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
        self.typed: TypedTable = store.create_table("typed", schema, ["k"], vnodes=2)
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"{self.count}-{self.chance.getrandbits(30)}"


def _commit(faces: Faces) -> None:
    epoch = faces.store.new_epoch()
    faces.raw.ingest_batch(ROWS, epoch)
    faces.typed.upsert(RECORDS, epoch)
    faces.store.commit_epoch(epoch)


def _uploaded(faces: Faces) -> None:
    batch = pa.RecordBatch.from_pylist(RECORDS, schema=faces.typed.schema)
    faces.store.commit_uploaded({"typed": faces.typed.upload([batch])})


def _transaction(faces: Faces) -> None:
    with faces.store.transaction() as tx:
        tx.table("raw").get(b"001")
        tx.table("typed").upsert(RECORDS[:3])


def _pinned_transaction(faces: Faces) -> None:
    with faces.store.transaction(isolation="snapshot") as tx:
        tx.keep_snapshot()
        list(tx.table("typed").read())
        tx.note_read("raw")
        tx.add_uploaded("raw", faces.raw.upload([pa.RecordBatch.from_pylist([{"key": b"u", "value": b""}])]))


def _delta(faces: Faces) -> None:
    delta = faces.store.delta(faces.fresh())
    delta.table("typed").upsert(RECORDS)
    delta.freeze(1).commit()


def _wait(faces: Faces) -> None:
    with contextlib.suppress(WaitTimeout):
        faces.store.wait_epoch(faces.store.committed_epoch + 1, timeout=SECONDS)


def _backup(faces: Faces) -> None:
    name = faces.fresh()
    faces.store.backup(name)
    faces.store.delete_backup(name)


def _tables(faces: Faces) -> None:
    name = faces.fresh()
    faces.store.create_table(name, faces.typed.schema, ["k"])
    faces.store.alter_table(name, add={"w": pa.int8()})
    faces.store.drop_table(name)


def _aborted(faces: Faces) -> None:
    epoch = faces.store.new_epoch()
    faces.typed.ingest_batch(RECORDS, epoch)
    faces.typed.delete([1, 2], epoch)
    faces.raw.upsert(pa.table({"key": [b"q"], "value": [b"q"]}), epoch)
    faces.store.abort_epoch(epoch)


CALLS: dict[str, Callable[[Faces], object]] = {
    "commit_epoch": _commit,
    "commit_uploaded": _uploaded,
    "transaction": _transaction,
    "a pinned transaction": _pinned_transaction,
    "transact": lambda faces: faces.store.transact(lambda tx: tx.table("raw").get(b"002")),
    "delta": _delta,
    "wait_epoch": _wait,
    "backup": _backup,
    "backups": lambda faces: faces.store.backups(),
    "create_table, alter_table, drop_table": _tables,
    "abort_epoch": _aborted,
    "open_writer": lambda faces: faces.store.open_writer("w"),
    "committed_batch": lambda faces: faces.store.committed_batch("w", 1),
    "table": lambda faces: faces.store.table("raw"),
    "tables": lambda faces: faces.store.tables(),
    "version": lambda faces: (faces.store.version(), faces.store.recent_version()),
    "pins": lambda faces: faces.store.pins(),
    "pin_snapshot": lambda faces: faces.store.pin_snapshot().close(),
    "snapshot": lambda faces: list(faces.snapshot.table("typed").read()),
    "compact": lambda faces: faces.store.compact(faces.chance.choice(["raw", "typed"])),
    "vacuum": lambda faces: faces.store.vacuum(),
    "requests": lambda faces: faces.store.requests(),
    "get": lambda faces: (faces.raw.get(b"003"), faces.typed.get(3)),
    "multi_get": lambda faces: (faces.raw.multi_get([b"003", b"100"]), faces.typed.multi_get(list(range(100)))),
    "scan": lambda faces: list(faces.raw.scan(reverse=faces.chance.random() < 0.5)),
    "read": lambda faces: list(faces.typed.read(["v"], prefix=(3,))),
    "changes": lambda faces: (list(faces.raw.changes(0)), list(faces.typed.changes(0))),
    "change_feed": lambda faces: (list(faces.raw.change_feed(0)), list(faces.typed.change_feed(0))),
    "change_epochs": lambda faces: (faces.raw.change_epochs(0), faces.typed.change_epochs(0)),
}
ELSEWHERE = {"close", "join_checkpoint", "give_up", "upload", "name", "schema", "spec", "primary_key", "url"}
ELSEWHERE |= {"epoch", "snapshot_epoch"}
"""What makes no request, `close` itself, what only a platform has, and `upload`, which `commit_uploaded` is about."""


def test_every_call_is_among_them() -> None:
    """A call that is added has to be closed beside, too."""
    code = " ".join([*CALLS, *_names_in(CALLS.values())])
    for kind in (StateStore, RawTable, TypedTable, Snapshot, Transaction):
        for name in (one for one in dir(kind) if one[0] != "_" and one not in ELSEWHERE):
            assert name in code, f"{kind.__name__}.{name}"


def _names_in(calls: Any) -> Iterator[str]:
    for call in calls:
        yield from call.__code__.co_names


class _NoOracle:
    """Nothing is checked of the objects."""

    def note_write(self, path: str, data: bytes, *, created: bool) -> None:
        pass

    def deleting(self, path: str) -> None:
        pass


class Life:
    """One store from its opening to its close."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.chance = random.Random(f"calls {seed}")
        self.node = Node("p", 1)
        self.system = SimSystem(self.scheduler, self.node)
        self.bucket = NodeBucket(SimBucket(self.scheduler, _NoOracle(), 0.0), self.node, Faults)
        self.ended: list[str] = []
        self._closed = False
        self.after = 0
        """Calls that ended well after the close."""

    def run(self) -> None:
        """All of it; raises what a thread has died of."""
        self.scheduler.spawn(self.node, "main", self._main)
        try:
            self.scheduler.run(lambda: len(self.ended) == 4, seconds_max=10_000, steps_max=200_000)
        finally:
            self.scheduler.end()

    def _main(self) -> None:
        compaction = self.chance.random() < 0.5
        store = open_on(self.bucket, self.system, compaction=compaction, cache_bytes=0, limits=SMALL, gc_grace=0)
        faces = Faces(store, self.chance)
        for _ in range(3):
            _commit(faces)
        faces.snapshot = store.pin_snapshot()
        for number in range(2):
            self.scheduler.spawn(self.node, f"caller {number}", lambda: self._call(faces))
        self.scheduler.spawn(self.node, "closer", lambda: self._close(store))
        self.ended.append("main")

    def _call(self, faces: Faces) -> None:
        names = list(CALLS)
        while True:
            name = self.chance.choice(names)
            try:
                CALLS[name](faces)
            except StoreClosed:
                break
            except Conflict:
                continue
            except TussockError as error:
                raise AssertionError(f"{name} raised {error!r} beside a close") from error
            if self._closed:
                # A call that began before the close may end well; `requests` always does.
                self.after += name != "requests"
                assert self.after <= 2, f"{name} succeeded in a store that was closed"
        self.ended.append("caller")

    def _close(self, store: StateStore) -> None:
        self.system.sleep(self.chance.random() * SECONDS)
        store.close()
        self._closed = True
        store.close()
        self.ended.append("closer")


@pytest.mark.parametrize("seed", range(8 * DEPTH))
def test_a_close_ends_every_call_by_name(seed: int) -> None:
    """No raw error of a pool, a future or a bucket, no thread that waits for ever."""
    Life(seed).run()
