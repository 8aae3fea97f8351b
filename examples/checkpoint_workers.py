"""Two workers count the words of one stream, each its half of the lines, and their counts commit together.

    python examples/checkpoint_workers.py

starts a meta service on a fresh store in a temporary folder and two workers as separate processes, kills one of
them with `kill -9` in the middle and starts it again. Meanwhile a reader looks at snapshots: in each one both halves
are at the same checkpoint, and the counts are those of the lines that the halves say they have read. At the end they
are exact, although the killed worker has read some of its lines twice. `docs/checkpoints.md` explains how.
"""

import argparse
import itertools
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa

from tussock.statestore import CheckpointAborted, StateStore, connect
from tussock.statestore.contract.barriers import BarrierEvent

HALVES = (0, 1)
WORDS = pa.schema([("half", pa.int64()), ("word", pa.string()), ("count", pa.int64())])
PROGRESS = pa.schema([("half", pa.int64()), ("lines", pa.int64()), ("checkpoint", pa.int64())])
VERSE = "the sea the sky the lonely sea and the sky and all I ask is a tall ship and a star"


def line(number: int) -> list[str]:
    """The stream: its lines can be read again from any number on."""
    words = VERSE.split()
    return [words[(number * 7 + step * step) % len(words)] for step in range(1 + number % 9)]


def counted(half: int, lines: int) -> Counter[str]:
    """The right counts after the first `lines` lines of a half."""
    return Counter(itertools.chain.from_iterable(line(2 * number + half) for number in range(lines)))


class Worker:
    """Counts the words of every second line. Its state is in memory; each barrier brings it into the store."""

    def __init__(self, store: StateStore, half: int) -> None:
        self.half = half
        self.words, self.progress = store.table("words"), store.table("progress")
        self.lines, self.counts, self.changed = 0, Counter[str](), set[str]()

    def restore(self, _: BarrierEvent) -> None:
        """Go to where the newest checkpoint is: at the start, and whenever what came after it is given up."""
        row = self.progress.get((self.half,))
        self.lines = row["lines"] if row else 0
        batches = [batch.to_pylist() for batch in self.words.read(prefix=(self.half,))]
        self.counts = Counter({found["word"]: found["count"] for batch in batches for found in batch})
        self.changed.clear()

    def save(self, barrier: BarrierEvent) -> None:
        """Write what has changed since the last barrier to the epoch that this one ends."""
        rows = [{"half": self.half, "word": word, "count": self.counts[word]} for word in sorted(self.changed)]
        if rows:
            self.words.upsert(pa.Table.from_pylist(rows, WORDS), barrier.epoch)
        row = {"half": self.half, "lines": self.lines, "checkpoint": barrier.barrier}
        self.progress.upsert(pa.Table.from_pylist([row], PROGRESS), barrier.epoch)
        self.changed.clear()

    def count_next(self) -> None:
        """Work on one line."""
        found = line(2 * self.lines + self.half)
        self.counts.update(found)
        self.changed.update(found)
        self.lines += 1


def work(url: str, half: int, lines: int, pace: float) -> None:
    """A worker's process: count `lines` lines of a half, `pace` seconds for each, and leave with all of it saved."""
    with connect(url) as store:
        worker = Worker(store, half)
        with store.join_checkpoint(
            "word-count",
            participant=f"half-{half}",
            participants=len(HALVES),
            interval=0.2,
            on_barrier=worker.save,
            on_restore=worker.restore,
        ) as checkpoint:
            while True:
                while worker.lines < lines:
                    with checkpoint.writing():  # no barrier comes between a line and its number
                        worker.count_next()
                    time.sleep(pace)
                try:
                    checkpoint.leave()
                    return
                except CheckpointAborted:
                    continue  # `restore` has set the line back


def look(store: StateStore, lines: int) -> tuple[int, int]:
    """What a snapshot shows: lines counted, and the checkpoint. Raises if the halves do not fit each other."""
    with store.pin_snapshot() as snapshot:
        halves = {row["half"]: row for batch in snapshot.table("progress").read() for row in batch.to_pylist()}
        counts: dict[int, Counter[str]] = {half: Counter() for half in HALVES}
        for batch in snapshot.table("words").read():
            for row in batch.to_pylist():
                counts[row["half"]][row["word"]] = row["count"]
    if not halves:
        return 0, 0
    newest = max(row["checkpoint"] for row in halves.values())
    for half in HALVES:
        # Only a half that is done may stay behind: its worker has left.
        row = halves.get(half, {"checkpoint": 0, "lines": 0})
        if row["checkpoint"] != newest and row["lines"] < lines:
            raise SystemExit(f"half a checkpoint is visible: {halves}")
        if counts[half] != counted(half, row["lines"]):
            raise SystemExit(f"half {half} has read {row['lines']} lines, and its counts are not theirs")
    return sum(row["lines"] for row in halves.values()), newest


def start_service(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A meta service in a separate process, and the URL of its store."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(Path(sys.executable).with_name("tussock")), "meta", "serve", "--store", (folder / "store").as_uri()]
    # The last one is when a killed worker is missed.
    command += ["--listen", address, "--http-listen", "", "--session.lease-seconds", "5"]
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
    return process, f"tussock://{address}"


def start_worker(url: str, half: int, lines: int, pace: float) -> BaseProcess:
    """A worker's process; spawned, because a store and its threads do not survive a fork."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(url, half, lines, pace), daemon=True)
    process.start()
    return process


def run(folder: Path, lines: int, pace: float) -> None:
    """The whole play, with `kill -9` in the middle; raises if anything that a snapshot shows is wrong."""
    with ExitStack() as stack:
        service, url = start_service(folder)
        stack.callback(service.wait, 20)
        stack.callback(service.terminate)
        store = stack.enter_context(connect(url))
        store.create_table("words", WORDS, ["half", "word"], vnodes=1)
        store.create_table("progress", PROGRESS, ["half"], vnodes=1)
        workers = [start_worker(url, half, lines, pace) for half in HALVES]
        for process in workers:
            stack.callback(process.kill)
        killed_at, shown, looks = 0, (-1, 0), 0
        while shown[0] < lines * len(HALVES):
            looks += 1
            before, shown = shown, look(store, lines)
            if shown != before:
                print(f"checkpoint {shown[1]:3}: {shown[0]:5} lines")
            if not killed_at and shown[0] >= lines:
                killed_at = shown[0]
                print(f"kill -9 of the worker of half 1, process {workers[1].pid}")
                workers[1].kill()
                workers[1].join()
                workers[1] = start_worker(url, 1, lines, pace)
                stack.callback(workers[1].kill)
            if not workers[0].is_alive() and workers[0].exitcode:
                raise SystemExit(f"the worker of half 0 failed, exit code {workers[0].exitcode}")
            time.sleep(0.02)
        for process in workers:
            process.join()
        look(store, lines)
        print(f"{looks} snapshots, each with both halves of one checkpoint; all {shown[0]} lines counted once")


def main() -> None:
    """Read the options, play in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lines", type=int, default=1000, help="lines of each half")
    parser.add_argument("--pace", type=float, default=0.005, help="seconds for a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), options.lines, options.pace)


if __name__ == "__main__":
    main()
