"""The traffic of driver and executors is closed to others: Spark itself, with a job's settings, and strangers.

The driver makes executors at a real API server. The test starts them as a kubelet would, from what is in their pods.
"""

import json
import socket
from pathlib import Path

import pytest

from support.operator.computes import World, compute
from support.operator.process import Objects, eventually
from support.operator.spark_drivers import DRIVER_IP, executor_environment, running_driver, running_executor

APPLICATION = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.range(1000).repartition(4).selectExpr("sum(id) AS total").collect()
Path(sys.argv[1]).write_text(str(rows[0].total))
while True:
    time.sleep(1)
"""
STRANGER_SECONDS = 90


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_only_executors_with_the_secret_are_accepted(objects: Objects, tmp_path: Path) -> None:
    """With the secret's file an executor works; with another one, or without, it is refused."""
    world = World(compute(mode="Batch", executor={"replicas": 1}))
    world.settle()
    result = tmp_path / "result"
    with running_driver(objects, tmp_path, world, APPLICATION, str(result)) as driver:
        [pod] = eventually(f"an executor; {driver.log}", driver.executors, 150)
        secret = (tmp_path / "secret").read_text()
        assert "_SPARK_AUTH_SECRET" not in json.dumps(pod)
        assert secret not in json.dumps(pod)
        environment = executor_environment(pod, tmp_path)
        (tmp_path / "other-secret").write_text("of somebody else " * 3)
        of_stranger = {name: value.replace("/secret", "/other-secret") for name, value in environment.items()}
        assert of_stranger != environment
        of_anybody = {name: value for name, value in environment.items() if "-Dspark.authenticate" not in value}
        for who, theirs in (("stranger", of_stranger), ("anybody", of_anybody)):
            log = tmp_path / f"{who}.log"
            with running_executor({**theirs, "EXECUTOR_DRIVER_PROPS_FETCHER_MAX_ATTEMPTS": "1"}, log) as process:
                assert process.wait(STRANGER_SECONDS) != 0
            assert "Successfully registered with driver" not in log.read_text()
        assert not result.exists()
        with running_executor(environment, tmp_path / "executor.log"):
            eventually(f"a result; {tmp_path / 'executor.log'}", result.exists, 120)
            eventually("all of it", lambda: result.read_text() == "499500")
        assert _listens("127.0.0.1", driver.ui_port)
        assert not _listens(DRIVER_IP, driver.ui_port)
        logs = [path.read_text() for path in (driver.log, tmp_path / "executor.log", tmp_path / "stranger.log")]
        assert not [text for text in logs if secret in text]


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True
