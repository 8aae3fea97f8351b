"""The command `kubectl tussock`, which kubectl finds as `kubectl-tussock` on the PATH.

It needs only its user's rights, and reaches the cluster through kubectl alone. Most of it comes from the objects'
statuses; a command that asks a node itself does so over a port that kubectl forwards.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    try:
        from tussock.operator.plugin.app import main as run
    except ModuleNotFoundError as error:
        # An install without the extras has the script, too.
        sys.exit(
            f"error: kubectl tussock needs the package {error.name}: install the extras cli and platform, as with "
            "pip install 'tussock[cli,platform]'"
        )
    run()


if __name__ == "__main__":
    main()
