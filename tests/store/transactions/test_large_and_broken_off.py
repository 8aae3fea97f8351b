"""Transactions beyond the buffer, clients that die within one, and snapshots that expire."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tussock.statestore import Conflict, SnapshotExpired, StateStore, connect

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
DYING = """
import os, sys
from tussock.statestore import connect
store = connect(sys.argv[1], buffer_bytes=100_000, compaction=False)
tx = store.transaction()
tx.__enter__()
for number in range(20):
    tx.table("kv").ingest_batch([(b"%02d%04d" % (number, at), os.urandom(100)) for at in range(500)])
print("written", flush=True)
sys.stdin.readline()
"""


def test_a_transaction_larger_than_the_buffer_spills_and_reads_what_it_spilled(tmp_path: Path) -> None:
    """Nobody else sees the spilled SSTs; conflicts in what was spilled are found under snapshot isolation."""
    url = (tmp_path / "store").as_uri()
    with connect(url, buffer_bytes=200_000, compaction=False) as store, connect(url, compaction=False) as other:
        store.create_table("t", schema=SCHEMA, primary_key=["id"])
        with store.transaction() as tx:
            table = tx.table("t")
            for start in range(0, 50_000, 5_000):
                rows = pa.table({"id": range(start, start + 5_000), "v": ["x" * 20] * 5_000})
                table.upsert(rows)
            table.delete([7])
            assert table.get(3) == {"id": 3, "v": "x" * 20}
            assert table.get(7) is None
            assert sum(batch.num_rows for batch in table.read(["id"])) == 49_999
            assert other.table("t").get(3) is None
            assert store.table("t").get(3) is None
            assert any((tmp_path / "store" / "sst").iterdir())
        other.wait_epoch(tx.epoch)
        assert sum(batch.num_rows for batch in other.table("t").read(["id"])) == 49_999
        wrote = pytest.raises(Conflict, match=r"wrote key \(id=44444\)")
        with wrote, store.transaction(isolation="snapshot") as tx:
            tx.table("t").upsert(pa.table({"id": range(50_000), "v": ["y" * 20] * 50_000}))
            with other.transaction() as theirs:
                theirs.table("t").upsert([{"id": 44_444, "v": "z"}])


def test_a_client_that_dies_in_a_transaction_leaves_garbage_alone(tmp_path: Path) -> None:
    """What it had spilled is nobody's, and vacuum deletes it after the grace period."""
    folder = tmp_path / "store"
    with connect(folder.as_uri(), gc_grace=0, compaction=False) as store:
        store.create_table("kv")
        with store.transaction() as tx:
            tx.table("kv").ingest_batch([(b"a", b"1")])
        child = subprocess.Popen(
            [sys.executable, "-c", DYING, folder.as_uri()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        child.kill()
        child.communicate()
        spilled = {path.name for path in folder.rglob("*") if path.is_file() and "sst" in path.parts}
        assert len(spilled) > 1
        assert [row["key"] for batch in store.table("kv").scan() for row in batch.to_pylist()] == [b"a"]
        store.vacuum()
        left = {path.name for path in folder.rglob("*") if path.is_file() and "sst" in path.parts}
        assert len(left) < len(spilled)
        assert store.table("kv").get(b"a") == b"1"


def test_a_snapshot_that_is_no_longer_kept_ends_the_transaction() -> None:
    """With retention 0 and a compaction in between, nobody could tell what has changed."""
    with connect("memory://expiring", retention=0, compaction=False) as store:
        kv = store.create_table("kv")
        put(store, b"a", b"1")
        with store.transaction() as tx:
            assert tx.table("kv").get(b"a") == b"1"
            put(store, b"a", b"2")
            put(store, b"b", b"2")
            store.compact("kv")
            # It was pinned at its first read, as the retention keeps nothing.
            assert tx.table("kv").get(b"a") == b"1"
        assert kv.get(b"a") == b"2"
        tx = store.transaction()
        put(store, b"a", b"3")
        store.compact("kv")
        with pytest.raises(SnapshotExpired), tx:
            tx.table("kv").get(b"a")


def put(store: StateStore, key: bytes, value: bytes) -> None:
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(key, value)])
