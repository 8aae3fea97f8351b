"""A scan with this client's own rows that has to move to a newer version shows no later commits."""

import os

import pytest

from support.store.stores import TickingSystem, open_on
from support.store.versions import ModelBucket
from tussock.statestore import SnapshotExpired, StateStore

KEYS = [b"%05d" % number for number in range(12_000)]
OPTIONS = {"retention": 0, "gc_grace": 0}


def write(store: StateStore, value: bytes) -> None:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(key, value + os.urandom(1000)) for key in KEYS], epoch)
    store.commit_epoch(epoch)


@pytest.mark.parametrize("with_own_rows", [True, False])
def test_a_scan_mixes_no_epochs(with_own_rows: bool) -> None:
    """Once it continued with rows of a commit that came after its first batches."""
    system, other = TickingSystem(), TickingSystem()
    other.drawn = 10**6
    bucket = ModelBucket(system)
    with open_on(bucket, system, **OPTIONS) as writer, open_on(bucket, other, cache_bytes=0, **OPTIONS) as reader:
        writer.create_table("kv")
        write(writer, b"old")
        kv = reader.table("kv")
        if with_own_rows:
            kv.ingest_batch([(b"00000", b"old, and mine")], reader.new_epoch())
        scan = kv.scan()
        assert {value[:3] for value in next(scan).column("value").to_pylist()} == {b"old"}
        write(writer, b"new")
        writer.compact("kv")
        system.forward(86400)
        other.forward(86400)
        assert writer.vacuum().deleted
        with pytest.raises(SnapshotExpired):
            list(scan)
