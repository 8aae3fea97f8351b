"""Claims and reports on a version: refusals and effects."""

import pytest
from msgspec.structs import replace

from support.store.versions import make_id, run, spec, sst
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.retention import AdvanceHorizon
from tussock.meta.version.deltas.tables import DropTable
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReleaseCompaction, ReportCompaction
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.records import SstInfo, TableLevels, TableState
from tussock.statestore.errors import Conflict, Fenced, InvalidBatch, InvalidOption, StaleUpload, TableNotFound

N2, N1 = sst(b"a", b"m", epoch=9), sst(b"k", b"z", epoch=8)
OLD1, OLD2 = sst(b"a", b"c", epoch=7), sst(b"x", b"z", epoch=7)
L1A, L1B, L1C = sst(b"a", b"d", epoch=3), sst(b"f", b"h", epoch=3), sst(b"x", b"z", epoch=3)
L2A = sst(b"y", b"z", epoch=1)


@pytest.fixture
def version() -> Version:
    levels = TableLevels(l0=(run(N2), run(N1), run(OLD1, OLD2)), levels=((L1A, L1B, L1C), (L2A,)))
    state = TableState(spec=spec(), levels=levels, last_epoch=9)
    return Version(seq=5, max_committed_epoch=9, safe_epoch=4, tables={1: state}, next_table_id=2)


def task(*inputs: tuple[SstInfo, ...], target: int, bottom: bool = False, **fields: object) -> CompactionTask:
    values: dict[str, object] = {"id": "t", "table_id": 1, "kind": "level", "owner": "me", "claimed_ms": 10}
    values.update({"expires_ms": 20, "watermark": 4}, **fields)
    return CompactionTask(inputs=inputs, target_level=target, bottom=bottom, **values)  # type: ignore[arg-type]


def claim(version: Version, wanted: CompactionTask) -> Version:
    after = advance(version, [ClaimCompaction(task=wanted)])
    assert problems(after) == []
    return after


def report(outputs: tuple[SstInfo, ...], **fields: object) -> ReportCompaction:
    values: dict[str, object] = {"task_id": "t", "owner": "me", "watermark": 4, "at_ms": 15}
    values.update(fields)
    return ReportCompaction(outputs=outputs, **values)  # type: ignore[arg-type]


def test_the_version_of_these_tests_is_sound(version: Version) -> None:
    """The version that these tests start from keeps all invariants."""
    assert problems(version) == []


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (task((sst(),), target=1), "not in the table"),
        (task((replace(OLD1, rows=1),), (L1A,), target=1), "not in the table"),
        (task((N1,), (N2,), target=0), "from new to old"),
        (task((N2, N1), target=0), "sorted runs"),
        (task((N2,), (OLD1, OLD2), target=0), "follow each other"),
        (task((N1,), (OLD1,), target=0), "whole runs"),
        (task((L2A,), target=1), "older than the target"),
        (task((OLD1,), (L1B,), target=1), "in its range"),
        (task((OLD1, OLD2), (L1A, L1C), target=1), "in its range"),
        (task((N1,), (L1B, L1C), target=1), "would pass the older"),
        (task((OLD2,), (L1C,), target=1, bottom=True), "may lie below"),
        (task((OLD2,), (L1C,), target=2), "in its range"),
        (task((OLD1,), (OLD1,), target=1), "twice"),
    ],
)
def test_a_claim_that_could_break_a_read_is_refused(version: Version, wanted: CompactionTask, words: str) -> None:
    """The refusal names the task and the file in the way; the caller picks again."""
    with pytest.raises((Conflict, InvalidOption), match=words):
        advance(version, [ClaimCompaction(task=wanted)])


def test_a_claim_needs_inputs_a_table_and_a_level(version: Version) -> None:
    """An error that no other version would avoid is not a `Conflict`."""
    with pytest.raises(InvalidOption):
        advance(version, [ClaimCompaction(task=task(target=1))])
    with pytest.raises(InvalidOption):
        advance(version, [ClaimCompaction(task=task((OLD1,), (L1A,), target=7))])
    with pytest.raises(TableNotFound):
        advance(version, [ClaimCompaction(task=task((OLD1,), target=1, table_id=8))])


def test_inputs_of_a_live_task_are_reserved(version: Version) -> None:
    """Of two tasks that overlap, the second claim is refused; after a release it goes through."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    other = task((N2,), (N1,), (OLD1, OLD2), target=0, id="u")
    with pytest.raises(Conflict, match="belongs to another task"):
        advance(version, [ClaimCompaction(task=other)])
    version = advance(version, [ReleaseCompaction(task_id="t", owner="me", at_ms=11)])
    claim(version, other)


def test_two_tasks_may_not_write_into_one_range_of_a_level(version: Version) -> None:
    """Outputs may span everything between a task's outermost keys, gaps too."""
    levels = TableLevels(l0=(run(sst(b"e", b"f", epoch=9)), run(sst(b"a", b"b", epoch=8), sst(b"y", b"z", epoch=8))))
    version = replace(version, tables={1: replace(version.tables[1], levels=levels)})
    older, newer = levels.l0[1].ssts, levels.l0[0].ssts
    version = claim(version, task(older, target=1))
    with pytest.raises(Conflict, match="about to write"):
        advance(version, [ClaimCompaction(task=task(newer, target=1, id="u"))])


def test_a_report_replaces_inputs_by_outputs(version: Version) -> None:
    """Outputs stand in the target in key order; inputs are recorded as dropped with sequence and time."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    out = sst(b"a", b"d", epoch=0, min_epoch=3, max_epoch=7)
    after = advance(version, [report((out,))])
    assert problems(after) == []
    assert after.tables[1].levels.levels[0] == (out, L1B, L1C)
    assert after.tables[1].levels.l0[2].ssts == (OLD2,)
    assert [(one.id, one.seq, one.dropped_ms) for one in after.dropped] == [(OLD1.id, 7, 15), (L1A.id, 7, 15)]
    assert after.tasks == {}
    assert after.compacted_epoch == 4


def test_a_merge_in_l0_keeps_its_place_below_later_commits(version: Version) -> None:
    """The position is found by the inputs' ids, not by a number that commits move."""
    version = claim(version, task((N1,), (OLD1, OLD2), target=0))
    state = version.tables[1]
    top = sst(b"a", b"z", epoch=9)
    grown = replace(state, levels=replace(state.levels, l0=(run(top), *state.levels.l0)))
    version = replace(version, tables={1: grown})
    out = sst(b"a", b"z", epoch=0, min_epoch=7, max_epoch=8)
    after = advance(version, [report((out,))])
    assert [sub.ssts for sub in after.tables[1].levels.l0] == [(top,), (N2,), (out,)]
    assert problems(after) == []


def test_a_report_without_outputs_leaves_no_empty_runs(version: Version) -> None:
    """Run and deepest level vanish when everything in the task was dropped."""
    version = claim(version, task((OLD2,), (L1C,), (L2A,), target=2, bottom=True))
    after = advance(version, [report(())])
    assert after.tables[1].levels.levels == ((L1A, L1B),)
    assert problems(after) == []


def test_a_report_after_its_task_was_taken_back_is_fenced(version: Version) -> None:
    """The error names the present owner, and nothing changes; a second report of the same task is fenced, too."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    out = sst(b"a", b"d", epoch=0, min_epoch=3, max_epoch=7)
    with pytest.raises(Fenced, match="'me' holds it"):
        advance(version, [report((out,), owner="you")])
    with pytest.raises(Fenced, match="taken back"):
        advance(advance(version, [report((out,))]), [report((out,))])
    taken = advance(version, [ReleaseCompaction(task_id="t", owner="you", at_ms=21)])
    with pytest.raises(Fenced, match="taken back"):
        advance(taken, [report((out,))])
    again = claim(taken, task((OLD1,), (L1A,), target=1, id="u", owner="you"))
    with pytest.raises(Fenced):
        advance(again, [report((out,))])


def test_only_an_expired_task_is_taken_back_by_others(version: Version) -> None:
    """At the very millisecond of its expiry it is still held; the owner may always give up."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    with pytest.raises(Fenced, match="holds it until 20"):
        advance(version, [ReleaseCompaction(task_id="t", owner="you", at_ms=20)])
    assert advance(version, [ReleaseCompaction(task_id="t", owner="me", at_ms=0)]).tasks == {}
    with pytest.raises(Fenced, match="not in the version"):
        advance(version, [ReleaseCompaction(task_id="x", owner="me", at_ms=0)])


@pytest.mark.parametrize(
    "outputs",
    [
        (sst(b"a", b"e", epoch=3),),
        (sst(b"a", b"d", epoch=0, min_epoch=3, max_epoch=8),),
        (sst(b"c", b"d", epoch=3), sst(b"a", b"b", epoch=3)),
        (sst(b"a", b"b", epoch=3), sst(b"b", b"c", epoch=3)),
        (OLD1,),
    ],
    ids=["outside the inputs' keys", "too new", "out of order", "a key in two files", "an input"],
)
def test_outputs_that_cannot_come_of_the_inputs_are_refused(version: Version, outputs: tuple[SstInfo, ...]) -> None:
    """A compaction adds no keys and no newer epochs, and does not split a key's versions between files."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    with pytest.raises(InvalidBatch):
        advance(version, [report(outputs)])


def test_outputs_below_the_horizon_and_watermarks_above_the_task_are_refused(version: Version) -> None:
    """Vacuum may have deleted such outputs; such a merge may have dropped what a pin holds."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    out = sst(b"a", b"d", epoch=0, min_epoch=3, max_epoch=7)
    with pytest.raises(InvalidBatch, match="watermark 5"):
        advance(version, [report((out,), watermark=5)])
    version = advance(version, [AdvanceHorizon(horizon="f" * 32)])
    with pytest.raises(StaleUpload):
        advance(version, [report((out,))])


def test_a_trivial_move_claims_and_reports_in_one_entry(version: Version) -> None:
    """Nothing is dropped, even for inputs below the horizon, and the file keeps its id."""
    version = advance(version, [AdvanceHorizon(horizon=make_id(2**40))])
    moved = task((L1B,), target=2, kind="trivial-move", watermark=0)
    with pytest.raises(InvalidBatch, match="exactly its inputs"):
        advance(version, [ClaimCompaction(task=moved), report((), watermark=0)])
    after = advance(version, [ClaimCompaction(task=moved), report((L1B,), watermark=0)])
    assert after.seq == version.seq + 1
    assert after.tables[1].levels.levels == ((L1A, L1C), (L1B, L2A))
    assert (after.dropped, after.tasks) == ((), {})
    assert problems(after) == []


def test_dropping_a_table_ends_its_tasks(version: Version) -> None:
    """Their reports are fenced; inputs are dropped with the table."""
    version = claim(version, task((OLD1,), (L1A,), target=1))
    version = advance(version, [DropTable(table_id=1, at_ms=12)])
    assert (version.tasks, len(version.dropped)) == ({}, 8)
    with pytest.raises(Fenced):
        advance(version, [report(())])
