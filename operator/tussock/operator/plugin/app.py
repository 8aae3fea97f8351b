"""The commands of `kubectl tussock`, and how their ends are told.

Exit codes: 0 done; 1 an error; 2 wrong usage; 130 interrupted. An error is one line on stderr.
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any
from unicodedata import category

import typer

from tussock.operator.plugin.commands.change import promote, restart
from tussock.operator.plugin.commands.look import epochs, logs, status
from tussock.operator.plugin.commands.outside import console, env
from tussock.operator.plugin.commands.report import report
from tussock.operator.plugin.commands.upkeep import approve, backup, compact, release
from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.resources.common import InvalidResource
from tussock.statestore.errors import TussockError

__all__ = ["app", "main"]

WrongUsage: type[Exception] = typer.BadParameter.__mro__[1]
"""The error of an unknown option, a missing argument or a value that does not fit; Typer has no public name for it."""

app = typer.Typer(
    name="kubectl tussock",
    help="Look into the stores that the operator runs, and look after them.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "See how a store is": (status, epochs, logs, report),
    "Look after it": (approve, backup, compact, release),
    "Use it from here": (console, env),
    "Change who serves": (restart, promote),
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


@app.callback()
def _tussock() -> None:
    """What holds for all commands."""


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal of few letters gets the others escaped.
            stream.reconfigure(errors="backslashreplace")
    # gRPC itself writes lines for every connection that does not come about; what it means is in our error.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # So that a forwarded port, which is another process, ends with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        try:
            code = app(prog_name="kubectl tussock", standalone_mode=False)
        finally:
            sys.stdout.flush()
        sys.exit(code)
    except WrongUsage as error:
        # With its class known, mypy would ask for what only Typer's own copy of Click has.
        usage: Any = error
        # Without any argument the help was shown, and there is no more to say.
        if usage.format_message():
            path = "kubectl tussock" if usage.ctx is None else usage.ctx.command_path
            _fail(f"{usage.format_message().rstrip('.')}; try '{path} --help'")
        sys.exit(usage.exit_code)
    except (KubectlFailed, TussockError, InvalidResource) as error:
        _fail(str(error.args[0] if error.args else error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _drop_stdout()
        sys.exit(1)
    except OSError as error:
        _drop_stdout()
        about = f"{error.filename}: " if error.filename else "what was to be printed could not be written: "
        _fail(f"{about}{error.strerror or error}")
        sys.exit(1)


def _fail(text: str) -> None:
    line = " ".join(text.split())
    # What a terminal would obey or hide is escaped: names and messages are of others.
    shown = (
        one if one.isprintable() or category(one) == "Zs" else one.encode("unicode_escape").decode() for one in line
    )
    sys.stderr.write(f"error: {''.join(shown)}\n")


def _drop_stdout() -> None:
    """Python flushes stdout once more at exit, and would complain then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
