"""A flipped bit, a cut, missing or foreign object in a whole store: a right answer, or an error that names it."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support import inside
from support.store.stores import changes_of, pairs
from tussock.compactor.sst_repair import SstRepair
from tussock.statestore import CorruptLog, CorruptObject, CorruptSst, StateStore, connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import meta_object, object_sizes

ROWS = [(b"%04d" % at, b"value %d" % at * 3) for at in range(300)]
OLD = [(key, b"old") for key, _ in ROWS[::2]]
ONE_OBJECT_BYTES = 1000
"""The spilled SSTs of the second epoch are one object each, the others two."""
KINDS = ["sst data", "sst meta", "small sst", "log entry", "newest log entry", "snapshot", "marker", "pin"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of file: two tables, spilled and compacted SSTs, snapshots, a marker, a pin."""
    folder = tmp_path_factory.mktemp("whole")
    limits = Limits(one_object_bytes=ONE_OBJECT_BYTES)
    with connect(folder.as_uri(), buffer_bytes=500, compaction=False, limits=limits) as store:
        inside.base_every(inside.version_log(inside.backend(store)), 3)
        for name in ("kv", "other"):
            store.create_table(name, block_bytes=512)
        for rows in (OLD, ROWS[:100], ROWS[100:]):
            epoch = store.new_epoch()
            for name in ("kv", "other"):
                store.table(name).ingest_batch(rows[: len(rows) // 2], epoch)
                store.table(name).ingest_batch(rows[len(rows) // 2 :], epoch)
            store.commit_epoch(epoch)
            if rows is OLD:
                for name in ("kv", "other"):
                    store.compact(name)
        (folder / "log" / "boundary").mkdir(exist_ok=True)
        (folder / "log" / "boundary" / f"{1:020d}").write_bytes(b"1")
        store.pin_snapshot()
        # Not closed in the usual way, which would take the pin along.
        pin = next((folder / "pins").iterdir())
        kept = pin.read_bytes()
    pin.write_bytes(kept)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of the store that the test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "state"))


def victims(folder: Path, kind: str) -> list[Path]:
    """The store's files of one kind that belong to the table `kv`, or to the store as a whole."""
    with connect(folder.as_uri(), compaction=False) as store:
        state = store.version().find_table("kv")
        assert state is not None
        paths = [folder / path for sst in state.levels.ssts() for path in object_sizes(sst)]
        small = [folder / meta_object(sst) for sst in state.levels.ssts() if sst.meta_in_data]
    match kind:
        case "small sst":
            return small
        case "sst data" | "sst meta":
            return [path for path in paths if path.suffix == f".{kind.removeprefix('sst ')}" and path not in small]
        case "log entry":
            return sorted((folder / "log").glob("*.delta"))[:-1]
        case "newest log entry":
            return sorted((folder / "log").glob("*.delta"))[-1:]
        case "snapshot":
            return sorted((folder / "snapshot").iterdir())
        case "marker":
            return sorted((folder / "log" / "boundary").iterdir())
        case _:
            return sorted((folder / "pins").iterdir())


def read_everything(store: StateStore) -> None:
    """Read the damaged table in every way; each answer has to be the right one."""
    kv = store.table("kv")
    assert pairs(kv.scan()) == ROWS
    assert pairs(kv.scan(reverse=True)) == ROWS[::-1]
    assert kv.multi_get([key for key, _ in ROWS]).to_pylist() == [value for _, value in ROWS]
    assert [kv.get(key) for key, _ in ROWS[::20]] == [value for _, value in ROWS[::20]]
    assert kv.get(b"absent") is None
    assert len(changes_of(kv)) == len(ROWS) + len(OLD)
    store.pins()
    with store.pin_snapshot() as snapshot:
        assert pairs(snapshot.table("kv").scan(limit=3)) == ROWS[:3]


def outcome(call: Callable[[], object]) -> CorruptObject | None:
    """The error that reports damage, if there is one; any other error is a failure of the test."""
    try:
        call()
    except CorruptObject as error:
        return error
    return None


def answers_or_names(folder: Path, victim: Path) -> bool:
    """Open and read the store; returns whether all was right, and otherwise checks that the error names the object."""
    name = victim.relative_to(folder).as_posix()
    stores: list[StateStore] = []
    refusal = outcome(lambda: stores.append(connect(folder.as_uri(), cache_bytes=0, compaction=False)))
    if refusal is not None:
        assert isinstance(refusal, CorruptLog)
        assert name in str(refusal)
        return False
    with stores[0] as store:
        error = outcome(lambda: read_everything(store))
        if error is None:
            return True
        assert name in str(error)
        assert isinstance(error, CorruptSst) == name.startswith("sst/")
        assert pairs(store.table("other").scan()) == ROWS, "other tables stay readable"
        again = outcome(lambda: (store.compact("kv"), read_everything(store)))
        assert name.rpartition(".")[0] in str(again), "a compaction neither hides nor spreads the damage"
        return False


def flip(data: bytes, seed: int) -> bytes:
    place = random.Random(seed).randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << seed % 8)]) + data[place + 1 :]


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "one bit": flip,
    "one bit more": lambda data, seed: flip(data, seed + 1000),
    "cut by one": lambda data, _: data[:-1],
    "cut in half": lambda data, _: data[: len(data) // 2],
    "longer": lambda data, _: data + b"\0",
    "empty": lambda data, _: b"",
    "foreign": lambda data, seed: random.Random(seed).randbytes(len(data)),
    "zeroes": lambda data, _: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_survived_or_named(folder: Path, kind: str, damage: Callable[[bytes, int], bytes]) -> None:
    """Each file of the kind in turn: never a wrong answer, never another error, and other tables stay readable."""
    outcomes = []
    for seed, victim in enumerate(victims(folder, kind)):
        intact = victim.read_bytes()
        victim.write_bytes(damage(intact, seed))
        outcomes.append(answers_or_names(folder, victim))
        victim.write_bytes(intact)
    assert outcomes
    if kind == "snapshot":
        assert outcomes[0], "an older snapshot is not needed, and one that is damaged is a cache that is lost"
    assert answers_or_names(folder, folder / "none")


@pytest.mark.parametrize("kind", ["sst data", "sst meta", "small sst"])
def test_every_single_bit_of_an_sst_is_survived_or_named(folder: Path, kind: str) -> None:
    """One bit at 60 places of one file, the first and last bytes among them."""
    victim = victims(folder, kind)[0]
    intact = victim.read_bytes()
    places = {*range(12), *range(len(intact) - 12, len(intact))}
    places |= {random.Random(7 * at).randrange(len(intact)) for at in range(36)}
    named = 0
    for place in sorted(places):
        victim.write_bytes(intact[:place] + bytes([intact[place] ^ 16]) + intact[place + 1 :])
        named += not answers_or_names(folder, victim)
    assert named >= len(places) - 12, "only a head that no reader needs may be damaged unseen"


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_object_is_survived_or_named(folder: Path, kind: str) -> None:
    """All but the newest log entry, whose absence cannot be noticed: then the previous version is read."""
    for victim in victims(folder, kind):
        intact = victim.read_bytes()
        victim.unlink()
        if kind == "newest log entry":
            with connect(folder.as_uri()) as store:
                assert store.tables() == ["kv", "other"]
        else:
            answers_or_names(folder, victim)
        victim.write_bytes(intact)


def test_a_hole_in_the_log_is_not_taken_for_its_end(folder: Path) -> None:
    """Without snapshots every missing entry but the last is named; with them only the needed ones."""
    shutil.rmtree(folder / "snapshot")
    shutil.rmtree(folder / "log" / "boundary")
    for victim in victims(folder, "log entry"):
        intact = victim.read_bytes()
        victim.unlink()
        with pytest.raises(CorruptLog, match=victim.name):
            connect(folder.as_uri())
        victim.write_bytes(intact)
    assert answers_or_names(folder, folder / "none")


def test_swapped_metas_of_two_ssts_are_named(folder: Path) -> None:
    """Each is intact, and each is the wrong one."""
    first, second, *_ = victims(folder, "sst meta")
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    with (
        connect(folder.as_uri(), compaction=False) as store,
        pytest.raises(CorruptSst, match=f"{first.name}|{second.name}"),
    ):
        pairs(store.table("kv").scan())


@pytest.mark.parametrize("kind", ["sst data", "small sst"])
def test_swapped_data_of_two_ssts_is_named(folder: Path, kind: str) -> None:
    """Every block has its checksum in the meta, and the meta its SST's id."""
    first, second, *_ = victims(folder, kind)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    with (
        connect(folder.as_uri(), compaction=False) as store,
        pytest.raises(CorruptSst, match=f"{first.name}|{second.name}"),
    ):
        pairs(store.table("kv").scan())


@pytest.mark.parametrize("kind", ["sst data", "sst meta", "small sst"])
def test_a_repair_lets_all_be_read_whatever_was_damaged(folder: Path, kind: str) -> None:
    """Flipped, cut or gone: afterwards no read fails, what can be read was written once, and merges go on."""
    dice = random.Random(kind)
    written = {*ROWS, *OLD}
    for path in victims(folder, kind):
        data = bytearray(path.read_bytes())
        match dice.randrange(4):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(data[: dice.randrange(len(data))])
            case _:
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
                path.write_bytes(data)
    bucket = open_bucket(folder.as_uri())
    mending = SstRepair(bucket, RealSystem(), owner="repair", open_source=open_bucket)
    for state, sst in mending.named():
        damaged = mending.examine(state, sst)
        if damaged is not None:
            mending.put_aside(damaged)
    mending.close()
    with connect(folder.as_uri(), compaction=False) as store:
        assert store.version().losses
        assert written.issuperset(pairs(store.table("kv").scan()))
        assert pairs(store.table("other").scan()) == ROWS
        store.compact("kv")
        store.vacuum()
        assert written.issuperset(pairs(store.table("kv").scan()))
