"""Compaction picking: one case for each rule; sizes are in bytes, files are named by their number."""

import pytest

from support.store.versions import make_id, run, spec, sst
from tussock.meta.compaction.picker import PickerConfig, candidates, pick, pick_manual
from tussock.meta.compaction.picker_config import Pick
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import SstInfo, TableLevels, TableState

CONFIG = PickerConfig(base_bytes=1000, l0_small_bytes=1, task_bytes_max=1_000_000)


def file(number: int, low: int, high: int, size: int = 100, **fields: object) -> SstInfo:
    return sst(
        b"%06d" % low, b"%06d" % high, id=make_id(1, number), data_bytes=size, meta_bytes=0, epoch=0, min_epoch=1,
        max_epoch=9, **fields,
    )  # fmt: skip


def state(l0: list[list[SstInfo]], *levels: list[SstInfo]) -> TableState:
    subs = tuple(run(*files) for files in l0)
    return TableState(spec=spec(), levels=TableLevels(l0=subs, levels=tuple(tuple(level) for level in levels)))


def busy(picked: Pick) -> CompactionTask:
    return CompactionTask(
        id="t", table_id=1, kind=picked.kind, inputs=picked.inputs, target_level=picked.target_level,
        bottom=picked.bottom, watermark=0, owner="o", claimed_ms=0, expires_ms=1,
    )  # fmt: skip


def claim_of(*files: SstInfo, target: int = 1) -> CompactionTask:
    return busy(Pick("level", (files,), target, False, 1.0, ""))


def numbers(picked: Pick | None) -> list[list[int]]:
    assert picked is not None
    return [[int(one.id[12:], 16) for one in files] for files in picked.inputs]


def equal_runs(count: int, size: int = 10, low: int = 0, high: int = 9) -> list[list[SstInfo]]:
    """Runs of equal size, newest first: run 1 is the newest."""
    return [[file(number, low, high, size)] for number in range(1, count + 1)]


# --- Merging inside L0 ------------------------------------------------------------------------------------------


def test_five_runs_of_similar_size_become_one() -> None:
    """All of them are taken, newest first, and the result stays in L0."""
    picked = pick(state(equal_runs(5)), [], CONFIG, 0)
    assert numbers(picked) == [[1], [2], [3], [4], [5]]
    assert picked is not None
    assert (picked.kind, picked.target_level, picked.bottom) == ("intra-l0", 0, True)


def test_three_runs_are_left_alone() -> None:
    """A merge pays from four runs on."""
    assert pick(state(equal_runs(3)), [], CONFIG, 0) is None


@pytest.mark.parametrize(("oldest", "taken"), [(40, 5), (41, 4)])
def test_runs_of_another_size_class_are_left_out(oldest: int, taken: int) -> None:
    """Up to four times as large is similar; beyond, the large run is not rewritten for the small ones."""
    picked = pick(state([*equal_runs(4), [file(9, 0, 9, oldest)]]), [], CONFIG, 0)
    assert len(numbers(picked)) == taken
    assert picked is not None
    assert picked.bottom is (taken == 5)


def test_at_most_sixteen_runs_and_the_oldest_first() -> None:
    """Of twenty runs the oldest sixteen are taken; the other four are the next task."""
    table = state(equal_runs(20))
    first = pick(table, [], PickerConfig(base_bytes=10**6, l0_small_bytes=1, l0_runs_max=100), 0)
    assert numbers(first) == [[number] for number in range(5, 21)]
    assert first is not None
    second = pick(table, [busy(first)], PickerConfig(base_bytes=10**6, l0_small_bytes=1, l0_runs_max=100), 0)
    assert numbers(second) == [[1], [2], [3], [4]]
    assert second is not None
    assert not second.bottom


def test_windows_beyond_busy_runs_are_found() -> None:
    """A claimed run parts the windows; the window beyond it is found."""
    table = state(equal_runs(10))
    picked = pick(table, [claim_of(table.levels.l0[8].ssts[0])], CONFIG, 0)
    assert numbers(picked) == [[number] for number in range(1, 9)]
    assert pick(state(equal_runs(7)), [claim_of(file(4, 0, 9, 10))], CONFIG, 0) is None


def test_small_runs_count_as_equally_small() -> None:
    """Below the floor a request costs the same, so 10 and 1000 bytes are similar."""
    sizes = [10, 1000, 10, 1000]
    table = state([[file(number, 0, 9, size)] for number, size in enumerate(sizes, 1)])
    assert pick(table, [], PickerConfig(), 0) is not None


# --- L0 to L1 ---------------------------------------------------------------------------------------------------


def test_l0_smaller_than_l1_stays() -> None:
    """Three files over an L1 that is larger than they are have to wait."""
    base = [file(1, 100, 399, 300), file(2, 400, 699, 300), file(3, 700, 999, 300)]
    assert pick(state([[file(4, 100, 180), file(5, 400, 450), file(6, 600, 700)]], base), [], CONFIG, 0) is None


def test_l0_with_the_bytes_of_l1_goes_down_with_what_it_overlaps() -> None:
    """Bounds that touch overlap; files beyond the inputs' range stay."""
    l1 = [file(3, 0, 50), file(4, 140, 200), file(5, 250, 300)]
    picked = pick(state([[file(1, 50, 140, 1000)]], l1), [], CONFIG, 0)
    assert numbers(picked) == [[1], [3, 4]]
    assert picked is not None
    assert (picked.kind, picked.target_level, picked.bottom) == ("l0", 1, True)


def test_many_runs_go_down_even_if_they_are_small() -> None:
    """Twelve runs of different size classes cannot be merged in tiers, and reading all of them is costly."""
    table = state([[file(number, 0, 9, 5**number)] for number in range(1, 13)])
    config = PickerConfig(base_bytes=10**12, l0_small_bytes=1)
    picked = pick(table, [], config, 0)
    assert picked is not None
    assert (picked.kind, len(picked.inputs)) == ("l0", 12)


def test_while_the_oldest_runs_are_merged_others_go_on_beside_them() -> None:
    """New files over a free range go down; those over the claimed range wait, and claimed files are never touched."""
    l1 = [file(3, 1, 100), file(2, 101, 150), file(1, 201, 210)]
    table = state([[file(5, 100, 200, 600), file(4, 201, 300, 600)]], l1)
    first = pick(table, [], CONFIG, 0)
    assert numbers(first) == [[5, 4], [3, 2, 1]]
    assert first is not None
    grown = state([[file(7, 301, 333, 1000)], [file(6, 100, 200, 600)], *[list(s.ssts) for s in table.levels.l0]], l1)
    second = pick(grown, [busy(first)], CONFIG, 0)
    assert numbers(second) == [[7]]
    assert second is not None
    assert second.kind == "trivial-move"
    alone = state([[file(6, 100, 200, 1600)], *[list(s.ssts) for s in table.levels.l0]], l1)
    assert pick(alone, [busy(first)], CONFIG, 0) is None


def test_a_task_is_bounded_in_bytes() -> None:
    """As many of the oldest runs as fit into half of a task's bytes, the other half is for L1."""
    table = state([[file(number, 0, 9, 400)] for number in (1, 2, 3, 4, 5)])
    picked = pick(table, [], PickerConfig(base_bytes=1000, l0_merge_min=99, task_bytes_max=1700), 0)
    assert numbers(picked) == [[4], [5]]


def test_one_file_that_overlaps_more_than_a_task_still_goes_down() -> None:
    """Otherwise it would block L0."""
    table = state([[file(1, 0, 9, 1000)]], [file(2, 0, 9, 900)])
    assert numbers(pick(table, [], PickerConfig(base_bytes=1000, task_bytes_max=500), 0)) == [[1], [2]]


# --- Levels -----------------------------------------------------------------------------------------------------


def test_an_overfull_level_gives_the_file_with_the_least_overlap() -> None:
    """Of two files it is the one that meets fewer bytes below."""
    l1 = [file(1, 0, 99, 900), file(2, 200, 299, 900)]
    l2 = [file(3, 0, 50, 800), file(4, 60, 99, 800), file(5, 200, 250, 800)]
    picked = pick(state([], l1, l2), [], CONFIG, 0)
    assert numbers(picked) == [[2], [5]]
    assert picked is not None
    assert (picked.kind, picked.target_level, picked.bottom) == ("level", 2, True)


def test_files_without_overlap_move_in_one_task_without_io() -> None:
    """As many files as cover the excess move; the task does not claim to be at the bottom, since nothing is merged."""
    l1 = [file(1, 0, 99, 900), file(2, 200, 299, 900), file(3, 300, 399, 900)]
    picked = pick(state([], l1, [file(4, 500, 600)]), [], CONFIG, 0)
    assert numbers(picked) == [[1, 2]]
    assert picked is not None
    assert (picked.kind, picked.target_level, picked.bottom) == ("trivial-move", 2, False)


def test_a_move_that_would_meet_too_much_one_level_further_is_not_free() -> None:
    """Such a file is merged instead, which can split it on the way."""
    l1, l3 = [file(1, 0, 99, 1900)], [file(4, 0, 99, 5000)]
    config = PickerConfig(base_bytes=1000, task_bytes_max=4000)
    picked = pick(state([], l1, [file(3, 500, 600)], l3), [], config, 0)
    assert picked is not None
    assert picked.kind == "level"


def test_the_bottom_is_where_nothing_older_overlaps() -> None:
    """A file of a deeper level that overlaps an input holds deletes back."""
    l1, l2 = [file(1, 0, 99, 1900)], [file(2, 50, 60)]
    shallow = pick(state([], l1, l2, [file(3, 200, 300)]), [], CONFIG, 0)
    deep = pick(state([], l1, l2, [file(3, 70, 300)]), [], CONFIG, 0)
    assert shallow is not None
    assert deep is not None
    assert (shallow.bottom, deep.bottom) == (True, False)


# --- Deletes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deletes", "expected"), [(39, None), (40, [[1]])])
def test_forty_percent_of_deletes_are_reclaimed_alone_at_the_bottom(deletes: int, expected: object) -> None:
    """At 39 of 100 they stay, at 40 of 100 they go."""
    picked = pick(state([], [], [file(1, 0, 9, deletes=deletes)]), [], CONFIG, 9)
    assert (numbers(picked) if picked else None) == expected
    if picked:
        assert (picked.kind, picked.target_level, picked.bottom) == ("tombstone", 2, True)


def test_deletes_above_others_are_merged_with_what_they_overlap() -> None:
    """A file that is not at the bottom goes down one level with its overlap."""
    table = state([], [file(1, 0, 9, deletes=90)], [file(2, 5, 7), file(3, 20, 30)])
    picked = pick(table, [], CONFIG, 9)
    assert numbers(picked) == [[1], [2]]


@pytest.mark.parametrize("watermark", [0, 8, 9])
def test_deletes_that_readers_may_ask_for_are_reclaimed_too(watermark: int) -> None:
    """History has them for these readers; once they waited for the watermark, which a single young one held up."""
    picked = pick(state([], [file(1, 0, 9, deletes=90)]), [], CONFIG, watermark)
    assert numbers(picked) == [[1]]
    assert picked is not None
    assert (picked.kind, picked.bottom) == ("tombstone", True)


def test_a_level_with_busy_overlap_gives_way_to_the_next() -> None:
    """The file of L1 waits for its overlap, that of L3 is taken."""
    below = file(2, 5, 7)
    table = state([], [file(1, 0, 9, deletes=90)], [below], [file(3, 50, 60, deletes=90)])
    assert numbers(pick(table, [claim_of(below, target=3)], CONFIG, 9)) == [[3]]


# --- Manual, scores, stalls --------------------------------------------------------------------------------------


def test_a_manual_compaction_merges_everything_into_the_deepest_level() -> None:
    """All runs, newest first, into one; while a file is claimed it has to wait."""
    table = state([[file(1, 0, 9)], [file(2, 5, 12)]], [file(3, 0, 3)], [], [file(4, 2, 20)])
    picked = pick_manual(table, [], CONFIG)
    assert numbers(picked) == [[1], [2], [3], [4]]
    assert picked is not None
    assert (picked.target_level, picked.bottom) == (3, True)
    assert pick_manual(table, [claim_of(table.levels.levels[0][0])], CONFIG) is None


def test_a_manual_compaction_goes_as_deep_as_the_size_of_the_table_asks() -> None:
    """A table that does not fit into L1 would be picked again at once."""
    picked = pick_manual(state([[file(1, 0, 9, 5_000)], [file(2, 0, 9, 5_000)]]), [], CONFIG)
    assert picked is not None
    assert picked.target_level == 2


def test_a_manual_compaction_skips_a_table_that_could_not_change() -> None:
    """An empty table, or one run at the bottom in which every key has one version and none is deleted."""
    clean = sst(b"a", b"b", epoch=5)
    assert pick_manual(state([]), [], CONFIG) is None
    assert pick_manual(state([], [clean]), [], CONFIG) is None
    assert pick_manual(state([[clean]]), [], CONFIG) is not None
    assert pick_manual(state([], [file(1, 0, 9)]), [], CONFIG) is not None


def test_each_candidate_has_a_reason_in_words() -> None:
    """Scores descend, and each candidate has a reason with its numbers."""
    found = candidates(state(equal_runs(8, 500)), [], CONFIG, 0)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert "4000 bytes" in next(one.reason for one in found if one.kind == "l0")
