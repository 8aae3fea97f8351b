"""A signal that comes at any step of the main thread is noted; the second one ends the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, threading
from tussock.compactor.node.stop_signals import StopSignals

stopped = StopSignals()
left = int(sys.argv[1])

def trace(frame, event, argument):
    # Of the wait, and of what it calls: the signal comes before the step with this number.
    global left
    frame.f_trace_opcodes = True
    if event == "opcode":
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGTERM)
    return trace

def wait():
    stopped.wait()

threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT) if left > 1000 else (os.getpid(), 0)).start()
sys.settrace(trace)
wait()
sys.settrace(None)
assert stopped.came
print("ended", flush=True)
os._exit(0)
"""


def run(step: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(step)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("step", [1, 2, 4, 6])
def test_a_signal_in_the_midst_of_the_wait_is_noted(step: int) -> None:
    """Story: a compactor that was told to stop just as it began to wait went on for ever, by a lock that it held."""
    done = run(step)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_a_signal_while_it_waits_is_noted() -> None:
    """The usual case."""
    done = run(1_000_000)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_the_second_signal_ends_at_once() -> None:
    """Whatever the process is at."""
    program = (
        "import signal, time\n"
        "from tussock.compactor.node.stop_signals import StopSignals\n"
        "stopped = StopSignals()\n"
        "signal.raise_signal(signal.SIGTERM)\n"
        "stopped.wait()\n"
        "print('draining', flush=True)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, "draining\n")
