"""Where the command `tussock` begins: the release is told before all that the commands need is imported."""

import sys
from contextlib import suppress
from importlib import metadata

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        # What cannot be printed is told by the command line, as for every command.
        with suppress(OSError):
            sys.stdout.write(f"tussock {metadata.version('tussock')}\n")
            sys.stdout.flush()
            return
    from tussock.cli.main import main as run

    run()
