"""Picking from history: its runs are merged only to stay few, since each may be opened by a read of an older epoch.

An SST of history goes as a whole, once its youngest row has expired. So a merge takes neighbours in the order in which
they were parted, about of one age, and runs of similar size, so that a row is written about once for each factor of
eight. A run that has all of the retention in it lives for twice as long.
"""

from collections.abc import Iterator, Sequence

from tussock.meta.compaction.picker_config import Candidate, Pick, PickerConfig, Table
from tussock.meta.version.ranges import total_bytes

__all__ = ["history_candidates", "pick_history"]


def history_candidates(table: Table, config: PickerConfig) -> Iterator[Candidate]:
    """Whether a merge of history is worth it."""
    runs = len(table.state.levels.history)
    if runs < config.history_merge_min:
        return
    window = _window(table, config)
    if len(window) > 1:
        score = max(len(window) / config.history_merge_min, runs / config.history_runs_max)
        yield Candidate(score, "history", 0, f"history has {runs} runs, {len(window)} neighbours may be merged")


def pick_history(table: Table, config: PickerConfig) -> Pick | None:
    """The longest window of neighbouring idle runs of similar size; with too many, that of the fewest bytes a run."""
    window = _window(table, config)
    inputs = tuple(table.state.levels.history[at].ssts for at in window)
    return Pick("history", inputs, 0, bottom=False, score=0.0, reason="") if len(window) > 1 else None


def _window(table: Table, config: PickerConfig) -> range:
    history = table.state.levels.history
    sizes = [max(total_bytes(run.ssts), config.l0_small_bytes) for run in history]
    idle = [table.busy.isdisjoint(sst.id for sst in run.ssts) for run in history]
    windows = [_window_from(first, sizes, idle, config, config.l0_similar_ratio) for first in range(len(history))]
    longest = max(windows, key=len, default=range(0))
    if len(longest) >= config.history_merge_min or len(history) < config.history_runs_max:
        return longest
    windows = [_window_from(first, sizes, idle, config, None) for first in range(len(history))]

    def bytes_a_run_less(window: range) -> float:
        return sum(sizes[at] for at in window) / (len(window) - 1)

    return min((one for one in windows if len(one) > 1), key=bytes_a_run_less, default=range(0))


def _window_from(
    first: int, sizes: Sequence[int], idle: Sequence[bool], config: PickerConfig, ratio: int | None
) -> range:
    """The longest window of idle runs from that one on that one task may merge; similar by `ratio`, if given."""
    smallest = largest = sizes[first]
    total, end = 0, first
    for at in range(first, min(first + config.l0_merge_max, len(sizes))):
        smallest, largest, total = min(smallest, sizes[at]), max(largest, sizes[at]), total + sizes[at]
        if not idle[at] or total > config.task_bytes_max or (ratio is not None and largest > smallest * ratio):
            break
        end = at + 1
    return range(first, end)
