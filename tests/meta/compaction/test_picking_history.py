"""When runs of history are merged, and which."""

from tussock.meta.compaction.picker import PickerConfig, candidates, pick
from tussock.meta.version.version import CompactionTask
from tussock.statestore.contract.records import Run, SstInfo, TableLevels, TableSpec, TableState

CONFIG = PickerConfig(history_merge_min=3, history_runs_max=6, l0_small_bytes=1, task_bytes_max=1000)


def past(number: int, size: int) -> SstInfo:
    """An SST of history of that many bytes."""
    return SstInfo(
        id=f"{number:032x}", smallest=b"a", largest=b"z", rows=2, deletes=0, data_bytes=size, meta_bytes=0,
        epoch=0, min_epoch=1, max_epoch=2, until=3,
    )  # fmt: skip


def table(*sizes: int) -> TableState:
    """A table with runs of history of these bytes, the one that was parted last first."""
    history = tuple(Run(ssts=(past(number, size),)) for number, size in enumerate(sizes, 1))
    return TableState(spec=TableSpec(id=1, name="t"), levels=TableLevels(history=history), last_epoch=3)


def picked(state: TableState, tasks: tuple[CompactionTask, ...] = ()) -> list[int]:
    """The sizes of the runs that are merged next."""
    found = pick(state, tasks, CONFIG, 9)
    assert found is None or (found.kind, found.target_level, found.bottom) == ("history", 0, False)
    return [] if found is None else [run[0].data_bytes for run in found.inputs]


def test_neighbours_of_similar_size_are_merged_once_there_are_enough() -> None:
    """A row is written anew once for each factor in size, and not with each run that comes."""
    assert picked(table(10, 10)) == []
    assert picked(table(10, 10, 500)) == []
    assert picked(table(10, 11, 12, 500)) == [10, 11, 12]
    assert picked(table(10, 500, 11, 12, 39, 500)) == [11, 12, 39]


def test_with_too_many_runs_neighbours_are_merged_whatever_their_sizes() -> None:
    """Else runs of different sizes could stay for ever, and each is opened by a read of an older epoch."""
    assert picked(table(10, 100, 10, 100, 10)) == []
    assert picked(table(900, 100, 10, 200, 20, 900)) == [100, 10, 200, 20]


def test_a_merge_stays_within_the_bytes_of_a_task_and_off_what_others_claim() -> None:
    """Runs that a task has are looked past; so are those that are too large together."""
    assert picked(table(400, 400, 400, 400, 400)) == []
    state = table(10, 10, 10, 10, 10, 10)
    (middle,) = state.levels.history[2].ssts
    task = CompactionTask(
        id="1", table_id=1, kind="history", inputs=((middle,),), target_level=0, bottom=False, watermark=0,
        owner="me", claimed_ms=0, expires_ms=0,
    )  # fmt: skip
    assert picked(state, (task,)) == [10, 10, 10]


def test_the_live_tree_comes_first_when_reads_of_the_present_suffer() -> None:
    """The score of history grows with its runs, that of L0 as before."""
    state = table(*[10] * 4)
    (only,) = [one for one in candidates(state, (), CONFIG, 9) if one.kind == "history"]
    assert 1 < only.score < 2
