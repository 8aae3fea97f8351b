"""The bytes of the log are frozen: golden files, the document's worked example, and damage of every kind."""

import re
import runpy
from pathlib import Path

import pytest

from tussock.meta.delta import advance
from tussock.meta.framing import (
    decode_entry,
    decode_pin,
    decode_snapshot,
    encode_entry,
    encode_pin,
    encode_snapshot,
    entry_path,
    marker_path,
    sequence_of,
    snapshot_path,
)
from tussock.meta.invariants import problems
from tussock.meta.version import Version
from tussock.statestore.errors import CorruptLog

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "log" / "v1"
ENTRIES = 12


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def entry(seq: int) -> bytes:
    return golden(f"{seq:020d}.delta")


def test_the_golden_files_are_what_the_writer_writes() -> None:
    """A changed byte is a changed format: that takes a new version and a folder of its own."""
    written = runpy.run_path(str(ROOT / "tests" / "golden" / "write_log_v1.py"))["files"]()
    assert written == {path.name: path.read_bytes() for path in GOLDEN.iterdir()}


def test_the_golden_log_replays_to_the_golden_snapshot() -> None:
    """Version 1 is read for ever; each state of that store is sound, and encoding again gives the same bytes."""
    version = Version()
    for seq in range(1, ENTRIES + 1):
        read = decode_entry("x", seq, entry(seq))
        assert encode_entry(seq, read) == entry(seq)
        version = advance(version, read.deltas)
        assert problems(version) == []
    snapshot = golden(f"{ENTRIES:020d}.snapshot")
    assert decode_snapshot("x", ENTRIES, snapshot) == version
    assert encode_snapshot(version) == snapshot
    assert encode_pin(decode_pin("x", golden("pin"))) == golden("pin")


def test_the_documents_worked_example_is_entry_nine() -> None:
    """The hex dump in `docs/version-log.md` is the golden entry, byte for byte."""
    text = (ROOT / "docs" / "version-log.md").read_text(encoding="utf-8")
    dump = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)", text, re.MULTILINE)
    assert bytes.fromhex("".join(dump)) == entry(9)


def test_every_field_on_disk_is_in_the_document() -> None:
    """A field that the document does not name cannot be written by a second implementation."""
    import msgspec

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

    for path in GOLDEN.iterdir():
        collect(msgspec.msgpack.Decoder(strict=False).decode(path.read_bytes()[20:-4]))
    names.discard("job-1")
    assert {name for name in names if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("position", range(0, 150, 1))
def test_each_flipped_bit_is_found(position: int) -> None:
    """In any byte, header and checksum included; the message names the object and an offset."""
    data = bytearray(entry(9))
    data[position] ^= 1 << (position % 8)
    with pytest.raises(CorruptLog, match=r"some/path: .*(offset \d+|bytes)"):
        decode_entry("some/path", 9, bytes(data))


@pytest.mark.parametrize("length", [0, 1, 19, 23, 24, 149])
def test_a_cut_entry_is_found(length: int) -> None:
    """At any length, the empty object included; so is one with bytes behind."""
    with pytest.raises(CorruptLog, match="expected"):
        decode_entry("x", 9, entry(9)[:length])
    with pytest.raises(CorruptLog, match="in all"):
        decode_entry("x", 9, entry(9) + b"\0")


def test_objects_that_were_swapped_are_found() -> None:
    """A renamed entry has the wrong sequence, a snapshot in its place the wrong magic."""
    with pytest.raises(CorruptLog, match="expected sequence 8, found 9"):
        decode_entry("x", 8, entry(9))
    with pytest.raises(CorruptLog, match="expected magic"):
        decode_entry("x", ENTRIES, golden(f"{ENTRIES:020d}.snapshot"))
    with pytest.raises(CorruptLog, match="foreign"):
        decode_pin("x", b"hello, this is a text that somebody put here")


def test_a_newer_format_says_so() -> None:
    """It is told apart from damage, whatever its checksum."""
    data = bytearray(entry(9))
    data[4] = 2
    with pytest.raises(CorruptLog, match="newer Tussock"):
        decode_entry("x", 9, bytes(data))


def test_a_delta_of_an_unknown_kind_is_refused_and_an_unknown_field_is_ignored() -> None:
    """A reader may skip what was added, never what it cannot apply."""
    import crc32c

    def reframed(old: bytes, new: bytes) -> bytes:
        payload = entry(9)[20:-4].replace(old, new)
        body = entry(9)[:16] + len(payload).to_bytes(4, "little") + payload
        return body + crc32c.crc32c(body).to_bytes(4, "little")

    with pytest.raises(CorruptLog, match="not understood"):
        decode_entry("x", 9, reframed(b"\xafadvance_horizon", b"\xafadvance_horizen"))
    extra = reframed(b"\x84\xa2id\xc4", b"\x85\xa3new\x01\xa2id\xc4")
    assert decode_entry("x", 9, extra) == decode_entry("x", 9, entry(9))


def test_paths_are_twenty_digits_and_sort_by_sequence() -> None:
    """Names of other shapes have no sequence."""
    assert entry_path(7) == "log/00000000000000000007.delta"
    assert snapshot_path(7) == "snapshot/00000000000000000007"
    assert marker_path(7) == "log/boundary/00000000000000000007"
    for path in (entry_path(12), snapshot_path(12), marker_path(12)):
        assert sequence_of(path) == 12
    for path in ("log/7.delta", "log/boundary/readme", "snapshot/" + "x" * 20, "snapshot/" + "٣" * 20):
        assert sequence_of(path) is None
