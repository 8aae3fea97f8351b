"""How full the volume of a checkpoint is, as the driver reports it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.waiting import eventually
from tussock.compute.driver.disk import DiskWatch, used_percent
from tussock.compute.driver.scale import Scaler
from tussock.compute.driver.watch import Watch
from tussock.statestore.base.system import RealSystem


def file_system(blocks: int, free: int, available: int, files: int = 0, free_files: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        f_blocks=blocks, f_bfree=free, f_bavail=available, f_files=files, f_ffree=free_files, f_favail=free_files
    )


@pytest.mark.parametrize(
    ("found", "percent"),
    [
        (file_system(100, 100, 100), 0),
        (file_system(1000, 149, 149), 86),
        (file_system(100, 10, 5), 95),
        (file_system(100, 5, 0), 100),
        (file_system(100, 90, 90, files=200, free_files=10), 95),
        (file_system(100, 90, 90, files=0), 10),
        (file_system(0, 0, 0), 0),
    ],
    ids=["empty", "rounded up", "reserved for root", "full", "out of files", "files are not counted", "no disk at all"],
)
def test_bytes_and_files_count_as_df_counts_them(
    found: SimpleNamespace, percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: found)
    assert used_percent(Path("/")) == percent


def test_the_status_has_the_last_look(tmp_path: Path) -> None:
    """A volume that is away is not known to be full, and a look at it ends nothing."""
    disk = DiskWatch(tmp_path, RealSystem())
    watch = Watch(Scaler(tmp_path / "executors", None), RealSystem(), is_stream=True, disk=disk)
    watch.step()
    assert watch.status.checkpoint_used_percent is None

    seen = []

    def looked_while_nothing_changed() -> bool:
        seen.append(used_percent(tmp_path))
        disk.look()
        return used_percent(tmp_path) == seen[-1]

    eventually(looked_while_nothing_changed)  # others write to the same disk
    watch.step()
    assert watch.status.checkpoint_used_percent == seen[-1]
    gone = DiskWatch(tmp_path / "gone", RealSystem())
    gone.look()
    assert gone.used_percent is None


STREAM = """
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()

def write(rows, batch):
    print("batch", batch, flush=True)
    if batch == int(os.environ["LAST"]):
        query.stop()

rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, startTimestamp=0).load()
place = "file://" + os.environ["TUSSOCK_CHECKPOINT"] + "/query"
query = rows.writeStream.foreachBatch(write).option("checkpointLocation", place).start()
query.awaitTermination()
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, which a checkpoint fills within twenty batches."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)], check=False)
    except OSError:
        pytest.skip("no mount on this machine")
    if mounted.returncode:
        pytest.skip("this user may mount nothing")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.spark
def test_a_stream_whose_volume_was_full_goes_on_when_it_has_grown(small_disk: Path, tmp_path: Path) -> None:
    """It fails with the words that the operator looks for, and continues with the batch that found no room."""

    def run(last: int) -> tuple[int, list[int], str]:
        told = tmp_path / "termination"
        told.unlink(missing_ok=True)
        (tmp_path / "stream.py").write_text(STREAM)
        settings = {"TUSSOCK_CHECKPOINT": str(small_disk), "TUSSOCK_TERMINATION_FILE": str(told), "LAST": str(last)}
        environ = {**os.environ, **settings, "TUSSOCK_STATUS_PORT": "0"}
        command = [sys.executable, "-m", "tussock.compute.driver", str(tmp_path / "stream.py")]
        ran = subprocess.run(command, env=environ, capture_output=True, check=False, text=True, timeout=120)
        batches = [int(found) for found in re.findall(r"^batch (\d+)$", ran.stdout, re.MULTILINE)]
        return ran.returncode, batches, told.read_text() if told.exists() else ran.stderr

    code, before, told = run(1000)
    assert code == 1, told
    assert "No space left on device" in told.partition("\n\n")[0]
    assert used_percent(small_disk) >= 95
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    assert used_percent(small_disk) < 50
    code, after, told = run(before[-1] + 5)
    assert code == 0, told
    assert after[0] in (before[-1], before[-1] + 1)
