"""Figures of a busy machine are not published."""

import os
import sys
from types import ModuleType

import pytest

from support.quiet import QuietWatch, quiet_module


@pytest.fixture
def quiet() -> ModuleType:
    """The benchmarks' own module."""
    return quiet_module()


def test_no_benchmark_begins_above_the_load(quiet: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the load, the limit and the way out; below the limit the benchmark begins."""
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 9.0, 9.0))
    quiet.refuse_if_busy()
    monkeypatch.setattr(os, "getloadavg", lambda: (1.6, 0.0, 0.0))
    with pytest.raises(SystemExit, match=r"1\.6, above 1\.5.*without --publish"):
        quiet.refuse_if_busy()


@pytest.mark.parametrize(("others", "busy"), [(0.2, False), (0.7, True)])
def test_the_load_of_other_programs_counts(
    quiet: ModuleType, monkeypatch: pytest.MonkeyPatch, others: float, busy: bool
) -> None:
    """The load of other programs counts, without the benchmark's own part."""
    seconds = iter([100.0, 110.0])
    for name, spent in (("_own_seconds", 1.0), ("_busy_seconds", 1.0 + others)):
        times = iter([5.0, 5.0 + 10 * spent])
        monkeypatch.setattr(quiet, name, lambda times=times: next(times))
    monkeypatch.setattr(quiet.time, "monotonic", lambda: next(seconds))
    complaint = quiet.Watch().complaint()
    assert (complaint is not None) == busy
    assert complaint is None or "not published" in complaint


def test_the_machine_is_read(quiet: ModuleType) -> None:
    """The counters of this machine are plausible."""
    if sys.platform == "linux":
        assert quiet.Watch().others() >= 0
        assert quiet._busy_seconds() > quiet._own_seconds() > 0


def test_times_are_not_compared_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was busy at the start is not compared later, either; a test says why."""
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0))
    busy = QuietWatch()
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert "load average is 9.0" in busy.complaint()
