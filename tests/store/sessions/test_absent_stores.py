"""A store that is to be there already: a mistyped URL is told, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from support.buckets.minio import MinioServer
from tussock.statestore import InvalidOption, ObjectStoreUnavailable, StoreNotFound, connect


def test_a_folder_without_a_store_is_left_as_it_is(tmp_path: Path) -> None:
    """Be it there or not; with a store it is opened."""
    absent, empty = tmp_path / "absent" / "below", tmp_path / "empty"
    empty.mkdir()
    (empty / "note.txt").write_text("not ours")
    with pytest.raises(StoreNotFound, match=r"no store here: file://.*absent/below is not a folder"):
        connect(absent.as_uri(), create=False)
    with pytest.raises(StoreNotFound, match=r"no store here: file://.*empty holds neither a log nor SSTs"):
        connect(empty.as_uri(), create=False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "note.txt"]
    with connect((tmp_path / "there").as_uri()) as store:
        store.create_table("kv")
    with connect((tmp_path / "there").as_uri(), create=False) as store:
        assert store.tables() == ["kv"]


def test_a_path_that_no_folder_can_have_is_told_as_every_trouble_of_a_bucket(tmp_path: Path) -> None:
    """Whether a store may be created or not: the file system's own error is a cause, and does not come out."""
    for create in (True, False):
        with pytest.raises(ObjectStoreUnavailable, match="takes no names as long as this; take a shorter path"):
            connect((tmp_path / ("x" * 300)).as_uri(), create=create)
    (tmp_path / "file").write_text("not ours")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ObjectStoreUnavailable, match="a file is where a folder of the store, or one above it"):
            connect(path.as_uri())
        with pytest.raises(StoreNotFound, match="is not a folder"):
            connect(path.as_uri(), create=False)
    assert (tmp_path / "file").read_text() == "not ours"


@pytest.mark.parametrize("name", ["log/app.log", "log/2026/11.delta", "sst/notes.data", "snapshot/disk.img"])
def test_a_folder_with_files_of_others_is_no_store(tmp_path: Path, name: str) -> None:
    """Many a folder has a `log`; what is left of a store is named as the store names it."""
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("not ours")
    with pytest.raises(StoreNotFound, match="holds neither a log nor SSTs"):
        connect(tmp_path.as_uri(), create=False)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]
    with connect(tmp_path.as_uri()) as store:
        store.create_table("kv")
    with connect(tmp_path.as_uri(), create=False) as store:
        assert store.tables() == ["kv"]


def test_a_named_memory_store_is_there_once_it_was_opened() -> None:
    with pytest.raises(StoreNotFound, match="memory://absent-store holds neither"):
        connect("memory://absent-store", create=False)
    with connect("memory://absent-store") as store:
        store.create_table("kv")
        with connect("memory://absent-store", create=False) as again:
            assert again.tables() == ["kv"]


@pytest.mark.minio
def test_a_prefix_of_a_bucket_without_a_store_is_told(minio: MinioServer) -> None:
    url = minio.fresh_url()
    with pytest.raises(StoreNotFound, match="holds neither a log nor SSTs"):
        connect(url, create=False)
    with connect(url) as store:
        store.create_table("kv")
    connect(url, create=False).close()


@pytest.mark.parametrize("create", [None, 0, 1, "yes"])
def test_what_is_no_flag_is_refused(create: Any) -> None:
    with pytest.raises(InvalidOption, match="create"):
        connect("memory://", create=create)
