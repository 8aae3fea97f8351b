"""The command `tussock`: look into a store and look after it, from a shell.

Exit codes: 0 done; 1 an error, problems found by `check`, or no such row; 2 wrong usage, or no store at the URL; 130
interrupted. An error is one line on stderr.
"""

import logging
import os
import sys
from collections.abc import Callable

import typer

from tussock.cli.backup_commands import backup, clone
from tussock.cli.check_command import check
from tussock.cli.compactor_command import compactor
from tussock.cli.log_command import log
from tussock.cli.meta_commands import meta
from tussock.cli.pause_command import pause, resume
from tussock.cli.places import NoStore
from tussock.cli.row_commands import changes, get, scan, tables
from tussock.cli.sst_dump import dump
from tussock.cli.status_command import status
from tussock.cli.tree_commands import pins, ssts, version
from tussock.cli.upkeep_commands import compact, vacuum
from tussock.statestore.errors import TussockError

__all__ = ["app", "main"]

WARNING = 30

app = typer.Typer(
    name="tussock",
    help="Look into a Tussock store, and look after it. Say which with --store URL or in TUSSOCK_STORE.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sst = typer.Typer(name="sst", no_args_is_help=True)
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Read rows": (tables, get, scan, changes),
    "See how they are kept": (version, ssts, log, pins),
    "Look after the store": (check, compact, vacuum, clone),
    "Run a platform": (status, compactor, pause, resume),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(sst, rich_help_panel="See how they are kept")
sst.command(name="dump")(dump)
app.add_typer(backup, rich_help_panel="Look after the store")
app.add_typer(meta, rich_help_panel="Run a platform")


@sst.callback()
def _sst() -> None:
    """Look into one SST."""


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    try:
        app()
    except TussockError as error:
        text = " ".join(str(error).split())
        sys.stderr.write(f"error: {text}\n")
        sys.exit(2 if isinstance(error, NoStore) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Python flushes stdout once more at exit, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
