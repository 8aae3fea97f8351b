"""The driver as a process, with programs that need no Spark: exit codes, causes of failures, SIGTERM, probes."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.buckets.minio import free_port
from tussock.compute.driver.answers import answer_on
from tussock.compute.driver.drain import stop_queries
from tussock.compute.driver.launch import DRAINED, Settings, submit_arguments
from tussock.compute.driver.scale import Scaler
from tussock.compute.driver.watch import Query, Status, Watch
from tussock.operator.planning.compute.runs import run_of


class Clock:
    """Time that only `sleep` moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def start(folder: Path, program: str, *arguments: str, drain: float = 2) -> tuple[subprocess.Popen[str], int]:
    """Start the driver; returns the process and the port of its status."""
    (folder / "program.py").write_text(program)
    port = free_port()
    environ = {
        **os.environ,
        "TUSSOCK_STATUS_PORT": str(port),
        "TUSSOCK_DRAIN_SECONDS": str(drain),
        "TUSSOCK_EXECUTORS_FILE": str(folder / "executors"),
        "TUSSOCK_TERMINATION_FILE": str(folder / "termination"),
    }
    command = [sys.executable, "-m", "tussock.compute.driver", str(folder / "program.py"), *arguments]
    out = subprocess.PIPE
    return subprocess.Popen(command, env=environ, cwd=folder, stdout=out, stderr=subprocess.STDOUT, text=True), port


@pytest.mark.parametrize(
    ("program", "code", "told"),
    [
        ("print('well')", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('not like this')", 1, "SystemExit: not like this"),
        ("from tussock.statestore import MetaUnavailable as E\nraise E('away')", 75, "MetaUnavailable: away"),
        ("raise ValueError('no such table\\nand more')", 1, "ValueError: no such table"),
        ("import does_not_exist", 1, "ModuleNotFoundError: No module named 'does_not_exist'"),
    ],
)
def test_the_exit_code_is_that_of_the_program(tmp_path: Path, program: str, code: int, told: str) -> None:
    """The termination message holds the cause and the trace's end; an unreachable store has a separate exit code."""
    process, _ = start(tmp_path, program)
    log, _ = process.communicate(timeout=60)
    assert process.returncode == code, log
    found = tmp_path / "termination"
    cause, _, trace = (found.read_text() if found.exists() else "").partition("\n\n")
    assert cause == told
    if "raise" in program:
        assert "program.py" in trace
        assert "Traceback" in log


COMMITS = "from tussock.compute.spark.batches.commits import note_commit as note\nnote('w', 3, 70)\nnote('w', 4, 90)\n"


@pytest.mark.parametrize(
    ("program", "left"),
    [
        ("", "\ncommitted epoch=90 batch=4 ms="),
        ("raise ValueError('boom')", "ValueError: boom\n\nTraceback"),
        ("import sys; sys.exit(3)", ""),
    ],
    ids=["ends well", "fails", "fails without words"],
)
def test_a_driver_leaves_its_newest_commit(tmp_path: Path, program: str, left: str) -> None:
    """Story: a batch that took seconds had no epoch in its status, since the operator asks every twelve.

    A failure comes first; without a word of it the kubelet takes the end of the log, so that nothing may be there.
    """
    process, _ = start(tmp_path, COMMITS + program)
    log, _ = process.communicate(timeout=60)
    found = tmp_path / "termination"
    said = found.read_text() if found.exists() else ""
    assert bool(said) == bool(left), log
    assert said.startswith(left), log
    container = {"name": "compute", "state": {"terminated": {"exitCode": process.returncode, "message": said}}}
    pod = {"metadata": {"name": "x"}, "status": {"phase": "Failed", "containerStatuses": [container]}}
    run = run_of(pod)
    assert (run.committed is not None and run.committed[:2]) == ((90, 4) if left else False)
    assert "committed" not in run.log + run.told


def test_a_program_has_arguments_name_and_folder(tmp_path: Path) -> None:
    """They are those that `python FILE` gives."""
    (tmp_path / "beside.py").write_text("WORD = 'found'\n")
    program = "import sys, beside\nassert __name__ == '__main__'\nprint(sys.argv[1:], beside.WORD)"
    process, _ = start(tmp_path, program, "--a", "b c")
    log, _ = process.communicate(timeout=60)
    assert "['--a', 'b c'] found" in log


END_SECONDS_MAX = 40
"""Less than a driver takes whose drain time is not set."""
SLEEPER = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.1)\n"
TOLD = "import time\nprint('up', flush=True)\nwhile True:\n    try: time.sleep(0.1)\n    except SystemExit: "


@pytest.mark.parametrize("program", [f"{TOLD}pass", f"{TOLD}break"], ids=["goes on", "ends"])
def test_sigterm_ends_a_driver_in_time_and_is_no_completion(tmp_path: Path, program: str) -> None:
    """The program ignores it, or ends by itself: in both cases it has not completed."""
    process, port = start(tmp_path, program)
    assert process.stdout is not None
    while "up" not in process.stdout.readline():
        assert process.poll() is None
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60) as answer:
        assert json.load(answer)["isStarted"] is False
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=END_SECONDS_MAX) == DRAINED
    assert not (tmp_path / "termination").exists(), "it has not failed"


STARTS_SPARK = """
import os, signal
from pyspark.core import context
from pyspark.sql import SparkSession

def launch(*arguments):
    gateway = launch_gateway(*arguments)
    os.kill(os.getpid(), signal.SIGTERM)  # the JVM runs, and there is no context yet
    return gateway

launch_gateway, context.launch_gateway = context.launch_gateway, launch
try:
    print("up", flush=True)
    SparkSession.builder.master("local[1]").getOrCreate()
    print("Spark runs")
finally:
    print("put away")
"""


@pytest.mark.parametrize(
    "program", [SLEEPER, pytest.param(STARTS_SPARK, marks=pytest.mark.spark)], ids=["before", "meanwhile"]
)
def test_sigterm_before_spark_starts_ends_a_driver_at_once(tmp_path: Path, program: str) -> None:
    """There is nothing to drain, whatever the time for it; the program's own clean-up runs."""
    process, _ = start(tmp_path, program, drain=4 * END_SECONDS_MAX)
    assert process.stdout is not None
    while "up" not in process.stdout.readline():
        assert process.poll() is None
    if program == SLEEPER:
        process.send_signal(signal.SIGTERM)
    log, _ = process.communicate(timeout=END_SECONDS_MAX)
    assert process.returncode == DRAINED
    assert "Spark runs" not in log
    assert ("put away" in log) == (program == STARTS_SPARK)
    assert not (tmp_path / "termination").exists(), "it has not failed"


def test_a_second_sigterm_changes_nothing(tmp_path: Path) -> None:
    process, _ = start(tmp_path, SLEEPER)
    assert process.stdout is not None
    while "up" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=END_SECONDS_MAX) == DRAINED


def test_arguments_of_spark_submit() -> None:
    """What differs from pod to pod is not in the file; an IPv6 address is written as in a URL."""
    assert submit_arguments(Settings(), None) == "pyspark-shell"
    found = submit_arguments(Settings(conf="/etc/conf", host="10.0.0.7", pod="x-driver"), 0)
    assert found.split() == [
        "--properties-file",
        "/etc/conf",
        "--conf",
        "spark.driver.host=10.0.0.7",
        "--conf",
        "spark.kubernetes.driver.pod.name=x-driver",
        "--conf",
        "spark.executor.instances=1",
        "pyspark-shell",
    ]
    assert "spark.driver.host=[fd00::1]" in submit_arguments(Settings(host="fd00::1"), 2)


QUERY = Query("q", "totals", 3, 1.5)


@pytest.mark.parametrize(
    ("is_stream", "status", "ready"),
    [
        (True, Status(), False),
        (True, Status(is_started=True), False),
        (True, Status(is_started=True, queries=(QUERY,)), True),
        (True, Status(is_started=True, queries=(QUERY,), is_draining=True), False),
        (False, Status(), False),
        (False, Status(is_started=True), True),
    ],
)
def test_a_stream_is_ready_while_it_runs_and_a_batch_while_spark_does(
    tmp_path: Path, is_stream: bool, status: Status, ready: bool
) -> None:
    """A stream is ready while it runs, a batch while Spark does."""
    watch = Watch(Scaler(tmp_path / "executors", None), Clock(), is_stream=is_stream)
    watch.status = status
    code, body = answer_on("/readyz", watch)
    assert code == (200 if ready else 503)
    assert json.loads(body)["isStarted"] == status.is_started
    assert answer_on("/other", watch)[0] == 404


def test_liveness_is_lost_when_spark_does_not_answer(tmp_path: Path) -> None:
    clock = Clock()
    watch = Watch(Scaler(tmp_path / "executors", None), clock, is_stream=True)
    clock.now = 59.0
    assert answer_on("/healthz", watch)[0] == 200
    clock.now = 61.0
    assert answer_on("/healthz", watch)[0] == 503


class Stream:
    """A stream whose batches take a while, by a clock."""

    name, id = "totals", "q"

    def __init__(self, clock: Clock, batch_seconds: float, idle: bool = False) -> None:
        self._clock, self._seconds, self._idle = clock, batch_seconds, idle
        self.stopped: float | None = None

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self.stopped is None

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": not self._idle}

    @property
    def lastProgress(self) -> dict[str, int] | None:  # noqa: N802
        done = int(self._clock.now / self._seconds)
        return {"batchId": done - 1} if done else None

    def stop(self) -> None:
        self.stopped = self._clock.now


def test_streams_stop_at_the_end_of_their_batches() -> None:
    """Between two batches at once, in a batch at its end, and in one that takes too long in its middle."""
    clock = Clock()
    idle, quick, slow = Stream(clock, 5, idle=True), Stream(clock, 5), Stream(clock, 100)
    cut = stop_queries([idle, quick, slow], 10, clock)  # type: ignore[arg-type, list-item]
    assert cut == 1
    assert idle.stopped == 0
    assert quick.stopped == pytest.approx(5, abs=0.1)
    assert slow.stopped == pytest.approx(10, abs=0.1)
