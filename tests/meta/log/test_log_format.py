"""The bytes of the log are frozen: golden files, the document's worked example, and damage of every kind."""

import re
import runpy
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace

from tussock.meta.log.format import (
    base_path,
    decode_backup,
    decode_base,
    decode_entry,
    decode_holder,
    decode_pin,
    encode_base,
    encode_entry,
    encode_pin,
    entry_frame,
    entry_path,
    is_standby_path,
    lease_path,
    marker_path,
    sequence_of,
    standby_path,
    with_ssts,
)
from tussock.meta.log.leases import decode_lease
from tussock.meta.version.deltas.commits import CommitEpoch
from tussock.meta.version.deltas.delta import Delta, advance
from tussock.meta.version.deltas.repair import RepairClock
from tussock.meta.version.deltas.tables import AlterTable
from tussock.meta.version.invariants import problems
from tussock.meta.version.names import WriterNames
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import PinInfo
from tussock.statestore.errors import CorruptLog, NewerFormat

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "log"
NEWEST = 7
ENTRIES = {1: 12, 2: 17, 3: 20, 4: 22, 5: 24, 6: 30, 7: 33}


def golden(name: str, version: int = NEWEST) -> bytes:
    return (GOLDEN / f"v{version}" / name).read_bytes()


def entry(seq: int, version: int = NEWEST) -> bytes:
    return golden(f"{seq:020d}.delta", version)


def test_the_golden_files_are_what_the_writer_writes() -> None:
    """A changed byte is a changed format: that takes a new version and a new folder of golden files."""
    written = runpy.run_path(str(ROOT / "tests" / "golden" / "write_log_v7.py"))["files"]()
    assert written == {path.name: path.read_bytes() for path in (GOLDEN / "v7").iterdir()}


@pytest.mark.parametrize("format_version", ENTRIES)
def test_the_golden_log_replays_to_the_golden_snapshot(format_version: int) -> None:
    """Every version is read for ever; each state of that store is sound, and its entries can be written again."""
    version = Version()
    last = ENTRIES[format_version]
    for seq in range(1, last + 1):
        read = decode_entry("x", seq, entry(seq, format_version))
        assert decode_entry("x", seq, encode_entry(seq, read)) == read
        version = advance(version, read.deltas, term=read.term)
        assert problems(version) == []
    snapshot = golden(f"{last:020d}.snapshot", format_version)
    assert decode_base("x", last, snapshot) == version
    assert decode_base("x", last, encode_base(version)) == version
    decode_pin("pins/00000000000000000002-00000000000000ff", golden("pin", format_version))


def test_the_golden_log_holds_every_kind_of_delta() -> None:
    """A kind without a golden entry could change unseen."""
    kinds = set()
    for path in (GOLDEN / f"v{NEWEST}").glob("*.delta"):
        seq = int(path.name.removeprefix("clone-").removesuffix(".delta"))
        kinds |= {type(delta) for delta in decode_entry("x", seq, path.read_bytes()).deltas}
    kinds |= {type(delta) for delta in decode_entry("x", 4, golden("detached")).deltas}
    kinds |= {type(delta) for name in ("names", "losses") for delta in decode_entry("x", 1, golden(name)).deltas}
    assert kinds == set(get_args(Delta))


def test_names_of_writers_may_be_known_and_forgotten() -> None:
    """What older releases of the format wrote says nothing of who brought a name."""
    version = advance(Version(), decode_entry("x", 1, golden("names")).deltas)
    assert decode_base("x", 1, golden("names.snapshot")) == version
    assert problems(version) == []
    assert {name: (origin.by, origin.opened_ms > 0) for name, origin in version.names.origins.items()} == {
        "job-4": ("ops", True),
        "job-5": ("jobs", False),
    }
    assert version.names.generation_floor == 1
    assert _before(25).names == WriterNames()


def test_version_two_adds_a_term_a_lease_and_a_backup() -> None:
    """A log of version 1 says nothing of these, as if the store had never had a leader."""
    assert decode_entry("x", 9, entry(9, 1)).term == 0
    assert decode_entry("x", 9, entry(9, 2)).term == 3
    version = decode_base("x", 17, golden(f"{17:020d}.snapshot", 2))
    assert (version.term, version.leader_address, version.generations) == (3, "meta-0:7370", {"job-1": 1})
    assert decode_lease("x", 3, golden("lease", 2)).renewals == 17
    name = f"backup/nightly.{'0' * 31}b"
    assert decode_backup(name, golden("backup", 2)).version == version


def test_version_three_has_ssts_in_front_of_the_frame() -> None:
    """The places in the deltas hold each SST's bytes; an entry without SSTs is the frame alone."""
    data = entry(19)
    placed = []
    for delta in decode_entry("x", 19, data).deltas:
        for runs in delta.tables.values():
            placed += [sst for run in runs for sst in run.ssts]
    assert [(sst.entry, sst.offset) for sst in placed] == [(19, 20), (19, 40)]
    parts = [data[sst.offset : sst.offset + sst.data_bytes + sst.meta_bytes] for sst in placed]
    assert parts == [b"blocks of 6|its meta", b"blocks of 7|its meta"]
    frame = entry_frame("x", 19, data)
    assert data == data[:20] + b"".join(parts) + frame
    assert decode_entry("x", 19, frame) == decode_entry("x", 19, data)
    assert with_ssts(19, frame, parts) == data
    assert with_ssts(9, entry(9), []) == entry(9) == entry_frame("x", 9, entry(9))
    version = decode_base("x", 20, golden(f"{20:020d}.snapshot", 3))
    assert [sst.entry for sst in version.dropped][-1] == 19


def test_version_four_has_tables_that_were_altered() -> None:
    """The delta has the table's whole new schema; the older one stays in the SSTs."""
    (altered,) = decode_entry("x", 22, entry(22, 4)).deltas
    assert isinstance(altered, AlterTable)
    spec = decode_base("x", 22, golden(f"{22:020d}.snapshot", 4)).tables[4].spec
    assert spec.schema == altered.schema
    assert spec.arrow_schema().names == ["id", "amount", "note"]


def test_version_five_has_records_of_writers() -> None:
    """A record begins with the first commit that has one; older commits are known by their newest batches."""
    (commit,) = decode_entry("x", 23, entry(23)).deltas
    assert isinstance(commit, CommitEpoch)
    assert commit.recorded
    version = advance(_before(23), [commit], term=3)
    record = version.writers["job-1"]
    assert (record.source, record.ranges) == (commit.source, ((7, 9),))
    assert record.tables == (None, None, (1,))
    assert decode_base("x", 22, golden(f"{22:020d}.snapshot", 4)).writers == {}


def test_version_five_has_repairs_of_clocks() -> None:
    """Epochs of the far future get present numbers, in commits, ledger and timeline; the repair lists them."""
    commit, repair = decode_entry("x", 24, entry(24)).deltas
    assert isinstance(repair, RepairClock)
    version = decode_base("x", 24, golden(f"{24:020d}.snapshot", 5))
    assert version.max_committed_epoch == 8
    assert version.ledger["job-1"][-1] == (10, 8)
    assert version.timeline[-1] == (repair.at_ms, 8)
    assert (version.renumbered.seq, version.renumbered.last) == (24, commit.epoch)
    ids = version.live_sst_ids()
    assert [(old in ids, new.id in ids) for old, new in repair.rewritten.items()] == [(False, True)]
    assert decode_base("x", 22, golden(f"{22:020d}.snapshot", 4)).renumbered is None


def test_version_six_has_history() -> None:
    """Merges part what they supersede, runs of history are merged, and its SSTs expire; older logs have none."""
    assert decode_base("x", 24, golden(f"{24:020d}.snapshot", 5)).tables[1].levels.history == ()
    parted = _before(28).tables[1].levels.history
    assert [sst.until for run in parted for sst in run.ssts] == [10, 9]
    assert [sst.until for sst in _before(30).tables[1].levels.history_ssts()] == [10]
    last = decode_base("x", 30, golden(f"{30:020d}.snapshot", 6))
    assert last.tables[1].levels.history == ()
    assert last.compacted_epoch == last.safe_epoch == 10
    assert last.dropped[-1].id == _before(30).tables[1].levels.history_ssts()[0].id


def test_version_seven_has_periods_of_tables() -> None:
    """A table with a retention has its own epochs, which it keeps when it goes by the store's again."""
    last = decode_base("x", 33, golden(f"{33:020d}.snapshot"))
    spec = last.tables[5].spec
    assert (spec.retention_ms, spec.ttl_ms, spec.ttl_column) == (86_400_000, 60_000, "at")
    assert last.tables[5].levels.live_ssts()[0].expires_ms > 0
    assert last.tables[1].spec.retention_ms is None
    assert [last.tables[key].own_epochs for key in (1, 5)] == [(11, 11), (10, 10)]
    assert (last.safe_epoch, last.compacted_epoch) == (10, 10)
    older = decode_base("x", 30, golden(f"{30:020d}.snapshot", 6)).tables[1]
    assert (older.spec.retention_ms, older.spec.ttl_ms, older.own_epochs) == (None, None, msgspec.UNSET)
    assert decode_pin("pins/00000000000000000002-00000000000000fe", golden("pin.unkept")).unkept == (1, 5)


def test_version_seven_has_losses() -> None:
    """Damaged SSTs leave their tables, with a record of each; older logs have none."""
    assert decode_base("x", 30, golden(f"{30:020d}.snapshot", 6)).losses == ()
    version = advance(Version(), decode_entry("x", 1, golden("losses")).deltas)
    assert decode_base("x", 1, golden("losses.snapshot")) == version
    assert problems(version) == []
    part, whole = version.losses
    assert [sst.id for sst in version.ssts()] == [part.saved]
    assert (part.rows, part.discarded, whole.rows, whole.discarded, whole.saved) == (1, True, 3, False, "")
    assert version.quarantined() == [whole.sst]
    assert [sst.id for sst in version.dropped] == [part.sst.id]


def test_a_store_may_have_an_identity() -> None:
    """Its first backup gives it; logs of older releases, and stores without a backup, have none."""
    version = advance(Version(), decode_entry("x", 1, golden("identified")).deltas)
    assert decode_base("x", 1, golden("identified.snapshot")) == version
    assert version.identity == "0" * 31 + "c"
    assert _before(33).identity == ""
    assert decode_base("x", 33, golden(f"{33:020d}.snapshot")).identity == ""


def _before(seq: int) -> Version:
    """The version of the golden log's entries before that one."""
    version = Version()
    for number in range(1, seq):
        read = decode_entry("x", number, entry(number))
        version = advance(version, read.deltas, term=read.term)
    return version


def test_damage_to_the_header_is_distinguished_from_damage_to_an_sst() -> None:
    """Every bit of the header counts; the SSTs have separate checksums, and the log can be read without them."""
    for position in (*range(20), *range(60, len(entry(19)))):
        data = bytearray(entry(19))
        data[position] ^= 1 << (position % 8)
        with pytest.raises(CorruptLog, match="some/path: "):
            decode_entry("some/path", 19, bytes(data))
    for length in range(len(entry(19))):
        with pytest.raises(CorruptLog):
            decode_entry("x", 19, entry(19)[:length])
    data = bytearray(entry(19))
    data[30] ^= 1
    assert decode_entry("x", 19, bytes(data)) == decode_entry("x", 19, entry(19))
    with pytest.raises(CorruptLog, match="found sequence 19"):
        decode_entry("x", 18, entry(19))


def test_the_documents_worked_example_is_entry_nine() -> None:
    """The hex dump in `docs/version-log.md` is the golden entry, byte for byte."""
    text = (ROOT / "docs" / "version-log.md").read_text(encoding="utf-8")
    dump = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)", text, re.MULTILINE)
    assert bytes.fromhex("".join(dump)) == entry(9)


def test_every_field_on_disk_is_in_the_document() -> None:
    """A second implementation could not write a field that the document does not name."""
    text = (ROOT / "docs" / "version-log.md").read_text(encoding="utf-8")
    names: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            names.update(key for key in value if isinstance(key, str))
            for part in value.values():
                collect(part)
        elif isinstance(value, list):
            for part in value:
                collect(part)

    for path in (GOLDEN / f"v{NEWEST}").iterdir():
        frame = entry_frame("x", 19, path.read_bytes())
        collect(msgspec.msgpack.Decoder(strict=False).decode(frame[20:-4]))
    names -= {"job-1", "job-2", "job-3", "job-4", "job-5", "nightly", "x", "s3://other/store"}
    names = {name for name in names if not re.fullmatch("[0-9a-f]{32}", name)}
    assert {name for name in names if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("position", range(0, 156, 1))
def test_each_flipped_bit_is_found(position: int) -> None:
    """In any byte, header and checksum included; the message names the object and an offset."""
    data = bytearray(entry(9))
    data[position] ^= 1 << (position % 8)
    with pytest.raises(CorruptLog, match=r"some/path: .*(offset \d+|bytes)"):
        decode_entry("some/path", 9, bytes(data))


@pytest.mark.parametrize("length", [0, 1, 19, 23, 24, 155])
def test_a_cut_entry_is_found(length: int) -> None:
    """At any length, the empty object included; so is one with bytes behind the end."""
    with pytest.raises(CorruptLog, match="expected"):
        decode_entry("x", 9, entry(9)[:length])
    with pytest.raises(CorruptLog, match="in all"):
        decode_entry("x", 9, entry(9) + b"\0")


def test_objects_that_were_swapped_are_found() -> None:
    """A renamed entry has the wrong sequence, a snapshot in its place the wrong magic."""
    with pytest.raises(CorruptLog, match="expected sequence 8, found 9"):
        decode_entry("x", 8, entry(9))
    with pytest.raises(CorruptLog, match="expected magic"):
        decode_entry("x", 30, golden(f"{30:020d}.snapshot", 6))
    with pytest.raises(CorruptLog, match="foreign"):
        decode_pin("x", b"hello, this is a text that somebody put here")


def test_a_newer_format_is_refused_by_name() -> None:
    """A named error, if the entry is intact; a flipped bit in its version is damage, which may give either error."""
    import crc32c

    data = bytearray(entry(9))
    data[4] = NEWEST + 1
    with pytest.raises(CorruptLog, match=r"damaged; or written by a newer Tussock") as damaged:
        decode_entry("x", 9, bytes(data))
    assert type(damaged.value) is CorruptLog
    data[-4:] = crc32c.crc32c(bytes(data[:-4])).to_bytes(4, "little")
    with pytest.raises(NewerFormat, match="newer Tussock") as raised:
        decode_entry("x", 9, bytes(data))
    assert raised.value.args[1:] == (NEWEST + 1, NEWEST)


def test_a_pin_whose_name_contradicts_its_epoch_is_refused() -> None:
    """Compaction reads the first name of a listing: a name smaller than the pin's epoch would hide the others."""
    pin = PinInfo(id=f"{7:020d}-{7:016x}", epoch=7, owner="a", created_ms=1, expires_ms=2)
    assert decode_pin(f"pins/{pin.id}", encode_pin(pin)) == pin
    assert decode_pin(f"pins/{pin.id}", encode_pin(pin, "a hash")) == pin
    assert decode_holder(f"pins/{pin.id}", encode_pin(pin, "a hash")) == "a hash"
    assert decode_holder(f"pins/{pin.id}", encode_pin(pin)) == ""
    renamed = f"{0:020d}-{7:016x}"
    for path, made_up in ((f"pins/{renamed}", pin), (f"pins/{renamed}", replace(pin, id=renamed))):
        with pytest.raises(CorruptLog, match="made up"):
            decode_pin(path, encode_pin(made_up))


def test_a_delta_of_an_unknown_kind_is_refused_and_an_unknown_field_is_ignored() -> None:
    """A reader may skip added fields, never a delta that it cannot apply."""
    import crc32c

    def reframe(old: bytes, new: bytes) -> bytes:
        payload = entry(9)[20:-4].replace(old, new)
        body = entry(9)[:16] + len(payload).to_bytes(4, "little") + payload
        return body + crc32c.crc32c(body).to_bytes(4, "little")

    with pytest.raises(NewerFormat, match="change of kind 'advance_horizen'"):
        decode_entry("x", 9, reframe(b"\xafadvance_horizon", b"\xafadvance_horizen"))
    with pytest.raises(CorruptLog, match="not understood"):
        decode_entry("x", 9, reframe(b"\xa7horizon", b"\xa7horizen"))
    extra = reframe(b"\x85\xa2id\xc4", b"\x86\xa3new\x01\xa2id\xc4")
    assert decode_entry("x", 9, extra) == decode_entry("x", 9, entry(9))


def test_paths_are_twenty_digits_and_sort_by_sequence() -> None:
    """Names of other shapes have no sequence."""
    assert entry_path(7) == "log/00000000000000000007.delta"
    assert base_path(7) == "snapshot/00000000000000000007"
    assert marker_path(7) == "log/boundary/00000000000000000007"
    assert lease_path(7) == "leader/00000000000000000007"
    for path in (entry_path(12), base_path(12), marker_path(12), lease_path(12)):
        assert sequence_of(path) == 12
    for path in ("log/7.delta", "log/boundary/readme", "snapshot/" + "x" * 20, "snapshot/" + "٣" * 20):
        assert sequence_of(path) is None


def test_a_standbys_mark_is_no_lease_of_a_term() -> None:
    """It lies beside the leases, and its name has no term."""
    path = standby_path(bytes(range(8)))
    assert path == "leader/standby-0001020304050607"
    assert is_standby_path(path)
    assert sequence_of(path) is None
    for other in (lease_path(7), "leader/standby-mine", "leader/standby-000102030405060G", f"x{path}"):
        assert not is_standby_path(other)
