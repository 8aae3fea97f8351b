"""Choice of the Python that Spark's workers run, and what each of them loads."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyarrow as pa
import pytest

import tussock
from tussock.compute.spark.interpreter import settle_worker_python
from tussock.statestore import connect


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A virtual environment with a `python3`, which is not on the PATH, and nothing said about Spark."""
    # Set first, so that what the function sets is undone, too.
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python3"
    python.touch(0o755)
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path))
    return python


def test_an_environment_off_the_path_is_used(environment: Path) -> None:
    """Otherwise workers would run a Python without the packages."""
    settle_worker_python()
    assert os.environ["PYSPARK_PYTHON"] == str(environment)


def test_an_active_environment_needs_no_setting(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3` is the right one already, and by its short name it is so on other machines, too."""
    monkeypatch.setenv("PATH", str(environment.parent))
    settle_worker_python()
    assert "PYSPARK_PYTHON" not in os.environ


def test_outside_of_environments_nothing_changes(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python of the system is found by the PATH."""
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    settle_worker_python()
    assert "PYSPARK_PYTHON" not in os.environ


def test_a_users_pyspark_python_is_kept(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PYSPARK_PYTHON` is never replaced."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    settle_worker_python()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.fixture
def without_tussock(tmp_path: Path) -> Path:
    """A Python with every package of this one but Tussock, as an executor may have it."""
    folder = tmp_path / "executor"
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python3*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        # Files `.pth` lead to the project's own folders.
        if "tussock" not in package.name and package.suffix != ".pth" and not (packages / package.name).exists():
            (packages / package.name).symlink_to(package)
    return folder / "bin" / "python3"


PROGRAM = """
import json, sys
import tussock.compute.spark as ts
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(1).selectExpr("id AS k", "1L AS n")

def read():
    spark.read.format("tussock").option("store", sys.argv[1]).load("state").collect()

def keep_state():
    ts.stateful("state", key="k", fn=ts.merges(n="count"), store=sys.argv[1], writer="w", partitions=1)(rows, 0)

def tried(job):
    try:
        job()
    except (PySparkException, Py4JJavaError) as error:
        return str(error).splitlines()

print(json.dumps({"found": tried(read), "state": tried(keep_state), "registered": ts.register(spark) or tried(read)}))
"""


@pytest.mark.long
@pytest.mark.spark
def test_an_executor_without_the_package_gets_a_clear_error(without_tussock: Path, url: str, tmp_path: Path) -> None:
    """Spark does not find the format if it is not registered; otherwise the error names the package, without frames."""
    with connect(url) as store:
        store.create_table("state", schema=pa.schema([("k", pa.int64()), ("n", pa.int64())]), primary_key=["k"])
    (tmp_path / "program.py").write_text(PROGRAM)
    environ = {**os.environ, "PYSPARK_PYTHON": str(without_tussock)}
    command = [sys.executable, str(tmp_path / "program.py"), url]
    ran = subprocess.run(command, env=environ, capture_output=True, check=False, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    # Spark does not turn this one into an exception of Python's, so a line of py4j's comes first.
    assert "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: tussock." in told["found"][1]
    for job in ("registered", "state"):
        assert "ModuleNotFoundError: No module named 'tussock'" in told[job], told[job]
        assert not [line for line in told[job] if any(folder in line for folder in tussock.__path__)]


WHAT_A_WORKER_LOADS = """
import sys
import pyspark_tussock
before = set(sys.modules)
pyspark_tussock.DefaultSource({"store": "memory://", "path": "t"})
print(*sorted(name for name in set(sys.modules) - before if name.count(".") == 2 and ".compute." in name))
print(sorted({"pandas", "polars"} & set(sys.modules)))
import tussock.compute.spark as ts
assert all(getattr(ts, name) is not None for name in ts.__all__)
print(sorted(set(ts.__all__) - set(dir(ts))))
"""


def test_a_worker_loads_no_applications_for_the_format() -> None:
    """Each of Spark's Python workers imports the format anew, in four times the time with all that it might need."""
    ran = subprocess.run([sys.executable, "-c", WHAT_A_WORKER_LOADS], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["tussock.compute.spark", "[]", "[]"]
