"""A client whose role may not commit goes on reading after a refused commit."""

import os
import time
from pathlib import Path

import pytest

from support.service.guarded_meta import GuardedMeta
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import AccessDenied

SESSION = "ab" * 16
LEASE_SECONDS = 1.5


@pytest.mark.slow
def test_a_reader_whose_commit_is_refused_keeps_its_session_and_its_pins(tmp_path: Path) -> None:
    """Once it reported the upload that it could not commit, and each heartbeat was refused for that."""
    with GuardedMeta(tmp_path, "--session.lease-seconds", str(LEASE_SECONDS)) as meta, meta.connect("writer") as writer:
        kv = writer.create_table("kv")
        first = writer.new_epoch()
        kv.ingest_batch([(b"k", b"1")], first)
        writer.commit_epoch(first)
        with meta.connect("reader") as reader, reader.pin_snapshot() as snapshot:
            epoch = reader.new_epoch()
            reader.table("kv").ingest_batch([(b"k", b"mine")], epoch)
            with pytest.raises(AccessDenied, match="Commit needs"):
                reader.commit_epoch(epoch)
            reader.abort_epoch(epoch)
            second = writer.new_epoch()
            kv.ingest_batch([(b"k", b"2")], second)
            writer.commit_epoch(second)
            pins = [pin.id for pin in writer.pins()]
            time.sleep(2 * LEASE_SECONDS)
            reader.wait_epoch(second)
            assert reader.table("kv").get(b"k") == b"2"
            assert snapshot.table("kv").get(b"k") == b"1"
            assert [pin.id for pin in writer.pins()] == pins


def test_a_reader_does_not_hold_back_vacuum(tmp_path: Path) -> None:
    """Its reports of uploads are ignored, since it may not commit."""
    with GuardedMeta(tmp_path) as meta, meta.connect("admin") as admin:
        admin.create_table("kv")
        orphan = Path(meta.store_url.removeprefix("file://")) / "sst" / f"01{'0' * 30}.data"
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"left by a crash")
        os.utime(orphan, (1, 1))
        reader = meta.caller("reader")
        reader.call("OpenSession", pb.OpenSessionRequest(session_id=SESSION, kind=pb.CLIENT, oldest_upload="0" * 32))
        reader.call("Heartbeat", pb.HeartbeatRequest(session_id=SESSION, oldest_upload="0" * 32))
        assert [path for path, _ in admin.vacuum().deleted] == [f"sst/{orphan.name}"]
