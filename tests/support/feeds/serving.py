"""A process that serves a program of a feed until it is killed, and those that take its place."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tussock.statestore import StateStore

__all__ = ["Serving", "live", "rows_in"]

SECONDS_MAX = 120


class Serving:
    """A process that runs `python PROGRAM URL JSON`, and its successors."""

    def __init__(self, program: str, folder: Path, url: str, given: dict[str, Any]) -> None:
        self._program = program
        self._log = folder / "child.log"
        self._url = url
        self._given = given
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, until: float = 0, **options: Any) -> None:
        """The next process; with `until` it ends once all is through, in that many seconds."""
        given = json.dumps({**self._given, "options": options, "until": until})
        with self._log.open("ab") as log:
            command = [sys.executable, "-P", self._program, self._url, given]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """`kill -9`, of one that runs."""
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text(errors="replace")[-3000:]
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Let a last process do all that is left."""
        self.start(until=SECONDS_MAX)
        assert self.process is not None
        assert self.process.wait(2 * SECONDS_MAX) == 0, self._log.read_text(errors="replace")[-3000:]

    def await_more(self, progress: Any, more: int) -> None:
        """Until the output has grown."""
        wanted, deadline = progress() + more, time.monotonic() + SECONDS_MAX
        while progress() < wanted:
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")[-3000:]
            assert self.process is not None
            assert self.process.poll() is None, self._log.read_text(errors="replace")[-3000:]
            time.sleep(0.01)


def live(program: Any, until: float) -> None:
    """What such a process does with its program: wait to be killed, or drain it in `until` seconds."""
    print("ready", flush=True)
    if until:
        program.drain(until)
    else:
        threading.Event().wait()


def rows_in(store: StateStore, table: str) -> int:
    """How many rows the table has; none before there is one."""
    try:
        found = store.table(table)
    except LookupError:
        return 0
    return sum(batch.num_rows for batch in found.read(columns=list(found.primary_key)))
