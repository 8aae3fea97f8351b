"""The tests are distributed to processes by pieces, and the times that these measured are printed at the end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.workers import LONG_PIECES, piece_of, rank_of

TESTS = Path(__file__).resolve().parent


@pytest.mark.parametrize("beginning", [start for starts in LONG_PIECES.values() for start in starts])
def test_pieces_have_tests(beginning: str) -> None:
    """Otherwise a renamed folder would start a node or a JVM in each process."""
    path = TESTS.parent / beginning
    assert path.is_file() or any(path.rglob("test_*.py"))


def test_files_are_pieces_and_long_ones_come_first() -> None:
    tests = ["tests/cli/test_x.py::test_a[1::2]", "tests/cli/test_x.py::test_b", "tests/meta/test_y.py::test_c"]
    long = ["tests/simulation/test_s.py::test_d", "tests/crds/test_k.py::test_e", "tests/e2e/test_n.py::test_f"]
    assert [piece_of(test) for test in tests] == ["tests/cli/test_x.py", "tests/cli/test_x.py", "tests/meta/test_y.py"]
    assert sorted(tests + long, key=rank_of) == [*reversed(long), *tests]


def test_files_with_slow_tests_come_before_other_files() -> None:
    """One that begins last would run alone for minutes."""
    tests = ["tests/cli/test_x.py::test_a", "tests/meta/test_y.py::test_b", "tests/e2e/test_n.py::test_c"]
    before = [{"tests/store/test_z.py"}, {"tests/meta/test_y.py"}]
    assert sorted(tests, key=lambda test: rank_of(test, before)) == tests[::-1]


def test_files_without_spark_do_not_wait_for_its_session() -> None:
    """They are in a room of its folder, and each is a piece."""
    name = "tests/compute/procedures/test_x.py"
    assert piece_of(f"{name}::test_a") == name
    assert piece_of("tests/compute/reads/test_y.py::test_b") == "session"


FILE = """
import os
import time
from support.times import note

def test_one(testrun_uid):
    note("one of " + __name__, 1)
    print("ran in", os.environ["PYTEST_XDIST_WORKER"], os.getpid(), __name__)

def test_two(testrun_uid):
    print("ran in", os.environ["PYTEST_XDIST_WORKER"], os.getpid(), __name__)
"""


def test_a_file_is_run_by_one_process_and_its_times_come_last(tmp_path: Path) -> None:
    """Before the line that closes the run; a test's id is the same as without processes."""
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(FILE)
    plugins = ["-p", "support.workers", "-p", "support.times", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "-v", "-rP", *plugins, "--rootdir", tmp_path, tmp_path],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    places = {tuple(line.split()[2:]) for line in ran.stdout.splitlines() if line.startswith("ran in")}
    assert len(places) == 4, "each file in one process"
    assert len({worker for worker, _, _ in places}) == 2
    _, _, end = ran.stdout.partition("= times =")
    *times, last = [line.strip("= ") for line in end.splitlines()[1:]]
    assert sorted(times) == [f"1.0 s  one of test_{name}" for name in "abcd"]
    assert last.startswith("8 passed in ")
    assert re.search(r"PASSED test_a\.py::test_one\s", ran.stdout)


LONG = """
import pytest

@pytest.mark.long
def test_minutes():
    pass

def test_moments():
    pass
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_tests_left_out_by_everyday_are_named(processes: str, tmp_path: Path) -> None:
    """Once, with or without worker processes; without the option nothing is left out."""
    (tmp_path / "test_long.py").write_text(LONG)
    plugins = ["-p", "support.workers", "-p", "support.everyday", "-p", "no:cacheprovider"]
    for option, count in (("--everyday", 1), ("--strict-config", 2)):
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", processes, option, *plugins, "--rootdir", tmp_path, tmp_path],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        assert f"{count} passed" in ran.stdout
        left_out = "1 tests of kills, chaos, simulated histories, long waits and streams, floods"
        assert ran.stdout.count(left_out) == 2 - count


DROPPED = """
class Dropped:
    def __del__(self):
        raise ValueError("no more")

def test_it():
    Dropped(), Dropped()
"""


def test_the_line_of_a_failed_test_names_what_could_not_be_raised(tmp_path: Path) -> None:
    """Of several errors the first."""
    (tmp_path / "test_dropped.py").write_text(DROPPED)
    options = ["-W", "error::pytest.PytestUnraisableExceptionWarning", "-p", "support.unraisable"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "CI": "1"},
    )
    assert ran.returncode == 1
    assert "(2 sub-exceptions); the first: ValueError('no more') after Exception ignored in" in ran.stdout
