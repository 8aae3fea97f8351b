"""Restores and clones take only an empty place, make nothing before they refuse, and trust no old copy unread."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tussock.statestore import (
    BackupNotFound,
    InvalidOption,
    StateStore,
    StoreNotEmpty,
    TussockError,
    clone,
    connect,
    restore,
)


@pytest.fixture
def source(tmp_path: Path) -> str:
    """URL of a store with a backup `b`."""
    url = (tmp_path / "source").as_uri()
    with connect(url, compaction=False) as store:
        store.create_table("kv")
        for at in range(3):
            _commit(store, b"%d" % at)
        store.backup("b")
    return url


def _commit(store: StateStore, key: bytes) -> None:
    epoch = store.new_epoch()
    store.table("kv").ingest_batch([(key, b"value" * 100)], epoch)
    store.commit_epoch(epoch)


def _keys(url: str) -> list[bytes]:
    with connect(url, compaction=False) as store:
        return [key for batch in store.table("kv").scan() for key in batch.column("key").to_pylist()]


def _restore_backup(source: str, target: str) -> None:
    restore(source, "b", target)


COPIES = pytest.mark.parametrize("copy", [_restore_backup, clone], ids=["restore", "clone"])
Copy = Callable[[str, str], None]


@COPIES
@pytest.mark.parametrize("path", ["note.txt", "log/x.txt", "pins/x", "other/log/00000000000000000001.delta"])
def test_a_place_with_foreign_files_is_refused(source: str, tmp_path: Path, copy: Copy, path: str) -> None:
    """A store that began there would have them as foreign objects, whatever their names."""
    file = tmp_path / "target" / path
    file.parent.mkdir(parents=True)
    file.write_text("of others")
    with pytest.raises(StoreNotEmpty, match=path.partition(".")[0]):
        copy(source, (tmp_path / "target").as_uri())
    assert [one for one in (tmp_path / "target").rglob("*") if one.is_file()] == [file]


@COPIES
def test_a_place_that_an_operator_has_marked_is_accepted(source: str, tmp_path: Path, copy: Copy) -> None:
    """The operator marks a place before it restores into it; otherwise no StateStore could be restored."""
    marker = tmp_path / "target" / "tussock-owner"
    marker.parent.mkdir()
    marker.write_text("{}")
    copy(source, (tmp_path / "target").as_uri())
    assert _keys((tmp_path / "target").as_uri()) == [b"0", b"1", b"2"]
    assert marker.read_text() == "{}"


@COPIES
def test_a_place_in_the_store_or_around_it_is_refused(source: str, tmp_path: Path, copy: Copy) -> None:
    """One of the two would have the other's objects in its prefix."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOption, match="lies in the store at"):
        copy(source, f"{source}/inside")
    with pytest.raises(InvalidOption, match="has in it the store at"):
        copy(source, tmp_path.as_uri())
    with pytest.raises(InvalidOption, match="itself"):
        copy(source, source)
    assert sorted(tmp_path.rglob("*")) == before
    copy(source, f"{source}-beside")
    assert _keys(f"{source}-beside") == [b"0", b"1", b"2"]


def test_a_refused_copy_makes_no_folder(source: str, tmp_path: Path) -> None:
    """Neither for the source of a refused copy, nor for its target."""
    before = sorted(tmp_path.rglob("*"))
    target = (tmp_path / "target").as_uri()
    with pytest.raises(InvalidOption, match="no store to clone"):
        clone((tmp_path / "misspelled").as_uri(), target)
    with pytest.raises(BackupNotFound):
        restore((tmp_path / "misspelled").as_uri(), "b", target)
    with pytest.raises(BackupNotFound):
        restore(source, "unknown", target)
    with pytest.raises(BackupNotFound):
        clone(source, target, backup="unknown")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_copy_of_an_earlier_attempt_is_copied_again(source: str, tmp_path: Path) -> None:
    """One flipped bit in an object of the right size, before the store began: the copy is read, not trusted."""
    complete, target = tmp_path / "complete", tmp_path / "target"
    restore(source, "b", complete.as_uri())
    (target / "sst").mkdir(parents=True)
    for copied in (complete / "sst").iterdir():
        data = bytearray(copied.read_bytes())
        data[len(data) // 3] ^= 1
        (target / "sst" / copied.name).write_bytes(data)
    told: list[int] = []
    restore(source, "b", target.as_uri(), on_bytes=told.append)
    assert _keys(target.as_uri()) == [b"0", b"1", b"2"]
    assert len(told) == len(list((target / "sst").glob("*.data")))


def test_a_clone_without_its_source_names_it(source: str, tmp_path: Path) -> None:
    """A read makes no folder in its place, and names it; once the source is back, it is read."""
    target = (tmp_path / "target").as_uri()
    clone(source, target)
    away = (tmp_path / "source").rename(tmp_path / "away")
    with connect(target, compaction=False) as store, pytest.raises(TussockError, match=f"{source}, where no store is"):
        store.table("kv").get(b"1")
    assert not (tmp_path / "source").exists()
    away.rename(tmp_path / "source")
    assert _keys(target) == [b"0", b"1", b"2"]
