"""History in a version: what a report may put there, where it stands, and when its SSTs leave."""

from typing import Any

import pytest
from msgspec.structs import replace

from support.store.versions import sst
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.retention import AdvanceSafeEpoch, ExpireHistory
from tussock.meta.version.deltas.tasks import ClaimCompaction, ReportCompaction
from tussock.meta.version.invariants import problems
from tussock.meta.version.version import CompactionTask, Version
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, TableSpec, TableState
from tussock.statestore.errors import Conflict, InvalidBatch, InvalidOption


def past(until: int, low: bytes = b"a", high: bytes = b"m", **fields: Any) -> SstInfo:
    """An SST of history until that epoch."""
    return sst(low, high, epoch=0, **{"min_epoch": 1, "max_epoch": until - 1, "until": until, **fields})


NEW, OLD = sst(epoch=9), sst(epoch=8)
FIRST, SECOND, THIRD = past(6), past(7), past(8)


@pytest.fixture
def version() -> Version:
    """Two runs in the live tree, three of history, and epoch 9 as the newest."""
    history = tuple(Run(ssts=(one,)) for one in (THIRD, SECOND, FIRST))
    levels = TableLevels(l0=(Run(ssts=(NEW,)), Run(ssts=(OLD,))), history=history)
    state = TableState(spec=TableSpec(id=1, name="t"), levels=levels, last_epoch=9)
    return Version(tables={1: state}, max_committed_epoch=9, safe_epoch=6, next_table_id=2, seq=20)


def task(*inputs: tuple[SstInfo, ...], kind: Any = "intra-l0", **fields: Any) -> CompactionTask:
    values = {"id": "t", "table_id": 1, "target_level": 0, "bottom": False, "watermark": 0, "parted": kind != "history"}
    values |= {"owner": "me", "claimed_ms": 1, "expires_ms": 2, "kind": kind, **fields}
    return CompactionTask(inputs=inputs, **values)  # type: ignore[arg-type]


def claimed(version: Version, wanted: CompactionTask) -> Version:
    return advance(version, [ClaimCompaction(task=wanted)])


def report(live: tuple[SstInfo, ...], history: tuple[SstInfo, ...], watermark: int = 0) -> ReportCompaction:
    return ReportCompaction(task_id="t", owner="me", outputs=live, history=history, watermark=watermark, at_ms=3)


def untils(version: Version) -> list[int]:
    return [one.until for one in version.tables[1].levels.history_ssts()]


LIVE = replace(sst(epoch=9), epoch=0)


def test_what_a_merge_parts_is_the_newest_run_of_history(version: Version) -> None:
    """In the entry that replaces the inputs; where nothing was superseded there is none."""
    assert problems(version) == []
    taken = claimed(version, task((NEW,), (OLD,)))
    parted = past(9, b"b", b"c", max_epoch=8)
    after = advance(taken, [report((LIVE,), (parted,))])
    assert problems(after) == []
    assert after.tables[1].levels.history[0].ssts == (parted,)
    assert after.tables[1].levels.runs() == [(LIVE,)]
    assert untils(after) == [9, 8, 7, 6]
    assert untils(advance(taken, [report((LIVE,), ())])) == [8, 7, 6]


@pytest.mark.parametrize(
    ("live", "history", "words"),
    [
        ((past(9, b"b", b"c"),), (), "into the live tree"),
        ((LIVE,), (sst(b"b", b"c", epoch=0, min_epoch=8, max_epoch=8),), "up to 8 until 0"),
        ((LIVE,), (past(10, b"b", b"c", max_epoch=8),), "at most 9"),
        ((LIVE,), (past(9, b"b", b"c", max_epoch=8), past(9, b"c", b"d", max_epoch=8)), "not a sorted run"),
        ((LIVE,), (LIVE,), "one sorted run"),
    ],
    ids=["history as live", "live as history", "until an epoch that no input has", "overlapping", "twice"],
)
def test_a_report_that_mixes_up_the_two_is_refused(
    version: Version, live: tuple[SstInfo, ...], history: tuple[SstInfo, ...], words: str
) -> None:
    """It would hide rows of the live tree, or keep rows for readers of the wrong epochs."""
    with pytest.raises(InvalidBatch, match=words):
        advance(claimed(version, task((NEW,), (OLD,))), [report(live, history)])


def test_a_task_that_was_not_asked_to_part_rows_puts_out_no_history(version: Version) -> None:
    """As those that an older release has claimed."""
    taken = claimed(version, task((NEW,), (OLD,), parted=False))
    with pytest.raises(InvalidBatch, match="not asked for"):
        advance(taken, [report((LIVE,), (past(9, b"b", b"c", max_epoch=8),))])


@pytest.mark.parametrize(
    "inputs",
    [((THIRD,), (FIRST,)), ((FIRST,), (SECOND,)), ((past(5),),), ((NEW,), (OLD,))],
    ids=["no neighbours", "wrong order", "unknown", "live"],
)
def test_a_merge_of_history_takes_whole_neighbours(version: Version, inputs: tuple[tuple[SstInfo, ...], ...]) -> None:
    """Their order says which of two rows of one epoch counts."""
    with pytest.raises(Conflict, match="whole runs of it that follow each other"):
        claimed(version, task(*inputs, kind="history"))


def test_a_merge_of_history_takes_the_place_of_its_inputs(version: Version) -> None:
    """While it ran another merge parted rows. An older release's compactor, which merged it as live, is refused."""
    taken = claimed(version, task((SECOND,), (FIRST,), kind="history"))
    other = task((NEW,), (OLD,), id="u")
    parted = past(9, b"b", b"c", max_epoch=8)
    taken = advance(taken, [ClaimCompaction(task=other), replace(report((LIVE,), (parted,)), task_id="u")])
    with pytest.raises(InvalidBatch, match="into the live tree"):
        advance(taken, [report((sst(b"a", b"m", epoch=0, min_epoch=1, max_epoch=6),), ())])
    with pytest.raises(InvalidBatch, match="at most 7"):
        advance(taken, [report((), (past(8, max_epoch=6),))])
    after = advance(taken, [report((), (past(7),))])
    assert problems(after) == []
    assert untils(after) == [9, 8, 7]
    assert {one.id for one in after.dropped} == {one.id for one in (NEW, OLD, FIRST, SECOND)}
    assert untils(advance(taken, [report((), ())])) == [9, 8]


def test_history_expires_at_the_epoch_until_which_it_is(version: Version) -> None:
    """Not above the safe epoch: a reader may pin what is above it."""
    with pytest.raises(InvalidOption, match="above the safe epoch 6"):
        advance(version, [ExpireHistory(epoch=7, at_ms=5)])
    assert untils(advance(version, [ExpireHistory(epoch=5, at_ms=5)])) == [8, 7, 6]
    after = advance(version, [AdvanceSafeEpoch(epoch=7), ExpireHistory(epoch=7, at_ms=5)])
    assert problems(after) == []
    assert (untils(after), after.compacted_epoch) == ([8], 7)
    assert [(one.id, one.dropped_ms) for one in after.dropped] == [(SECOND.id, 5), (FIRST.id, 5)]


def test_what_a_task_has_claimed_does_not_expire(version: Version) -> None:
    """Its report has to find its inputs; it drops their rows itself, or is given back."""
    version = claimed(advance(version, [AdvanceSafeEpoch(epoch=9)]), task((THIRD,), (SECOND,), kind="history"))
    after = advance(version, [ExpireHistory(epoch=8, at_ms=5)])
    assert untils(after) == [8, 7]
    assert untils(advance(after, [report((), ())])) == []


def test_a_report_lets_history_expire_by_its_watermark(version: Version) -> None:
    """A compaction has listed the pins for it; of the table alone, and not what another task has claimed."""
    version = claimed(version, task((NEW,), (OLD,), watermark=6))
    assert untils(advance(version, [report((LIVE,), (), watermark=6)])) == [8, 7]
    version = claimed(version, task((FIRST,), kind="history", id="u"))
    assert untils(advance(version, [report((LIVE,), (), watermark=6)])) == [8, 7, 6]
