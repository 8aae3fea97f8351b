"""What a destination refuses, and damage in it: named, and nothing else is touched."""

import struct
from pathlib import Path

import crc32c
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from support.backups.backed_up import InlineSystem, fill_source
from support.backups.destinations import add_backup, copy, delete, destination_on, verify, verify_all
from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.store.stores import OBJECTS, open_on
from support.store.versions import ModelBucket
from tussock.meta.log.format import FORMAT_VERSION, backup_path, decode_backup, encode_backup
from tussock.meta.log.log import VersionLog
from tussock.meta.retention.destination.destination import ENTRIES_KEPT
from tussock.meta.retention.destination.records import (
    catalogue_path,
    decode_manifest,
    encode_manifest,
    manifest_path,
)
from tussock.meta.retention.restore import restore
from tussock.statestore import connect, copy_backup
from tussock.statestore import restore as restore_store
from tussock.statestore.errors import (
    AccessDenied,
    BackupExists,
    BackupNotFound,
    CorruptLog,
    CorruptSst,
    InvalidOption,
    NewerFormat,
    ObjectStoreUnavailable,
    StoreNotEmpty,
)


@pytest.fixture
def system() -> InlineSystem:
    return InlineSystem()


@pytest.fixture
def source(system: InlineSystem) -> ModelBucket:
    return fill_source(ModelBucket(system, "model://source"), system, limits=OBJECTS)


@pytest.fixture
def target(system: InlineSystem) -> ModelBucket:
    return ModelBucket(system, "model://target")


def no_other(url: str) -> ModelBucket:
    raise AssertionError(f"nothing lies in {url}")


# --- Places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["note.txt", "log/00000000000000000001.delta", "parts/x", "sst/x.data", "a/catalogue/x"]
)
def test_a_place_with_something_else_is_refused(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, path: str
) -> None:
    """A store, files of others, or copies whose catalogue was lost."""
    target.put(path, b"of others")
    before = dict(target.objects)
    with pytest.raises(StoreNotEmpty, match="take an empty place"):
        copy(source, target, system)
    assert target.objects == before


def test_a_place_that_an_operator_has_marked_is_accepted(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    target.put("tussock-owner", b"{}")
    copy(source, target, system)
    assert verify_all(target, system) == ["b"]


def test_copies_of_another_store_are_left_alone(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    """Two stores may have the same URL, on two servers, or one after the other: the identity tells them apart."""
    copy(source, target, system)
    other = fill_source(ModelBucket(system, "model://source"), system)
    before = dict(target.objects)
    with pytest.raises(StoreNotEmpty, match="holds copies of another store"):
        copy(other, target, system)
    assert target.objects == before


def test_another_backup_of_the_same_name_is_refused(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """The first was deleted in the store and the name taken again; the copy of the first stays as it is."""
    copy(source, target, system)
    with open_on(source, system) as store:
        store.delete_backup("b")
        store.backup("b")
    before = dict(target.objects)
    with pytest.raises(BackupExists, match="delete that copy"):
        copy(source, target, system)
    assert target.objects == before
    delete(target, system, "b")
    copy(source, target, system)


def test_a_place_in_the_store_or_around_it_is_refused(tmp_path: Path) -> None:
    """One of the two would have the other's objects in its prefix."""
    url = (tmp_path / "store").as_uri()
    with connect(url, compaction=False) as store:
        store.create_table("kv")
        store.backup("b")
    before = sorted(tmp_path.rglob("*"))
    for place, said in [(url, "itself"), (f"{url}/copies", "lies in the store at"), (tmp_path.as_uri(), "has in it")]:
        with pytest.raises(InvalidOption, match=said):
            copy_backup(url, "b", place)
    assert sorted(tmp_path.rglob("*")) == before
    copy_backup(url, "b", f"{url}-copies")


def test_other_credentials_do_not_make_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings for the source may be of another server, or just another key of the same."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://here.example/")
    pair = {"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "key"}
    key = {**pair, "AWS_ENDPOINT_URL": "https://here.example"}
    for call in (copy_backup, restore_store):
        with pytest.raises(InvalidOption, match="lies in the store at s3://bucket/shop"):
            call("s3://bucket/shop", "b", "s3://bucket/shop/copies", source_options=key)
    there = {**pair, "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "true"}
    with pytest.raises(ObjectStoreUnavailable):
        copy_backup("s3://bucket/shop", "b", "s3://bucket/shop/copies", source_options=there, deadline=0.2)


def test_a_backup_without_an_identity_is_refused(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """It was made by an earlier release; once the store has one, by a backup since, the old backup is copied too."""
    log = VersionLog(source, system, owner="test")
    path = backup_path("b", log.refresh().backups["b"].id)
    content = decode_backup(path, source.get(path))
    source.put(path, encode_backup(replace(content, version=replace(content.version, store_identity=UNSET))))
    copy(source, target, system)
    assert verify_all(target, system) == ["b"], "by the identity in the log"
    for entry in [entry for entry in source.objects if entry.startswith(("log/", "snapshot/"))]:
        del source.objects[entry]
    target.objects.clear()
    with pytest.raises(InvalidOption, match="make another backup"):
        copy(source, target, system)
    assert not target.objects


@pytest.mark.parametrize("denied", ["put", "create", "list", "get", "delete"])
def test_a_refused_right_is_named_and_leaves_no_copy(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, denied: str
) -> None:
    """Wrong credentials, or a policy with one right too few; once the right is there, the copy goes on."""
    add_backup(source, system, "c")
    copy(source, target, system, "b")
    before = dict(target.objects)
    refusing = RefusingBucket(target, denied)

    def copy_and_delete() -> None:
        copy(source, refusing, system, "c")
        delete(refusing, system, "b")

    with pytest.raises(AccessDenied, match=f"{denied} is not allowed"):
        copy_and_delete()
    assert "b" in verify_all(target, system) or denied == "delete"
    assert before.keys() - target.objects.keys() == set()
    copy(source, target, system, "c")
    delete(target, system, "b", missing_ok=True)
    assert verify_all(target, system) == ["c"]


def test_a_bucket_in_which_nothing_may_be_deleted_takes_copies(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """Some are kept so on purpose: then old entries of the catalogue stay, too."""
    names = [f"b{number}" for number in range(ENTRIES_KEPT)]
    for name in names:
        add_backup(source, system, name)
        copy(source, RefusingBucket(target, "delete"), system, name)
    assert verify_all(target, system) == sorted(names)
    assert len([path for path in target.objects if path.startswith("catalogue/")]) == 2 * ENTRIES_KEPT
    delete(target, system, names[0])
    assert len([path for path in target.objects if path.startswith("catalogue/")]) == ENTRIES_KEPT


class RefusingBucket(FaultyBucket):
    """A bucket for whose credentials one operation is not allowed."""

    def __init__(self, inner: ModelBucket, denied: str) -> None:
        super().__init__(inner, self.refuse)
        self.denied = denied

    def refuse(self, call: Call) -> Fate:
        if call.operation == self.denied:
            raise AccessDenied(f"{self.denied} is not allowed in {self.url}", call.path)
        return Fate.PASS


def test_an_unknown_backup_makes_nothing(source: ModelBucket, target: ModelBucket, system: InlineSystem) -> None:
    with pytest.raises(BackupNotFound, match="its backups: b"):
        copy(source, target, system, "x")
    assert not target.objects


# --- Damage in the store ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flipped", "gone", "cut", "foreign"])
def test_a_damaged_sst_of_the_store_makes_no_copy(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, damage: str
) -> None:
    """Each object of the backup in turn; what copies before have is left as it is. Mended, the copy goes on."""
    copy(source, target, system)
    paths = sorted(path.partition("/sst/")[2] for path in target.objects if "/sst/" in path)
    assert len(paths) == 3
    for name in paths:
        path = f"sst/{name}"
        target.objects.clear()
        kept = dict(source.objects)
        data, at = source.objects.pop(path)
        if damage == "flipped":
            source.objects[path] = (data[:60] + bytes([data[60] ^ 1]) + data[61:], at)
        elif damage == "cut":
            source.objects[path] = (data[:-1], at)
        elif damage == "foreign":
            source.objects[path] = source.objects[f"sst/{paths[paths.index(name) - 1]}"]
        with pytest.raises(CorruptSst, match=name[:32]):
            copy(source, target, system)
        assert verify_all(target, system) == []
        assert not [one for one in target.objects if one.endswith("/manifest")]
        source.objects = kept
        copy(source, target, system)
        assert verify_all(target, system) == ["b"]


# --- Damage in the destination ---------------------------------------------------------------------------------------


def restore_copy(target: ModelBucket, system: InlineSystem) -> ModelBucket:
    made = ModelBucket(system, "model://made")
    try:
        restore(target, made, system, backup="b", owner="test", open_source=no_other)
    except Exception:
        assert not list(made.list("log/")), "no store was made"
        raise
    return made


@pytest.mark.parametrize("damage", ["flipped", "gone", "cut", "foreign"])
def test_a_damaged_object_of_a_copy_is_named(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, damage: str
) -> None:
    """By the drill, and by a restore, which makes no store."""
    copy(source, target, system)
    paths = sorted(path for path in target.objects if "/sst/" in path)
    for path in paths:
        kept = dict(target.objects)
        data, at = target.objects.pop(path)
        if damage == "flipped":
            target.objects[path] = (data[:60] + bytes([data[60] ^ 1]) + data[61:], at)
        elif damage == "cut":
            target.objects[path] = (data[:-1], at)
        elif damage == "foreign":
            target.objects[path] = target.objects[paths[paths.index(path) - 1]]
        with pytest.raises(CorruptSst, match=path.rpartition("/")[2][:32]):
            verify(target, system)
        with pytest.raises(CorruptSst, match=path.rpartition("/")[2][:32]):
            restore_copy(target, system)
        target.objects = kept
    restore_copy(target, system)


def test_an_sst_whose_checksums_were_made_to_fit_is_told_by_its_digest(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    """CRCs tell damage, not intent: the manifest has a digest of each SST."""
    copy(source, target, system)
    path = manifest_path(1)
    manifest = decode_manifest(path, 1, target.get(path))
    places = {sst_id: (part, bytes(32)) for sst_id, (part, _) in manifest.places.items()}
    target.put(path, encode_manifest(1, replace(manifest, places=places)))
    with pytest.raises(CorruptSst, match="expected SHA-256 00000000"):
        verify(target, system)
    with pytest.raises(CorruptSst, match="expected SHA-256 00000000"):
        restore_copy(target, system)


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "of another part", "without a place", "newer"])
def test_a_damaged_manifest_is_named(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, damage: str
) -> None:
    copy(source, target, system)
    path = manifest_path(1)
    data = target.get(path)
    manifest = decode_manifest(path, 1, data)
    newer = bytearray(data)
    struct.pack_into("<H", newer, 4, FORMAT_VERSION + 1)
    spoilt = {
        "flipped": data[:200] + bytes([data[200] ^ 1]) + data[201:],
        "cut": data[:-1],
        "gone": b"",
        "of another part": encode_manifest(2, manifest),
        "without a place": encode_manifest(1, replace(manifest, places={})),
        "newer": _sealed(newer),
    }[damage]
    target.put(path, spoilt)
    if damage == "gone":
        del target.objects[path]
    for reads in (
        lambda: verify(target, system),
        lambda: restore_copy(target, system),
    ):
        with pytest.raises(NewerFormat if damage == "newer" else CorruptLog, match=path):
            reads()


def _sealed(data: bytearray) -> bytes:
    struct.pack_into("<I", data, len(data) - 4, crc32c.crc32c(bytes(data[:-4])))
    return bytes(data)


@pytest.mark.parametrize("loss", ["gone", "damaged"])
def test_copies_outlive_their_catalogue(
    source: ModelBucket, target: ModelBucket, system: InlineSystem, loss: str
) -> None:
    """The manifests are enough for a restore, of the newest of that name; nothing more is copied there, or deleted."""
    copy(source, target, system)
    add_backup(source, system, "c")
    copy(source, target, system, "c")
    for path in [path for path in target.objects if path.startswith("catalogue/")]:
        if loss == "gone":
            del target.objects[path]
        else:
            target.put(path, b"x")
    target.put(manifest_path(3), b"damaged")
    before = dict(target.objects)
    restore_copy(target, system)
    with pytest.raises(StoreNotEmpty if loss == "gone" else CorruptLog):
        copy(source, target, system)
    with pytest.raises(BackupNotFound if loss == "gone" else CorruptLog):
        delete(target, system, "b")
    with pytest.raises(CorruptLog, match="it was lost" if loss == "gone" else "catalogue/"):
        destination_on(target, system).copies()
    assert target.objects == before
    with pytest.raises(BackupNotFound, match="nor its catalogue"):
        destination_on(target, system).find("x")


def test_a_catalogue_of_a_newer_release_is_refused(
    source: ModelBucket, target: ModelBucket, system: InlineSystem
) -> None:
    copy(source, target, system)
    path = catalogue_path(2)
    newer = bytearray(target.get(path))
    struct.pack_into("<H", newer, 4, FORMAT_VERSION + 1)
    target.put(path, _sealed(newer))
    before = dict(target.objects)
    with pytest.raises(NewerFormat):
        copy(source, target, system)
    with pytest.raises(NewerFormat):
        delete(target, system, "b")
    assert target.objects == before
