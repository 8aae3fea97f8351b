"""The job of the quickstart: every epoch is the end of a day, and one that lost its checkpoint is told so."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from flights import reference
from flights.questions import calendar_epochs, table_frame
from flights.timetable import KEY, load_timetable

from tussock.statestore import connect

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DAYS = 3


def run_job(folder: Path, checkpoint: str) -> subprocess.CompletedProcess[str]:
    """Run the job to its end, on two cores of this machine."""
    conf = {
        "spark.sql.streaming.checkpointLocation": (folder / checkpoint).as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
    }
    settings = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    environment = {
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {settings} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "TUSSOCK_STORE": (folder / "store").as_uri(),
        "TUSSOCK_WRITER_ID": "flights",
    }
    command = [sys.executable, str(EXAMPLES / "flights_job.py"), "--days", str(DAYS), "--pace", "0.1", "--end"]
    return subprocess.run(
        command, env={**os.environ, **environment}, cwd=folder, capture_output=True, check=False, text=True, timeout=580
    )


def same(found: pl.DataFrame, expected: pl.DataFrame, key: list[str]) -> bool:
    """Whether two frames have the same rows."""
    return found.sort(key).equals(expected.select(found.columns).cast(dict(found.schema)).sort(key))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_day_is_an_epoch(tmp_path: Path) -> None:
    """The state of each day's epoch is what the timetable says of its end; a job that begins anew changes nothing."""
    first = run_job(tmp_path, "first")
    assert first.returncode == 0, first.stderr[-4000:]
    timetable = load_timetable(DAYS)
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        epochs = calendar_epochs(store)
        assert sorted(epochs)[:DAYS] == [date(2013, 1, day) for day in range(1, DAYS + 1)]
        for day, epoch in epochs.items():
            moment = reference.end_of_day(day)
            assert same(table_frame(store, "flights", epoch), reference.flights_at(timetable, moment), list(KEY))
            totals = reference.carrier_totals(timetable, moment)
            assert same(table_frame(store, "carrier_totals", epoch), totals, ["carrier"])
        committed = store.committed_epoch
    # Its batches could be other ones for all that the store knows, so they are neither stored nor left out in silence.
    second = run_job(tmp_path, "second")
    assert second.returncode != 0
    assert "Fenced: writer 'flights' belongs to query" in second.stderr
    # The first one's checkpoint is still good.
    assert run_job(tmp_path, "first").returncode == 0
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        assert store.committed_epoch == committed
