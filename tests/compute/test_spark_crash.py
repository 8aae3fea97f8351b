"""Killed drivers, workers and executors leave each micro-batch in the store exactly once."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support import spark_stream
from tussock.statestore import connect
from tussock.statestore.client import StateStore

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

SEED = 20130630
LOCAL, CLUSTER = "local[2, 4]", "local-cluster[2,1,640]"
NEVER = 1 << 30

# What is killed in each run: the driver with all its processes at a random moment ("all"), right after a commit to
# the store that Spark has not noted yet ("committed"), a random Python worker ("python"), an executor ("executor").
KILLS = ["executor", "committed", "python", "all", "executor", "committed", "python", "all"]


def start(folder: Path, master: str, batches: int, die_after: int) -> subprocess.Popen[bytes]:
    """The streaming program in a process group of its own."""
    log = (folder / "output").open("ab")
    arguments = [str(folder), master, str(batches), str(die_after)]
    return subprocess.Popen(
        [sys.executable, spark_stream.__file__, *arguments], start_new_session=True, stdout=log, stderr=log
    )


def members(session: int, words: str) -> list[int]:
    """Processes of that session whose command line holds `words`; Python workers are in process groups of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if os.getsid(int(entry.name)) == session and words in command:
                    found.append(int(entry.name))
            except (OSError, ProcessLookupError):
                continue
    return sorted(found)


def progress(folder: Path) -> int:
    """The newest batch of the totals that the program has committed; -1 if none."""
    try:
        return int((folder / "progress").read_text() or -1)
    except FileNotFoundError:
        return -1


def wait_for_batch(child: subprocess.Popen[bytes], folder: Path, batch: int) -> None:
    """Return when the program has committed that batch, or has ended."""
    deadline = time.monotonic() + 180
    while progress(folder) < batch and child.poll() is None:
        assert time.monotonic() < deadline, (folder / "output").read_text()[-3000:]
        time.sleep(0.02)


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill the driver, Python and Java, at once, then whatever is left; and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in members(child.pid, ""):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a store that has the program's tables."""
    with connect((tmp_path / "store").as_uri()) as store:
        totals = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("total", pa.int64())])
        store.create_table("totals", schema=totals, primary_key=["k"])
        store.create_table("seen", schema=pa.schema([("id", pa.int64()), ("batch", pa.int64())]), primary_key=["id"])
        store.create_table("sink", schema=pa.schema([("id", pa.int64()), ("v", pa.string())]), primary_key=["id"])
    return tmp_path


def check_exact(store: StateStore) -> int:
    """Compare all tables with plain arithmetic; answers how many batches there are."""
    seen = store.table("seen").changes(0)
    batches = seen.num_rows // spark_stream.ROWS_PER_BATCH
    ids = range(batches * spark_stream.ROWS_PER_BATCH)
    assert sorted(seen.column("id").to_pylist()) == list(ids), "a number was written twice or never"
    found = {row["k"]: (row["n"], row["total"]) for batch in store.table("totals").read() for row in batch.to_pylist()}
    keys = range(spark_stream.KEYS if batches else 0)
    assert found == {k: (len(ids[k :: spark_stream.KEYS]), sum(ids[k :: spark_stream.KEYS])) for k in keys}
    sink = store.table("sink").changes(0)
    assert sorted(sink.column("id").to_pylist()) == list(range(sink.num_rows)), "the sink has a row twice or lacks one"
    assert sink.num_rows % spark_stream.ROWS_PER_BATCH == 0
    return batches


@pytest.mark.long
def test_kills_at_random_points_lose_and_repeat_nothing(folder: Path) -> None:
    """Eight kills of drivers, workers and executors, and after each every table is exact; then it runs to its end."""
    chance = random.Random(SEED)
    for what in KILLS:
        newest = progress(folder)
        die_after = newest + 2 if what == "committed" else -1
        child = start(folder, CLUSTER if what == "executor" else LOCAL, NEVER, die_after)
        try:
            wait_for_batch(child, folder, newest + 2)
            if what == "committed":
                assert child.wait(60) == -signal.SIGKILL, "it should have died between our commit and Spark's"
            elif what != "all":
                time.sleep(chance.random())
                victims = members(child.pid, "pyspark.daemon" if what == "python" else "ExecutorBackend")
                assert victims, f"nothing to kill: {(folder / 'output').read_text()[-3000:]}"
                os.kill(chance.choice(victims), signal.SIGKILL)
                # It goes on, or its query fails, which the next run repairs.
                wait_for_batch(child, folder, progress(folder) + 2)
            else:
                time.sleep(chance.random())
        finally:
            end(child)
        with connect((folder / "store").as_uri(), compaction=False) as store:
            assert check_exact(store) > newest
    goal = progress(folder) + 3
    child = start(folder, LOCAL, goal, -1)
    try:
        assert child.wait(180) == 0, (folder / "output").read_text()[-3000:]
    finally:
        end(child)
    with connect((folder / "store").as_uri()) as store:
        assert check_exact(store) >= goal
