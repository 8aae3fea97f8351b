"""Real processes on one store: they commit at once, compact concurrently, and are killed at any moment."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.store.child import rows_of
from support.store.stores import changes_of, pairs
from tussock.meta.version.invariants import problems
from tussock.statestore import StateStore, connect

CHILD = Path(__file__).parents[2] / "support" / "store" / "child.py"
BATCHES = 25


@contextmanager
def child(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A process of `support/store/child.py`, killed at the end if it is still there."""
    process = subprocess.Popen(
        [sys.executable, CHILD, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.minio)])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place that several processes can open."""
    if request.param == "file":
        return (tmp_path / "state").as_uri()
    server: MinioServer = request.getfixturevalue("minio")
    return server.fresh_url()


def test_two_processes_commit_at_once_while_a_third_compacts_and_vacuums(shared_url: str) -> None:
    """Each commit gets a different final epoch, every row is there, and snapshots taken between never change."""
    with connect(shared_url, compaction=False) as store:
        kv = store.create_table("kv")
        with (
            child("commit", shared_url, "x", str(BATCHES)) as x,
            child("commit", shared_url, "y", str(BATCHES)) as y,
            child("upkeep", shared_url) as upkeep,
        ):
            assert [line(x), line(y), line(upkeep)] == ["ready"] * 3
            go(x)
            go(y)
            answers: dict[str, list[int]] = {"x": [], "y": []}
            snapshots = []
            for at in range(BATCHES):
                for name, process in (("x", x), ("y", y)):
                    batch, epoch = map(int, line(process).split())
                    assert batch == at
                    answers[name].append(epoch)
                if at % 5 == 0:
                    snapshot = store.pin_snapshot()
                    snapshots.append((snapshot, pairs(snapshot.table("kv").scan())))
            assert line(upkeep) == "once"
            go(upkeep)
            assert int(line(upkeep)) >= 1
        final = sorted(answers["x"] + answers["y"])
        assert len(set(final)) == 2 * BATCHES
        assert all(epochs == sorted(epochs) for epochs in answers.values())
        assert store.committed_epoch == final[-1]
        by_epoch = {epoch: (name, batch) for name in answers for batch, epoch in enumerate(answers[name])}

        def expected_rows(until: int) -> list[tuple[bytes, bytes]]:
            rows: dict[bytes, bytes] = {}
            for epoch in final:
                if epoch <= until:
                    rows.update(rows_of(*by_epoch[epoch]))
            return sorted(rows.items())

        store.compact("kv")
        store.vacuum()
        for epoch in final:
            assert pairs(kv.scan(epoch=epoch)) == expected_rows(epoch)
        for snapshot, before in snapshots:
            assert before == expected_rows(snapshot.epoch)
            assert pairs(snapshot.table("kv").scan()) == before
            snapshot.close()
        assert len(changes_of(kv)) == 12 * BATCHES
        assert problems(store.version()) == []  # type: ignore[arg-type]


def test_two_processes_count_together_by_conditional_commits(shared_url: str) -> None:
    """Read, add one, commit if no other process did, or repeat: no update is lost."""
    with connect(shared_url, compaction=False) as store:
        kv = store.create_table("kv")
        with child("count", shared_url, "x", "20") as x, child("count", shared_url, "y", "20") as y:
            assert [line(x), line(y)] == ["ready"] * 2
            go(x)
            go(y)
            assert [line(x), line(y)] == ["x", "y"]
        store.wait_epoch(store.committed_epoch)
        assert kv.get(b"counter") == b"40"


def check_after_kill(store: StateStore, acknowledged: int) -> int:
    """Everything acknowledged is there, whole and once; returns the next batch, after one that was perhaps in doubt."""
    kv = store.table("kv")
    known = 0
    while store.committed_batch("w", known) is not None and known <= acknowledged + 1:
        known += 1
    assert known > acknowledged, "an acknowledged commit is there"
    expected: dict[bytes, bytes] = {}
    for batch in range(known):
        expected.update(rows_of("w", batch))
    assert pairs(kv.scan()) == sorted(expected.items()), "whole, and nothing half"
    changes = changes_of(kv)
    assert len(changes) == 6 * known, "once"
    assert len({row["epoch"] for row in changes}) == known
    assert problems(store.version()) == []  # type: ignore[arg-type]
    return known


@pytest.mark.long
def test_a_writer_that_is_killed_at_any_moment_loses_nothing_that_it_acknowledged(shared_url: str) -> None:
    """`kill -9` after seeded pauses, repeatedly: spills, commits, compactions and vacuums are interrupted."""
    chance = random.Random(20)
    with connect(shared_url) as store:
        store.create_table("kv")
    next_batch = 0
    for _ in range(5):
        with child("write", shared_url, str(next_batch)) as writer:
            assert line(writer) == "ready"
            acknowledged = next_batch - 1
            # How far it gets is the machine's doing; where in a batch it dies, the pause's.
            for _ in range(chance.randrange(1, 12)):
                acknowledged = int(line(writer))
            time.sleep(chance.random() * 0.03)
            writer.send_signal(signal.SIGKILL)
            rest, _ = writer.communicate()
            acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
        with connect(shared_url, compaction=False) as store:
            next_batch = check_after_kill(store, acknowledged)
    with connect(shared_url, gc_grace=0, compaction=False) as store:
        # Claims of the dead expire; their orphans go when nothing of theirs can be in flight.
        store.vacuum()
        check_after_kill(store, next_batch - 1)
