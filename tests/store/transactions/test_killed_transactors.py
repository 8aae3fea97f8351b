"""Transactions of several processes that are killed at random, against a serial run in the order of their epochs."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import connect

PROGRAM = Path(__file__).parents[2] / "support" / "store" / "transactor.py"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
NAMES = ("one", "two", "three")


def start(url: str, folder: Path, name: str, count: int) -> "subprocess.Popen[bytes]":
    arguments = [url, str(folder / name), name, "1", str(count)]
    return subprocess.Popen([sys.executable, str(PROGRAM), *arguments], stderr=subprocess.PIPE)


def history(folder: Path) -> list[dict[str, Any]]:
    """What committed, with its epoch."""
    found: list[dict[str, Any]] = []
    for name in NAMES:
        notes: dict[int, dict[str, Any]] = {}
        for line in (folder / name).read_text().splitlines():
            entry = json.loads(line)
            notes.setdefault(entry["batch"], {}).update(entry)
        found += [note for note in notes.values() if note["epoch"] and note["writes"]]
    return sorted(found, key=lambda note: note["epoch"])


def apply(state: dict[str, str], writes: dict[str, Any]) -> dict[str, str]:
    after = {**state, **writes}
    return {key: value for key, value in after.items() if value is not None}


@pytest.mark.long
@pytest.mark.slow
def test_killed_processes_leave_a_serial_history(tmp_path: Path) -> None:
    """Each read is what a serial run of all that committed shows it, and the table is that run's end."""
    url, chance, count = (tmp_path / "store").as_uri(), random.Random(1), 40
    with connect(url, retention=3600, gc_grace=60) as store:
        store.create_table("t", SCHEMA, primary_key=["k"])
        running = {name: start(url, tmp_path, name, count) for name in NAMES}
        kills = 0
        while any(process.poll() is None for process in running.values()):
            time.sleep(chance.uniform(0.3, 0.9))
            name = chance.choice(NAMES)
            if kills < 8 and running[name].poll() is None and (tmp_path / name).exists():
                running[name].kill()
                running[name].wait()
                running[name] = start(url, tmp_path, name, count)
                kills += 1
        for name, process in running.items():
            assert process.returncode == 0, (name, process.stderr.read() if process.stderr else b"")
        assert kills >= 2
        state: dict[str, str] = {}
        committed = history(tmp_path)
        for note in committed:
            for first, last, found, own in note["reads"]:
                seen = apply(state, own)
                expected = {key: value for key, value in seen.items() if first <= int(key) <= last}
                assert found == expected, note
            state = apply(state, note["writes"])
        assert len(committed) > count
        assert {str(row["k"]): row["v"] for batch in store.table("t").read() for row in batch.to_pylist()} == state
