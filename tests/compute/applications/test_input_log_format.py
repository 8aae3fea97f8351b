"""The bytes of the input log: what every release before has written is read, and what this one writes stays."""

from pathlib import Path

import pytest

from golden.write_input_log_v5 import GROUPS, UID
from tussock.compute.applications.records import Group, Record, RecordKind, decode_group, encode_group
from tussock.statestore.errors import CorruptLog

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "input_log"
OLDER = {
    "v1/batch": [
        Record(1, RecordKind.BATCH, "p", 1, b"D\x91\x81\xa1n\x05", [["now", 1_700_000_000_000]], 7),
        Record(2, RecordKind.INTENT, "q", 0, b"\x91\x05", [], None),
        Record(2, RecordKind.CALL, "q", 0, b"\x91\x05", [["call k", 5]], None, "q", "ValueError: no"),
    ],
    "v1/takeover": [],
    "v2/feed": [
        Record(1, RecordKind.FEED, "p", 0, b"F\x92\xa1f\xc4\x01\x01", [], None),
        Record(2, RecordKind.SENT, "s", 7, b"", [], None),
    ],
    "v3/epoch": [Record(1, RecordKind.EPOCH, "", 1, b"\x91\x95\xa1a\xa1k\xa1f\x91\x05\xc0", [[1, "random", 0, 3]], 9)],
}

NUMBERED = {
    "v4/takeover": Group(UID, 2, [], 8),
    "v4/batch": GROUPS["batch"],
    "v4/epoch": GROUPS["epoch"],
}


@pytest.mark.parametrize("name", NUMBERED)
def test_objects_of_version_4_are_read(name: str) -> None:
    """They say which object they are."""
    data = (GOLDEN / f"{name}.bin").read_bytes()
    assert data[4] == 4
    assert decode_group(data, "there", NUMBERED[name].number) == NUMBERED[name]
    with pytest.raises(CorruptLog, match="there: it has the content of object"):
        decode_group(data, "there", 1)


@pytest.mark.parametrize("name", OLDER)
def test_objects_of_older_versions_are_read(name: str) -> None:
    """They do not say which object they are, so they are taken for any."""
    data = (GOLDEN / f"{name}.bin").read_bytes()
    assert data[4] == int(name[1])
    for number in (1, 7):
        group = decode_group(data, "there", number)
        assert (group.uid, group.number, group.records) == (UID, 0, OLDER[name])


@pytest.mark.parametrize("name", GROUPS)
def test_objects_of_version_5_stay_as_they_are(name: str) -> None:
    """Byte for byte, and in their place only."""
    data = (GOLDEN / "v5" / f"{name}.bin").read_bytes()
    group = GROUPS[name]
    assert encode_group(group) == data
    assert data[4] == 5
    assert decode_group(data, "there", group.number) == group
    with pytest.raises(CorruptLog, match=f"there: it has the content of object {group.number}"):
        decode_group(data, "there", group.number + 1)


def test_a_group_as_the_document_shows_it() -> None:
    """The worked example of docs/formats/input-log.md."""
    document = (Path(__file__).resolve().parents[3] / "docs" / "formats" / "input-log.md").read_text()
    shown = document.split("```text\n")[1].split("```")[0]
    data = bytes.fromhex("".join(line.split("  ")[0] for line in shown.splitlines()))
    assert decode_group(data, "there", 8) == Group(UID, 2, [], 8)
