"""Guarantee 2: a client reads its own writes at once, and those of others after their commit."""

import pytest

from support.store.stores import TickingSystem, open_on, pairs
from support.store.versions import ModelBucket
from tussock.statestore import StateStore, WaitTimeout


def test_the_seeds_two_nodes(store: StateStore, other: StateStore) -> None:
    """Node 1 writes at epochs 1 and 2, node 2 at epoch 2: what each reads, and when."""
    node_1, node_2 = store, other
    kv_1 = node_1.create_table("kv")
    kv_2 = node_2.table("kv")
    kv_1.ingest_batch([(b"a", b"1"), (b"b", b"2")], 1)
    kv_1.ingest_batch([(b"a", b"3"), (b"b", b"4")], 2)
    kv_2.ingest_batch([(b"c", b"5"), (b"d", b"6")], 2)
    # Read at epoch 2 on node 1: a => 3, b => 4.
    assert pairs(kv_1.scan(epoch=2)) == [(b"a", b"3"), (b"b", b"4")]
    # Read at epoch 1 on node 1: a => 1, b => 2.
    assert pairs(kv_1.scan(epoch=1)) == [(b"a", b"1"), (b"b", b"2")]
    # Read at epoch 2 on node 2 with `wait_epoch 2`: all four. Both nodes commit epoch 2, and the log makes an epoch of
    # its own of the second one: that is the epoch to wait for.
    node_1.commit_epoch(1)
    assert node_1.commit_epoch(2) == 2
    last = node_2.commit_epoch(2)
    assert last > 2
    node_2.wait_epoch(2)
    assert pairs(kv_2.scan(epoch=last)) == [(b"a", b"3"), (b"b", b"4"), (b"c", b"5"), (b"d", b"6")]
    assert pairs(kv_2.scan(epoch=2)) == [(b"a", b"3"), (b"b", b"4")]
    node_1.wait_epoch(last)
    assert pairs(kv_1.scan()) == pairs(kv_2.scan())
    assert pairs(kv_1.scan(epoch=1)) == pairs(kv_2.scan(epoch=1)) == [(b"a", b"1"), (b"b", b"2")]


def test_own_writes_are_read_at_once_by_every_kind_of_read(store: StateStore) -> None:
    """Before any commit: get, multi_get, scan both ways, and at the epoch itself."""
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1"), (b"b", None)], epoch)
    assert kv.get(b"a") == kv.get(b"a", epoch=epoch) == b"1"
    assert kv.multi_get([b"b", b"a"]).to_pylist() == [None, b"1"]
    assert pairs(kv.scan()) == pairs(kv.scan(reverse=True, epoch=epoch)) == [(b"a", b"1")]


def test_an_own_write_is_not_seen_below_its_epoch(store: StateStore) -> None:
    """A read at an older epoch shows the commits up to it."""
    kv = store.create_table("kv")
    first = store.new_epoch()
    kv.ingest_batch([(b"a", b"old")], first)
    first = store.commit_epoch(first)
    kv.ingest_batch([(b"a", b"new")], store.new_epoch())
    assert kv.get(b"a", epoch=first) == b"old"
    assert kv.get(b"a") == b"new"


def test_no_other_client_sees_a_write_before_its_commit(store: StateStore, other: StateStore) -> None:
    """A snapshot of the writer itself does not show it, either."""
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1")], epoch)
    assert other.table("kv").get(b"a") is None
    with store.pin_snapshot() as snapshot:
        assert snapshot.table("kv").get(b"a") is None
    store.commit_epoch(epoch)
    other.wait_epoch(epoch)
    assert other.table("kv").get(b"a") == b"1"


def test_a_reader_that_does_not_wait_catches_up_by_itself() -> None:
    """A read a quarter of a second after its last look-up reads the log; an earlier one does not."""
    system = TickingSystem()
    bucket = ModelBucket(system)
    writer, reader = open_on(bucket, system), open_on(bucket, system)
    kv = writer.create_table("kv")
    behind = reader.table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    writer.commit_epoch(1)
    assert behind.get(b"a") is None
    system.forward(0.3)
    assert behind.get(b"a") == b"1"


def test_waiting_for_an_epoch_that_does_not_come_ends() -> None:
    """`WaitTimeout` names the awaited epoch and the newest committed one."""
    system = TickingSystem()
    store = open_on(ModelBucket(system), system)
    store.create_table("kv").ingest_batch([(b"a", b"1")], 5)
    store.commit_epoch(5)
    store.wait_epoch(5, timeout=0)
    with pytest.raises(WaitTimeout, match=r"epoch 6 .* within 3 s.* is 5"):
        store.wait_epoch(6, timeout=3)


def test_an_aborted_epoch_is_as_if_never_written(store: StateStore) -> None:
    """Its rows vanish, rows that they hid come back, and its number cannot be used again."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    store.commit_epoch(1)
    kv.ingest_batch([(b"a", b"2"), (b"b", b"2")], 2)
    store.abort_epoch(2)
    assert pairs(kv.scan()) == [(b"a", b"1")]
    with pytest.raises(ValueError, match="epoch 2"):
        kv.ingest_batch([(b"a", b"3")], 2)
