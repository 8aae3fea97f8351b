"""The ledger knows a writer's committed batches, and never takes an uncommitted batch for a committed one."""

import random

import pytest

from support.store.versions import request, spec
from tussock.meta.version.deltas.commits import AlreadyCommitted, CommitEpoch, stamp
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.tables import CreateTable, DropTable
from tussock.meta.version.invariants import problems
from tussock.meta.version.ledger import BATCHES_REMEMBERED, RANGES_MAX
from tussock.meta.version.version import Version
from tussock.statestore.base.arguments import WRITER_LENGTH_MAX
from tussock.statestore.contract.backend import CommitRequest
from tussock.statestore.errors import Fenced, InvalidOption

NOW = 1_700_000_000_000


@pytest.fixture
def version() -> Version:
    return advance(Version(), [CreateTable(spec=spec("a", 1)), CreateTable(spec=spec("b", 2))])


def commit(version: Version, req: CommitRequest) -> Version:
    delta = stamp(version, req, NOW)
    assert isinstance(delta, CommitEpoch)
    version = advance(version, [delta])
    assert problems(version) == []
    return version


def from_source(source: str | None, batch_id: int, table: int | None = 1) -> CommitRequest:
    given = request(1 + batch_id, table, writer="w", batch_id=batch_id)
    return CommitRequest(epoch=given.epoch, tables=given.tables, writer="w", batch_id=batch_id, source=source)


@pytest.mark.parametrize("batches", [15, 16, 17, 30])
def test_a_batch_below_the_first_one_is_refused_after_any_number_of_batches(version: Version, batches: int) -> None:
    """With sixteen batches remembered, an older number was once taken for committed, and its rows were lost."""
    for batch in range(batches):
        version = commit(version, request(100 + batch, writer="w", batch_id=100 + 10 * batch))
    for never in (5, 99, 101, 109):
        with pytest.raises(Fenced, match=f"batch {never} was never committed"):
            stamp(version, request(999, writer="w", batch_id=never), NOW)


@pytest.mark.parametrize("seed", range(12))
def test_committed_batches_are_distinguished_from_skipped_ones(version: Version, seed: int) -> None:
    """Compared with a plain set: the answer is right, or the batch is refused, which happens only before many gaps."""
    chance = random.Random(seed)
    gaps = chance.choice([0.0, 0.05, 0.5])
    done: dict[int, int] = {}
    batch = chance.choice([0, 0, 7])
    for epoch in range(1, chance.choice([10, 120])):
        version = commit(version, request(epoch, writer="w", batch_id=batch))
        done[batch] = epoch
        batch += 1 if chance.random() >= gaps else chance.randint(2, 9)
    record = version.writers["w"]
    newest = sorted(done)[-BATCHES_REMEMBERED:]
    assert len(record.ranges) <= RANGES_MAX
    assert record.known_from == 0 or len(record.ranges) == RANGES_MAX
    for asked in range(batch + 3):
        if asked > newest[-1]:
            assert version.committed_epoch_of("w", asked) is None
        elif asked in done and asked >= record.known_from:
            assert version.committed_epoch_of("w", asked) == done[max(asked, newest[0])]
        else:
            with pytest.raises(Fenced, match="never committed" if asked >= record.known_from else "too old to know"):
                version.committed_epoch_of("w", asked)


def test_batches_of_older_releases_are_known_by_their_records(version: Version) -> None:
    """Older releases kept sixteen batches and no record: earlier batches are unknown, and are refused."""
    for batch in range(20):
        delta = CommitEpoch(epoch=1 + batch, at_ms=NOW, writer="w", batch_id=batch)
        version = advance(version, [delta])
    assert version.writers == {}
    for _ in range(2):
        assert version.committed_epoch_of("w", 4) is not None
        with pytest.raises(Fenced, match="batch 3 is too old to know"):
            version.committed_epoch_of("w", 3)
        version = commit(version, request(100, writer="w", batch_id=20 + len(version.writers)))
    assert version.writers["w"].ranges == ((4, 21),)
    assert advance(version, [CommitEpoch(epoch=1 << 60, at_ms=NOW, writer="w", batch_id=22)]).writers == {}


def test_batches_of_another_source_are_refused_at_any_number(version: Version) -> None:
    """A new checkpoint counts from 0 again: its batches are not those of the earlier query of that name."""
    for batch in range(3):
        version = commit(version, from_source("query 1", batch))
    for batch in (0, 2, 3, 17):
        with pytest.raises(Fenced, match=r"'w' belongs to query 1, .* is 2; batch \d+ comes from query"):
            stamp(version, from_source("query 2", batch), NOW)
    assert stamp(version, from_source("query 1", 1), NOW) == AlreadyCommitted(2)
    assert stamp(version, from_source(None, 1), NOW) == AlreadyCommitted(2)


def test_a_source_may_be_named_later_and_stays(version: Version) -> None:
    """From then on the name belongs to that source."""
    version = commit(version, from_source(None, 0))
    version = commit(version, from_source("query 1", 1))
    version = commit(version, from_source(None, 2))
    with pytest.raises(Fenced, match="belongs to query 1"):
        stamp(version, from_source("query 2", 3), NOW)


@pytest.mark.parametrize("batches", [1, 16, 17, 40])
def test_a_source_named_later_repeats_no_earlier_batch(version: Version, batches: int) -> None:
    """A query that takes the name of a plain program may begin with a number that the program has used."""
    for batch in range(batches):
        version = commit(version, from_source(None, batch))
    with pytest.raises(Fenced, match="batch 0 of writer 'w' is committed and says of no source, and comes from query"):
        stamp(version, from_source("query 1", 0), NOW)


def test_a_source_named_first_by_this_release_may_repeat_the_last_batch(version: Version) -> None:
    """Earlier releases recorded no source, so its stream goes on where it was."""
    version = advance(version, [CommitEpoch(epoch=1, at_ms=NOW, writer="w", batch_id=0)])
    assert stamp(version, from_source("query 1", 0), NOW) == AlreadyCommitted(1)


@pytest.mark.parametrize("batches", [10, 17, 40])
def test_an_old_batch_has_no_rows_in_a_table_that_its_writer_never_wrote(version: Version, batches: int) -> None:
    """The tables of batches before the newest sixteen are known together."""
    for batch in range(batches):
        version = commit(version, from_source(None, batch, table=1))
    with pytest.raises(Fenced, match=r"batch 0 of writer 'w' is committed without rows in \['b'\]"):
        stamp(version, from_source(None, 0, table=2), NOW)
    assert isinstance(stamp(version, from_source(None, 0, table=1), NOW), AlreadyCommitted)


def test_rows_for_another_table_are_no_repeat_of_a_batch(version: Version) -> None:
    """Without a source the tables decide: rows in a table that the batch did not write would be lost."""
    version = commit(version, from_source(None, 0, table=1))
    with pytest.raises(Fenced, match=r"batch 0 of writer 'w' is committed without rows in \['b'\]"):
        stamp(version, from_source(None, 0, table=2), NOW)
    assert stamp(version, from_source(None, 0, table=None), NOW) == AlreadyCommitted(1)
    version = advance(version, [DropTable(table_id=1, at_ms=NOW), CreateTable(spec=spec("a", 3))])
    with pytest.raises(Fenced, match=r"without rows in \['a'\]"):
        stamp(version, from_source(None, 0, table=3), NOW)


def test_with_a_source_a_repeat_may_have_rows_in_other_tables(version: Version) -> None:
    """A batch that Spark runs again is the same one, though its rows may depend on the clock."""
    version = commit(version, from_source("query 1", 0, table=None))
    assert stamp(version, from_source("query 1", 0, table=2), NOW) == AlreadyCommitted(1)


@pytest.mark.parametrize("source", ["", "x" * (WRITER_LENGTH_MAX + 1)])
def test_the_length_of_a_source_is_bounded(version: Version, source: str) -> None:
    """It is kept for every writer, for ever."""
    with pytest.raises(InvalidOption, match="expected 1 to 1024"):
        stamp(version, from_source(source, 0), NOW)


def test_a_source_without_a_writer_is_refused(version: Version) -> None:
    """It says which query a writer's batches belong to."""
    with pytest.raises(InvalidOption, match="no writer is named"):
        stamp(version, CommitRequest(epoch=5, source="query 1"), NOW)
