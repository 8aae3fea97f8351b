"""Files that are read again when they change: certificates, keys, tokens, credentials of a bucket.

A rotation replaces the files and restarts nothing. A change that cannot be used (a key that is written
before its certificate, a torn copy) is told once, and what was read before stays in force.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

__all__ = ["WatchedFiles"]

log = get_logger("tussock.files")

LOOK_EVERY_SECONDS = 1.0

T = TypeVar("T")
Stamps = list[tuple[int, int, int]]


class WatchedFiles(Generic[T]):
    """What some files say. Safe to share between threads."""

    def __init__(self, paths: Sequence[str], load: Callable[[Sequence[str]], T], system: System) -> None:
        """`load` reads the files; what it raises (`InvalidOption`, `OSError`) is raised here, and logged later on."""
        self._paths = list(paths)
        self._load = load
        self._system = system
        self._lock = threading.Lock()
        self.problem = ""
        """Why what the files say now is not in force, and what they said before is; empty while it is."""
        # Before the files are read, so that a change in between is a change.
        self._stamps = self._look()
        self._looked = system.monotonic()
        try:
            self._value = load(self._paths)
        except OSError as error:
            raise InvalidOption(f"{error.filename} cannot be read: {error.strerror}", str(error.filename)) from None

    def current(self) -> T:
        """What the files say now, or said a second ago at most; that very object until they change."""
        with self._lock:
            now = self._system.monotonic()
            if now - self._looked >= LOOK_EVERY_SECONDS:
                self._looked = now
                stamps = self._look()
                if stamps != self._stamps:
                    self._reload(stamps)
            return self._value

    def _reload(self, stamps: Stamps) -> None:
        # Whatever comes of it: the next try is after the next change.
        self._stamps = stamps
        try:
            self._value = self._load(self._paths)
        except (InvalidOption, OSError) as error:
            self.problem = str(error)
            log.error("changed files cannot be used, the former stay in force", files=self._paths, error=str(error))
        else:
            self.problem = ""
            log.info("files were read again", files=self._paths)

    def _look(self) -> Stamps:
        """What tells one content of the files from another; also where a link now leads to another file."""
        stamps = []
        for path in self._paths:
            try:
                found = Path(path).stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return stamps
