"""The embedded store's own vacuum: run by the compaction thread when it has nothing else to do."""

from support import inside
from support.store.versions import FakeSystem, ModelBucket
from tussock.compactor.embedded import EmbeddedBackend
from tussock.statestore.buckets.request_counter import RequestCounts
from tussock.statestore.settings import StoreSettings


def test_the_thread_vacuums_once_per_pause() -> None:
    """Without vacuum bucket and log would only grow; more than once in five minutes it would find little."""
    system = FakeSystem()
    bucket = ModelBucket(system)
    backend = EmbeddedBackend(StoreSettings("memory://", gc_grace=0.0), system, RequestCounts(bucket))
    backend.close()  # the thread itself is not wanted here, only what it does
    bucket.put("sst/" + "0" * 32 + ".data", b"left by a crash")
    system.forward(269.0)
    assert not inside.work(backend)
    assert [info.path for info in bucket.list("sst/")] == ["sst/" + "0" * 32 + ".data"]
    # The store is new: nobody has told it yet of the grace period that this process was opened with.
    system.forward(62.0)
    assert not inside.work(backend)
    assert not list(bucket.list("sst/"))
    bucket.put("sst/" + "0" * 32 + ".data", b"left by another crash")
    assert not inside.work(backend)
    assert list(bucket.list("sst/")), "the pause has begun anew"
