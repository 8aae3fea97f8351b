"""Processes of the node that outlive the command which starts them: a pid file and a log for each."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

WAIT_SECONDS_MAX = 90


class Daemon(NamedTuple):
    """One process by name, with its files in `folder/pid` and `folder/log`."""

    name: str
    folder: Path

    @property
    def log(self) -> Path:
        """What it wrote to standard output and error, of all its starts."""
        return self.folder / "log" / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Its process, if it runs; a number that now belongs to another program is not taken for it."""
        try:
            number = int(self._pid_file.read_text())
            words = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, ValueError):
            return None
        return number if self.name in (Path(words[0]).name, *words[1:]) else None

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid" / self.name

    def start(self, command: list[str]) -> None:
        """Start it unless it runs; a word of `command`, or the program's file, has to be the daemon's name."""
        if self.pid is not None:
            return
        for folder in (self.log.parent, self._pid_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self._pid_file.write_text(str(process.pid))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait until it is gone; one that ignores SIGTERM for 10 s is killed."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, how)
        killing = time.monotonic() + 10
        while self.pid is not None:
            _reap(pid)
            if time.monotonic() > killing:
                os.kill(pid, signal.SIGKILL)
                killing += 10
            time.sleep(0.05)
        self._pid_file.unlink(missing_ok=True)

    def tail(self) -> str:
        """The end of its log, for messages."""
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else "(no log)"


def wait_for(what: str, is_there: Callable[[], bool], *daemons: Daemon, seconds: float = WAIT_SECONDS_MAX) -> None:
    """Wait until `is_there()`; raises `RuntimeError` with the end of the daemons' logs after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {daemon.name}: {daemon.tail()}" for daemon in daemons)
            raise RuntimeError(f"no {what} within {seconds:.0f} s\n{logs}")
        time.sleep(0.1)


def end_all(what: str, found: Callable[[], Collection[int]], seconds: float = WAIT_SECONDS_MAX) -> None:
    """Kill processes until `found()` finds none; raises `RuntimeError` if some are left after `seconds`."""
    deadline = time.monotonic() + seconds
    while left := found():
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes of {what} do not end within {seconds:.0f} s: {sorted(left)}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _reap(pid: int) -> None:
    """Take the exit code of a child: until then a dead process keeps its number and name."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
