"""`tussock check`: a sound store passes, and each kind of damage is listed under the name of its object."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from support.store.command import ORDERS, Tussock, order
from tussock.meta.log.format import (
    base_path,
    decode_base,
    decode_entry,
    encode_base,
    encode_entry,
    encode_pin,
    entry_path,
    lease_path,
    marker_path,
)
from tussock.meta.log.leases import LeaseRecord, encode_lease
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.statestore import connect
from tussock.statestore.base.limits import Limits
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.format import bloom
from tussock.statestore.format.meta import BlockIndex, SstMeta, encode_meta

COMMITS = 74
MARKED = 10
"""Entries up to this one are truncated away."""
PIN = f"pins/{1:020d}-{'ab' * 8}"


@pytest.fixture(scope="module")
def _sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of object: entries on both sides of a snapshot, a marker, a pin, SSTs of all kinds."""
    folder = tmp_path_factory.mktemp("check") / "store"
    with connect(
        folder.as_uri(), compaction=False, limits=Limits(one_object_bytes=300, commit_payload_bytes=1)
    ) as store:
        kv = store.create_table("kv", block_bytes=512)
        small = store.create_table("small")
        orders = store.create_table("orders", schema=ORDERS, primary_key=["day", "id"], distribution_key=["day"])
        for batch in range(COMMITS):
            epoch = store.new_epoch()
            if batch % 25 == 0:
                kv.ingest_batch(
                    [(f"k{batch + n:04d}".encode(), b"v" * 20 if n % 9 else None) for n in range(60)], epoch
                )
            if batch in (10, 40):
                small.ingest_batch([(b"s%d" % n, b"%d" % batch) for n in range(3)], epoch)
            if batch % 30 == 0:
                orders.upsert([order(1 + n % 9, n, "note", "1.00") for n in range(40)], epoch)
            store.commit_epoch(epoch, writer="job", batch_id=batch)
        store.compact("orders")
    for seq in range(1, MARKED + 1):
        (folder / entry_path(seq)).unlink()
    (folder / "log/boundary").mkdir(exist_ok=True)
    (folder / marker_path(MARKED)).write_bytes(str(MARKED).encode())
    (folder / "pins").mkdir(exist_ok=True)
    pin = PinInfo(id=PIN.removeprefix("pins/"), epoch=1, owner="test", created_ms=1, expires_ms=2)
    (folder / PIN).write_bytes(encode_pin(pin))
    (folder / "leader").mkdir(exist_ok=True)
    lease = LeaseRecord(term=4, holder="test", address="meta-0:7370", lease_ms=3000)
    (folder / lease_path(4)).write_bytes(encode_lease(lease))
    return folder


@pytest.fixture
def store(_sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to damage; `TUSSOCK_STORE` points to it."""
    folder = tmp_path / "store"
    shutil.copytree(_sound, folder)
    monkeypatch.setenv("TUSSOCK_STORE", folder.as_uri())
    return folder


def sst(tussock: Tussock, table: str, kind: str, at: int = 0) -> str:
    """Path of an object of one of the table's SSTs."""
    found = tussock("ssts", table, "--json").json()["ssts"][at]
    assert found["meta_in_data"] == (table == "small")
    return f"sst/{found['id']}.{kind}"


def problems_found(tussock: Tussock) -> dict[str, str]:
    """The problem of each damaged object, the same in both outputs; the exit code has to be 1."""
    ran, shown = tussock("check", "--json"), tussock("check")
    assert (ran.code, shown.code, ran.err, shown.err) == (1, 1, "", "")
    document = ran.json()
    assert document["ok"] is False
    for problem in document["problems"]:
        assert problem["object"] in shown.out
    assert f"{len(document['problems'])} problem" in shown.out
    return {problem["object"]: problem["problem"] for problem in document["problems"]}


def test_a_sound_store_passes(tussock: Tussock, store: Path) -> None:
    """All objects are read, and nothing is found."""
    ran = tussock("check", "--json")
    assert ran.code == 0
    document = ran.json()
    assert (document["ok"], document["problems"]) == (True, [])
    checked = document["checked"]
    assert (checked["snapshots"], checked["pins"], checked["leases"], checked["SSTs"]) == (1, 1, 1, 7)
    assert checked["log entries"] == len(list((store / "log").glob("*.delta")))
    assert checked["rows"] == 3 * 60 + 3 * 40 + 2 * 3
    assert checked["blocks"] > 9
    assert (document["orphans"], document["dropped"]) == (0, 6)
    assert "No problems found." in tussock("check").out


SECTIONS: dict[str, tuple[Callable[[Tussock], str], tuple[int, ...]]] = {
    "data header": (lambda t: sst(t, "kv", "data"), (0, 4, 6)),
    "data block, its trailer, its checksum": (lambda t: sst(t, "kv", "data"), (8, 40, -10, -6, -1)),
    "data of a compacted SST": (lambda t: sst(t, "orders", "data"), (9, -1)),
    "meta: magic, version, length, payload, checksum": (lambda t: sst(t, "orders", "meta"), (0, 4, 6, 8, 60, -1)),
    "SST of one object: header, block, meta, its length": (
        lambda t: sst(t, "small", "data"),
        (0, 4, 8, 60, -99, -8, -1),
    ),
    "log entry before a snapshot": (lambda _: entry_path(30), (0, 4, 6, 8, 16, 24, -1)),
    "newest log entry": (lambda _: entry_path(79), (0, 4, 6, 8, 16, 24, -1)),
    "snapshot": (lambda _: base_path(64), (0, 4, 6, 8, 16, 24, -1)),
    "pin": (lambda _: PIN, (0, 4, 6, 8, 16, 24, -1)),
    "marker": (lambda _: marker_path(MARKED), (0,)),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_flipped_byte_is_found(tussock: Tussock, store: Path, section: str) -> None:
    """One changed byte in any section of any kind of object is listed under its path."""
    where, offsets = SECTIONS[section]
    path = where(tussock)
    whole = (store / path).read_bytes()
    for offset in offsets:
        broken = bytearray(whole)
        broken[offset] ^= 0x41
        (store / path).write_bytes(broken)
        assert path in problems_found(tussock), f"offset {offset}"


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("left", [0, -1])
def test_a_truncated_object_is_found(tussock: Tussock, store: Path, section: str, left: int) -> None:
    """An object that lost its end, or all of its bytes, is listed under its path."""
    path = SECTIONS[section][0](tussock)
    (store / path).write_bytes((store / path).read_bytes()[:left])
    assert path in problems_found(tussock)


@pytest.mark.parametrize(
    "section", [name for name in SECTIONS if name.startswith(("data", "meta", "SST", "log entry"))]
)
def test_a_missing_object_is_found(tussock: Tussock, store: Path, section: str) -> None:
    """An object that must be there and is not is listed under the path that it should have."""
    path = SECTIONS[section][0](tussock)
    (store / path).unlink()
    assert "missing" in problems_found(tussock)[path]


def test_a_missing_snapshot_is_found(tussock: Tussock, store: Path) -> None:
    """Once entries were truncated, the log is useless without a snapshot of that entry or a later one."""
    (store / base_path(64)).unlink()
    assert "no later base version is readable" in problems_found(tussock)[base_path(MARKED)]


def test_a_missing_marker_shows_as_missing_entries(tussock: Tussock, store: Path) -> None:
    """Without the marker nothing says that the first entries were truncated."""
    (store / marker_path(MARKED)).unlink()
    assert f"up to {MARKED}" in problems_found(tussock)[entry_path(1)]


FOREIGN = (
    "sst/readme",
    "sst/00.data",
    "log/notes.delta",
    "snapshot/latest",
    "log/boundary/x",
    "pins/mine",
    "leader/mine",
    "stray.txt",
)


def test_foreign_objects_are_found(tussock: Tussock, store: Path) -> None:
    """What no store writes is listed, in each folder and beside them."""
    for path in FOREIGN:
        (store / path).write_bytes(b"hello")
    assert set(FOREIGN) == set(problems_found(tussock))


def test_the_operators_marker_is_not_foreign(tussock: Tussock, store: Path) -> None:
    """Every store that the operator made has the marker."""
    (store / "tussock-owner").write_bytes(b"{}")
    assert tussock("check").code == 0


def test_foreign_content_under_a_right_name_is_found(tussock: Tussock, store: Path) -> None:
    """`check` lists an object whose content was replaced by that of another kind of file."""
    paths = [sst(tussock, "kv", "data"), sst(tussock, "kv", "meta", 1), entry_path(40), PIN]
    for path in paths:
        (store / path).write_bytes(b"PAR1" + bytes(200))
    assert set(paths) <= set(problems_found(tussock))


@pytest.mark.parametrize(("table", "kind"), [("kv", "meta"), ("kv", "data"), ("small", "data")])
def test_swapped_objects_are_found(tussock: Tussock, store: Path, table: str, kind: str) -> None:
    """Two SSTs whose metas, or data, were exchanged are both listed: each is intact, but not where it stands."""
    one, other = sst(tussock, table, kind, 0), sst(tussock, table, kind, 1)
    content = (store / one).read_bytes()
    (store / one).write_bytes((store / other).read_bytes())
    (store / other).write_bytes(content)
    assert {one, other} <= set(problems_found(tussock))


def test_swapped_entries_are_found(tussock: Tussock, store: Path) -> None:
    """Log entries carry their number, so that an exchange shows."""
    one, other = entry_path(40), entry_path(41)
    content = (store / one).read_bytes()
    (store / one).write_bytes((store / other).read_bytes())
    (store / other).write_bytes(content)
    assert {one, other} <= set(problems_found(tussock))


def test_all_damage_is_listed_at_once(tussock: Tussock, store: Path) -> None:
    """A check never stops at the first problem: objects of every kind, and two blocks of one SST."""
    data = sst(tussock, "kv", "data", 1)
    paths = [data, sst(tussock, "orders", "meta"), entry_path(20), entry_path(50), base_path(64), PIN]
    for path in paths:
        broken = bytearray((store / path).read_bytes())
        broken[30] ^= 1
        broken[-20] ^= 1
        (store / path).write_bytes(broken)
    problems = tussock("check", "--json").json()["problems"]
    # Without the snapshot, the replay cannot go on behind entry 20; what its loss leaves unnamed is looked at, too.
    assert {problem["object"] for problem in problems} >= set(paths)
    shutil.copy(_unbroken(store, base_path(64)), store / base_path(64))
    problems = tussock("check", "--json").json()["problems"]
    assert {problem["object"] for problem in problems} == set(paths) - {base_path(64)}
    assert sum(problem["object"] == data for problem in problems) == 2


def _unbroken(store: Path, path: str) -> Path:
    """A file beside the store with that object's content, the flipped bits flipped back."""
    broken = bytearray((store / path).read_bytes())
    broken[30] ^= 1
    broken[-20] ^= 1
    aside = store.parent / "aside"
    aside.write_bytes(broken)
    return aside


def test_a_damaged_entry_still_shows_its_deltas(tussock: Tussock, store: Path) -> None:
    """If only the checksum is wrong, the deltas are still shown; `log` shows the entry as damaged, too."""
    path = store / entry_path(70)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert "commit epoch" in problems_found(tussock)[entry_path(70)]
    log = tussock("log")
    assert log.code == 0
    assert "DAMAGED" in log.out
    assert "error" in tussock("log", "--json").lines()[70 - MARKED - 1]
    path.write_bytes(b"TSKL")
    assert "Nothing in its 4 bytes" in problems_found(tussock)[entry_path(70)]


def test_a_snapshot_that_differs_from_the_log_is_found(tussock: Tussock, store: Path) -> None:
    """A later snapshot with a right checksum has to equal the version that the entries give."""
    last = max(int(path.stem) for path in (store / "log").glob("*.delta"))
    first = decode_base(base_path(64), 64, (store / base_path(64)).read_bytes())
    wrong = replace(first, seq=last)
    (store / base_path(last)).write_bytes(encode_base(wrong))
    assert "differs in" in problems_found(tussock)[base_path(last)]
    assert "ledger" in problems_found(tussock)[base_path(last)]


def test_an_entry_that_breaks_a_rule_is_found(tussock: Tussock, store: Path) -> None:
    """An entry with a right checksum is listed if its delta must not follow on the version before it."""
    path = entry_path(70)
    entry = decode_entry(path, 70, (store / path).read_bytes())
    (commit,) = entry.deltas
    assert isinstance(commit, CommitEpoch)
    (store / path).write_bytes(encode_entry(70, replace(entry, deltas=(replace(commit, epoch=1),))))
    assert "breaks a rule" in problems_found(tussock)[path]


def edit_meta(store: Path, path: str, change: Callable[[SstMeta], SstMeta]) -> None:
    """Write a meta anew, with a right checksum."""
    meta = msgspec.msgpack.decode((store / path).read_bytes()[12:-4], type=SstMeta)
    (store / path).write_bytes(encode_meta(change(meta)))


def flip(data: bytes, at: int) -> bytes:
    """Change one byte."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def with_index(meta: SstMeta, **fields: bytes) -> SstMeta:
    """The meta with some of its block index replaced."""
    index: BlockIndex = replace(meta.index, **fields)
    return replace(meta, index=index)


WRONG_METAS: dict[str, tuple[Callable[[SstMeta], SstMeta], str, str]] = {
    "rows": (lambda m: replace(m, rows=m.rows + 1), "meta", "other rows or keys"),
    "deletes": (lambda m: replace(m, deletes=m.deletes + 1), "meta", "deletes: expected 7"),
    "smallest": (lambda m: replace(m, smallest=b"a"), "meta", "smallest: expected k0"),
    "largest": (lambda m: replace(m, largest=b"z"), "meta", "largest: expected k0"),
    "data_bytes": (lambda m: replace(m, data_bytes=m.data_bytes + 1), "meta", "the blocks end at"),
    "block rows": (lambda m: with_index(m, rows=flip(m.index.rows, 0)), "meta", "other rows or keys"),
    "block deletes": (lambda m: with_index(m, deletes=flip(m.index.deletes, 0)), "data", "deletes: the block index"),
    "block crc": (lambda m: with_index(m, crc=flip(m.index.crc, 0)), "data", "block 0"),
    "block epochs": (lambda m: with_index(m, max_epoch=flip(m.index.max_epoch, 0)), "data", "largest epoch"),
    "continues": (lambda m: with_index(m, continues=flip(m.index.continues, 1)), "data", "continues"),
    "first key": (lambda m: with_index(m, first_keys=flip(m.index.first_keys, 0)), "data", "first key"),
    "offset": (lambda m: with_index(m, offset=flip(m.index.offset, 0)), "meta", "block 0 begins at"),
    "bloom": (lambda m: replace(m, bloom=bloom.build(bloom.np.zeros(0, "u8"))), "data", "the bloom filter denies"),
}


@pytest.mark.parametrize("field", WRONG_METAS)
def test_a_meta_that_contradicts_version_or_blocks_is_found(tussock: Tussock, store: Path, field: str) -> None:
    """A meta with a right checksum is compared with the version and with the blocks."""
    change, kind, said = WRONG_METAS[field]
    meta = sst(tussock, "kv", "meta")
    edit_meta(store, meta, change)
    problems = tussock("check", "--json").json()["problems"]
    about = meta.removesuffix("meta") + kind
    assert any(problem["object"] == about and said in problem["problem"] for problem in problems), problems


def test_values_beyond_the_bounds_in_the_meta_are_found(tussock: Tussock, store: Path) -> None:
    """A filter would leave their block unread."""

    def narrow(meta: SstMeta) -> SstMeta:
        assert meta.bounds
        return replace(meta, bounds=tuple(replace(one, high=one.low) for one in meta.bounds))

    edit_meta(store, sst(tussock, "orders", "meta"), narrow)
    data = sst(tussock, "orders", "data")
    assert "block 0 at offset 8: column 'at': the meta says" in problems_found(tussock)[data]


def test_keys_of_another_table_are_found(tussock: Tussock, store: Path) -> None:
    """Typed keys have to be the encoding of their columns, virtual node included."""
    version = decode_base(base_path(64), 64, (store / base_path(64)).read_bytes())
    orders = version.find_table("orders")
    assert orders is not None
    fewer = replace(orders, spec=replace(orders.spec, vnodes=4))
    (store / base_path(64)).write_bytes(encode_base(replace(version, tables={**version.tables, fewer.spec.id: fewer})))
    data = sst(tussock, "orders", "data")
    assert "not the encoding of its key columns" in problems_found(tussock)[data]


def test_orphans_are_counted_and_no_problem(tussock: Tussock, store: Path) -> None:
    """SST objects that no version names may be uploads under way."""
    for kind in ("data", "meta"):
        (store / f"sst/{'f' * 32}.{kind}").write_bytes(b"12345")
    document = tussock("check", "--json").json()
    assert (document["ok"], document["orphans"], document["orphan_bytes"]) == (True, 2, 10)


def test_check_without_a_readable_log_still_answers(tussock: Tussock, store: Path) -> None:
    """If all of the log is gone, the answer says what is left, and nothing is created."""
    shutil.rmtree(store / "log")
    shutil.rmtree(store / "snapshot")
    assert "no entry and no base version" in problems_found(tussock)["log/"]
    document = tussock("check", "--json").json()
    assert (document["seq"], document["orphans"], len(document["problems"])) == (0, 18, 1)
    assert not (store / "log").exists()
