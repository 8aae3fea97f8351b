"""Code that runs for too long is ended, and leaves its process as it was."""

import subprocess
import sys
import threading

import pytest

from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.statestore.base.system import RealSystem

PROGRAM = """
import sys

from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.statestore.base.system import RealSystem


def endless():
    while True:
        pass


guard = Deadline(RealSystem(), 0.1, sys.exit)
for _ in range(3):
    try:
        guard.run(endless)
    except Overdue:
        print("ended")
    print(guard.run(lambda: sum(range(1000))))
guard.stop()
called = []
sys.setprofile(lambda frame, event, argument: called.append(event))
(lambda: None)()
sys.setprofile(None)
print("profiled", called.count("call"))
"""


def test_after_a_call_that_was_ended_a_profiler_works() -> None:
    """Story: the exception was taken back, for which CPython went on to look; under a profiler it did nothing else."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, ["ended", "499500"] * 3 + ["profiled 1"]), ran.stderr


DROPPED = """
import sys

from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.statestore.base.system import RealSystem

dropped = []
sys.unraisablehook = lambda what: dropped.append(what.exc_type)


class Endless:
    def __del__(self):
        while len(dropped) < 3:
            pass


def leave_garbage():
    while len(dropped) < 3:
        Endless()
    while True:
        pass


guard = Deadline(RealSystem(), 0.012, lambda: print("given up", flush=True))
try:
    guard.run(leave_garbage)
except Overdue:
    print("ended")
for _ in range(3):
    print(guard.run(lambda: sum(range(1000))))
guard.stop()
print("dropped", len(dropped), {one is Overdue for one in dropped})
"""


def test_one_that_python_drops_in_a_destructor_comes_again_soon() -> None:
    """Story: the next one came after a second, and after two of them the program ended as if it waited in a library."""
    ran = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=60, check=False)
    *lines, dropped = ran.stdout.splitlines()
    assert (ran.returncode, lines) == (0, ["ended", *["499500"] * 3]), ran.stderr
    # One that is on its way as the third arrives may be dropped, too.
    assert dropped in ("dropped 3 {True}", "dropped 4 {True}")


class StoppedClock(RealSystem):
    """A machine that stands still: its clock jumps."""

    def __init__(self) -> None:
        self.behind = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.behind


def test_a_machine_that_stood_still_ends_no_call_that_can_be_interrupted() -> None:
    """Story: the look after it raised `Overdue` and gave the call up at once, before it could arrive."""
    system, given_up = StoppedClock(), threading.Event()
    guard = Deadline(system, 0.05, given_up.set)

    def stand_still() -> None:
        system.behind += 100
        while not given_up.is_set():
            pass

    for _ in range(20):
        with pytest.raises(Overdue):
            guard.run(stand_still)
    assert guard.run(lambda: 5) == 5
    guard.stop()
    assert not given_up.is_set()
