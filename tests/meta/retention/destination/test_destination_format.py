"""The bytes of a destination: golden files, the worked example of the page, and what is refused."""

import re
import runpy
from pathlib import Path

import pytest

from tussock.meta.retention.destination.records import (
    decode_catalogue,
    decode_manifest,
    encode_catalogue,
    encode_manifest,
    part_of,
)
from tussock.meta.version.invariants import problems
from tussock.statestore.errors import CorruptLog

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = ROOT / "tests" / "golden" / "destination" / "v7"


def test_the_golden_files_are_what_the_writer_writes() -> None:
    """A changed byte would be another format."""
    written = runpy.run_path(str(ROOT / "tests/golden/write_destination_v7.py"))["files"]()
    assert written == {path.name: path.read_bytes() for path in GOLDEN.iterdir()}


def test_the_golden_files_are_read() -> None:
    catalogue = decode_catalogue("x", 3, (GOLDEN / "catalogue").read_bytes())
    assert {name: (one.part, one.finished_ms > 0) for name, one in catalogue.copies.items()} == {
        "nightly": (1, True),
        "weekly": (3, False),
    }
    assert encode_catalogue(catalogue) == (GOLDEN / "catalogue").read_bytes()
    manifest = decode_manifest("x", 1, (GOLDEN / "manifest").read_bytes())
    assert problems(manifest.version) == []
    assert manifest.version.identity == catalogue.store
    assert list(manifest.places.values()) == [(1, bytes(range(32)))]
    assert encode_manifest(1, manifest) == (GOLDEN / "manifest").read_bytes()


def test_the_worked_example_of_the_page() -> None:
    page = (ROOT / "docs/formats/destination.md").read_text(encoding="utf-8")
    lines = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} )*[0-9a-f]{2}) ", page, re.MULTILINE)
    data = bytes.fromhex(" ".join(lines))
    assert data == (GOLDEN / "catalogue.emptied").read_bytes()
    catalogue = decode_catalogue("x", 4, data)
    assert (catalogue.copies, catalogue.url) == ({}, "s3://b")


@pytest.mark.parametrize("at", range(0, 300, 7))
def test_any_flipped_bit_is_noticed(at: int) -> None:
    data = bytearray((GOLDEN / "manifest").read_bytes())
    data[at] ^= 4
    with pytest.raises(CorruptLog, match=r"^x: "):
        decode_manifest("x", 1, bytes(data))


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (f"parts/{7:020d}/manifest", 7),
        (f"parts/{7:020d}/sst/{'a' * 32}.data", 7),
        (f"parts/{7:020d}/sst/{'a' * 32}.meta", 7),
        (f"parts/{7:020d}/sst/{'A' * 32}.data", None),
        (f"parts/{7:020d}/sst/{'a' * 32}.data.bak", None),
        (f"parts/{7:020d}/x/manifest", None),
        ("parts/7/manifest", None),
        (f"x/parts/{7:020d}/manifest", None),
        (f"sst/{'a' * 32}.data", None),
    ],
)
def test_only_names_that_a_copy_gives_are_of_a_part(path: str, part: int | None) -> None:
    """All others are foreign, and are never deleted."""
    assert part_of(path) == part
