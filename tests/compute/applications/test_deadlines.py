"""Code that runs for too long is ended, and leaves its process as it was."""

import subprocess
import sys

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
