"""How a driver learns of commits: its own, and those of its sinks in Spark's processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tussock.compute.spark.batches.commits import latest_commit
from tussock.compute.spark.batches.notes import NOTES_FOLDER
from tussock.statestore.client import StateStore

NOTER = """
from tussock.compute.spark.batches.commits import latest_commit, note_commit
assert latest_commit() is None
note_commit("w", 3, 12)
print(latest_commit())
"""


def test_a_driver_makes_and_deletes_its_folder_of_notes(tmp_path: Path) -> None:
    """The folder is in the environment before the program, and so Spark, begins."""
    (tmp_path / "program.py").write_text(NOTER)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary), "TUSSOCK_STATUS_PORT": "0"}
    command = [sys.executable, "-m", "tussock.compute.driver", str(tmp_path / "program.py")]
    ran = subprocess.run(command, env=environ, capture_output=True, check=False, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "writer='w', batch_id=3, epoch=12" in ran.stdout
    assert list(temporary.iterdir()) == []


@pytest.mark.spark
def test_a_sink_reports_its_commits_to_the_driver(spark: Any, store: StateStore, url: str, tmp_path: Path) -> None:
    """By query id, with the store's epoch, though a Python worker committed it."""
    for note in Path(os.environ[NOTES_FOLDER]).iterdir():
        note.unlink()  # of tests before this one
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=5).load()
    rows = rows.selectExpr("value AS id", "string(value) AS v", "double(value) AS x")
    sink = rows.writeStream.format("tussock").option("store", url).option("table", "t")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = latest_commit()
    assert found is not None
    assert found.writer == query.id
    assert found.epoch == store.committed_batch(query.id, found.batch_id) == store.committed_epoch
