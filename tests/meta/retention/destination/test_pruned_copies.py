"""Copies that a rule does not keep are deleted by the catalogue: the right ones, never the last, beside others."""

import contextlib

import pytest

from support.backups.backed_up import InlineSystem, NumberedBuckets, calls_of, fill_source
from support.backups.destinations import add_backup, copy, destination_on, verify_all
from support.buckets.faulty_bucket import Crash, Fate, FaultyBucket
from support.store.versions import ModelBucket
from tussock.meta.retention.destination.deletion import expired_copies, prune_copies
from tussock.meta.retention.destination.records import part_of
from tussock.statestore.contract.copies import CopyInfo, CopyRule
from tussock.statestore.errors import ObjectStoreUnavailable


def info(name: str, created: int, finished: int = 1) -> CopyInfo:
    return CopyInfo(
        name=name,
        id="0" * 32,
        part=1,
        owner="test",
        begun_ms=0,
        created_ms=created * 1000,
        epoch=1,
        ssts=1,
        bytes=1,
        finished_ms=finished,
    )


ALL = [info("n-3", 30), info("n-1", 10), info("n-2", 20), info("other", 5), info("n-4", 40, finished=0)]


@pytest.mark.parametrize(
    ("rule", "spared", "gone"),
    [
        (CopyRule(count=2), "", ["other", "n-1"]),
        (CopyRule(prefix="n-", count=2), "", ["n-1"]),
        (CopyRule(prefix="n-", count=1), "", ["n-1", "n-2"]),
        (CopyRule(prefix="n-", count=1), "n-1", ["n-2"]),
        (CopyRule(prefix="n-", seconds=25), "", ["n-1"]),
        (CopyRule(prefix="n-", seconds=1), "", ["n-1", "n-2"]),
        (CopyRule(prefix="n-", count=2, seconds=1), "", ["n-1"]),
        (CopyRule(prefix="n-", count=1, seconds=25), "", ["n-1"]),
        (CopyRule(prefix="n-", count=9), "", []),
        (CopyRule(prefix="m-", count=1), "", []),
    ],
)
def test_a_copy_stays_if_count_or_age_keeps_it(rule: CopyRule, spared: str, gone: list[str]) -> None:
    """The oldest go first; one that is being made, others' and the newest stay whatever their age."""
    assert expired_copies(ALL, rule, spared, 40_000) == gone


@pytest.fixture
def system() -> InlineSystem:
    return InlineSystem()


@pytest.fixture
def source(system: InlineSystem) -> ModelBucket:
    """A store with backups `b`, `c`, `d`."""
    bucket = fill_source(ModelBucket(system, "model://source"), system)
    for name in ("c", "d"):
        system.forward(100)
        add_backup(bucket, system, name)
    return bucket


def copied_all(source: ModelBucket, system: InlineSystem) -> ModelBucket:
    target = ModelBucket(system, "model://target")
    for name in ("b", "c", "d"):
        copy(source, target, system, name)
    return target


def prune(
    bucket: ModelBucket | FaultyBucket, system: InlineSystem, rule: CopyRule, spared: str = ""
) -> tuple[str, ...]:
    return prune_copies(destination_on(bucket, system), rule, spared=spared, now_ms=system.now_ms())


def test_what_is_kept_stays_whole(source: ModelBucket, system: InlineSystem) -> None:
    """And what only the others needed goes; once more there is nothing to do, and no entry of the catalogue."""
    target = copied_all(source, system)
    assert prune(target, system, CopyRule(count=2)) == ("b",)
    assert verify_all(target, system) == ["c", "d"]
    entries = [path for path in target.objects if path.startswith("catalogue/")]
    assert prune(target, system, CopyRule(count=2)) == ()
    assert [path for path in target.objects if path.startswith("catalogue/")] == entries
    assert prune(target, system, CopyRule(seconds=50), spared="c") == ()
    system.forward(10_000)
    assert prune(target, system, CopyRule(seconds=50)) == ("c",)
    assert verify_all(target, system) == ["d"]
    assert prune(target, system, CopyRule(seconds=0)) == ()


@pytest.mark.parametrize("fate", [Fate.CRASH, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_a_failure_at_any_request_leaves_what_is_kept_whole(
    source: ModelBucket, system: InlineSystem, fate: Fate
) -> None:
    """And the next call ends what was begun, without garbage."""
    target, rule = copied_all(source, system), CopyRule(count=1)
    began = dict(target.objects)
    total = calls_of(lambda _, b: prune(b, system, rule), source, target)
    assert total > 6
    for at in range(1, total + 1):
        target.objects = dict(began)
        with contextlib.suppress(Crash, ObjectStoreUnavailable):
            prune(NumberedBuckets(source, target, {at: fate}).target, system, rule)
        assert "d" in verify_all(target, system)
        prune(target, system, rule)
        assert verify_all(target, system) == ["d"]
        parts = {part_of(path) for path in target.objects if path.endswith("/manifest")}
        assert parts == {one.part for one in destination_on(target, system).read().copies.values()}
