"""The programs that stand in manifests of `examples/kubernetes` run, and count what they read once."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tussock.statestore import connect

SCALE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "scale.yaml"
SECONDS_MAX = 240


@pytest.mark.spark
@pytest.mark.slow
def test_job_of_the_scale_example(tmp_path: Path) -> None:
    """Every epoch holds whole batches: each of the thousand keys was counted as often as the others."""
    (config_map,) = [
        body for body in yaml.safe_load_all(SCALE.read_text(encoding="utf-8")) if body["kind"] == "ConfigMap"
    ]
    program = tmp_path / "job.py"
    program.write_text(config_map["data"]["job.py"], encoding="utf-8")
    url = (tmp_path / "store").as_uri()
    conf = "--conf spark.sql.shuffle.partitions=2 --conf spark.ui.enabled=false --conf spark.driver.memory=1g"
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--master local[2] {conf} pyspark-shell",
        "PYSPARK_PYTHON": sys.executable,
        "TUSSOCK_STORE": url,
        "TUSSOCK_WRITER_ID": "metrics",
    }
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen([sys.executable, str(program)], cwd=tmp_path, env=environment, stdout=log, stderr=log)
        try:
            counts: set[int] = set()
            with connect(url, compaction=False) as store:
                deadline = time.monotonic() + SECONDS_MAX
                while not counts:
                    running = job.poll() is None and time.monotonic() < deadline
                    assert running, (tmp_path / "log").read_text()[-4000:]
                    time.sleep(1)
                    if "counts" in store.tables():
                        found = store.table("counts").read()
                        counts = {value for batch in found for value in batch.column("count").to_pylist()}
            (each,) = counts
            assert each % 100 == 0
        finally:
            job.kill()
            job.wait()
