"""The command `tussock`: look into a store and look after it, from a shell.

Exit codes: 0 done; 1 an error, problems found by `check`, or no such row; 2 wrong usage, or no store at the URL; 130
interrupted. An error is one line on stderr.
"""

import io
import logging
import os
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer

from tussock.cli.check.command import check
from tussock.cli.commands.application import (
    ANY_OPTION,
    call,
    call_graph,
    drain,
    query,
    serve,
    submit,
    trace,
    work,
)
from tussock.cli.commands.backup import backup, clone
from tussock.cli.commands.compactor import compactor
from tussock.cli.commands.flow.steps import break_on, breakpoints, step
from tussock.cli.commands.flow.transactions import bad_rows, history, push, subscribe
from tussock.cli.commands.log import log
from tussock.cli.commands.meta import meta
from tussock.cli.commands.pause import pause, resume
from tussock.cli.commands.repair.group import repair
from tussock.cli.commands.rows import changes, get, scan, tables
from tussock.cli.commands.sst import dump
from tussock.cli.commands.status import status
from tussock.cli.commands.tree import pins, ssts, version
from tussock.cli.commands.upkeep import compact, vacuum
from tussock.cli.options import TLS_VARIABLES
from tussock.cli.output import show
from tussock.cli.values import safe
from tussock.statestore.errors import StoreNotFound, TussockError

__all__ = ["app", "main"]

WARNING = 30

WrongUsage: type[Exception] = typer.BadParameter.__mro__[1]
"""The error of an unknown option, a missing argument or a value that does not fit; Typer has no public name for it."""

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
    "Run a platform": (compactor,),
    "Run an application": (work, submit, call, query, call_graph, trace, drain),
    "Run a flow": (push, subscribe, history, bad_rows, step, breakpoints),
    "Run either": (status, pause, resume),
}
app.command(rich_help_panel="Run an application", context_settings=ANY_OPTION)(serve)
app.command(name="break", rich_help_panel="Run a flow")(break_on)
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(sst, rich_help_panel="See how they are kept")
sst.command(name="dump")(dump)
app.add_typer(backup, rich_help_panel="Look after the store")
app.add_typer(repair, rich_help_panel="Look after the store")
app.add_typer(meta, rich_help_panel="Run a platform")


def _show_release(wanted: bool) -> None:
    if wanted:
        show(f"tussock {metadata.version('tussock')}")
        raise typer.Exit


@app.callback()
def _tussock(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_release, is_eager=True, help="Show which release of Tussock this is, and end."
        ),
    ] = False,
) -> None:
    """What holds for all commands."""


@sst.callback()
def _sst() -> None:
    """Look into one SST."""


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal of few letters gets the others escaped.
            stream.reconfigure(errors="backslashreplace")
    # gRPC itself writes lines for every connection that does not come about. What it means is in our error or log,
    # and at a service anybody could fill the log with them.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        try:
            code = app(prog_name="tussock", standalone_mode=False)
        finally:
            sys.stdout.flush()
        sys.exit(code)
    except WrongUsage as error:
        # With its class known, mypy would ask for what only Typer's own copy of Click has.
        usage: Any = error
        # Without any argument the help was shown, and there is no more to say.
        if usage.format_message():
            _fail(_usage_text(usage))
        sys.exit(usage.exit_code)
    except TussockError as error:
        _fail(str(error))
        sys.exit(2 if isinstance(error, StoreNotFound) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _drop_stdout()
        sys.exit(1)
    except OSError as error:
        if isinstance(error, TimeoutError) and error.errno is None:
            # Not the system's word on a file, but ours on what was waited for.
            _fail(str(error))
            sys.exit(1)
        _drop_stdout()
        _fail(f"{error.strerror or error}: what was to be printed, or a file of yours, could not be written or read")
        sys.exit(1)


class _Formatter(logging.Formatter):
    """Lines of the log with what a terminal would obey escaped: they have names and texts of others."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record), keep="\n")


def _fail(text: str) -> None:
    sys.stderr.write(f"error: {safe(' '.join(text.split()))}\n")


def _usage_text(error: Any) -> str:
    """What is wrong with the arguments, and where to read what is right."""
    parts, path = [error.format_message().rstrip(".")], "tussock"
    if error.ctx is not None:
        path = error.ctx.command_path
        options = {word for parameter in error.ctx.command.params for word in parameter.opts}
        if getattr(error, "option_name", "") in TLS_VARIABLES and "--store" in options:
            *most, last = TLS_VARIABLES.values()
            parts.append(f"commands with --store take the variables {', '.join(most)} and {last} instead")
    return "; ".join([*parts, f"try '{path} --help'"])


def _drop_stdout() -> None:
    """Python flushes stdout once more at exit, and would complain then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
