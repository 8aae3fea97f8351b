"""The requests of operations: an idle store makes none, a warm read none, a small commit one."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from support import inside
from support.buckets.faulty_bucket import FaultyBucket
from support.store.stores import TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import StateStore
from tussock.statestore.base.limits import Limits


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket(ModelBucket(TickingSystem()))


@pytest.fixture
def cold_store(bucket: FaultyBucket) -> StateStore:
    """A store with a table of two commits and nothing in its caches."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    writer = open_on(bucket.inner, system)
    kv = writer.create_table("kv")
    for epoch in (1, 2):
        kv.ingest_batch([(b"%03d" % at, b"%d" % epoch) for at in range(100)], epoch)
        writer.commit_epoch(epoch)
    return open_on(bucket, system)


def cost(bucket: FaultyBucket, work: Callable[[], object]) -> dict[str, int]:
    """The calls on the bucket that `work` makes, by operation."""
    before = len(bucket.calls)
    work()
    return dict(Counter(call.operation for call in bucket.calls[before:]))


def test_an_idle_store_makes_no_requests(bucket: FaultyBucket, cold_store: StateStore) -> None:
    """For an hour, also with a background thread that waits for work; reading the counts is free."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    busy = open_on(bucket, system, compaction=True)
    kv = cold_store.table("kv")
    kv.get(b"001")
    assert cost(bucket, lambda: (system.forward(3600), cold_store.requests(), cold_store.url)) == {}
    busy.close()
    cold_store.close()
    assert cost(bucket, lambda: system.forward(3600)) == {}


def test_a_pin_costs_one_put_for_each_renewal_and_none_after_its_end(
    bucket: FaultyBucket, cold_store: StateStore
) -> None:
    """No pin writes to the log."""
    with cold_store.pin_snapshot() as snapshot:
        keeper = inside.pin_keeper(inside.backend(cold_store))
        assert cost(bucket, keeper.renew) == {"put": 1}
        assert cost(bucket, snapshot.close) == {"delete": 1}
        assert cost(bucket, keeper.renew) == {}
    assert not [call for call in bucket.calls if call.operation == "create"]


def test_a_cold_get_reads_a_small_sst_in_one_request_and_a_warm_get_makes_none(
    bucket: FaultyBucket, cold_store: StateStore
) -> None:
    """As a range of its log entry, newest run first: the second run is not read for a key that the first one has."""
    kv = cold_store.table("kv")
    assert cost(bucket, lambda: kv.get(b"050")) == {"get_range": 1}
    for read in (
        lambda: kv.get(b"050"),
        lambda: kv.get(b"051"),
        lambda: kv.get(b"050", epoch=2),
    ):
        assert cost(bucket, read) == {}
    # Reads of many rows go by segments, which are cached beside single blocks.
    kv.multi_get([b"001", b"099"])
    assert cost(bucket, lambda: kv.multi_get([b"001", b"098"])) == {}
    pairs(kv.scan())
    assert cost(bucket, lambda: pairs(kv.scan())) == {}


def test_an_absent_key_costs_a_request_a_run(bucket: FaultyBucket, cold_store: StateStore) -> None:
    """A key within the range of two small runs: each comes whole, with the filter that denies the key."""
    kv = cold_store.table("kv")
    assert cost(bucket, lambda: kv.get(b"050x")) == {"get_range": 2}


def test_a_large_sst_is_read_by_its_meta_and_a_block(bucket: FaultyBucket) -> None:
    """The larger of its two objects is not read whole; a key that the filter denies costs no block."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    writer = open_on(bucket.inner, system, limits=Limits(one_object_bytes=100))
    kv = writer.create_table("kv")
    for epoch in (1, 2):
        kv.ingest_batch([(b"%03d" % at, b"%d" % epoch) for at in range(100)], epoch)
        writer.commit_epoch(epoch)
    kv = open_on(bucket, system).table("kv")
    assert cost(bucket, lambda: kv.get(b"050")) == {"get": 1, "get_range": 1}
    kv = open_on(bucket, system).table("kv")
    assert cost(bucket, lambda: kv.get(b"050x")) == {"get": 2}


def test_a_large_filter_is_not_fetched_for_a_row(bucket: FaultyBucket) -> None:
    """A present key costs the head of the meta and a block; so does an absent one, and the filter the next time."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    writer = open_on(bucket.inner, system, limits=Limits(one_object_bytes=100, whole_filter_bytes=100))
    kv = writer.create_table("kv", block_bytes=256)
    kv.ingest_batch([(b"%03d" % at, b"value") for at in range(300)], 1)
    writer.commit_epoch(1)
    kv = open_on(bucket, system).table("kv")
    assert cost(bucket, lambda: kv.get(b"050")) == {"get_range": 2}
    assert cost(bucket, lambda: kv.get(b"250")) == {"get_range": 1}
    assert cost(bucket, lambda: kv.get(b"150x")) == {"get_range": 1}
    assert cost(bucket, lambda: kv.get(b"100x")) == {"get_range": 1}
    kv = open_on(bucket, system).table("kv")
    assert cost(bucket, lambda: pairs(kv.scan(limit=1))) == {"get_range": 2}


def test_a_read_after_a_while_asks_once_for_a_newer_version(bucket: FaultyBucket, cold_store: StateStore) -> None:
    """One GET of the missing next log entry; every ten seconds one LIST of the markers, too."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    kv = cold_store.table("kv")
    kv.get(b"050")
    system.forward(1)
    assert cost(bucket, lambda: [kv.get(b"050") for _ in range(100)]) == {"get": 1}
    system.forward(11)
    assert cost(bucket, lambda: [kv.get(b"050") for _ in range(100)]) == {"get": 1, "list": 1}


def test_a_small_commit_is_one_create(bucket: FaultyBucket, cold_store: StateStore) -> None:
    """The log entry, in which its SSTs lie, of a second table too; every ten seconds a look at the markers."""
    kv = cold_store.table("kv")
    system = bucket.inner.system  # type: ignore[attr-defined]
    for pause, looks in ((11, {"list": 1}), (9, {})):
        system.forward(pause)
        epoch = cold_store.new_epoch()
        kv.ingest_batch([(b"a", b"1")], epoch)
        assert cost(bucket, lambda epoch=epoch: cold_store.commit_epoch(epoch)) == {"create": 1, **looks}
    other = cold_store.create_table("other")
    epoch = cold_store.new_epoch()
    kv.ingest_batch([(b"a", b"2")], epoch)
    other.ingest_batch([(b"a", b"2")], epoch)
    name = {"writer": "w", "batch_id": 1}
    spent = cost(bucket, lambda: cold_store.commit_epoch(epoch, **name))  # type: ignore[arg-type]
    assert spent == {"create": 1}
    again = cold_store.new_epoch()
    repeated = cost(bucket, lambda: cold_store.commit_epoch(again, **name))  # type: ignore[arg-type]
    assert repeated == {}, "a batch that is known to be committed is free"


def test_what_does_not_fit_into_a_log_entry_is_put_beside_it(bucket: FaultyBucket) -> None:
    """An SST above 64 KiB, and of small ones those for which their commit has no more room."""
    system = bucket.inner.system  # type: ignore[attr-defined]
    store = open_on(bucket, system, limits=Limits(commit_payload_bytes=2500))
    tables = [store.create_table(f"t{number}") for number in range(4)]
    epoch = store.new_epoch()
    for table in tables:
        table.ingest_batch([(b"a", random.Random(1).randbytes(500))], epoch)
    assert cost(bucket, lambda: store.commit_epoch(epoch)) == {"create": 1, "put": 2}
    epoch = store.new_epoch()
    tables[0].ingest_batch([(b"b", random.Random(1).randbytes(100_000))], epoch)
    assert cost(bucket, lambda: store.commit_epoch(epoch)) == {"create": 1, "put": 1}
    assert all(len(pairs(table.scan())) == 1 for table in tables[1:])


def test_writes_to_the_buffer_are_free(bucket: FaultyBucket, cold_store: StateStore) -> None:
    """Epochs, own reads from the caches, and an abort are free, too."""
    kv = cold_store.table("kv")

    def work() -> None:
        epoch = cold_store.new_epoch()
        kv.ingest_batch([(b"zzz", b"1")], epoch)
        assert kv.get(b"zzz") == b"1"
        cold_store.abort_epoch(epoch)

    assert cost(bucket, work) == {}


def test_a_compaction_costs_its_inputs_its_outputs_and_two_entries(
    bucket: FaultyBucket, cold_store: StateStore
) -> None:
    """Two small inputs, a small output for the live tree and one for history; claim and report; pins listed twice."""
    spent = cost(bucket, lambda: cold_store.compact("kv"))
    assert spent["get_range"] == 2
    assert spent["put"] == 2
    assert spent["create"] == 2
    assert sum(spent.values()) <= 20


def test_requests_are_counted_by_caller(cold_store: StateStore) -> None:
    """Flush, read, compaction and meta are counted apart, with bytes."""
    kv = cold_store.table("kv")
    kv.get(b"050")
    epoch = cold_store.new_epoch()
    kv.ingest_batch([(b"a", random.Random(1).randbytes(100_000))], epoch)
    cold_store.commit_epoch(epoch)
    cold_store.compact("kv")
    requests = cold_store.requests()
    assert set(requests) == {"meta", "read", "flush", "compaction"}
    assert requests["flush"]["put"][0] == 1
    assert requests["flush"]["put"][1] > 0
    assert requests["read"]["get_range"][0] == 1
    assert requests["compaction"]["put"][0] == 2
