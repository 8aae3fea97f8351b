"""How full the volume of the checkpoint is: said before it is full, since a stream that cannot write there ends."""

import math
import os
from pathlib import Path

from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System

__all__ = ["DiskWatch", "used_percent"]

log = get_logger("tussock.compute")

_LOOK_SECONDS = 10.0


def used_percent(path: Path) -> int:
    """How much of the file system at `path` is used, rounded up: of its bytes or of its files, whichever is more.

    As `df` counts, so what is reserved for root counts as used. A checkpoint has many small files, and a file system
    without room for another one is full, too. Raises `OSError`.
    """
    found = os.statvfs(path)
    shares = [(found.f_blocks - found.f_bfree, found.f_bavail), (found.f_files - found.f_ffree, found.f_favail)]
    # Some file systems do not count files, and say 0.
    return max((math.ceil(100 * used / (used + free)) for used, free in shares if used + free > 0), default=0)


class DiskWatch:
    """The latest look at a volume, by its own thread: a look waits for ever where a network disk does not answer."""

    def __init__(self, path: Path, system: System) -> None:
        self._path = path
        self._system = system
        self.used_percent: int | None = None
        """`None` before the first look, and where there is no volume."""

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            self.look()
            self._system.sleep(_LOOK_SECONDS)

    def look(self) -> None:
        """Look once."""
        try:
            self.used_percent = used_percent(self._path)
        except OSError as error:
            self.used_percent = None
            log.warning("the checkpoint's volume cannot be looked at", path=str(self._path), error=str(error))
