"""Random transactions that share commits, in threads of one store and of several processes, are serializable.

Those of one epoch have no order that anybody is told, so the graph of their dependencies is searched for a circle.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from support.depth import DEPTH
from support.models.dependencies import Done, broken_order
from support.service.platforms import Platform
from support.store import sharers
from support.store.sharers import journaled, share
from tussock.statestore import StateStore, connect

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
PROCESSES = 3
SEEDS = range(1, 1 + 2 * DEPTH)
BETWEEN = ((0,), (sharers.KEYS,))


@pytest.fixture(params=["bucket", "platform"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    bucket = (tmp_path / "bucket").as_uri()
    if request.param == "bucket":
        yield bucket
        return
    with Platform(bucket, compactors=1) as platform:
        yield platform.url


@contextmanager
def opened(url: str) -> Iterator[StateStore]:
    with connect(url) as store:
        if "t" not in store.tables():
            store.create_table("t", SCHEMA, primary_key=["k"])
        yield store


def check(store: StateStore, done: list[Done], least: int) -> None:
    """There is a serial order; and enough has committed, and shared its epoch, for that to mean something."""
    final = {row["k"]: row["v"] for batch in store.table("t").read(between=BETWEEN) for row in batch.to_pylist()}
    assert not broken_order(done, final)
    assert len(done) > least
    epochs = Counter(one.epoch for one in done if one.writes)
    shared = sum(count for count in epochs.values() if count > 1)
    assert shared > len(done) / 20, f"{shared} of {len(done)} transactions shared an epoch"


@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_of_threads_are_serializable(url: str, seed: int) -> None:
    """Of one store."""
    with opened(url) as store:
        check(store, share(store, "a", seed), sharers.THREADS * sharers.COUNT // 4)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_transactions_of_threads_of_several_processes_are_serializable(url: str, seed: int, tmp_path: Path) -> None:
    """Each process shares among its threads, and meets the others at the log."""
    with opened(url) as store:
        names = [f"p{number}" for number in range(PROCESSES)]
        command = [sys.executable, "-P", sharers.__file__, url]
        processes = [
            subprocess.Popen(
                [*command, str(tmp_path / name), name, str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(os.environ),
            )
            for name in names
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=300)
            assert process.returncode == 0
        done = [one for name in names for one in journaled(tmp_path / name)]
        store.wait_epoch(max(one.epoch for one in done))
        check(store, done, PROCESSES * sharers.THREADS * sharers.COUNT // 8)


def test_what_is_no_serial_order_is_found() -> None:
    """Write skew, a lost update, a phantom, and a read of what was never committed, in one epoch and in two."""
    for epoch in (1, 2):
        skew = [Done("a", {1: None}, {2: "a"}, 1), Done("b", {2: None}, {1: "b"}, epoch)]
        assert "a > b > a" in broken_order(skew, {1: "b", 2: "a"}) or "b > a > b" in broken_order(
            skew, {1: "b", 2: "a"}
        )
        lost = [Done("a", {1: None}, {1: "a"}, 1), Done("b", {1: None}, {1: "b"}, epoch)]
        assert "each has to come before" in broken_order(lost, {1: "b"})
        phantom = [Done("a", {1: None, 2: None}, {3: "a"}, 1), Done("b", {3: "a"}, {2: "b"}, epoch)]
        assert not broken_order(phantom, {2: "b", 3: "a"})
        phantom[0] = Done("a", {1: None, 2: "b"}, {3: "a"}, 1)
        assert "each has to come before" in broken_order(phantom, {2: "b", 3: "a"})
    assert "nobody has committed" in broken_order([Done("a", {1: "x"}, {}, 1)], {})
    blind = [Done("a", {}, {1: "a"}, 1), Done("b", {}, {1: "b"}, 1), Done("c", {1: "a"}, {}, 1)]
    assert not broken_order(blind, {1: "a"})
    assert "another version of epoch 1" in broken_order(blind, {1: "b"})
    assert "in the end" in broken_order([*blind[:2], Done("c", {}, {1: "c"}, 2)], {1: "a"})
