"""Vacuum of a store whose folder has foreign files deletes only names that a store gives, in its own folders."""

import os
from pathlib import Path

import pytest

from tussock.statestore import connect

DIGITS = "0" * 24


@pytest.mark.parametrize(
    ("path", "goes"),
    [
        (f"sst/.tmp-{DIGITS}", True),
        ("pins/00000000000000000001-0123456789abcdef", True),
        ("pins/00000000000000000001-zz", False),
        ("pins/1-0123456789abcdef", False),
        ("sst/.tmp-mine", False),
        (f"mine/.tmp-{DIGITS}", False),
        (f".tmp-{DIGITS}", False),
        (f"other/sst/.tmp-{DIGITS}", False),
    ],
)
def test_vacuum_deletes_only_files_of_the_store(tmp_path: Path, path: str, goes: bool) -> None:
    """All files are days old."""
    with connect(tmp_path.as_uri()) as store:
        store.create_table("kv")
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"of somebody")
        os.utime(file, (1, 1))
        assert [deleted for deleted, _ in store.vacuum().deleted] == ([path] if goes else [])
    assert file.exists() is not goes
