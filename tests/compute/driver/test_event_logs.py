"""Spark's event log on its way to the bucket: what is copied and when, its bounds, and its reader, a history server."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from support.buckets.minio import free_port
from support.waiting import eventually
from tussock.compute.driver.event_log import COMPACT, EventLog
from tussock.statestore import ObjectStoreUnavailable
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

APP = "eventlog_v2_spark-1"
PLACE = "applications/job/events/"


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where Spark writes; the log has one file."""
    (tmp_path / "events" / APP).mkdir(parents=True)
    (tmp_path / "events" / APP / "appstatus_spark-1.inprogress").touch()
    write(tmp_path / "events", 1)
    return tmp_path / "events"


@pytest.fixture
def bucket(tmp_path: Path) -> ObjectStore:
    return open_bucket((tmp_path / "bucket").as_uri())


def write(folder: Path, number: int, size: int = 10) -> None:
    (folder / APP / f"events_{number}_spark-1.zstd").write_bytes(str(number).encode() * size)


def log_of(folder: Path, bucket: ObjectStore, clock: Clock, **bounds: int) -> EventLog:
    limits = {"logs_max": 3, "bytes_max": 1000, **bounds}
    return EventLog(folder, PLACE, lambda: bucket, clock, **limits)  # type: ignore[arg-type]


def names(bucket: ObjectStore, app: str = APP) -> list[str]:
    """What the bucket has of a log, without what all names have."""
    found = [info.path.removeprefix(f"{PLACE}{app}/") for info in bucket.list(f"{PLACE}{app}/")]
    return [name.replace("_spark-1", "").replace(".zstd", "") for name in found]


def local(folder: Path) -> list[str]:
    return sorted(path.name.split("_")[1] for path in (folder / APP).glob("events_*"))


def test_closed_files_are_copied_once_and_the_open_one_now_and_then(folder: Path, bucket: ObjectStore) -> None:
    """A closed one leaves the pod's disk, except the first."""
    clock = Clock()
    log = log_of(folder, bucket, clock)
    log.step()
    assert names(bucket) == ["appstatus.inprogress", "events_1"]
    for number in (2, 3):
        write(folder, number)
    log.step()
    assert (names(bucket), local(folder)) == (["appstatus.inprogress", "events_1", "events_2"], ["1", "3"])
    clock.now += 301
    log.step()
    write(folder, 3, 20)
    log.step()
    third = f"{PLACE}{APP}/events_3_spark-1.zstd"
    assert bucket.get(third) == b"3" * 10
    clock.now += 301
    log.step()
    assert bucket.get(third) == b"3" * 20


def test_the_end_copies_all_and_says_that_the_job_has_ended(folder: Path, bucket: ObjectStore) -> None:
    log = log_of(folder, bucket, Clock())
    log.step()
    write(folder, 1, 30)
    status = folder / APP / "appstatus_spark-1.inprogress"
    status.rename(status.with_suffix(""))
    log.finish()
    assert names(bucket) == ["appstatus", "events_1"]
    assert bucket.get(f"{PLACE}{APP}/events_1_spark-1.zstd") == b"1" * 30


def test_other_files_and_checksums_stay_where_they_are(folder: Path, bucket: ObjectStore) -> None:
    for name in (f"{APP}/.events_1_spark-1.zstd.crc", f"{APP}/core", "local-1"):
        (folder / name).write_bytes(b"x")
    log_of(folder, bucket, Clock()).step()
    assert len(list(bucket.list(""))) == 2


def test_a_log_has_a_limit_of_bytes(folder: Path, bucket: ObjectStore) -> None:
    """The oldest files go, and the first one takes the place of the newest of them, as if Spark had compacted them."""
    log = log_of(folder, bucket, Clock(), bytes_max=40)
    for number in range(2, 6):
        write(folder, number)
        log.step()
    assert names(bucket) == ["appstatus.inprogress", "events_1", "events_2", "events_3", "events_4"]
    write(folder, 6)
    log.step()
    compacted = f"events_2{COMPACT}"
    assert names(bucket) == ["appstatus.inprogress", compacted, "events_3", "events_4", "events_5"]
    assert bucket.get(f"{PLACE}{APP}/events_2_spark-1.zstd{COMPACT}") == b"1" * 10
    write(folder, 7)
    log.finish()
    assert names(bucket) == ["appstatus.inprogress", f"events_4{COMPACT}", "events_5", "events_6", "events_7"]
    assert local(folder) == ["1"]


def test_a_bucket_that_is_away_costs_neither_the_job_nor_the_pods_disk(folder: Path, bucket: ObjectStore) -> None:
    """What the disk does not keep is missing later, and nothing else."""
    away = True

    def opened() -> ObjectStore:
        if away:
            raise ObjectStoreUnavailable("the bucket is away")
        return bucket

    log = EventLog(folder, PLACE, opened, Clock(), logs_max=3, bytes_max=40)  # type: ignore[arg-type]
    for number in range(2, 9):
        write(folder, number)
        log.step()
    assert local(folder) == ["1", "5", "6", "7", "8"]
    away = False
    log.step()
    assert names(bucket) == ["appstatus.inprogress", f"events_4{COMPACT}", *(f"events_{n}" for n in range(5, 9))]


def test_the_oldest_logs_of_the_job_go(folder: Path, bucket: ObjectStore) -> None:
    """Those of other jobs stay, and so does what an application keeps beside them."""
    for at, app in enumerate(("eventlog_v2_c", "eventlog_v2_a", "eventlog_v2_b")):
        bucket.put(f"{PLACE}{app}/appstatus_x", b"")
        path = next(Path(bucket.url.removeprefix("file://")).glob(f"{PLACE}{app}/*"))
        os.utime(path, (1000 + at, 1000 + at))
    others = [f"applications/job/input/{1:020d}", "applications/job-2/events/eventlog_v2_x/appstatus_x"]
    for path in others:
        bucket.put(path, b"")
    log_of(folder, bucket, Clock(), logs_max=3).step()
    found = {info.path.split("/")[3] for info in bucket.list(PLACE)}
    assert found == {APP, "eventlog_v2_a", "eventlog_v2_b"}
    assert {info.path for info in bucket.list("")} >= set(others)


PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for _ in range(4):
    print(spark.range(10).count())
"""
CONF = "spark.eventLog.enabled=true\nspark.eventLog.rolling.enabled=true\nspark.eventLog.compress=true\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a job that a driver has run: one that Spark has written, as the bucket has it."""
    home = tmp_path_factory.mktemp("job")
    (home / "program.py").write_text(PROGRAM)
    (home / "conf").write_text(f"{CONF}spark.app.name=nightly\n")
    environ = {
        **os.environ,
        "TUSSOCK_STATUS_PORT": "0",
        "TUSSOCK_SPARK_CONF": str(home / "conf"),
        "TUSSOCK_STORE": (home / "store").as_uri(),
        "TUSSOCK_EVENT_LOG": "job",
        "TUSSOCK_COMPUTE_MODE": "Batch",
    }
    command = [sys.executable, "-m", "tussock.compute.driver", str(home / "program.py")]
    ran = subprocess.run(command, env=environ, capture_output=True, check=False, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return home / "store" / PLACE


@pytest.fixture
def history_server(tmp_path: Path) -> Iterator[Callable[[Path], Any]]:
    """Starts Spark's history server over a folder, and answers what it says of the applications there."""
    started = []

    def start(folder: Path) -> Any:
        port = free_port()
        options = [f"-Dspark.history.fs.logDirectory={folder.as_uri()}", f"-Dspark.history.ui.port={port}"]
        jars = Path(pyspark.__file__).parent / "jars"
        command = ["java", "-Xmx512m", "-cp", f"{jars}/*", *options, "org.apache.spark.deploy.history.HistoryServer"]
        with (tmp_path / "log").open("w") as out:
            started.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path))

        def ask(what: str) -> Any:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications{what}", timeout=30) as answer:
                    return json.load(answer)
            except OSError:
                return None

        def listed() -> bool:
            assert started[-1].poll() is None, (tmp_path / "log").read_text()
            return bool(ask(""))

        eventually(listed)
        [app] = ask("")
        return app, ask(f"/{app['id']}/jobs")

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.spark
def test_a_history_server_shows_what_a_driver_has_left(place: Path, history_server: Callable[[Path], Any]) -> None:
    app, jobs = history_server(place)
    assert (app["name"], app["attempts"][0]["completed"]) == ("nightly", True)
    assert [job["status"] for job in jobs] == ["SUCCEEDED"] * len(jobs)
    assert len(jobs) >= 4


@pytest.mark.spark
def test_a_history_server_shows_a_log_that_has_lost_its_oldest_files(
    place: Path, tmp_path: Path, bucket: ObjectStore, history_server: Callable[[Path], Any]
) -> None:
    """Cut from the real one into six files, of which three are given up."""
    [whole] = place.iterdir()
    [events] = whole.glob("events_*")
    with pa.input_stream(events, compression="zstd") as stream:
        plain = stream.read()
    lines = plain.splitlines(keepends=True)
    app = whole.name.removeprefix("eventlog_v2_")
    cut = tmp_path / "events" / whole.name
    cut.mkdir(parents=True)
    start = next(n for n, line in enumerate(lines) if b"SparkListenerJobStart" in line)
    size = -(-(len(lines) - start) // 5)
    parts = [lines[:start], *(lines[n : n + size] for n in range(start, len(lines), size))]
    for number, part in enumerate(parts, 1):
        (cut / f"events_{number}_{app}").write_bytes(b"".join(part))
    (cut / f"appstatus_{app}").touch()
    keep = sum(len(line) for part in (parts[0], *parts[-2:]) for line in part)
    log = EventLog(tmp_path / "events", PLACE, lambda: bucket, Clock(), logs_max=3, bytes_max=keep)  # type: ignore[arg-type]
    log.finish()
    left = [info.path for info in bucket.list(PLACE)]
    assert [path for path in left if path.endswith(COMPACT)]
    assert len(left) == 4
    app_shown, jobs = history_server(Path(bucket.url.removeprefix("file://")) / PLACE)
    assert (app_shown["name"], app_shown["attempts"][0]["completed"]) == ("nightly", True)
    assert 1 <= len(jobs) < 4
