"""How often a process that runs an application looks for garbage."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tussock.compute import functions as fn
from tussock.statestore import connect
from tussock.statestore.base.process.garbage import DEFAULTS, YOUNG_MAX

Threshold = tuple[int, int, int]


@pytest.fixture(autouse=True)
def threshold() -> Iterator[None]:
    """As it was."""
    before = gc.get_threshold()
    gc.unfreeze()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def threshold_in_a_run(before: Threshold) -> Threshold:
    """What a process with that threshold has while it runs a program."""
    gc.set_threshold(*before)
    with connect("memory://garbage") as store, fn.Runtime(store, "bank", [fn.Operator("account")]):
        return gc.get_threshold()


@pytest.mark.parametrize("young", DEFAULTS)
def test_a_process_that_runs_a_program_collects_rarely(young: int) -> None:
    assert threshold_in_a_run((young, 10, 10)) == (YOUNG_MAX, 10, 10)


def test_a_process_that_has_chosen_a_threshold_keeps_it() -> None:
    assert threshold_in_a_run((5000, 20, 30)) == (5000, 20, 30)


def test_a_process_that_collects_nothing_goes_on_so() -> None:
    gc.disable()
    try:
        assert threshold_in_a_run((700, 10, 10)) == (700, 10, 10)
    finally:
        gc.enable()


RUNS = """
import gc

from tussock.compute import functions as fn
from tussock.statestore import connect


def looked_at():
    return len(gc.get_objects())


def runtimes():
    return [fn.Runtime(store, name, [fn.Operator(f"{name}_account")]) for name in ("bank", "other")]


with connect("memory://sparing") as store:
    before = looked_at()
    bank, other = runtimes()
    with bank:
        assert looked_at() < before // 2
        with other:
            assert gc.get_freeze_count()
        assert looked_at() < before // 2
    assert not gc.get_freeze_count()
    assert looked_at() >= before // 2
    fenced, _ = runtimes()
    fenced.start()
    bank.start()
    try:
        fenced.send("bank_account", "a", "none")
    except fn.FunctionFault:
        pass
    bank.stop()
    try:
        fenced.stop()
    except fn.ApplicationFenced:
        pass
    assert not gc.get_freeze_count(), "one that has failed has ended, too"
    gc.freeze()
    with runtimes()[0]:
        pass
    assert gc.get_freeze_count(), "what the process has frozen itself stays so"
"""


def test_what_was_there_before_is_passed_over_while_applications_run() -> None:
    """Story: full collections of 50 to 110 ms came amid requests, as they looked at all that a process had made."""
    subprocess.run([sys.executable, "-c", RUNS], check=True, timeout=60)
