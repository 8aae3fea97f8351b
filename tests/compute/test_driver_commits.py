"""What a driver knows of commits: its own, and those that its sinks make in processes of Spark's."""

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


def test_a_driver_keeps_notes_of_its_own_and_takes_them_away(tmp_path: Path) -> None:
    """The folder is in the environment before the program begins, and so before the program starts Spark."""
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
def test_a_sink_tells_the_driver_what_it_commits(spark: Any, store: StateStore, url: str, tmp_path: Path) -> None:
    """Under the query's id and with the epoch that the store has, though a Python worker has committed it."""
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
