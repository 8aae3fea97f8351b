"""The streaming program `stream.py` as processes to be killed: driver, Java, executors and Python workers.

All of them are in the session that the driver's Python leads, though Python workers are in other process groups.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from support.chaos.processes import Actor, Stage
from support.spark import stream as spark_stream
from support.spark.truth import POINTS, writer_of
from tussock.statestore import connect

__all__ = ["CLUSTER", "LOCAL", "STREAMS", "Victim", "members"]

LOCAL, CLUSTER = "local[2, 100]", "local-cluster[2,1,640]"
"""Everything in one JVM, or two executors of one core in two more JVMs."""

STREAMS = {point: point if point in ("sink", "accounts") else "totals" for point in POINTS} | {
    "moves": "sums",
    "sums": "sums",
}
"""The stream whose batches a writer commits."""

WAIT_SECONDS_MAX = 600
COMMANDS = {"python": "pyspark.daemon", "executor": "ExecutorBackend"}


class Victim:
    """One run of the program after the other, on the same store, folder and checkpoints."""

    def __init__(self, stage: Stage, url: str, folder: Path) -> None:
        self.stage = stage
        self.url = url
        self.folder = folder
        command = [sys.executable, spark_stream.__file__, url, folder, LOCAL]
        self._actor = Actor("driver", command, folder / "driver.log", spark_stream.STREAMING)
        stage.actors["driver"] = self._actor

    def start(self, master: str) -> None:
        """Start the program; returns when each stream has done a batch."""
        (self.folder / "die").unlink(missing_ok=True)
        self._actor.command[-1] = master
        self._actor.start()
        self.wait_for_batches()

    def noted_batches(self) -> dict[str, int]:
        """The newest batch that Spark has noted to be done, by stream; -1 if none."""
        return {stream: self._noted_batch(stream) for stream in set(STREAMS.values())}

    def wait_for_batches(self) -> None:
        """Return when each stream has done one more batch: the one in progress is done, or repeated."""
        before = self.noted_batches()
        self._wait(lambda: all(now > before[stream] for stream, now in self.noted_batches().items()), "no batch")

    def kill_one(self, kind: str) -> None:
        """`kill -9` of a random Python worker or executor."""
        self._wait(lambda: members(self._actor.pid, COMMANDS[kind]), f"no process of kind {kind}")
        process = self.stage.chance.choice(members(self._actor.pid, COMMANDS[kind]))
        self.stage.say(f"kill -9 {kind} {process}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)

    def kill_all(self) -> None:
        """`kill -9` of the driver, Python and Java, at once, then of whatever is left."""
        self.stage.say(f"kill -9 driver {self._actor.pid}")
        self.end()

    def kill_after_commit(self, writer: str) -> None:
        """Let the driver die right after a commit of that writer, before Spark notes the batch."""
        self.stage.say(f"kill -9 driver {self._actor.pid} after the next commit of {writer}")
        (self.folder / "draft").write_text(writer)
        (self.folder / "draft").rename(self.folder / "die")
        self._wait(lambda: not self._actor.is_alive, "the driver did not die")
        self.end()
        batch = self.noted_batches()[STREAMS[writer]] + 1
        with connect(self.url, compaction=False) as store:
            committed = store.committed_batch(writer_of(store, writer), batch)
        assert committed is not None, "it should have died between our commit and Spark's"

    def stop(self) -> None:
        """Let the program itself stop its streams, in the middle of their batches."""
        (self.folder / "stop").touch()
        self._wait(lambda: not self._actor.is_alive, "the program did not stop")
        self.end()

    def end(self) -> None:
        """Kill all processes of the program."""
        self._actor.end()
        for process in members(self._actor.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def failures(self) -> list[str]:
        """The program's lines about queries that ended by themselves."""
        lines = (self.folder / "driver.log").read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith(spark_stream.FAILED)]

    def _noted_batch(self, stream: str) -> int:
        commits = self.folder / "checkpoints" / stream / "commits"
        return max((int(path.name) for path in commits.glob("[0-9]*") if path.name.isdigit()), default=-1)

    def _wait(self, what: object, otherwise: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not what():  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{otherwise} within {WAIT_SECONDS_MAX} s"
            time.sleep(0.02)


def members(session: int, words: str = "") -> list[int]:
    """Processes of that session whose command line holds `words`, by id."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                # A zombie has no command line any more.
                if command and os.getsid(int(entry.name)) == session and words in command:
                    found.append(int(entry.name))
            except (OSError, ProcessLookupError):
                continue
    return sorted(found)
