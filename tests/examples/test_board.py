"""The endless stream of examples/board: every epoch is what its number of events says, also after restarts."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "board"))
from board_truth import CARRIERS, differences, truth

from tussock.statestore import connect

BOARD = Path(__file__).resolve().parents[2] / "examples" / "board"


def test_the_truth_by_hand() -> None:
    """Number 361 = 3 * 120 + 1: flight 120 - 40 leaves then; the first flight, 0, was cancelled at number 121."""
    board, totals = truth(0)
    assert (board, totals) == ({}, {})
    board, totals = truth(122)
    assert board[0] == {"flight": 0, "carrier": "AA", "origin": "EWR", "status": "cancelled", "delay": None}
    assert board[40]["status"] == "scheduled"
    assert totals["AA"] == {
        "carrier": "AA",
        "scheduled": 6,
        "departed": 0,
        "arrived": 0,
        "cancelled": 1,
        "delay": 0,
        "worst_delay": None,
    }
    board, totals = truth(3000)
    assert sum(row["scheduled"] for row in totals.values()) == 1000 == len(board)
    assert sum(row["departed"] + row["cancelled"] for row in totals.values()) == 960
    assert sorted(totals) == sorted(CARRIERS)


def run_stream(folder: Path, batches: int) -> None:
    """Run the program for that number of batches, on two cores of this machine."""
    conf = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false --conf spark.driver.memory=1g"
    environ = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {conf} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "TUSSOCK_STORE": (folder / "store").as_uri(),
        "TUSSOCK_WRITER_ID": "board",
        "TUSSOCK_CHECKPOINT": str(folder / "checkpoint"),
    }
    command = [sys.executable, str(BOARD / "board_stream.py"), "--batches", str(batches), "--seconds", "0.1"]
    ran = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=False, timeout=580)
    assert ran.returncode == 0, ran.stderr[-4000:]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tables_are_exact_after_a_restart(tmp_path: Path) -> None:
    """Two runs with one checkpoint: the second goes on where the first was; a row that is changed is found."""
    run_stream(tmp_path, 2)
    with connect((tmp_path / "store").as_uri()) as store:
        first, wrong = differences(store)
    assert wrong == []
    assert first >= 600
    run_stream(tmp_path, first // 300 + 2)
    with connect((tmp_path / "store").as_uri()) as store:
        second, wrong = differences(store)
        assert wrong == []
        assert second > first
        assert second % 300 == 0
        row = {"flight": 3, "carrier": "XX", "origin": "EWR", "status": "arrived", "delay": 1}
        table = store.table("board")
        epoch = store.new_epoch()
        table.upsert(pa.Table.from_pylist([row], table.schema), epoch)
        store.commit_epoch(epoch)
        assert [line.partition(":")[0] for line in differences(store)[1]] == ["board 3"]
