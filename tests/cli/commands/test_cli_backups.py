"""`tussock backup`, `clone`, and what `check` says of stores with backups, on small real stores."""

import shutil
from pathlib import Path

import pytest

from support.buckets.minio import BUCKET, MinioServer
from support.store.command import Sample, Tussock, build_sample
from support.store.stores import pairs
from tussock.statestore import connect


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """A store that a test may change."""
    built = build_sample(tmp_path / "own")
    monkeypatch.setenv("TUSSOCK_STORE", built.url)
    return built


def replace_all(url: str) -> None:
    """Replace all rows, compact and vacuum without grace: of the old SSTs, only those of backups are kept."""
    with connect(url, compaction=False, retention=0, gc_grace=0) as store:
        kv = store.table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"zz", b"new")], epoch)
        store.commit_epoch(epoch)
        store.compact("kv")
        store.vacuum()


def scan(url: str) -> list[tuple[bytes, bytes]]:
    with connect(url, compaction=False) as store:
        return pairs(store.table("kv").scan())


def test_a_backup_is_made_listed_restored_and_deleted(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """The whole life of a backup, as text and as JSON."""
    rows = scan(own.url)
    made = tussock("backup", "create", "nightly", "--comment", "before the change", "--json").json()
    assert (made["name"], made["epoch"], made["complete"]) == ("nightly", own.epochs[2], True)
    replace_all(own.url)
    (listed,) = tussock("backup", "list", "--json").json()["backups"]
    assert 0 < listed["held_bytes"] <= listed["bytes"] == made["bytes"]
    out = tussock("backup", "list").out
    assert "nightly" in out
    assert "before the change" in out
    target = (tmp_path / "restored").as_uri()
    assert "holds backup nightly" in tussock("backup", "restore", "nightly", target).out
    assert "began with backup nightly before" in tussock("backup", "restore", "nightly", target).out
    again = tussock("backup", "restore", "nightly", target, "--json").json()
    assert (again["bytes"], again["already_restored"]) == (made["bytes"], True)
    assert scan(target) == rows
    assert tussock("check", "--store", target).code == 0
    assert "is deleted" in tussock("backup", "delete", "nightly").out
    assert tussock("backup", "list").out == "The store has no backups.\n"


@pytest.mark.minio
def test_a_backup_is_copied_to_another_server(
    tussock: Tussock, minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of the store come from files, those of the destination from the environment; wrong keys are named."""
    for name in minio.environment:
        monkeypatch.delenv(name, raising=False)
    source, url = tmp_path / "source", f"s3://{BUCKET}/copied-{tmp_path.name}"
    source.mkdir()
    for name, value in minio.environment.items():
        (source / name).write_text(f"{value}\n")
        monkeypatch.setenv(name, value)
    with connect(url, compaction=False) as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"k", b"v")], epoch)
        store.commit_epoch(epoch)
        store.backup("nightly")
    other = MinioServer(minio.binary, tmp_path / "other")
    other.start()
    try:
        for name, value in other.environment.items():
            monkeypatch.setenv(name, value)
        arguments = ("backup", "copy", "nightly", "--to", url, "--store", url, "--source-settings", str(source))
        ran = tussock(*arguments, "--verify")
        assert ran.code == 0, ran.err
        assert "is whole" in ran.out
        assert "nightly" in tussock("backup", "list", "--store", url).out
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-wrong-wrong")
        refused = tussock(*arguments)
        assert refused.code == 1
        assert "wrong-wrong-wrong" not in refused.err
        assert "denied" in refused.err.lower()
    finally:
        other.stop()


@pytest.mark.minio
def test_a_backup_is_restored_between_servers(
    tussock: Tussock, minio: MinioServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's settings come from files, the target's from the environment; the same URL is another place there."""
    for name in minio.environment:
        monkeypatch.delenv(name, raising=False)
    source, target = tmp_path / "source", f"s3://{BUCKET}/between-{tmp_path.name}"
    source.mkdir()
    for name, value in minio.environment.items():
        (source / name).write_text(f"{value}\n")
        monkeypatch.setenv(name, value)
    with connect(target, compaction=False) as store:
        kv = store.create_table("kv")
        epoch = store.new_epoch()
        kv.ingest_batch([(b"k", b"v")], epoch)
        store.commit_epoch(epoch)
        store.backup("nightly")
    refused = tussock("backup", "restore", "nightly", target, "--store", target)
    assert "into itself" in refused.err
    other = MinioServer(minio.binary, tmp_path / "other")
    other.start()
    try:
        for name, value in other.environment.items():
            monkeypatch.setenv(name, value)
        settings = ("--source-settings", str(source))
        ran = tussock("backup", "restore", "nightly", target, "--store", target, *settings)
        assert ran.code == 0, ran.err
        with connect(target, compaction=False) as restored:
            assert restored.table("kv").get(b"k") == b"v"
    finally:
        other.stop()


def test_a_copy_outlives_its_store(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """The whole life of copies in another place, as text and as JSON."""
    rows, there = scan(own.url), (tmp_path / "elsewhere").as_uri()
    for name in ("first", "second"):
        tussock("backup", "create", name, "--comment", f"the {name}")
    made = tussock("backup", "copy", "first", "--to", there, "--json").json()
    assert (made["copied_ssts"], made["deleted"], made["verified"]) == (made["ssts"], [], None)
    out = tussock("backup", "copy", "second", "--to", there, "--verify").out
    assert "copied 0 of them, 0 B." in out
    assert "Backup second is whole" in out
    assert "the second" in tussock("backup", "list", "--store", there).out
    copies = tussock("backup", "list", "--store", there, "--json").json()["copies"]
    assert [(one["name"], one["complete"]) for one in copies] == [("first", True), ("second", True)]
    again = ("backup", "copy", "second", "--to", there, "--delete", "first", "--delete", "none", "--delete", "second")
    document = tussock(*again, "--verify", "--json").json()
    assert (document["copied_ssts"], document["deleted"], document["verified"]["ssts"]) == (0, ["first"], made["ssts"])
    shutil.rmtree(tmp_path / "own")
    assert tussock("backup", "verify", "second", "--store", there, "--json").json()["ssts"] == made["ssts"]
    target = (tmp_path / "restored").as_uri()
    assert "holds backup second" in tussock("backup", "restore", "second", target, "--store", there).out
    assert scan(target) == rows
    assert tussock("check", "--store", target).code == 0
    assert "is deleted" in tussock("backup", "delete", "second", "--store", there).out
    assert tussock("backup", "list", "--store", there).out == "The destination has no copies.\n"


def test_old_copies_go_by_count_and_age(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """Once the new one is there and read; of the names that are meant, and never the last one."""
    there = (tmp_path / "elsewhere").as_uri()
    for name in ("n-1", "n-2", "n-3", "other"):
        tussock("backup", "create", name)
        tussock("backup", "copy", name, "--to", there)

    def copy(name: str, *options: str) -> list[str]:
        return tussock("backup", "copy", name, "--to", there, "--keep-of", "n-", *options, "--json").json()["deleted"]

    assert copy("n-3", "--keep-count", "1", "--keep-seconds", "3600") == []
    assert copy("n-1", "--verify", "--keep-count", "1") == ["n-2"], "n-1 was just made, n-3 is the newest"
    assert copy("n-3", "--keep-seconds", "0") == ["n-1"]
    assert copy("n-3", "--keep-seconds", "0") == []
    copies = tussock("backup", "list", "--store", there, "--json").json()["copies"]
    assert [one["name"] for one in copies] == ["n-3", "other"]
    assert "Deleted copies: n-3" in tussock("backup", "copy", "other", "--to", there, "--keep-count", "1").out


def test_copies_stay_where_the_new_one_is_not_whole(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """A drill that finds damage ends the command before it deletes anything."""
    there = tmp_path / "elsewhere"
    for name in ("first", "second"):
        tussock("backup", "create", name)
        tussock("backup", "copy", name, "--to", there.as_uri())
    path = max(there.rglob("*.data"), key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    ran = tussock("backup", "copy", "second", "--to", there.as_uri(), "--verify", "--keep-count", "1")
    assert ran.code == 1
    copies = tussock("backup", "list", "--store", there.as_uri(), "--json").json()["copies"]
    assert [one["name"] for one in copies] == ["first", "second"]


@pytest.mark.parametrize(
    "command",
    [("backup", "create", "x"), ("backup", "restore", "x", "file:///y"), ("backup", "copy", "x"), ("clone", "a", "b")],
)
@pytest.mark.parametrize("option", ["--epoch", "--at"])
def test_no_epoch_between_two_backups_can_be_named(tussock: Tussock, command: tuple[str, ...], option: str) -> None:
    """`docs/backup.md`, Points in time: a restore brings a store to the moment of a backup."""
    ran = tussock(*command, option, "1")
    assert (ran.code, f"No such option: {option}" in ran.err) == (2, True)


def test_a_drill_finds_damage(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """In a store and in a destination; it names the object, and other objects are no matter."""
    there = tmp_path / "elsewhere"
    tussock("backup", "create", "nightly")
    tussock("backup", "copy", "nightly", "--to", there.as_uri())
    for url in (own.url, there.as_uri()):
        assert "is whole" in tussock("backup", "verify", "nightly", "--store", url).out
    for folder, url in ((tmp_path / "own", own.url), (there, there.as_uri())):
        path = max(folder.rglob("*.data"), key=lambda path: path.stat().st_size)
        data = path.read_bytes()
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        ran = tussock("backup", "verify", "nightly", "--store", url)
        assert (ran.code, ran.out, path.name in ran.err) == (1, "", True)


def test_what_copies_refuse_is_one_line(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """Nothing is made where the command fails, not even a folder."""
    tussock("backup", "create", "nightly")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "note.txt").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    nothing = (tmp_path / "nothing").as_uri()
    for arguments, said in [
        (("backup", "copy", "x", "--to", nothing), "its backups: nightly"),
        (("backup", "copy", "nightly", "--to", own.url), "itself"),
        (("backup", "copy", "nightly", "--to", f"{own.url}/copies"), "lies in the store"),
        (("backup", "copy", "nightly", "--to", foreign.as_uri()), "holds note.txt"),
        (("backup", "copy", "nightly", "--to", nothing, "--keep-of", "n"), "keeps nothing by itself"),
        (("backup", "verify", "x"), "its backups: nightly"),
        (("backup", "verify", "x", "--store", nothing), "is not a folder"),
        (("backup", "list", "--store", nothing), "is not a folder"),
        (("backup", "copy", "nightly", "--to", nothing, "--store", "tussock://meta:7370"), "tussock://"),
    ]:
        ran = tussock(*arguments)
        assert (ran.code in (1, 2), ran.out) == (True, ""), arguments
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_errors_are_one_line(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """A command that fails changes nothing, too."""
    for arguments, said in [
        (("backup", "create", "a/b"), "backup name 'a/b'"),
        (("backup", "delete", "nightly"), "its backups: none"),
        (("backup", "restore", "nightly", (tmp_path / "x").as_uri()), "its backups: none"),
        (("clone", own.url, own.url), "cannot be a clone of itself"),
        (("clone", own.url, (tmp_path / "y").as_uri(), "--backup", "nightly"), "its backups: none"),
    ]:
        ran = tussock(*arguments)
        assert (ran.code, ran.out) == (1, "")
        assert said in ran.err
        assert ran.err.count("\n") == 1
    assert tussock("clone", (tmp_path / "none").as_uri(), own.url).code == 2
    assert tussock("backup", "create", "nightly").code == 0
    ran = tussock("backup", "create", "nightly")
    assert (ran.code, "take another name" in ran.err) == (1, True)


def test_a_clone_is_made_checked_and_its_hold_deleted(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """`check` reads the clone's SSTs in the source, and names those that are gone."""
    target = (tmp_path / "clone").as_uri()
    rows, checked = scan(own.url), tussock("check", "--json").json()["checked"]["rows"]
    assert tussock("clone", own.url, target, "--json").json() == {
        "source": own.url,
        "target": target,
        "backup": None,
        "epoch": own.epochs[2],
    }
    assert "is a clone of" in tussock("clone", own.url, target).out
    replace_all(own.url)
    assert scan(target) == rows
    document = tussock("check", "--store", target, "--json").json()
    assert (document["ok"], document["checked"]["rows"]) == (True, checked)
    (hold,) = tussock("backup", "list", "--json").json()["backups"]
    assert hold["holder"] == target
    ran = tussock("backup", "delete", hold["name"])
    assert "will miss SSTs" in ran.err
    assert tussock("vacuum", "--grace", "0").code == 0
    assert tussock("check", "--store", target).code == 1


def test_check_reads_ssts_that_only_backups_name(tussock: Tussock, own: Sample, tmp_path: Path) -> None:
    """SSTs of backups are no orphans, and damage to them or to the backup's object is a problem."""
    tussock("backup", "create", "nightly")
    replace_all(own.url)
    document = tussock("check", "--json").json()
    assert (document["ok"], document["orphans"], document["checked"]["backups"]) == (True, 0, 1)
    folder = tmp_path / "own"
    (path,) = (folder / "backup").iterdir()
    held = sorted((folder / "sst").iterdir())[0]
    data = held.read_bytes()
    held.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    assert held.name in str(tussock("check", "--json").json()["problems"])
    held.write_bytes(data)
    (folder / "backup" / "readme").write_text("x")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    problems = tussock("check", "--json").json()["problems"]
    assert {problem["object"] for problem in problems} == {"backup/readme", f"backup/{path.name}"}
    path.unlink()
    assert "delete the backup" in str(tussock("check", "--json").json()["problems"])
