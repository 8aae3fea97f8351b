"""`tussock repair` on stores in folders and in memory, beside another process that has the store open."""

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from support.store.command import Tussock
from support.store.stores import OBJECTS, pairs
from tussock.meta.log.format import base_path, encode_base
from tussock.meta.version.invariants import problems
from tussock.meta.version.ledger import WriterRecord
from tussock.meta.version.version import Version
from tussock.statestore import ClockAhead, InvalidOption, SnapshotExpired, StateStore, connect, repair_clock
from tussock.statestore.base.system import RealSystem
from tussock.statestore.epochs import MAX_EPOCH, epoch_ms

FOREVER = 1e15


def commit(store: StateStore, value: bytes, epoch: int | None = None) -> int:
    epoch = store.new_epoch() if epoch is None else epoch
    store.table("kv").ingest_batch([(value, value), (b"k", value)], epoch)
    return store.commit_epoch(epoch, writer="w", batch_id=int(value))


def brick(url: str) -> StateStore:
    """A store with epochs up to the largest possible one, some of them compacted."""
    store = connect(url, compaction=False, max_clock_ahead=FOREVER, retention=0, gc_grace=0)
    store.create_table("kv")
    commit(store, b"1")
    commit(store, b"2", MAX_EPOCH - 7)
    commit(store, b"3", MAX_EPOCH - 1)
    store.compact("kv")
    commit(store, b"4", MAX_EPOCH)
    return store


def check_repaired(url: str) -> None:
    with connect(url, compaction=False, retention=0, gc_grace=0) as store:
        kv = store.table("kv")
        assert pairs(kv.scan()) == [(b"1", b"1"), (b"2", b"2"), (b"3", b"3"), (b"4", b"4"), (b"k", b"4")]
        assert store.committed_batch("w", 4) == store.committed_epoch
        assert abs(epoch_ms(commit(store, b"5")) - RealSystem().now_ms()) < 3600_000
        store.compact("kv")
        (sst,) = store.version().find_table("kv").levels.ssts()  # type: ignore[union-attr]
        assert sst.rows == len(pairs(kv.scan())) == 6
        store.vacuum()
        assert kv.get(b"k") == b"5"


def test_a_bricked_store_is_repaired(tussock: Tussock, tmp_path: Path) -> None:
    """The command says what it would do, then does it, then finds nothing to do; the store is sound afterwards."""
    url = (tmp_path / "state").as_uri()
    brick(url).close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    said = tussock("repair", "clock", "--store", url, "--dry-run", "--json").json()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (said["needed"], said["old"], said["dry_run"]) == (True, [MAX_EPOCH - 7, MAX_EPOCH], True)
    assert "Would give 3 epochs new numbers" in tussock("repair", "clock", "--store", url, "--dry-run").out
    done = tussock("repair", "clock", "--store", url)
    assert (done.code, "Gave 3 epochs new numbers: " in done.out) == (0, True)
    assert "1 SST," in done.out
    assert tussock("check", "--store", url).code == 0
    assert "Nothing is ahead" in tussock("repair", "clock", "--store", url).out
    assert "repair the clock: epochs above" in tussock("log", "--store", url).out
    check_repaired(url)
    assert tussock("check", "--store", url).code == 0


def test_a_store_in_memory_is_repaired_by_the_python_function() -> None:
    """Other clients in the same process follow."""
    with brick("memory://repaired-clock") as store:
        assert repair_clock("memory://repaired-clock", dry_run=True).epochs == 3
        done = repair_clock("memory://repaired-clock")
        assert (done.epochs, done.rewritten) == (3, 1)
        assert store.committed_epoch == done.new[1]
        check_repaired("memory://repaired-clock")


def test_a_client_in_another_process_follows(tmp_path: Path) -> None:
    """It reads on; an epoch that it remembers or was given is refused, and then it commits at present ones."""
    url = (tmp_path / "state").as_uri()
    brick(url).close()
    with connect(url, compaction=False) as store:
        kv = store.table("kv")
        noted = store.committed_epoch
        scan = kv.scan()
        command = [Path(sys.executable).with_name("tussock"), "repair", "clock", "--store", url]
        subprocess.run(command, check=True, capture_output=True)
        assert len(pairs(scan)) == 5
        store.version()
        assert kv.get(b"k") == b"4"
        with pytest.raises(SnapshotExpired, match=f"epoch {noted} was far ahead"):
            kv.get(b"k", epoch=noted)
        kv.ingest_batch([(b"k", b"lost")], noted - 1)
        with pytest.raises(ClockAhead):
            store.commit_epoch(noted - 1)
        store.abort_epoch(noted - 1)
        assert abs(epoch_ms(commit(store, b"5")) - RealSystem().now_ms()) < 3600_000


def test_a_refused_repair_says_why(tussock: Tussock, tmp_path: Path) -> None:
    """A snapshot is held; the URL is a meta service's; there is no store; an option makes no sense."""
    url = (tmp_path / "state").as_uri()
    with brick(url) as store:
        with store.pin_snapshot():
            held = tussock("repair", "clock", "--store", url)
        assert (held.code, "holds a snapshot at epoch" in held.err, "nothing changed" in held.err) == (1, True, True)
        assert store.committed_epoch == MAX_EPOCH
    platform = tussock("repair", "clock", "--store", "tussock://host:1")
    assert (platform.code, "stop the service" in platform.err) == (1, True)
    assert tussock("repair", "clock", "--store", (tmp_path / "nothing").as_uri()).code == 2
    for wrong in ({"max_clock_ahead": -1.0}, {"dry_run": "yes"}):
        with pytest.raises(InvalidOption, match=next(iter(wrong))):
            repair_clock(url, **wrong)  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidOption, match="no store to repair"):
        repair_clock((tmp_path / "empty").as_uri())


def test_names_of_writers_are_forgotten_once_somebody_agrees(
    tussock: Tussock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it means is said first; a name that is not there is told."""
    url = (tmp_path / "store").as_uri()
    with connect(url) as store:
        assert [store.open_writer(name) for name in ("a", "a", "b")] == [1, 2, 1]
    words = ("repair", "writers", "a", "nobody", "--idle", "0", "--store", url)
    for answer in ("", "no\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        asked = tussock(*words)
        assert (asked.code, "Nothing was changed." in asked.err) == (1, True)
        assert "A batch that one of them repeats later is stored once more" in asked.err
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    ran = tussock(*words)
    assert (ran.code, "Forgot 1 writer." in ran.out) == (0, True)
    assert "no writer 'nobody'" in ran.err
    said = tussock("repair", "writers", "a", "b", "--idle", "0", "--yes", "--json", "--store", url).json()
    assert (said["forgotten"], said["unknown"], said["active"]) == (["b"], ["a"], [])
    assert said["base_bytes_after"] < said["base_bytes"]
    with connect(url) as store:
        assert store.open_writer("a") == 3


def test_writers_that_were_active_lately_are_not_forgotten(tussock: Tussock, tmp_path: Path) -> None:
    """One that is named ends the command; of those that begin alike they stay, and a dry run changes nothing."""
    url = (tmp_path / "store").as_uri()
    with connect(url) as store:
        store.create_table("kv")
        commit(store, b"1")
        store.open_writer("run-1")
    before = files_of(url)
    named = tussock("repair", "writers", "w", "--yes", "--store", url)
    assert (named.code, "writer 'w' (of 1 such)" in named.err, "nothing was forgotten" in named.err) == (1, True, True)
    for word in ("run-", ""):
        ran = tussock("repair", "writers", "--prefix", word, "--yes", "--store", url)
        assert (ran.code, ran.out.strip()) == (0, "Forgot 0 writers.")
        assert "committed lately, and stay" in ran.err
    looked = tussock("repair", "writers", "--prefix", "run-", "--idle", "0", "--dry-run", "--json", "--store", url)
    assert looked.json()["forgotten"] == ["run-1"]
    assert files_of(url) == before
    for wrong in ((), ("a", "--prefix", "a"), ("a", "--json"), ("a", "--idle", "-1")):
        assert tussock("repair", "writers", *wrong, "--store", url).code == 2


@pytest.mark.slow
def test_fifty_thousand_writers_are_forgotten(tussock: Tussock, tmp_path: Path) -> None:
    """Releases before the limit let a store have them; the newest base version has none of them afterwards."""
    now_ms = RealSystem().now_ms()
    epochs = [(now_ms - 90 * 86_400_000 << 16) + number for number in range(50_000)]
    last = now_ms << 16
    version = Version(
        seq=64,
        max_committed_epoch=last,
        ledger={f"run-{number:05d}": ((7, epoch),) for number, epoch in enumerate(epochs)} | {"run-now": ((1, last),)},
        writers={f"run-{number:05d}": WriterRecord(ranges=((7, 7),), tables=((1,),)) for number in range(25_000)},
        timeline=((now_ms - 90 * 86_400_000, epochs[-1]), (now_ms, last)),
    )
    assert problems(version) == []
    (tmp_path / base_path(64)).parent.mkdir()
    (tmp_path / base_path(64)).write_bytes(encode_base(version))
    url = tmp_path.as_uri()
    said = tussock("repair", "writers", "--prefix", "run-", "--yes", "--json", "--store", url).json()
    assert (len(said["forgotten"]), said["active"]) == (50_000, ["run-now"])
    assert said["base_bytes"] > 1_500_000
    assert said["base_bytes_after"] < 1_000
    with connect(url, compaction=False) as store:
        assert store.committed_batch("run-now", 1) == last
        assert store.committed_batch("run-00001", 7) is None
    entries = sorted((tmp_path / "log").glob("*.delta"))
    assert len(entries) == 50
    assert max(path.stat().st_size for path in entries) < 20_000


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[str, str]:
    """URL of a store with a typed and a raw table, whose newest SST has a damaged block; and the id of that."""
    url = (tmp_path / "damaged").as_uri()
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
    with connect(url, compaction=False, limits=OBJECTS) as store:
        table = store.create_table("orders", schema, ["id"], vnodes=1, block_bytes=256, compression="none")
        for word in ("old", "new"):
            epoch = store.new_epoch()
            table.upsert([{"id": number, "v": word * 10} for number in range(60)], epoch)
            if word == "new":
                table.delete([3], epoch)
            store.commit_epoch(epoch)
        name = store.version().find_table("orders").levels.l0[0].ssts[0].id  # type: ignore[union-attr]
    path = tmp_path / "damaged" / "sst" / f"{name}.data"
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    return url, name


def files_of(url: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(url.removeprefix("file://")).rglob("*") if path.is_file()}


def test_a_damaged_sst_is_put_aside_once_somebody_agrees(
    tussock: Tussock, damaged: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be lost is said first; no answer, or another one than yes, changes nothing."""
    url, name = damaged
    before = files_of(url)
    looked = tussock("repair", "sst", "--store", url, "--dry-run")
    assert looked.code == 0
    for answer in ("", "no\n", "y\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        asked = tussock("repair", "sst", "--store", url)
        assert (asked.code, asked.out) == (1, looked.out)
        assert "Nothing was changed." in asked.err
        assert ("--yes goes on" in asked.err) == (not answer)
    assert files_of(url) == before
    for part in (f"SST {name} of table orders", "checksum mismatch", "(0) of vnode 0 until before (", "1 older SST"):
        assert part in looked.out
    assert "values from before, and rows that were deleted, will be seen again" in looked.err
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    done = tussock("repair", "sst", name[:20], "--store", url)
    assert done.code == 0
    assert f"Put SST {name} aside: " in done.out
    checked = tussock("check", "--store", url)
    assert (checked.code, name in checked.out, "1 damaged SST put aside" in checked.out) == (0, True, True)
    (loss,) = tussock("check", "--store", url, "--json").json()["losses"]
    assert (loss["sst"], loss["kept"], loss["deletes"], loss["table"]) == (name, True, 1, "orders")
    assert tussock("version", "--store", url, "--json").json()["losses"] == [loss]
    assert f"put damaged SST {name} of orders aside" in tussock("log", "--store", url).out
    assert "DAMAGED" in tussock("sst", "dump", name, "--store", url).out
    with connect(url, compaction=False) as store:
        assert store.table("orders").get(3) == {"id": 3, "v": "old" * 10}
        assert store.version().losses[0].rows == loss["rows"]
    assert tussock("repair", "sst", "--store", url).out.strip() == "Nothing is damaged that a read needs."


def test_a_check_says_that_only_a_backup_needs_what_was_put_aside(tussock: Tussock, damaged: tuple[str, str]) -> None:
    """After an accepted loss, backups that have the damaged SST are why a check still ends with 1."""
    url, name = damaged
    for backup in ("before", "again"):
        assert tussock("backup", "create", backup, "--store", url).code == 0
    (problem,) = tussock("check", "--store", url, "--json").json()["problems"]
    assert "no table" not in problem["problem"]
    tussock("repair", "sst", name, "--yes", "--store", url)
    checked = tussock("check", "--store", url, "--json")
    (problem,) = checked.json()["problems"]
    assert (checked.code, name in problem["object"]) == (1, True)
    assert problem["problem"].endswith("; backup 'before' (and 1 more) has it, and no table"), problem
    for backup in ("before", "again"):
        tussock("backup", "delete", backup, "--store", url)
    assert tussock("check", "--store", url).code == 0


def test_a_damaged_sst_that_was_put_aside_is_discarded(tussock: Tussock, damaged: tuple[str, str]) -> None:
    """With --json nobody is asked, so it goes with --yes; the loss stays noted after a vacuum."""
    url, name = damaged
    (looked,) = tussock("repair", "sst", "--store", url, "--dry-run", "--json").json()["losses"]
    assert (looked["sst"], looked["seq"], looked["at"], looked["by"]) == (name, None, None, None)
    made = tussock("repair", "sst", "--store", url, "--yes", "--json").json()
    (loss,) = made["losses"]
    assert (made["checked"], made["refused"], loss["saved"] is not None, loss["backups"]) == (2, [], True, [])
    refused = tussock("repair", "sst", "00", "--discard", "--yes", "--store", url)
    assert (refused.code, "not one that was put aside" in refused.err) == (1, True)
    gone = tussock("repair", "sst", name[:16], "--discard", "--yes", "--store", url)
    assert (gone.code, "The losses stay noted" in gone.out) == (0, True)
    tussock("vacuum", "--store", url, "--grace", "0")
    assert not any(name in path.name for path in files_of(url))
    assert [one["kept"] for one in tussock("check", "--store", url, "--json").json()["losses"]] == [False]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--json",), 2, "it goes with --yes or with --dry-run"),
        (("--discard", "--yes"), 2, "--discard takes the ids"),
        (("ff", "--yes"), 1, "no table has SST ff"),
        (("0", "--yes"), 1, "2 SSTs have an id that begins with '0'"),
    ],
)
def test_wrong_usage_of_the_repair_of_ssts_changes_nothing(
    tussock: Tussock, damaged: tuple[str, str], words: tuple[str, ...], code: int, said: str
) -> None:
    """The message says what to give; a meta service is sent to the URL of its bucket."""
    url, _ = damaged
    before = files_of(url)
    ran = tussock("repair", "sst", *words, "--store", url)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert files_of(url) == before
    platform = tussock("repair", "sst", "--store", "tussock://host:1")
    assert (platform.code, "give the URL of its bucket" in platform.err) == (1, True)
