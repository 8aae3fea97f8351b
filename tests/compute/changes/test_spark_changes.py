"""The change feed through Spark itself: batches, streams, `availableNow`, and a driver that is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from support.depth import DEPTH
from support.models.change_history import Change, History
from support.spark import changes as spark_changes
from tussock.statestore import connect
from tussock.statestore.client import StateStore

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

NEVER = -1
TOO_SLOW = "Python worker failed to connect back"
"""Spark gives the process of a source ten seconds to start, whatever its settings; a busy machine may not keep that."""
STARTS_MAX = 20
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("x", pa.float64())])


@pytest.fixture
def history(store: StateStore) -> History:
    """A table with four epochs of changes."""
    made = History(store, 21)
    for _ in range(4):
        made.commit()
    return made


def rows_of(frame: Any) -> list[Change]:
    """A DataFrame's changes, sorted."""
    return sorted((row["_epoch"], row["id"], row["_op"], row["v"]) for row in frame.collect())


@pytest.mark.long
def test_a_batch_reads_the_changes_between_two_epochs(spark: Any, url: str, history: History) -> None:
    """Each evaluation gives the same, with the time of the commit, and without images if they are not wanted."""
    feed = spark.read.format("tussock").options(store=url, readChangeFeed=True)
    everything = feed.load("t")
    first = rows_of(everything)
    history.commit()
    assert first == rows_of(everything) == history.between(0, history.epochs[3])
    late = (
        everything.where(f"_epoch > {history.epochs[2]}").selectExpr("unix_millis(_commit_timestamp) AS ms").distinct()
    )
    assert [row.ms for row in late.collect()] == [history.epochs[3] >> 16]
    bounds = {"startingEpoch": history.epochs[2], "endingEpoch": history.epochs[2], "beforeImages": False}
    bare = feed.options(**bounds).load("t").collect()
    expected = [change[1:3] for change in history.between(history.epochs[1], history.epochs[2])]
    assert sorted((row.id, row["_op"]) for row in bare) == [one for one in expected if one[1] != "update_preimage"]
    assert all(row.v is None for row in bare if row["_op"] == "delete")


@pytest.mark.long
def test_a_stream_reads_each_epoch_once_over_restarts(
    spark: Any, store: StateStore, url: str, history: History, tmp_path: Path
) -> None:
    """With `availableNow` it ends at what was there when it began; the next run continues from the checkpoint.

    Of a table that was created anew it does not.
    """
    seen: list[list[Change]] = []

    def run(**options: Any) -> None:
        feed = spark.readStream.format("tussock").options(store=url, readChangeFeed=True, **options).load("t")
        query = feed.writeStream.foreachBatch(lambda rows, _: seen.append(rows_of(rows)))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        for _ in range(STARTS_MAX):
            try:
                query.start().awaitTermination()
                return
            except StreamingQueryException as error:
                if TOO_SLOW not in str(error):
                    raise
        pytest.fail(f"Spark did not wait for the process of the source, {STARTS_MAX} times")

    run(maxEpochsPerTrigger=3)
    assert [len({change[0] for change in batch}) for batch in seen] == [3, 1]
    history.commit()
    history.commit()
    run()
    assert sorted(change for batch in seen for change in batch) == history.between(0, history.epochs[-1])
    store.drop_table("t")
    store.create_table("t", schema=SCHEMA, primary_key=["id"])
    before = len(seen)
    with pytest.raises(StreamingQueryException, match=r"SchemaMismatch: table 't' .* is not the one whose changes"):
        run()
    assert len(seen) == before


def start(url: str, folder: Path, die_after: int) -> subprocess.Popen[bytes]:
    """Start the copying program in a new process group."""
    with (folder / "output").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, spark_changes.__file__, url, str(folder), str(die_after)],
            start_new_session=True,
            stdout=log,
            stderr=log,
        )


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill whatever is left of the program."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def wait_for(child: subprocess.Popen[bytes], what: Callable[[], object]) -> None:
    """Return once the condition holds, or the program has ended; a JVM may take minutes to start on a busy machine."""
    deadline = time.monotonic() + 600
    while not what() and child.poll() is None:
        assert time.monotonic() < deadline, "nothing has happened for ten minutes"
        time.sleep(0.1)


@pytest.fixture
def copy_store(url: str) -> Iterator[StateStore]:
    """A store with a table `log` for the changes of a table `t`."""
    fields = [*SCHEMA, pa.field("op", pa.string()), pa.field("epoch", pa.int64())]
    with connect(url, compaction=False) as store:
        store.create_table("log", schema=pa.schema(fields), primary_key=["id", "op", "epoch"])
        yield store


def logged_changes(store: StateStore) -> list[Change]:
    """The changes that the program has noted."""
    rows = [row for batch in store.table("log").read() for row in batch.to_pylist()]
    return sorted((row["epoch"], row["id"], row["op"], row["v"]) for row in rows)


@pytest.mark.long
def test_a_killed_driver_loses_and_repeats_no_change(copy_store: StateStore, url: str, tmp_path: Path) -> None:
    """Killed between the commit in the store and Spark's note of it; the log has each change once."""
    history = History(copy_store, 22)
    history.commit()
    for die_after in (3, NEVER) if DEPTH == 1 else (1, 3, NEVER):
        child = start(url, tmp_path, die_after)
        try:
            # Once the source knows its start, nothing that is committed from here on may be lost.
            wait_for(child, lambda: copy_store.committed_batch("changes of t to copy", 0))
            begun = copy_store.committed_batch("changes of t to copy", 0)
            assert begun is not None, (tmp_path / "output").read_text()[-3000:]
            for _ in range(3):
                history.commit()
            expected = history.between(begun, history.epochs[-1])
            if die_after == NEVER:
                wait_for(child, lambda: len(logged_changes(copy_store)) >= len(expected))  # noqa: B023 - it is called here
            else:
                assert child.wait(600) == -signal.SIGKILL, (tmp_path / "output").read_text()[-3000:]
        finally:
            end(child)
    assert logged_changes(copy_store) == expected, (tmp_path / "output").read_text()[-3000:]
    notes = [row["_op"] for batch in copy_store.table("log").change_feed(0) for row in batch.to_pylist()]
    assert set(notes) == {"insert"}, "a change was noted twice"
