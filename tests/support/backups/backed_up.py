"""A store with a backup on a bucket of the test, and pairs of buckets whose requests can fail one by one."""

from collections.abc import Callable
from typing import Any

from support.buckets.faulty_bucket import Fate, FaultyBucket, at_calls
from support.store.stores import InlineExecutor, TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import StateStore
from tussock.statestore.contract.object_store import ObjectStore

__all__ = ["OLD", "ROWS", "InlineSystem", "NumberedBuckets", "calls_of", "fill", "fill_source", "rows"]

ROWS = 20
OLD = b"old!" * 1_000
"""A value of such a length that a hundred of them, uncompressed, make an SST whose meta is a separate object."""


class InlineSystem(TickingSystem):
    """Its pools work in the caller's thread, so that requests come in one order."""

    def pool(self, name: str, workers: int) -> InlineExecutor:
        return InlineExecutor()


def fill(store: StateStore, value: bytes, count: int = ROWS) -> int:
    """Commit `count` rows with that value to table `kv`."""
    table = store.table("kv") if "kv" in store.tables() else store.create_table("kv", compression="none")
    epoch = store.new_epoch()
    table.ingest_batch([(b"%05d" % key, value) for key in range(count)], epoch)
    return int(store.commit_epoch(epoch, writer="job", batch_id=epoch))


def rows(bucket: ObjectStore, system: InlineSystem) -> list[tuple[bytes, bytes]]:
    """All rows of table `kv`."""
    with open_on(bucket, system) as store:
        return pairs(store.table("kv").scan())


def fill_source(bucket: ModelBucket, system: InlineSystem, **options: Any) -> ModelBucket:
    """Make a store whose backup `b` alone holds an SST in two objects, and one in a log entry, if `options` allow."""
    with open_on(bucket, system, retention=0, gc_grace=0, **options) as store:
        fill(store, OLD, 100)
        store.compact("kv")
        fill(store, b"kept")
        store.backup("b")
        fill(store, b"new")
        store.compact("kv")
        store.vacuum()
    return bucket


def calls_of(work: Callable[[FaultyBucket, FaultyBucket], object], source: ModelBucket, target: ModelBucket) -> int:
    """The number of requests to both buckets that `work` makes without interruption, on copies of them."""
    shared = NumberedBuckets(_copy(source), _copy(target), {})
    work(shared.source, shared.target)
    return shared.count


def _copy(bucket: ModelBucket) -> ModelBucket:
    copy = ModelBucket(bucket.system, bucket.url)
    copy.objects = dict(bucket.objects)
    return copy


class NumberedBuckets:
    """Two faulty buckets whose calls are numbered together; a crash in one is the death of the process."""

    def __init__(self, source: ModelBucket, target: ModelBucket, fates: dict[int, Fate]) -> None:
        self.source, self.target = FaultyBucket(source), FaultyBucket(target)
        self.count = 0
        decide = at_calls(fates)

        def script(call: object) -> Fate:
            self.count += 1
            return Fate.CRASH if self.dead else decide(call._replace(number=self.count))  # type: ignore[attr-defined]

        self.source.script = self.target.script = script

    @property
    def dead(self) -> bool:
        return self.source.dead or self.target.dead
