"""Back-pressure: the limits at which writes are slowed down and stopped, and what writers are told."""

import pytest

from support.store.versions import run, spec, sst
from tussock.meta.compaction.backpressure import DELAY_MS_MAX, STOPPED_MS, Stall, hold_back, write_stall
from tussock.meta.compaction.picker_config import PickerConfig
from tussock.statestore.contract.records import SstInfo, TableLevels, TableState

CONFIG = PickerConfig(l0_stall_runs=20, l0_stall_files=100, l0_stall_bytes=100 << 20)


def state(runs: int, files: int = 1, mebibytes: float = 0.001) -> TableState:
    size = int(mebibytes * (1 << 20))
    subs = tuple(
        run(*(sst(b"%d" % part, b"%d" % part, data_bytes=size, meta_bytes=0) for part in range(files)))
        for _ in range(runs)
    )
    return TableState(spec=spec(), levels=TableLevels(l0=subs))


@pytest.mark.parametrize(
    ("table", "delay_ms", "reason"),
    [
        (state(9), 0, ""),
        (state(10), 1, "10 uncompacted runs; writes are slowed down from half of 20 on"),
        (state(15), DELAY_MS_MAX // 2, "15 uncompacted runs"),
        (state(19), DELAY_MS_MAX * 9 // 10, "19 uncompacted runs"),
        (state(5, files=15), DELAY_MS_MAX // 2, "75 uncompacted files; writes are slowed down from half of 100 on"),
        (state(3, mebibytes=25), DELAY_MS_MAX // 2, "75 MiB uncompacted; writes are slowed down from half of 100 MiB"),
    ],
)
def test_writes_slow_down_before_they_stop(table: TableState, delay_ms: int, reason: str) -> None:
    """The delay grows from nothing at half of a limit to a second at the limit; the nearest limit counts."""
    found = write_stall(table, CONFIG)
    if not delay_ms:
        assert found is None
        return
    assert found is not None
    assert (found.delay_ms, found.stopped) == (delay_ms, False)
    assert f"table 'kv' has {reason}" in found.reason


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (state(20), "20 uncompacted runs; writes wait from 20 on"),
        (state(5, files=20), "100 uncompacted files; writes wait from 100 on"),
        (state(4, mebibytes=25), "100 MiB uncompacted; writes wait from 100 MiB on"),
    ],
)
def test_at_a_limit_writes_stop(table: TableState, reason: str) -> None:
    """Each of the three limits stops them alone."""
    found = write_stall(table, CONFIG)
    assert found == Stall(STOPPED_MS, True, f"table 'kv' has {reason}")


def test_deeper_levels_do_not_slow_writes() -> None:
    """Only L0 is read run by run."""
    deep: tuple[SstInfo, ...] = tuple(sst(b"%06d" % n, b"%06d" % n, data_bytes=1 << 20) for n in range(200))
    assert write_stall(TableState(spec=spec(), levels=TableLevels(levels=(deep,))), CONFIG) is None


def test_a_slowed_commit_succeeds_once_it_has_waited() -> None:
    """A commit that comes early is told the rest of its wait."""
    slow = Stall(300, False, "slow")
    assert hold_back([], 0) == (0, "")
    assert hold_back([slow], 0) == (300, "slow")
    assert hold_back([slow], 299) == (1, "slow")
    assert hold_back([slow], 300) == (0, "")


def test_a_stopped_commit_never_goes_through_by_waiting() -> None:
    """One stopped table stops a commit to several; of slow ones the slowest counts."""
    slow, slower, stopped = Stall(300, False, "slow"), Stall(400, False, "slower"), Stall(STOPPED_MS, True, "full")
    assert hold_back([slow, stopped], 10**9) == (STOPPED_MS, "full")
    assert hold_back([slow, slower], 300) == (100, "slower")
