"""A task that Spark runs twice because it is slow: the store has the rows of one attempt, the other's are garbage.

Spark never puts the second attempt on the host of the first one, and the hosts of `local-cluster` are one. So this is a
standalone cluster of two workers with different addresses, both on this machine.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyspark.find_spark_home import _find_spark_home

from support.buckets.minio import free_port
from support.chaos.processes import Stage
from support.depth import DEPTH
from support.spark import speculation as spark_speculation
from support.spark.speculation import ROWS
from support.spark.victim import members
from support.store.versions import live_objects
from support.waiting import eventually
from tussock.statestore import connect
from tussock.statestore.keys.spark_hash import spark_hash

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

HOSTS = ("127.0.0.1", "127.0.0.2")
WRITES = ("sink", "stateful") if DEPTH == 1 else ("batch", "sink", "stateful", "application")
SCHEMA = pa.schema([("id", pa.int64()), ("attempt", pa.int32()), ("v", pa.string())])


def start_cluster(stage: Stage, folder: Path) -> str:
    """Start a master and two workers with a core each; returns the master's URL."""
    launcher = Path(_find_spark_home()) / "bin" / "spark-class"
    port = free_port()
    url = f"spark://{HOSTS[0]}:{port}"
    deploy = "org.apache.spark.deploy"
    address = ("--host", HOSTS[0], "--port", str(port), "--webui-port", "0")
    stage.add("master", launcher, f"{deploy}.master.Master", *address, begun="I have been elected leader")
    for host in HOSTS:
        place = (
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(folder / host),
        )
        begun = "Successfully registered with master"
        stage.add(f"worker {host}", launcher, f"{deploy}.worker.Worker", *place, url, begun=begun)
    for actor in stage.actors.values():
        actor.wait_until_begun()
    return url


@pytest.fixture(scope="module")
def program_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program after it has written everything and ended, like all processes of the cluster."""
    folder = tmp_path_factory.mktemp("speculation")
    (folder / "events").mkdir()
    for name in WRITES:
        with connect((folder / name).as_uri()) as store:
            store.create_table("t", schema=SCHEMA, primary_key=["id"])
    with Stage(folder, 0) as stage:
        master = start_cluster(stage, folder)
        command = [sys.executable, spark_speculation.__file__, master, str(folder), *WRITES]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
        assert ran.returncode == 0, ran.stderr[-4000:]
    # Python workers that Spark has given up end by themselves; until then they may upload.
    eventually(lambda: not any(members(actor.pid) for actor in stage.actors.values()))
    return folder


def overtaken(folder: Path, write: str) -> list[tuple[str, str]]:
    """Hosts of the first and the second attempt of each task in that write of which only the second succeeded.

    By Spark's event log.
    """
    (log,) = (folder / "events").iterdir()
    stages: set[int] = set()
    hosts: dict[tuple[int, int, int], str] = {}
    speculative, succeeded = set(), set()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerStageSubmitted" and event["Properties"].get("write") == write:
            stages.add(event["Stage Info"]["Stage ID"])
        if event["Event"] in ("SparkListenerTaskStart", "SparkListenerTaskEnd") and event["Stage ID"] in stages:
            task = event["Task Info"]
            attempt = (event["Stage ID"], task["Index"], task["Attempt"])
            hosts[attempt] = task["Host"]
            if task["Speculative"]:
                speculative.add(attempt)
            if event.get("Task End Reason", {}).get("Reason") == "Success":
                succeeded.add(attempt)
    won = [attempt for attempt in speculative & succeeded if (*attempt[:2], 0) not in succeeded]
    return [(hosts[(*attempt[:2], 0)], hosts[attempt]) for attempt in won]


def in_slow_task(write: str, ids: pa.Array) -> npt.NDArray[np.bool_]:
    """The rows of the task whose first attempt stood still: its share, or what Spark's hash gave it."""
    if write in ("batch", "sink"):
        return ids.to_numpy() % 2 == 0
    return spark_hash([ids]) % 2 == 0


@pytest.mark.parametrize("write", WRITES)
def test_one_attempt_of_a_slow_task_is_in_the_store(program_folder: Path, write: str) -> None:
    """It is the second attempt, though the first may have uploaded rows: no version names these; vacuum finds them."""
    tasks = overtaken(program_folder, write)
    assert tasks, "Spark has launched no speculative attempt, or none that won"
    assert all(first != second for first, second in tasks)
    with connect((program_folder / write).as_uri(), gc_grace=0, compaction=False) as store:
        rows = pa.Table.from_batches(store.table("t").changes(0)).combine_chunks()
        assert sorted(rows.column("id").to_pylist()) == list(range(ROWS)), "a row was written twice or never"
        slow = in_slow_task(write, rows.column("id").chunk(0))
        attempt = rows.column("attempt").to_numpy()
        assert set(attempt[slow]) == {1}, "the first attempt of the slow task ended after the commit"
        assert len(set(attempt[~slow])) == 1, "rows of two attempts of one task"
        named = live_objects(store.version())
        # Hidden is what an upload leaves that was cut off: a temporary file, and no object.
        there = {f"sst/{path.name}" for path in (program_folder / write / "sst").glob("[!.]*")}
        if write != "application":
            # A task of an application uploads at its end, unless its buffer is full.
            assert named < there, "the first attempt has left nothing, so it had not uploaded"
        assert {path for path, _ in store.vacuum(dry_run=True).deleted if path.startswith("sst/")} == there - named
