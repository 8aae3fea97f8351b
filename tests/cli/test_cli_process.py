"""`tussock` as a separate process: pipes that close, interrupts, and the installed entry point."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from support.store.command import Sample, Tussock

COMMAND = [sys.executable, "-c", "from tussock.cli.start import main; main()"]

BY_VARIABLES = (
    "commands with --store take the variables TUSSOCK_TLS_CA, TUSSOCK_TLS_CERT, TUSSOCK_TLS_KEY and "
    "TUSSOCK_TLS_SERVER_NAME instead"
)


def test_the_entry_point_is_installed(sample: Sample) -> None:
    """The script `tussock` stands beside the interpreter and lists the commands."""
    script = Path(sys.executable).with_name("tussock")
    ran = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    for name in (
        "tables",
        "get",
        "scan",
        "changes",
        "version",
        "ssts",
        "sst",
        "log",
        "pins",
        "check",
        "compact",
        "vacuum",
    ):
        assert f" {name} " in ran.stdout


def test_the_release_is_printed(sample: Sample) -> None:
    """`tussock --version` prints what a report of a bug begins with."""
    ran = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"tussock {metadata.version('tussock')}\n"


WHAT_IS_LOADED = """
import sys
from tussock.cli.start import main
sys.argv = ["tussock", "--version"]
main()
print(*[name for name in ("typer", "rich", "numpy", "pyarrow", "structlog") if name in sys.modules])
"""


def test_the_release_is_told_before_anything_is_loaded() -> None:
    """Story: to say it took as much of a processor as a second of work."""
    ran = subprocess.run([sys.executable, "-c", WHAT_IS_LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout == f"tussock {metadata.version('tussock')}\n\n"


def test_a_release_that_cannot_be_printed_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: No space left on device")
    assert len(ran.stderr.splitlines()) == 1


def test_polars_is_loaded_by_those_who_sort() -> None:
    """It is a third of the start of a command or of a worker, and most of them sort nothing."""
    code = "import sys, tussock.cli.main, tussock.compute.functions.workers.process; print('polars' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False"]


WHO_LOADS_PANDAS = """
import sys
import tussock.cli.main, tussock.compute.functions, tussock.compute.procedures, tussock.meta.server
print("pandas" in sys.modules)
from tussock.statestore import connect
connect("memory://")
print("pandas" in sys.modules)
"""


def test_pandas_is_loaded_where_a_store_is_opened() -> None:
    """Not before: it is nearly half of the start of a command or a service. Not later, in somebody's first read."""
    ran = subprocess.run([sys.executable, "-c", WHO_LOADS_PANDAS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True"]


def test_a_closed_pipe_is_quiet(sample: Sample) -> None:
    """`tussock scan ... | head` ends without a word on stderr."""
    for arguments in (["--json"], ["--limit", "120"]):
        read, write = os.pipe()
        process = subprocess.Popen([*COMMAND, "scan", "kv", *arguments], stdout=write, stderr=subprocess.PIPE)
        # Nobody reads from the start, so that whatever is written breaks the pipe.
        os.close(read)
        os.close(write)
        _, err = process.communicate(timeout=60)
        assert b"Traceback" not in err
        assert b"Exception" not in err
        assert b"Broken" not in err


def test_an_interrupt_is_quiet(sample: Sample) -> None:
    """Ctrl-C ends the command with exit code 130 and without a traceback."""
    script = (
        "import os, signal, tussock.cli.commands.rows as rows\n"
        "from tussock.cli.main import main\n"
        "def interrupted(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "rows._show_rows = lambda *_, **__: interrupted()\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, "scan", "kv"], capture_output=True, text=True, check=False)
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr


def test_errors_have_no_traceback(sample: Sample) -> None:
    """An error of the store is one line on stderr."""
    ran = subprocess.run([*COMMAND, "scan", "nope"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.splitlines()[0].startswith("error: no table 'nope'")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nope"], "error: No such option: --nope; try 'tussock --help'"),
        (["scan"], "error: Missing argument 'TABLE'; try 'tussock scan --help'"),
        (["scan", "kv", "--store"], "error: Option '--store' requires an argument; try 'tussock --help'"),
        (["backup", "frobnicate"], "error: No such command 'frobnicate'; try 'tussock backup --help'"),
        (["tables", "--tls-cert=x"], f"error: No such option: --tls-cert; {BY_VARIABLES}; try 'tussock tables --help'"),
    ],
)
def test_wrong_usage_is_one_line(tussock: Tussock, arguments: list[str], said: str) -> None:
    """It begins like every error, ends with code 2, and says where to read on."""
    assert tussock(*arguments) == (2, "", said + "\n")


@pytest.mark.parametrize("arguments", [[], ["backup"]])
def test_without_arguments_the_help_is_shown(tussock: Tussock, arguments: list[str]) -> None:
    """And no error beside it."""
    ran = tussock(*arguments)
    assert (ran.code, ran.err) == (2, "")
    assert f"Usage: {' '.join(['tussock', *arguments])} [OPTIONS] COMMAND" in ran.out
