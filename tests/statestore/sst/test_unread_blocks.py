"""Blocks that a filter on values leaves unread: of each key the reader sees what it saw, or nothing that passes."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from support.depth import DEPTH
from support.store.ssts import store_ssts
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.format.value_bounds import ValueTest
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.iterators import ConcatIterator, MergeIterator, ReadRange, UserIterator
from tussock.statestore.sst.lookups.lookup import RunIndex
from tussock.statestore.sst.reader import Sstables

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("text", pa.binary())])


class Version(NamedTuple):
    """One version of a key; without a number it is null, and deleted it is a delete."""

    key: bytes
    epoch: int
    number: int | None
    deleted: bool = False


def spec_of(block_bytes: int) -> TableSpec:
    return TableSpec(
        id=1,
        name="t",
        schema=SCHEMA.serialize().to_pybytes(),
        primary_key=("id",),
        distribution_key=("id",),
        vnodes=1,
        block_bytes=block_bytes,
    )


def rows_of(versions: Sequence[Version], text: bytes) -> Rows:
    """The versions as the writer takes them."""
    ordered = sorted(versions, key=lambda version: (version.key, -version.epoch))
    deletes = np.array([version.deleted for version in ordered], np.bool_)
    return Rows(
        pa.array([version.key for version in ordered], pa.binary()),
        np.array([version.epoch for version in ordered], np.uint64),
        deletes if deletes.any() else None,
        (pa.array([version.number for version in ordered], pa.int64()), pa.array([text] * len(ordered), pa.binary())),
    )


class Runs:
    """Sorted runs in a bucket, newest first, and a brute-force reader of the same."""

    def __init__(
        self, runs: Sequence[Sequence[Version]], *, text: bytes = b"x" * 100, sst_bytes: int = 1 << 20
    ) -> None:
        self.versions = runs
        bucket = open_bucket("memory://")
        self.sstables = Sstables(bucket, 1 << 20, RealSystem())
        self.ssts: list[tuple[SstInfo, ...]] = [
            store_ssts(bucket, spec_of(1024), [rows_of(run, text)], sst_bytes=sst_bytes) for run in runs
        ]
        self.indexes = [RunIndex(run) for run in self.ssts]

    def read(
        self, tests: Sequence[ValueTest], epoch: int, *, reverse: bool = False, few: bool = False
    ) -> list[tuple[bytes, int | None]]:
        """What a scan shows of it, in its order; gaps of any size are left."""
        want = ReadRange(
            reverse=reverse, few=few, fill=False, newest_at=epoch, step_bytes=1, types=[pa.int64(), pa.binary()]
        )
        sources = [
            ConcatIterator(self.sstables, run, want._replace(tests=tests, beneath=self.indexes[position:]))
            for position, run in enumerate(self.ssts, 1)
        ]
        merged = MergeIterator(sources, reverse=reverse, newest_at=epoch)
        batches = list(UserIterator(merged, epoch, reverse=reverse))
        return [
            row
            for rows in batches
            for row in list(zip(rows.keys.to_pylist(), rows.columns[0].to_pylist(), strict=True))[:: 1 - 2 * reverse]
        ]

    def expected(self, epoch: int) -> dict[bytes, int | None]:
        """Of each key the first run's newest version at the epoch, if that is no delete."""
        seen: dict[bytes, Version] = {}
        for run in self.versions:
            newest: dict[bytes, Version] = {}
            for version in run:
                if version.epoch <= epoch and version.epoch > newest.get(version.key, version._replace(epoch=-1)).epoch:
                    newest[version.key] = version
            seen = newest | seen
        return {key: version.number for key, version in sorted(seen.items()) if not version.deleted}

    def blocks(self, run: int) -> int:
        """How many blocks a run has."""
        return sum(self.sstables.meta(sst).blocks for sst in self.ssts[run])


@pytest.fixture
def made() -> Iterator[list[Runs]]:
    runs: list[Runs] = []
    yield runs
    for one in runs:
        one.sstables.close()


AT_LEAST_100 = [ValueTest(0, ">=", 100)]


def key(number: int) -> bytes:
    return b"\0\0%04d" % number


def test_blocks_and_ssts_without_a_passing_row_are_not_read(made: list[Runs]) -> None:
    """A single run: what is read are the blocks around the rows that pass."""
    run = Runs([[Version(key(at), 1, at) for at in range(400)]], sst_bytes=8000)
    made.append(run)
    assert len(run.ssts[0]) > 4
    found = run.read([ValueTest(0, "in", (7, 399))], 1)
    assert {(key(7), 7), (key(399), 399)} <= set(found)
    assert len(found) < 40
    assert run.read([ValueTest(0, ">", 399)], 1) == []
    assert run.read([ValueTest(0, ">=", 100), ValueTest(0, "<", 100)], 1) != run.read([], 1)


def test_a_block_over_an_older_row_is_read(made: list[Runs]) -> None:
    """The newer row of key 200 fails the test and hides one that passes it."""
    run = Runs([[Version(key(200), 2, 0)], [Version(key(at), 1, 100 + at) for at in range(400)]])
    made.append(run)
    assert dict(run.read(AT_LEAST_100, 2))[key(200)] == 0
    assert dict(run.read(AT_LEAST_100, 1))[key(200)] == 300


def test_a_delete_over_an_older_row_is_read(made: list[Runs]) -> None:
    """A delete has no value to pass anything, and hides what is older."""
    older = [Version(key(at), 1, 100) for at in range(400)]
    run = Runs([[Version(key(at), 2, None, deleted=True) for at in range(400)], older])
    made.append(run)
    assert run.read(AT_LEAST_100, 2) == []
    assert len(run.read(AT_LEAST_100, 1)) == 400


def test_a_newer_block_beside_the_older_runs_is_not_read(made: list[Runs]) -> None:
    """Nothing lies beneath the blocks of the newer run: not even in the gap between two older SSTs."""
    older = [Version(key(at), 1, 100 + at) for at in range(100)]
    run = Runs([[Version(key(at), 2, 0) for at in range(300, 400)], older])
    made.append(run)
    assert run.read(AT_LEAST_100, 2) == [(version.key, version.number) for version in older]


def test_a_block_whose_last_key_goes_on_in_a_block_that_is_read_is_read(made: list[Runs]) -> None:
    """The newest version of a hot key fails, its older ones, in the next blocks, pass."""
    hot = [Version(key(5), epoch, 0 if epoch > 150 else 500) for epoch in range(2, 200)]
    run = Runs([[Version(key(at), 1, 0) for at in range(5)] + hot + [Version(key(at), 1, 0) for at in range(6, 50)]])
    made.append(run)
    assert run.blocks(0) > 10
    assert dict(run.read(AT_LEAST_100, 199)).get(key(5), 0) == 0
    assert dict(run.read(AT_LEAST_100, 150))[key(5)] == 500
    assert dict(run.read(AT_LEAST_100, 1)).get(key(5), 0) == 0


@pytest.mark.parametrize("seed", range(6 * DEPTH))
def test_random_runs_show_what_passes_and_nothing_else(made: list[Runs], seed: int) -> None:
    """Runs that overlap in any way, versions of a key over many blocks, deletes, at every epoch, both ways."""
    rng = random.Random(seed)
    keys = [key(at) for at in range(rng.choice([6, 60, 300]))]
    runs: list[list[Version]] = []
    epoch = 0
    for _ in range(rng.randint(1, 4)):
        versions: dict[tuple[bytes, int], Version] = {}
        low, high = sorted(rng.choices(range(len(keys) + 1), k=2))
        first, epoch = epoch + 1, epoch + rng.choice([1, 1, 4, 60])
        base = rng.choice([0, 0, 100])
        for place, name in enumerate(keys[low:high], low):
            for at in rng.sample(range(first, epoch + 1), rng.randint(0, min(epoch + 1 - first, 40))):
                # Numbers follow keys and epochs, so that neighbours have like ones, as times have.
                number = base + place // 3 + (at - first) // 8 if place % 7 else None
                versions[name, at] = Version(name, at, number, rng.random() < 0.1)
        if versions:
            runs.insert(0, list(versions.values()))
    if not runs:
        return
    world = Runs(runs, text=b"y" * rng.choice([0, 60, 300]), sst_bytes=rng.choice([3000, 1 << 20]))
    made.append(world)
    for _ in range(20):
        at, bound = rng.randint(1, epoch), rng.choice([0, 5, 20, 100, 120])
        test = rng.choice([ValueTest(0, ">", bound), ValueTest(0, "<=", bound), ValueTest(0, "in", (bound, bound + 3))])
        reverse, few = rng.random() < 0.3, rng.random() < 0.3
        shown = world.read([test], at, reverse=reverse, few=few)
        everything = world.expected(at)
        assert shown == sorted(shown, reverse=reverse)
        assert all(everything[name] == number for name, number in shown), "nothing that was hidden is seen"
        assert {name for name, number in everything.items() if passes(test, number)} <= dict(shown).keys()


def passes(test: ValueTest, number: int | None) -> bool:
    if number is None:
        return False
    if test.operator == "in":
        return number in test.value
    return number > test.value if test.operator == ">" else number <= test.value
