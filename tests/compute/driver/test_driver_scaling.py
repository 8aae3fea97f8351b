"""The driver brings the number of executors to that in a file, on a real cluster (`local-cluster`)."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.buckets.minio import free_port
from tussock.compute.driver.context import running_context
from tussock.compute.driver.scale import Scaler, first_number, surplus, wanted_executors
from tussock.compute.driver.watch import Watch
from tussock.statestore.base.system import RealSystem


class Cluster:
    """Executors as Spark's scheduler has them, and what the driver requested of it."""

    def __init__(self, active: list[str]) -> None:
        self.ids = active
        self.asked: list[int] = []

    def active(self) -> list[str]:
        return list(self.ids)

    def request(self, total: int) -> None:
        self.asked.append(total)

    def decommission(self, executors: list[str]) -> None:
        self.ids = [executor for executor in self.ids if executor not in executors]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "executors"


def test_surplus_executors_are_the_newest() -> None:
    """By number, not by text: 10 is newer than 9."""
    assert surplus(["2", "10", "9", "1"], 2) == ["9", "10"]
    assert surplus(["1"], 1) == []
    assert surplus(["1", "2"], 0) == ["1", "2"]


def test_a_file_that_is_absent_leaves_executors_to_spark(file: Path) -> None:
    cluster = Cluster(["1", "2", "3"])
    assert wanted_executors(file) is None
    assert Scaler(file, None).step(cluster, None, 0, 0) == []
    assert cluster.asked == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two",
        "-1",
        "1.5",
        "²",
        "4-2 within 9 s",
        "0-2 within 9 s",
        "1-2 within 0 s",
        "1-2 within 9",
        "1-²within 9 s",
    ],
)
def test_a_file_that_holds_no_number_is_refused(file: Path, text: str) -> None:
    """Nothing is requested of Spark."""
    file.write_text(text)
    cluster = Cluster(["1"])
    with pytest.raises(ValueError, match="expected the number of executors"):
        Scaler(file, 1).step(cluster, None, 0, 0)
    assert cluster.asked == []
    assert cluster.ids == ["1"]


def test_passes_are_level_triggered(file: Path) -> None:
    """Each change of the number is requested once; executors that later exceed it are removed, too."""
    file.write_text("3\n")
    cluster = Cluster(["1"])
    scaler = Scaler(file, 1)
    assert scaler.step(cluster, None, 0, 0) == []
    assert scaler.step(cluster, None, 0, 0) == []
    assert cluster.asked == [3]
    cluster.ids += ["2", "3", "4"]
    assert scaler.step(cluster, None, 0, 0) == ["4"]
    file.write_text("1")
    assert scaler.step(cluster, None, 0, 0) == ["2", "3"]
    assert cluster.asked == [3, 1]
    assert cluster.ids == ["1"]


def test_a_goal_begins_with_the_number_that_there_is(file: Path) -> None:
    """The fewest at a start; a running job that had a number goes on from there, and stays within the bounds."""
    file.write_text("2-8 within 30 s\n")
    assert first_number(wanted_executors(file)) == 2
    cluster = Cluster(["1", "2", "3"])
    scaler = Scaler(file, 3)
    assert scaler.step(cluster, 5.0, 1, 0) == []
    assert (scaler.requested, cluster.asked) == (3, [])
    assert scaler.why == "The driver chooses from now on."
    file.write_text("1-2 within 30 s")
    assert scaler.step(cluster, 5.0, 1, 1) == ["3"]
    assert cluster.asked == [2]
    file.write_text("5")
    scaler.step(cluster, 5.0, 1, 2)
    assert (cluster.asked, scaler.why) == ([2, 5], "")


def test_a_late_stream_gets_executors(file: Path) -> None:
    file.write_text("1-8 within 30 s")
    cluster = Cluster(["1"])
    scaler = Scaler(file, 1)
    for second in range(60):
        scaler.step(cluster, 45.0, second // 20, float(second))
    assert cluster.asked == [2]
    assert scaler.why.startswith("1 to 2 executors: Streams were 45 s behind")


@pytest.mark.spark
def test_a_local_spark_has_no_executors(spark: SparkSession, file: Path) -> None:
    """A program may set its master itself; the driver's status still says that Spark runs."""
    file.write_text("2")
    watch = Watch(Scaler(file, None), RealSystem(), is_stream=False)
    watch.step()
    assert running_context() is spark.sparkContext
    assert (watch.status.is_started, watch.status.executors, watch.status.executors_wanted) == (True, 0, 2)


@pytest.mark.spark
def test_a_real_stream_says_how_far_it_is_behind(spark: SparkSession, tmp_path: Path) -> None:
    """By the time of its batches; one that waits for new input is not behind."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "one.txt").write_text("row\n")
    always = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, startTimestamp=0).load()
    once = spark.readStream.text(str(tmp_path / "rows"))
    watch = Watch(Scaler(tmp_path / "executors", None), RealSystem(), is_stream=True)
    queries = [
        rows.writeStream.queryName(name).foreachBatch(lambda *_: time.sleep(1)).start()
        for name, rows in (("busy", always), ("idle", once))
    ]

    def are_known() -> bool:
        watch.step()
        behind = {query.name: query.behind_seconds for query in watch.status.queries}
        return behind.get("idle") == 0 and (behind.get("busy") or 0) >= 1

    try:
        _until("both are known", are_known)
    finally:
        for query in queries:
            query.stop()


STREAM = """
import sys
from pyspark.sql import SparkSession

assert sys.argv[1:] == ["--out", "place"], sys.argv
spark = SparkSession.builder.getOrCreate()
assert spark.conf.get("spark.tussock.probe") == "from the file"
rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, startTimestamp=0).load()
query = rows.writeStream.queryName("numbers").format("noop").trigger(processingTime="1 second").start()
query.awaitTermination()
print("stream ended by itself", flush=True)
"""


def _status(port: int, path: str = "/status") -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def _until(what: str, holds: object, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():  # type: ignore[operator]
            return
        time.sleep(0.2)
    pytest.fail(f"{what}: not so after {seconds:g} s")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_running_stream_is_scaled_and_drained(tmp_path: Path) -> None:
    """Up and down by the file alone, in the same process; SIGTERM ends the stream between batches and exits 143."""
    application = tmp_path / "stream.py"
    application.write_text(STREAM)
    executors = tmp_path / "executors"
    executors.write_text("1")
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text(
        "spark.master local-cluster[2,1,600]\nspark.executor.memory 500m\nspark.ui.enabled false\n"
        "spark.cores.max 2\nspark.executor.cores 1\nspark.tussock.probe from the file\n"
        "spark.decommission.enabled true\nspark.storage.decommission.enabled true\n"
    )
    port = free_port()
    environ = {
        **os.environ,
        "TUSSOCK_SPARK_CONF": str(conf),
        "TUSSOCK_EXECUTORS_FILE": str(executors),
        "TUSSOCK_STATUS_PORT": str(port),
        "TUSSOCK_DRAIN_SECONDS": "40",
        "POD_IP": "127.0.0.1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, "-m", "tussock.compute.driver", str(application), "--out", "place"]
    log = tmp_path / "driver.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environ, cwd=tmp_path)
    try:
        _until("probes answer", lambda: _status(port, "/healthz")[0] == 200)
        assert _status(port, "/readyz")[0] in (200, 503)
        _until("a stream runs", lambda: _status(port, "/readyz")[0] == 200)
        for wanted in (2, 1):
            executors.write_text(str(wanted))
            _until(f"{wanted} executors", lambda wanted=wanted: _status(port)[1].get("executors") == wanted)
        _until("batches end", lambda: _status(port)[1]["queries"][0]["batchId"] > 0)  # type: ignore[index]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    finally:
        process.kill()
        process.wait()
    text = log.read_text()
    assert "stream ended by itself" in text, text[-4000:]
    assert "in the middle of a batch" not in text
