"""`python -m tussock.operator`, and the console script `tussock-operator`."""

import os
import sys

from tussock.operator.controllers import CONTROLLERS
from tussock.operator.serve import serve
from tussock.operator.settings import help_text, load_settings
from tussock.statestore.errors import InvalidOption

__all__ = ["main"]


def main() -> None:
    """Run the operator until a signal ends it; with `--help` only say how that is done."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        sys.stdout.write(f"{help_text()}\n")
        return
    try:
        serve(load_settings(sys.argv[1:], os.environ), CONTROLLERS)
    except InvalidOption as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
