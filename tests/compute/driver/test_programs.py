"""A program in the store's bucket: fetched by its digest, and each way in which it may not be the one that is meant."""

import hashlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from support.buckets.minio import free_port
from support.waiting import eventually
from tussock.compute.driver.failures import OUTAGE
from tussock.compute.driver.program import PROGRAM_BYTES_MAX, fetch_program
from tussock.statestore import InvalidOption
from tussock.statestore.buckets import open_bucket

PATH = "applications/job/program/job.py"
PROGRAM = b"import sys\nprint('ran', __name__, sys.argv[1:], __file__.rpartition('/')[2])\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run(folder: Path, meant: bytes, url: str = "") -> tuple[int, str, str]:
    """Run a driver for the program `meant`; returns exit code, log and termination message."""
    environ = {
        **os.environ,
        "TUSSOCK_STATUS_PORT": "0",
        "TUSSOCK_TERMINATION_FILE": str(folder / "termination"),
        "TUSSOCK_STORE": url or (folder / "store").as_uri(),
        "TUSSOCK_PROGRAM": PATH,
        "TUSSOCK_PROGRAM_SHA256": sha256(meant),
    }
    command = [sys.executable, "-m", "tussock.compute.driver", "job.py", "a", "b"]
    ran = subprocess.run(command, env=environ, capture_output=True, check=False, text=True, timeout=120, cwd=folder)
    told = folder / "termination"
    return ran.returncode, ran.stdout + ran.stderr, told.read_text() if told.exists() else ""


def put(folder: Path, data: bytes) -> None:
    open_bucket((folder / "store").as_uri()).put(PATH, data)


def test_a_program_of_the_bucket_runs_as_a_file_would(tmp_path: Path) -> None:
    put(tmp_path, PROGRAM)
    code, log, _ = run(tmp_path, PROGRAM)
    assert code == 0, log
    assert "ran __main__ ['a', 'b'] job.py" in log


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (None, "InvalidOption: there is no program at file:"),
        (b"print('another')\n", "and application.object.sha256 is"),
    ],
    ids=["missing", "changed meanwhile"],
)
def test_a_driver_says_what_is_wrong_with_the_program(tmp_path: Path, there: bytes | None, told: str) -> None:
    """As the cause of its failure, which the operator shows; nothing of it runs."""
    if there is not None:
        put(tmp_path, there)
    code, log, message = run(tmp_path, PROGRAM)
    assert code == 1, log
    assert told in message.partition("\n\n")[0]
    assert "another" not in log.splitlines()


def test_a_store_that_is_away_is_no_failure_of_the_program(tmp_path: Path) -> None:
    code, log, _ = run(tmp_path, PROGRAM, f"tussock://127.0.0.1:{free_port()}")
    assert code == OUTAGE, log


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"# \xff\n", r"is not Python in UTF-8: byte 2 is 0xff"),
        (b"#" * (PROGRAM_BYTES_MAX + 1), "is too large, a program has at most 4 MiB"),
    ],
    ids=["no text", "too large"],
)
def test_what_can_be_no_program_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    """Also when it is the one that is meant; the message names the object."""
    put(tmp_path, data)
    bucket = open_bucket((tmp_path / "store").as_uri())
    with pytest.raises(InvalidOption, match=told) as refused:
        fetch_program(lambda: bucket, PATH, sha256(data), tmp_path)
    assert PATH in str(refused.value)
    assert not (tmp_path / "job.py").exists()


@pytest.mark.parametrize("digest", ["", "abc", "A" * 64, "g" * 64])
def test_without_a_digest_nothing_is_fetched(tmp_path: Path, digest: str) -> None:
    """Every writer of the store may put an object there."""
    put(tmp_path, PROGRAM)
    with pytest.raises(InvalidOption, match="64 lower-case hexadecimal digits"):
        fetch_program(lambda: open_bucket((tmp_path / "store").as_uri()), PATH, digest, tmp_path)


def test_a_driver_reports_the_digest_of_its_program(tmp_path: Path) -> None:
    """Of a file of the image or of a ConfigMap as well."""
    program = b"import time\nwhile True: time.sleep(0.1)\n"
    (tmp_path / "job.py").write_bytes(program)
    port = free_port()
    command = [sys.executable, "-m", "tussock.compute.driver", str(tmp_path / "job.py")]
    process = subprocess.Popen(command, env={**os.environ, "TUSSOCK_STATUS_PORT": str(port)}, cwd=tmp_path)
    try:

        def reported() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
                    return bool(json.load(answer)["programSha256"] == sha256(program))
            except OSError:
                return False

        eventually(reported)
    finally:
        process.kill()
        process.wait()
