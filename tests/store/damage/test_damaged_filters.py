"""A store whose filters lie apart: damage of them is named, hides no row, and goes with a compaction or a repair."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.store.stores import pairs
from tussock.compactor.sst_repair import SstRepair
from tussock.statestore import CorruptSst, StateStore, connect, restore
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, meta_path

LIMITS = Limits(whole_filter_bytes=40, one_object_bytes=0, commit_payload_bytes=1)
"""Filters of more than 32 keys lie apart, in parts of up to 8 bytes of bits."""
OLD = [(b"%04d" % at, b"old %d" % at) for at in range(0, 600, 2)]
NEW = [(b"%04d" % at, b"new %d" % at) for at in range(0, 600, 6)]
ROWS = sorted((dict(OLD) | dict(NEW)).items())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of one table in two runs."""
    folder = tmp_path / "state"
    with connect(folder.as_uri(), compaction=False, limits=LIMITS) as store:
        store.create_table("kv", block_bytes=512)
        for rows in (OLD, NEW):
            store.table("kv").ingest_batch(rows, epoch := store.new_epoch())
            store.commit_epoch(epoch)
    return folder


def ssts(folder: Path) -> list[SstInfo]:
    """Of the table, the newest first."""
    with connect(folder.as_uri(), compaction=False) as store:
        state = store.version().find_table("kv")
        assert state is not None
        return list(state.levels.ssts())


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << at % 8
    path.write_bytes(bytes(data))


def read_everything(store: StateStore) -> None:
    """By key, present and absent, alone and together, and as ranges; each answer has to be the right one."""
    kv, expected = store.table("kv"), dict(ROWS)
    keys = [b"%04d" % at for at in range(600)]
    for key in keys[::7]:
        assert kv.get(key) == expected.get(key)
    assert kv.multi_get(keys).to_pylist() == [expected.get(key) for key in keys]
    assert pairs(kv.scan()) == ROWS


def outcome(folder: Path, read: Callable[[StateStore], object] = read_everything) -> str:
    """What a new client says of damage; empty if all was right."""
    with connect(folder.as_uri(), compaction=False, limits=LIMITS) as store:
        try:
            read(store)
        except CorruptSst as error:
            return str(error)
    return ""


def test_filters_that_lie_apart_are_written_and_read(folder: Path) -> None:
    """By commits and by compactions; their records say where the parts are, and reads find what there is."""
    newest, oldest = ssts(folder)
    assert (newest.filter_parts, oldest.filter_parts) == (16, 64)
    assert outcome(folder) == ""
    with connect(folder.as_uri(), compaction=False, limits=LIMITS) as store:
        store.compact("kv")
    (merged, *_) = ssts(folder)
    assert (merged.rows, merged.filter_parts) == (len(ROWS), 64)
    assert outcome(folder) == ""


@pytest.mark.parametrize("number", [0, 1], ids=["the newest run", "the oldest run"])
def test_every_bit_of_a_filter_is_survived_or_named(folder: Path, number: int) -> None:
    """A flipped bit at any of 60 places: a right answer, or an error that names the object and the part."""
    sst = ssts(folder)[number]
    path = folder / meta_path(sst.id)
    places = random.Random(number).sample(range(sst.head_bytes, sst.meta_bytes), 60)
    named = 0
    for at in [sst.head_bytes, sst.meta_bytes - 1, *places]:
        flip(path, at)
        said = outcome(folder)
        part = (at - sst.head_bytes) * sst.filter_parts // (sst.meta_bytes - sst.head_bytes)
        assert said == "" or f"{meta_path(sst.id)} part {part} of the filter: checksum mismatch" in said
        named += bool(said)
        assert outcome(folder, lambda store: pairs(store.table("kv").scan()) == ROWS or pytest.fail("rows")) == ""
        flip(path, at)
    assert named > 50, "reads of all keys ask most parts"
    assert outcome(folder) == ""


@pytest.mark.parametrize("cut", ["the head", "the filter", "all but a byte"])
def test_a_cut_meta_is_named(folder: Path, cut: str) -> None:
    """In the head no row is found; in the filter, ranges still are."""
    sst = ssts(folder)[0]
    path = folder / meta_path(sst.id)
    data = path.read_bytes()
    path.write_bytes(data[: {"the head": sst.head_bytes - 1, "the filter": sst.head_bytes + 30}.get(cut, -1)])
    assert meta_path(sst.id) in outcome(folder)
    scanned = outcome(folder, lambda store: pairs(store.table("kv").scan()))
    assert (meta_path(sst.id) in scanned) == (cut == "the head")


def test_a_compaction_makes_a_damaged_filter_anew(folder: Path) -> None:
    """It needs no filter of its inputs, and no row is missing afterwards."""
    for sst in ssts(folder):
        flip(folder / meta_path(sst.id), sst.meta_bytes - 9)
        flip(folder / meta_path(sst.id), sst.head_bytes)
    assert "of the filter" in outcome(folder)
    with connect(folder.as_uri(), compaction=False, limits=LIMITS) as store:
        store.compact("kv")
    assert outcome(folder) == ""


def test_a_damaged_block_beside_a_damaged_filter_is_all_that_is_lost(folder: Path) -> None:
    """One repair takes care of both: what can be read of the SST has a new filter."""
    sst = ssts(folder)[1]
    flip(folder / meta_path(sst.id), sst.head_bytes + 40)
    flip(folder / f"sst/{sst.id}.data", 100)
    mending = SstRepair(open_bucket(folder.as_uri()), RealSystem(), owner="repair", open_source=open_bucket)
    damaged = [found for state, one in mending.named() if (found := mending.examine(state, one)) is not None]
    assert [(one.blocks, one.loss.sst.id) for one in damaged] == [((0,), sst.id)]
    loss = mending.put_aside(damaged[0])
    mending.close()
    assert 0 < loss.rows < sst.rows
    with connect(folder.as_uri(), compaction=False) as store:
        kept = pairs(store.table("kv").scan())
    assert set(ROWS).issuperset(kept)
    assert len(kept) >= len(ROWS) - loss.rows


def test_a_backup_is_restored_with_its_filters(folder: Path, tmp_path: Path) -> None:
    """Every part is copied and verified: a damaged one ends the restore, by name."""
    with connect(folder.as_uri(), compaction=False, limits=LIMITS) as store:
        store.backup("b")

    def restored() -> None:
        restore(folder.as_uri(), "b", (tmp_path / "copy").as_uri())

    sst = ssts(folder)[0]
    source = folder / meta_path(sst.id)
    flip(source, sst.head_bytes + 7)
    with pytest.raises(CorruptSst, match=f"{meta_path(sst.id)} part 0 of the filter"):
        restored()
    flip(source, sst.head_bytes + 7)
    restored()
    assert outcome(tmp_path / "copy") == ""
    assert [one.filter_parts for one in ssts(tmp_path / "copy")] == [16, 64]
    assert (tmp_path / "copy" / meta_path(sst.id)).read_bytes() == source.read_bytes()
