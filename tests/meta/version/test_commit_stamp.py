"""Deciding on a commit: the ledger, the catalog, `expect`, uploads below the horizon, and the final epoch."""

import pytest
from msgspec.structs import replace

from support.store.versions import make_id, request, run, spec, sst
from tussock.meta.version.deltas.commits import TIMELINE_SAMPLES_MAX, AlreadyCommitted, CommitEpoch, OpenWriter, stamp
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.retention import AdvanceHorizon
from tussock.meta.version.deltas.tables import CreateTable, DropTable
from tussock.meta.version.version import Version
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.epochs import MAX_EPOCH
from tussock.statestore.errors import (
    Conflict,
    EpochTooOld,
    Fenced,
    InvalidBatch,
    InvalidOption,
    StaleUpload,
    TableNotFound,
)

NOW = 1_700_000_000_000


def commit(version: Version, req: CommitRequest, now_ms: int = NOW) -> Version:
    delta = stamp(version, req, now_ms)
    assert isinstance(delta, CommitEpoch)
    return advance(version, [delta])


@pytest.fixture
def version() -> Version:
    return advance(Version(), [CreateTable(spec=spec())])


def test_a_commit_goes_on_top_of_l0_newest_first(version: Version) -> None:
    """The runs of a request keep their order and stand above older runs."""
    first, newer, older = sst(), sst(), sst()
    version = commit(version, request(5, 1, first))
    version = commit(version, request(7, 1, newer, older))
    assert [sub.ssts[0].id for sub in version.tables[1].levels.l0] == [newer.id, older.id, first.id]
    assert version.tables[1].last_epoch == version.max_committed_epoch == 7
    assert {one.epoch for one in version.tables[1].levels.ssts()} == {5, 7}


def test_a_commit_without_tables_is_legal(version: Version) -> None:
    """It advances the newest committed epoch and the ledger, and touches no table."""
    after = commit(version, request(9, None, writer="w", batch_id=0))
    assert after.max_committed_epoch == 9
    assert after.ledger == {"w": ((0, 9),)}
    assert after.tables == version.tables


def test_an_epoch_that_another_writer_passed_is_stamped_anew(version: Version) -> None:
    """The commit gets a new epoch, which its SSTs carry."""
    version = commit(version, request(50))
    delta = stamp(version, request(50), NOW)
    assert isinstance(delta, CommitEpoch)
    assert delta.epoch == NOW << 16
    assert {(one.epoch, one.min_epoch, one.max_epoch) for one in delta.tables[1][0].ssts} == {(delta.epoch,) * 3}


def test_a_repeated_batch_gets_the_first_epoch(version: Version) -> None:
    """A batch that the writer has committed is a no-op, whatever its `expect` is now, or with fewer tables."""
    version = commit(version, request(5, writer="w", batch_id=3))
    version = commit(version, request(8, writer="w", batch_id=5))
    for batch, epoch in ((3, 5), (5, 8)):
        for table in (1, None):
            repeated = stamp(version, request(99, table, writer="w", batch_id=batch, expect={1: 0}), NOW)
            assert repeated == AlreadyCommitted(epoch)
        assert version.committed_epoch_of("w", batch) == epoch
    assert version.committed_epoch_of("w", 6) is None
    assert version.committed_epoch_of("other", 0) is None


@pytest.mark.parametrize("batch", [0, 4])
def test_a_batch_that_was_skipped_is_refused(version: Version, batch: int) -> None:
    """Taking it as committed would lose its rows; the message names the writer and both batches."""
    version = commit(version, request(5, writer="w", batch_id=3))
    version = commit(version, request(8, writer="w", batch_id=5))
    with pytest.raises(Fenced, match=f"'w' has committed batch 5, and batch {batch} was never"):
        stamp(version, request(99, writer="w", batch_id=batch), NOW)


def test_the_ledger_keeps_sixteen_epochs_and_gives_the_oldest_for_older_batches(version: Version) -> None:
    """The ledger of a writer is bounded; for older batches it gives the oldest epoch that it has."""
    for batch in range(40):
        version = commit(version, request(100 + batch, None, writer="w", batch_id=batch))
    assert len(version.ledger["w"]) == 16
    assert stamp(version, request(999, None, writer="w", batch_id=2), NOW) == AlreadyCommitted(100 + 24)


def test_a_failed_expect_refuses_the_commit_and_names_both_epochs(version: Version) -> None:
    """`Conflict` names table, read epoch and newer epoch; an equal epoch is no conflict."""
    version = commit(version, request(5))
    with pytest.raises(Conflict, match=r"'kv' was read at epoch 4, but epoch 5"):
        stamp(version, request(6, expect={1: 4}), NOW)
    assert isinstance(stamp(version, request(6, expect={1: 5}), NOW), CommitEpoch)


@pytest.mark.parametrize("field", ["tables", "expect"])
def test_a_dropped_table_is_named(version: Version, field: str) -> None:
    """A commit to a missing table is refused, also if it only read the table."""
    bad = request(5, 9) if field == "tables" else request(5, 1, expect={9: 1})
    with pytest.raises(TableNotFound, match="id 9"):
        stamp(version, bad, NOW)


def test_an_upload_below_the_horizon_is_refused_and_at_it_is_accepted(version: Version) -> None:
    """Ids from the horizon on are safe from vacuum, so equality is accepted."""
    version = advance(version, [AdvanceHorizon(horizon=make_id(NOW))])
    with pytest.raises(StaleUpload, match="upload again"):
        commit(version, request(5, 1, sst(id=make_id(NOW - 1, 9))))
    assert isinstance(stamp(version, request(5, 1, sst(id=make_id(NOW))), NOW), CommitEpoch)


def test_an_sst_cannot_be_committed_twice(version: Version) -> None:
    """An SST that is or was in the store is refused: vacuum would delete under a living name."""
    one = sst()
    version = commit(version, request(5, 1, one))
    with pytest.raises(InvalidBatch, match="already, since epoch 5: it was committed before"):
        commit(version, request(6, 1, one, sst(b"y", b"z")))
    with pytest.raises(InvalidBatch, match="already, since epoch 5"):
        commit(version, request(6, 1, one, writer="w", batch_id=1))
    with pytest.raises(InvalidBatch, match="twice"):
        commit(version, request(6, 1, (other := sst()), other))


def test_a_commit_repeated_with_the_same_ssts_answers_the_first_epoch(version: Version) -> None:
    """Without a writer the SSTs themselves tell that it happened: all of them, of one epoch, as they were committed."""
    version = advance(version, [CreateTable(spec=spec("two", 2))])
    first = CommitRequest(epoch=5, tables={1: (run(sst(b"a", b"b"), sst(b"c", b"d")), run(sst())), 2: (run(sst()),)})
    version = commit(version, request(5, 1, sst()))
    held = NOW << 16
    version = commit(version, first)
    version = commit(version, later := request(held + 7))
    assert stamp(version, first, NOW) == AlreadyCommitted(held)
    assert stamp(version, replace(first, epoch=999, expect={1: 1}), NOW) == AlreadyCommitted(held)
    both = CommitRequest(epoch=5, tables={1: (*later.tables[1], *first.tables[1])})
    with pytest.raises(InvalidBatch, match="committed before"):
        commit(version, both)
    with pytest.raises(InvalidBatch, match="committed before"):
        commit(version, replace(first, tables={1: (*first.tables[1], run(sst()))}))


def test_a_repeated_commit_whose_ssts_were_compacted_is_refused_by_name(version: Version) -> None:
    """The epoch is not known any more, but the commit is."""
    version = commit(version, first := request(5))
    version = advance(version, [DropTable(table_id=1, at_ms=NOW), CreateTable(spec=spec("kv", 2))])
    again = replace(first, tables={2: first.tables[1]})
    with pytest.raises(InvalidBatch, match="was committed before, and has been compacted away since"):
        commit(version, again)


def test_a_newer_generation_of_a_writer_fences_the_older_ones(version: Version) -> None:
    """Also for a batch that the old one had committed, and on replay; commits without a generation are not affected."""
    version = advance(version, [OpenWriter(writer="w", generation=1)])
    version = commit(version, request(5, writer="w", batch_id=1, generation=1))
    stamped = stamp(version, request(6, writer="w", batch_id=2, generation=1), NOW)
    version = advance(version, [OpenWriter(writer="w", generation=2)])
    assert version.generations == {"w": 2}
    for batch in (1, 2):
        with pytest.raises(Fenced, match="generation 1 of writer 'w' is over: generation 2 was opened") as caught:
            stamp(version, request(7, writer="w", batch_id=batch, generation=1), NOW)
        assert caught.value.args[1:] == ("w", 1, 2)
    assert isinstance(stamped, CommitEpoch)
    with pytest.raises(Fenced):
        advance(version, [stamped])
    version = commit(version, request(8, writer="w", batch_id=2, generation=2))
    version = commit(version, request(9, writer="w", batch_id=3))
    assert commit(version, request(10, writer="x", batch_id=1)).generations == {"w": 2}


def test_a_wrong_generation_of_a_writer_is_refused(version: Version) -> None:
    """A generation that was never opened, one without a writer, a gap, an empty name: each refusal says why."""
    with pytest.raises(InvalidOption, match="generation 1 of writer 'w' was never opened, the newest is 0"):
        stamp(version, request(5, writer="w", batch_id=1, generation=1), NOW)
    with pytest.raises(InvalidOption, match="no writer is named"):
        stamp(version, request(5, generation=1), NOW)
    with pytest.raises(Conflict, match="was to get generation 2, but the newest is 0"):
        advance(version, [OpenWriter(writer="w", generation=2)])
    with pytest.raises(InvalidOption, match="a name"):
        advance(version, [OpenWriter(writer="", generation=1)])


@pytest.mark.parametrize(
    "runs",
    [(run(),), (run(sst(b"a", b"m"), sst(b"m", b"z")),), (run(sst(b"b", b"a")),)],
    ids=["empty", "touch", "mirror"],
)
def test_runs_that_are_not_sorted_are_refused(version: Version, runs: tuple[object, ...]) -> None:
    """Each run has SSTs with ascending, separate ranges; touching bounds overlap."""
    with pytest.raises(InvalidBatch, match="nothing was committed"):
        commit(version, CommitRequest(epoch=5, tables={1: runs}))  # type: ignore[dict-item]


def test_bad_arguments_are_named(version: Version) -> None:
    """Writer and batch come together; an epoch is from 1 to 2**63-1; nothing follows the largest epoch."""
    with pytest.raises(InvalidOption, match="give both"):
        stamp(version, request(5, writer="w"), NOW)
    for epoch in (0, -1, MAX_EPOCH + 1):
        with pytest.raises(InvalidBatch):
            commit(version, request(epoch))
    full = commit(version, request(MAX_EPOCH))
    with pytest.raises(EpochTooOld, match="largest"):
        stamp(full, request(5), NOW)


def test_retention_is_measured_by_commit_times_and_not_by_epochs(version: Version) -> None:
    """Epochs may be 1, 2, 3; the newest one committed at or before the edge counts."""
    for epoch in (1, 2, 3):
        version = commit(version, request(epoch, None), NOW + epoch * 1000)
    assert version.retention_epoch(NOW + 3000, 0) == 3
    assert version.retention_epoch(NOW + 3000, 1) == 2
    assert version.retention_epoch(NOW + 3000, 2000) == 1
    assert version.retention_epoch(NOW + 3000, 2001) == 0


def test_a_clock_that_lags_cannot_end_a_retention_early(version: Version) -> None:
    """A commit stamped an hour before the last one counts as of the last one's time."""
    version = commit(version, request(1, None), NOW)
    version = commit(version, request(2, None), NOW - 3_600_000)
    assert version.retention_epoch(NOW, 1) == 0
    assert version.retention_epoch(NOW, 0) == 2


def test_the_timeline_stays_bounded_and_finds_old_epochs(version: Version) -> None:
    """After 50,000 commits in as many seconds an epoch of the right age is found, at most 1/30 too old."""
    for number in range(1, 50_001):
        delta = CommitEpoch(epoch=number, at_ms=NOW + number * 1000)
        version = advance(version, [delta], check=False)
        assert len(version.timeline) <= TIMELINE_SAMPLES_MAX
    for retention in (10, 600, 3600, 40_000):
        found = version.retention_epoch(NOW + 50_000_000, retention * 1000)
        assert 50_000 - retention * 1.04 - 1 <= found <= 50_000 - retention


def test_validation_is_repeated_on_the_version_it_lands_on(version: Version) -> None:
    """A delta stamped on one version is refused on one that has moved on."""
    delta = stamp(version, request(5), NOW)
    assert isinstance(delta, CommitEpoch)
    with pytest.raises(EpochTooOld):
        advance(commit(version, request(6)), [delta])
    with pytest.raises(InvalidBatch, match="not of epoch"):
        advance(version, [replace(delta, epoch=7)])
