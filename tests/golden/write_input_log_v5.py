"""Write the golden files of version 5 of the input log: `python tests/golden/write_input_log_v5.py FOLDER`.

`tests/compute/applications/test_input_log_format.py` fails if this script no longer writes them byte for byte. The
files in `input_log/v1` to `input_log/v4` were written by the versions before; nothing writes such any more.
"""

import sys
from pathlib import Path

from tussock.compute.applications.records import Group, Record, RecordKind, encode_group

__all__ = ["GROUPS", "UID"]

UID = "00112233aabbccdd"
_EPOCH = b"\x91\x95\xa1a\xa1k\xa1f\x91\x05\xc0"
_FEEDS = b"\x92\x92\xa1f\xa1t\x92\xa1g\xa0"
GROUPS = {
    "takeover": Group(UID, 2, [], 8),
    "batch": Group(UID, 2, [Record(5, RecordKind.BATCH, "p", 1, b"D\x91\x81\xa1n\x05", [["random", 3]], 7)], 9),
    "epoch": Group(UID, 2, [Record(6, RecordKind.EPOCH, "", 1, _EPOCH, [[1, "random", 0, 3]], 9)], 10),
    "sequencers": Group(
        UID, 2, [Record(7, RecordKind.SEQUENCERS, "", 0, b"\x92\x92\xa1f\xa1t\x92\xa1g\xa0", [], None)], 11
    ),
}


def main() -> None:
    """One file a group."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, group in GROUPS.items():
        (folder / f"{name}.bin").write_bytes(encode_group(group))


if __name__ == "__main__":
    main()
