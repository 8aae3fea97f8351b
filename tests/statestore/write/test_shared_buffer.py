"""The shared buffer as a state machine: open, sealed, dropped; visible rows, their order, and their bytes."""

from collections.abc import Sequence
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.ssts import Put, to_puts, to_rows
from support.store.versions import run, sst
from tussock.statestore.base.limits import Limits
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.records import Run
from tussock.statestore.errors import EpochOutOfOrder, EpochTooOld
from tussock.statestore.rows.rows import Rows
from tussock.statestore.write.shared_buffer import SharedBuffer

TABLES = range(100)
"""The tables that exist."""


def rows(text: str, epoch: int = 1) -> Rows:
    """`a b` as puts whose values hold the epoch."""
    return to_rows([Put(key.encode(), epoch, b"%d" % epoch) for key in text.split()], epoch=epoch)


def level(smallest: str = "a") -> Run:
    """A run of one SST, as a spill leaves it."""
    return run(sst(smallest.encode(), b"z"))


def visible_runs(buffer: SharedBuffer, table: int = 1, epoch: int | None = None) -> list[str]:
    """The runs that a reader finds: `epoch:keys`, or `epoch:spilled`."""
    return [
        f"{held.epoch}:" + ("spilled" if held.block is None else b"".join(held.block.rows.keys.to_pylist()).decode())
        for held in buffer.runs(table, epoch)
    ]


def spill(buffer: SharedBuffer, spilled: Run | None = None) -> tuple[int, int] | None:
    """Spill at once; returns table and epoch."""
    candidate = buffer.spill_candidate(TABLES)
    if candidate is None:
        return None
    table, epoch, runs = candidate
    assert buffer.replace_by_ssts(table, epoch, runs, spilled or level())
    return table, epoch


def test_rows_are_seen_at_once_newest_first() -> None:
    """Later epochs stand before earlier ones, later batches of an epoch before its earlier ones; tables are apart."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows("a", 5))
    buffer.add(1, 3, rows("b", 3))
    buffer.add(1, 5, rows("c", 5))
    buffer.add(2, 9, rows("d", 9))
    assert visible_runs(buffer) == ["5:c", "5:a", "3:b"]
    assert visible_runs(buffer, epoch=4) == ["3:b"]
    assert visible_runs(buffer, epoch=5) == ["5:c", "5:a", "3:b"]
    assert visible_runs(buffer, epoch=2) == []
    assert visible_runs(buffer, 2) == ["9:d"]
    assert visible_runs(buffer, 3) == []


def test_the_runs_of_a_reader_do_not_change() -> None:
    """The runs that a reader holds do not change."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows("a", 5))
    held = buffer.runs(1)
    buffer.add(1, 5, rows("b", 5))
    buffer.seal(5)
    buffer.drop(5)
    assert [to_puts(each.block.rows) for each in held if each.block] == [[Put(b"a", 5, b"5")]]
    assert visible_runs(buffer) == []


def test_an_empty_batch_opens_its_epoch_and_shows_nothing() -> None:
    """The commit of such an epoch is empty."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows(""))
    assert visible_runs(buffer) == []
    assert buffer.nbytes == 0
    assert buffer.spill_candidate(TABLES) is None
    assert buffer.seal(5).runs == {}


def test_a_sealed_epoch_takes_no_more_rows() -> None:
    """The error names both epochs; its rows stay visible until it is dropped."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows("a", 5))
    sealed = buffer.seal(5)
    assert (sealed.epoch, sealed.sealed, list(sealed.runs)) == (5, True, [1])
    for epoch in (5, 4):
        with pytest.raises(EpochTooOld, match=f"epoch {epoch} is sealed: .* up to 5; nothing was stored") as caught:
            buffer.add(1, epoch, rows("b", epoch))
        assert caught.value.args[1:] == (epoch, 5)
        with pytest.raises(EpochTooOld):
            buffer.check_open(epoch)
    assert visible_runs(buffer) == ["5:a"]
    buffer.check_open(6)


def test_sealing_again_gives_the_same_runs() -> None:
    """A failed commit can therefore be repeated with the same runs and uploads."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows("a", 5))
    sealed = buffer.seal(5)
    sealed.uploaded[1] = (level(),)
    assert buffer.seal(5) is sealed
    assert visible_runs(buffer) == ["5:a"]


@pytest.mark.parametrize("sealed", [True, False], ids=["committed", "given up"])
def test_a_dropped_epoch_is_gone_for_good(sealed: bool) -> None:
    """It shows no rows, takes none, cannot be sealed again, and may be dropped twice."""
    buffer = SharedBuffer(RealSystem())
    buffer.issue(5)
    buffer.add(1, 5, rows("a", 5))
    buffer.add(2, 5, rows("b", 5))
    if sealed:
        buffer.seal(5)
    for _ in range(2):
        buffer.drop(5)
        assert visible_runs(buffer) == visible_runs(buffer, 2) == []
        assert buffer.nbytes == 0
    with pytest.raises(EpochTooOld):
        buffer.add(1, 5, rows("a", 5))
    with pytest.raises(EpochTooOld):
        buffer.seal(5)


def test_an_issued_epoch_stays_usable_after_later_ones() -> None:
    """Of two jobs of one client the slower one may have the older epoch; an epoch that was not issued is refused."""
    buffer = SharedBuffer(RealSystem())
    buffer.issue(5)
    buffer.add(1, 9, rows("a", 9))
    buffer.seal(9)
    buffer.drop(9)
    buffer.add(1, 5, rows("b", 5))
    assert visible_runs(buffer) == ["5:b"]
    with pytest.raises(EpochTooOld):
        buffer.add(1, 6, rows("b", 6))
    buffer.seal(5)
    buffer.drop(5)
    with pytest.raises(EpochTooOld):
        buffer.add(1, 5, rows("b", 5))


def test_issued_epochs_are_remembered_up_to_a_bound() -> None:
    """The oldest are forgotten, and then refused like any that was not issued."""
    buffer = SharedBuffer(RealSystem(), Limits(issued_epochs=3))
    for epoch in (1, 2, 3, 4):
        buffer.issue(epoch)
    buffer.drop(9)
    for epoch in (2, 3, 4):
        buffer.check_open(epoch)
    with pytest.raises(EpochTooOld):
        buffer.check_open(1)


def test_epochs_of_one_table_are_committed_in_order() -> None:
    """Otherwise the older epoch's rows would win over newer ones; the error names both, and nothing is sealed."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 3, rows("a", 3))
    buffer.add(1, 5, rows("a", 5))
    buffer.add(2, 7, rows("a", 7))
    with pytest.raises(EpochOutOfOrder, match=r"epoch 5 cannot .* older epoch 3") as caught:
        buffer.seal(5)
    assert caught.value.args[1:] == (5, 3)
    buffer.add(1, 5, rows("b", 5))
    # Another table, and an epoch without rows, are in nobody's way.
    buffer.seal(7)
    buffer.seal(8)
    buffer.seal(3)
    # Sealed is not committed.
    with pytest.raises(EpochOutOfOrder):
        buffer.seal(5)
    buffer.drop(3)
    assert list(buffer.seal(5).runs) == [1]


@pytest.mark.parametrize("order", [[(1, 3), (1, 5)], [(1, 5), (1, 3)]])
def test_a_dropped_older_epoch_blocks_no_newer_one(order: Sequence[tuple[int, int]]) -> None:
    """After `drop` the newer one can be sealed."""
    buffer = SharedBuffer(RealSystem())
    for table, epoch in order:
        buffer.add(table, epoch, rows("a", epoch))
    buffer.drop(3)
    buffer.seal(5)
    assert visible_runs(buffer) == ["5:a"]


def test_the_largest_open_epoch_of_a_table_is_spilled() -> None:
    """The bytes of all its runs in memory count; sealed epochs are left alone, as their commit uploads them."""
    buffer = SharedBuffer(RealSystem())
    assert buffer.spill_candidate(TABLES) is None
    buffer.add(1, 3, rows("a", 3))
    buffer.add(2, 3, rows("a b c d", 3))
    buffer.add(2, 4, rows("e f", 4))
    buffer.add(2, 3, rows("g", 3))
    before = buffer.nbytes
    candidate = buffer.spill_candidate(TABLES)
    assert candidate is not None
    table, epoch, runs = candidate
    assert (table, epoch, [each.block and len(each.block.rows) for each in runs]) == (2, 3, [1, 4])
    assert buffer.replace_by_ssts(table, epoch, runs, level())
    assert visible_runs(buffer, 2) == ["4:ef", "3:spilled"]
    assert buffer.nbytes == before - sum(each.nbytes for each in runs)
    assert spill(buffer) == (2, 4)
    buffer.seal(3)
    assert spill(buffer) is None
    buffer.drop(3)
    buffer.drop(4)
    assert buffer.nbytes == 0


def test_spills_keep_the_order_of_batches() -> None:
    """Rows that came during the spill stand before it, earlier spills behind it."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows("a", 5))
    first = level("f")
    assert spill(buffer, first) == (1, 5)
    buffer.add(1, 5, rows("b", 5))
    buffer.add(1, 5, rows("c", 5))
    candidate = buffer.spill_candidate(TABLES)
    assert candidate is not None
    buffer.add(1, 5, rows("d", 5))
    second = level("s")
    assert buffer.replace_by_ssts(*candidate, second)
    assert visible_runs(buffer) == ["5:d", "5:spilled", "5:spilled"]
    assert [held.spilled_to for held in buffer.runs(1)] == [None, second, first]
    assert buffer.spilled_ids() == [second.ssts[0].id, first.ssts[0].id]
    runs = buffer.seal(5).runs[1]
    # A sealed epoch whose SSTs got too old has them replaced in place.
    third = level("t")
    assert buffer.replace_by_ssts(1, 5, (runs[2],), third)
    assert [held.spilled_to for held in buffer.runs(1)] == [None, second, third]


def test_a_spill_of_a_dropped_epoch_changes_nothing() -> None:
    """Its SSTs are garbage, and no bytes are counted twice."""
    buffer = SharedBuffer(RealSystem())
    buffer.add(1, 5, rows("a", 5))
    buffer.add(1, 6, rows("b", 6))
    candidate = buffer.spill_candidate(TABLES)
    assert candidate is not None
    buffer.drop(candidate[1])
    left = buffer.nbytes
    assert not buffer.replace_by_ssts(*candidate, level())
    assert buffer.nbytes == left
    assert len(visible_runs(buffer)) == 1


def test_uploads_are_noted_until_the_epoch_is_dropped() -> None:
    """The first id of each epoch is kept, so that vacuum leaves it and all later ones alone."""
    buffer = SharedBuffer(RealSystem())
    buffer.note_upload(5, "00")
    assert buffer.uploads() == []
    buffer.add(1, 5, rows("a", 5))
    buffer.note_upload(5, "11")
    buffer.note_upload(5, "22")
    assert buffer.uploads() == ["11"]
    buffer.seal(5)
    assert buffer.uploads() == ["11"]
    buffer.drop(5)
    assert buffer.uploads() == []


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["add", "add", "add", "seal", "drop"]), st.integers(1, 6), st.integers(1, 3)),
    st.tuples(st.sampled_from(["spill", "issue"]), st.integers(1, 6), st.just(0)),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(ACTIONS, max_size=40))
def test_any_sequence_keeps_order_and_bytes(actions: list[tuple[str, int, int]]) -> None:
    """Compared with a plain model: the accepted writes, the visible rows in order, and the bytes."""
    buffer = SharedBuffer(RealSystem())
    batches: list[tuple[int, int, int, bool]] = []  # (epoch, serial, table, in memory)
    sealed: set[int] = set()
    dropped: set[int] = set()
    issued: set[int] = set()
    for serial, (action, epoch, table) in enumerate(actions):
        newest_sealed = max(sealed | dropped, default=0)
        usable = epoch not in sealed | dropped and (
            epoch in issued or epoch > newest_sealed or any(batch[0] == epoch for batch in batches)
        )
        older = {batch[2] for batch in batches if batch[0] < epoch} & {b[2] for b in batches if b[0] == epoch}
        if action == "issue" and epoch not in sealed | dropped:
            buffer.issue(epoch)
            issued.add(epoch)
        elif action == "add":
            batch = to_rows([Put(b"%d" % (serial % 4), epoch, b"%d" % serial)], epoch=epoch)
            if usable:
                buffer.add(table, epoch, batch)
                batches.append((epoch, serial, table, True))
            else:
                with pytest.raises(EpochTooOld):
                    buffer.add(table, epoch, batch)
        elif action == "seal" and epoch not in sealed:
            expected = EpochTooOld if not usable else EpochOutOfOrder if older else None
            if expected is None:
                assert buffer.seal(epoch).epoch == epoch
                sealed.add(epoch)
            else:
                with pytest.raises(expected):
                    buffer.seal(epoch)
        elif action == "drop":
            buffer.drop(epoch)
            batches = [batch for batch in batches if batch[0] != epoch]
            dropped.add(epoch)
        elif action == "spill":
            spilled = spill(buffer)
            if spilled is not None:
                mine = [batch for batch in batches if (batch[2], batch[0]) == spilled and batch[3]]
                batches = [batch for batch in batches if batch not in mine]
                batches.append((spilled[1], min(batch[1] for batch in mine), spilled[0], False))
        assert buffer.nbytes == sum(held.nbytes for each in (1, 2, 3) for held in buffer.runs(each))
        for each in (1, 2, 3):
            mine = sorted((batch for batch in batches if batch[2] == each), reverse=True)
            expected_rows: dict[tuple[int, bytes], bytes] = {}
            for at_epoch, number, _, in_memory in mine:
                if in_memory:
                    expected_rows.setdefault((at_epoch, b"%d" % (number % 4)), b"%d" % number)
            seen: dict[tuple[int, bytes], bytes | None] = {}
            for held in buffer.runs(each):
                for put in to_puts(held.block.rows) if held.block else ():
                    seen.setdefault((held.epoch, put.key), put.value)
            assert seen == expected_rows
            order = [(held.epoch, held.block is None) for held in buffer.runs(each)]
            assert [place for place, _ in groupby(order)] == [
                place for place, _ in groupby((batch[0], not batch[3]) for batch in mine)
            ]
            for at_epoch in {held.epoch for held in buffer.runs(each)}:
                assert sum(held.epoch == at_epoch and held.block is not None for held in buffer.runs(each)) < 8
    for epoch in range(1, 7):
        buffer.drop(epoch)
    assert buffer.nbytes == 0
    assert all(buffer.runs(table) == () for table in (1, 2, 3))
