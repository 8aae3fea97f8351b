"""Backups through the meta service: as in an embedded store, and safe to repeat after a lost answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.service.meta_process import MetaProcess
from support.service.platforms import Platform
from support.store.stores import pairs
from tussock.meta.node.auth.caller import ANYONE
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore import clone, connect, restore
from tussock.statestore.errors import BackupExists, BackupNotFound


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with Platform((tmp_path / "store").as_uri()) as made:
        yield made


def test_a_backup_over_meta_outlives_its_store(platform: Platform, tmp_path: Path) -> None:
    """It is made, listed, restored into an empty place, and deleted; vacuum respects it."""
    store = platform.connect(retention=0, gc_grace=0)
    kv = store.create_table("kv")
    epoch = store.new_epoch()
    kv.ingest_batch([(b"a", b"1"), (b"b", b"2")], epoch)
    store.commit_epoch(epoch)
    made = store.backup("monday", comment="before the change")
    assert (made.name, made.epoch, made.comment) == ("monday", store.committed_epoch, "before the change")
    store.drop_table("kv")
    store.vacuum()
    assert [one.name for one in store.backups()] == ["monday"]
    copy = (tmp_path / "copy").as_uri()
    restore((tmp_path / "store").as_uri(), "monday", copy)
    with connect(copy) as restored:
        assert pairs(restored.table("kv").scan()) == [(b"a", b"1"), (b"b", b"2")]
    store.delete_backup("monday")
    assert store.backups() == []


def test_used_and_unknown_names_of_backups_are_refused(platform: Platform) -> None:
    store = platform.connect()
    store.backup("monday")
    with pytest.raises(BackupExists, match="monday"):
        store.backup("monday")
    with pytest.raises(BackupNotFound, match="tuesday"):
        store.delete_backup("tuesday")


def test_a_repeated_call_makes_one_backup(platform: Platform) -> None:
    """A client without an answer sends the same id again."""
    node = platform.leader.node
    request = pb.CreateBackupRequest(name="monday", backup_id="a" * 32)
    first, again = (node.call("CreateBackup", request, ANYONE) for _ in range(2))
    assert (first.backup.id, first.backup.seq) == (again.backup.id, again.backup.seq)
    assert len(platform.connect().backups()) == 1


def test_epochs_are_handed_out_in_order(platform: Platform) -> None:
    """Each is greater than all earlier ones, and than all committed ones."""
    node = platform.leader.node
    taken = [node.call("AllocateEpoch", pb.AllocateEpochRequest(), ANYONE).epoch for _ in range(100)]
    assert taken == sorted(set(taken))
    store = platform.connect()
    store.create_table("kv").ingest_batch([(b"a", b"1")], taken[-1] + (1 << 34))
    store.commit_epoch(taken[-1] + (1 << 34))
    assert node.call("AllocateEpoch", pb.AllocateEpochRequest(), ANYONE).epoch > taken[-1] + (1 << 34)


@pytest.mark.minio
def test_a_clone_releases_its_source_with_the_services_settings(
    minio: MinioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service's environment has only keys; endpoint and region of both buckets come from its settings."""
    source, target = minio.fresh_url(), minio.fresh_url()
    with connect(source) as store:
        epoch = store.new_epoch()
        store.create_table("kv").ingest_batch([(b"a", b"1")], epoch)
        store.commit_epoch(epoch)
        clone(source, target)
        assert len(store.backups()) == 1
        settings = ("--bucket.endpoint", minio.endpoint, "--bucket.region", "us-east-1", "--bucket.allow-http", "true")
        with monkeypatch.context() as bare:
            for name in ("AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION"):
                bare.delenv(name)
            process = MetaProcess(target, *settings)
        with process, connect(process.wait_until_it_leads().url, retention=0, gc_grace=0) as cloned:
            assert pairs(cloned.table("kv").scan()) == [(b"a", b"1")]
            cloned.drop_table("kv")
            cloned.vacuum()
            cloned.vacuum()
            assert cloned.version().sources == {}, [line for line in process.lines if line["level"] == "warning"]
        assert store.backups() == []
