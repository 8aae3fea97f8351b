"""Processes to be killed and stopped: started with a log each, disturbed by a seeded plan, ended in any case."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from support.chaos.child import READY, is_conditional

CHILD = Path(__file__).with_name("child.py")
COMMAND = (sys.executable, "-c", "from tussock.cli.main import main; main()")
"""`tussock`, whatever is on the PATH."""
START_SECONDS_MAX = 300
STOP_SECONDS_MAX = 120
CHECK_SECONDS_MAX = 120
WORK_SECONDS_MAX = 120
LOG_BYTES_SHOWN = 3000


class Actor:
    """One process of a role; when it is started again, it is a new process with the same name and log."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, begun: str) -> None:
        """`begun` is what it logs when it has begun its work, and knows what SIGTERM means."""
        self.name = name
        self.begun = begun
        self.command = list(command)
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0
        self._elder: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start it; its output goes to the log."""
        self._logged = len(self.log.read_text(errors="replace")) if self.log.exists() else 0
        with self.log.open("ab") as output:
            # In a new session, so that what it starts can be ended with it.
            self._process = subprocess.Popen(self.command, stdout=output, stderr=output, start_new_session=True)

    def wait_until_begun(self) -> None:
        """Return when the present process reports that it has begun."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while self.begun not in self.log.read_text(errors="replace")[self._logged :]:
            assert self.is_alive, f"{self.name} ended with code {self._process and self._process.returncode}"
            assert time.monotonic() < deadline, f"{self.name} did not start within {START_SECONDS_MAX} s"
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """`kill -9` this one process; the processes that it started must notice by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it stands still, with all its connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def leave(self) -> None:
        """Let the process continue while another one is started in its place; it is ended with the stage."""
        assert self._process is not None
        self._elder.append(self._process)
        self._process = None

    def stop(self) -> int:
        """Send SIGTERM once the process has begun, and wait for its end; returns the exit code."""
        assert self._process is not None
        self.wait_until_begun()
        self._process.terminate()
        return self._process.wait(STOP_SECONDS_MAX)

    def end(self) -> None:
        """End at once everything that was started under this name."""
        for process in [*self._elder, *([self._process] if self._process else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def elder_codes(self) -> list[int]:
        """Exit codes of the replaced processes, once they have ended."""
        return [process.wait(STOP_SECONDS_MAX) for process in self._elder]


def problems_in_bucket(url: str) -> list[Any]:
    """The findings of `tussock check` in the store's bucket; no process may be writing there."""
    ran = subprocess.run(
        [*COMMAND, "check", "--store", url, "--json"], capture_output=True, text=True, timeout=CHECK_SECONDS_MAX
    )
    assert ran.returncode in (0, 1), ran.stderr
    found: list[Any] = json.loads(ran.stdout)["problems"]
    return found


class Stage:
    """The actors of one test. At its end all processes are gone; if the test failed, it shows their logs."""

    def __init__(self, folder: Path, seed: int) -> None:
        """`$CHAOS_SEED` is added to the seed, for runs that differ."""
        self.folder = folder
        self.seed = seed + int(os.environ.get("CHAOS_SEED", "0"))
        self.chance = random.Random(self.seed)
        self.actors: dict[str, Actor] = {}
        self.killed: list[str] = []
        self._began = time.monotonic()

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for actor in self.actors.values():
            actor.end()
        if kind is not None:
            for actor in self.actors.values():
                with actor.log.open("rb") as log:
                    log.seek(max(actor.log.stat().st_size - LOG_BYTES_SHOWN, 0))
                    print(f"--- {actor.name}\n{log.read().decode(errors='replace')}")

    def add(self, name: str, *command: str | Path, begun: str) -> Actor:
        """Start a process under that name; see `Actor` about `begun`."""
        actor = self.actors[name] = Actor(name, command, self.folder / f"{name}.log", begun)
        actor.start()
        return actor

    def say(self, what: str) -> None:
        """Record what was done to which actor; shown if the test fails, or with `pytest -s`."""
        self.killed.append(what)
        print(f"{time.monotonic() - self._began:6.2f} s  {what}", flush=True)

    def disturb(self, seconds: float, actions: Sequence[Callable[[], None]], *, rest: tuple[float, float]) -> None:
        """For `seconds`, do one of the actions after a rest, by the stage's seed; each is done at least once."""
        deadline = time.monotonic() + seconds
        due = list(actions)
        self.chance.shuffle(due)
        while due or time.monotonic() < deadline:
            time.sleep(self.chance.uniform(*rest))
            (due.pop() if due else self.chance.choice(actions))()

    def let_work(self, enough: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Return when the clients' histories are long enough: a slow machine takes longer, not less."""
        deadline = time.monotonic() + WORK_SECONDS_MAX
        while not enough(self.histories()):
            assert time.monotonic() < deadline, f"the clients did not get on for {WORK_SECONDS_MAX} s"
            time.sleep(0.2)

    # --- Clients -----------------------------------------------------------------------------------------------------

    def client(self, role: str, url: str, name: str, first: int = 0) -> Actor:
        """A process of `child.py`; its history is the file of its name."""
        history = self.folder / f"{name}.history"
        command = [sys.executable, "-P", CHILD, role, url, history, name, str(self.seed), str(first)]
        return self.add(name, *command, begun=READY)

    def histories(self) -> list[dict[str, Any]]:
        """All lines of all clients; those of one client in their order."""
        return [
            json.loads(line) for path in sorted(self.folder.glob("*.history")) for line in path.read_text().splitlines()
        ]

    def next_batch(self, writer: str) -> int:
        """The batch with which a new process of the writer begins.

        With the batch whose answer is missing, as a stream does after a failure, or, by chance and where its rows
        depended on a read, with the one after it.
        """
        called, answered = -1, -1
        for line in self.histories():
            if line["client"] == writer and "batch" in line:
                called = max(called, line["batch"])
                if "wrote" not in line:
                    answered = max(answered, line["batch"])
        if called == answered or is_conditional(called) or self.chance.random() < 0.4:
            return called + 1
        return called

    def kill_client(self, actor: Actor) -> None:
        """`kill -9` the client, and start another process in its place."""
        actor.kill()
        self._succeed(actor, "kill -9")

    def replace_client(self, actor: Actor) -> None:
        """Stop the client, start another one under its name, then let the first one continue: it must do no harm."""
        # One that stands still before it has taken the name would take it from its successor later, rightly.
        actor.wait_until_begun()
        actor.pause()
        elder = actor.pid
        actor.leave()
        self._succeed(actor, "SIGSTOP")
        # Until it has taken over the name, the elder is right to go on.
        actor.wait_until_begun()
        os.kill(elder, signal.SIGCONT)
        self.say(f"SIGCONT {actor.name}, pid {elder}, which was replaced")

    def pause(self, actor: Actor, low: float, high: float, role: str = "") -> None:
        """SIGSTOP, and SIGCONT after a while; `role` is its present role, if its name does not tell."""
        seconds = self.chance.uniform(low, high)
        self.say(f"SIGSTOP {f'{role} {actor.name}'.strip()} for {seconds:.2f} s")
        actor.pause()
        time.sleep(seconds)
        actor.resume()

    def _succeed(self, actor: Actor, how: str) -> None:
        first = self.next_batch(actor.name)
        actor.command[-1] = str(first)
        self.say(f"{how} {actor.name}; another one from batch {first} on")
        actor.start()
