"""The number of workers in a file: read at the start, and followed while the program runs.

An operator of Kubernetes that starts workers elsewhere changes the file under the running node, and the program is
scaled without another start. A look compares what is with what the file says, so it does not matter which
looks came before it.
"""

import asyncio
from pathlib import Path

from tussock.compute.service.server.layer import ServedLayer
from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["WorkersFile"]

log = get_logger("tussock.application")

LOOK_SECONDS = 0.5
AGAIN_SECONDS = 5.0
"""After a number that the program could not take."""
FILE_BYTES_MAX, DIGITS_MAX = 64, 9


class WorkersFile:
    """One file and the program that follows it."""

    def __init__(self, path: str) -> None:
        """`path` is that of the file."""
        self._path = Path(path)
        self._told = ""

    def read(self) -> int:
        """The number in the file; `InvalidOption` if it has none. How many a program may have, that says itself."""
        try:
            with self._path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX).decode(errors="replace").strip()
        except OSError as error:
            raise InvalidOption(f"the file of workers cannot be read: {error.strerror}") from None
        if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
            raise InvalidOption(f"the file of workers holds {text[:40]!r}; expected the number of workers")
        return int(text)

    async def follow(self, layer: ServedLayer, started_with: int) -> None:
        """Scale a program to what the file says, again and again, until it is cancelled.

        A number for which too few workers have joined waits for them, here and not in the program, so that a smaller
        one that comes meanwhile holds at once.
        """
        loop, current = asyncio.get_running_loop(), started_with
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                wanted = self.read()
                joined = layer.workers().get("workers_joined", wanted)
                if wanted == current or joined < wanted:
                    continue
                await loop.run_in_executor(None, layer.scale, wanted)
            except TussockError as error:
                self._tell(layer, error)
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            log.info("scaled", application=layer.name, workers=wanted, before=current)
            current, self._told = wanted, ""

    def _tell(self, layer: ServedLayer, error: TussockError) -> None:
        """Log it once, until something else is wrong."""
        if str(error) != self._told:
            self._told = str(error)
            log.warning("the number of workers stays", application=layer.name, error=self._told)
