"""A program of functions that is killed, and a reader of its tables: `function_kills.py` runs both.

`python function_clients.py play|read URL WORKLOAD SEED FILE`. The program sends requests at an even rate, each under
the id that it always has; those without a line in the journal FILE first, and a few that have one once more. Each reply
is a line there. The reader looks at committed epochs: the replies of an epoch lie beside the state that they left, so
state and replies have to agree to the unit, in each epoch and whatever was killed. Each look is a line of FILE.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from functions.tpcc_checker import Tpcc
from functions.workload import Reply, Request, Workload, tables_of
from functions.ycsb_t import YcsbT

from tussock.compute import functions as fn
from tussock.compute.functions.program.values import unpack
from tussock.statestore import StateStore, connect
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable, SnapshotExpired

__all__ = [
    "BEGUN",
    "PLAYED",
    "PROGRAM",
    "Played",
    "Requests",
    "lines_of",
    "replies_at",
    "reply_of",
    "send",
    "workers_file",
]

BEGUN = "it has begun"
PROGRAM = "bank"
WORKERS = 2
OUTSTANDING = 60
REPLY_SECONDS = 120.0
AGAIN = 20
"""Requests that have a reply, and are sent again by each process."""
CHUNK = 200
"""Requests that are made at a time."""
EPOCHS_MAX = (20, 1000)
CHECKPOINTS = (0.1, 0.5, 1.0)
PASSING = (MetaUnavailable, ObjectStoreUnavailable, SnapshotExpired)


class Played(NamedTuple):
    """One workload."""

    make: Callable[[], Workload]
    rate: float
    """Requests a second: the checks read all that these leave."""


PLAYED = {
    "YCSB-T": Played(lambda: YcsbT(60, 5, skew=0.3), 120.0),
    "TPC-C": Played(lambda: Tpcc(2, customers=30, items=40), 40.0),
}

_stopped = False


class Requests:
    """All requests of a seed, by their numbers, made as they are needed."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._seed = seed
        self._chunks: dict[int, list[Request]] = {}

    def __getitem__(self, number: int) -> Request:
        chunk, at = divmod(number, CHUNK)
        if chunk not in self._chunks:
            self._chunks[chunk] = self._workload.requests(CHUNK, self._seed + CHUNK * chunk)
        one = self._chunks[chunk][at]
        # TPC-C names what a request makes by the number of the request, which in each chunk begins anew.
        return one if isinstance(one.key, int) else one._replace(key=f"{one.key[0]}{number}")


def send(runtime: fn.Runtime, requests: Requests, number: int) -> Any:
    """The future of a request, under its id."""
    one = requests[number]
    return runtime.send(one.operator, one.key, one.function, *one.arguments, request_id=str(number))


def reply_of(future: Any) -> Reply:
    """What a future of a request has; raises what is no reply."""
    error = future.exception(REPLY_SECONDS)
    if error is None:
        return Reply(future.result(), None)
    if isinstance(error, fn.TransactionAborted):
        return Reply(None, str(error))
    raise error


def replies_at(store: Any) -> dict[int, Reply]:
    """What a store, or a snapshot, has of replies, by the numbers of their requests."""
    found = {}
    for batch in store.table(f"{PROGRAM}.replies").read(columns=["request_id", "reply"]):
        for request_id, packed in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            value, *error = unpack(packed)
            found[int(request_id)] = Reply(value, error[0] if error else None)
    return found


def lines_of(file: Path, offset: int = 0) -> tuple[list[Any], int]:
    """The whole lines from an offset on, and where the next one begins."""
    if not file.exists():
        return [], offset
    with file.open("rb") as opened:
        opened.seek(offset)
        lines = [line for line in opened if line.endswith(b"\n")]
    return [json.loads(line) for line in lines], offset + sum(map(len, lines))


def workers_file(journal: Path) -> Path:
    """Where a program says which processes its workers are."""
    return journal.with_suffix(".workers")


class _Lines:
    """A file of lines: one call a line, so that what is killed has all of a line or none."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, *facts: Any) -> None:
        os.write(self._file, json.dumps(facts).encode() + b"\n")


class _Player:
    """One life of the program."""

    def __init__(self, runtime: fn.Runtime, requests: Requests, journal: Path) -> None:
        self._runtime = runtime
        self._requests = requests
        self._lines = _Lines(journal)
        self._free = threading.Semaphore(OUTSTANDING)
        self._failures: list[BaseException] = []

    def play(self, numbers: Iterator[int], rate: float) -> None:
        """Send these until the process is told to stop, and wait for the replies."""
        due = time.monotonic()
        while not _stopped and not self._failures:
            due = max(due + 1 / rate, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0))
            self._await_reply()
            self._send(next(numbers))
        for _ in range(OUTSTANDING):
            self._await_reply()
        if self._failures:
            raise self._failures[0]

    def _await_reply(self) -> None:
        """Until one more request may be under way."""
        if not self._free.acquire(timeout=REPLY_SECONDS):
            raise TimeoutError(f"none of {OUTSTANDING} requests was answered within {REPLY_SECONDS} s")

    def _send(self, number: int) -> None:
        sent = time.monotonic_ns()

        def note(future: Any) -> None:
            try:
                self._lines.add(number, *reply_of(future), sent, time.monotonic_ns())
            except BaseException as error:
                self._failures.append(error)
            self._free.release()

        send(self._runtime, self._requests, number).add_done_callback(note)


def _tell_workers(runtime: fn.Runtime, file: Path) -> None:
    told: list[int] = []
    while True:
        try:
            found = runtime.worker_processes()
        except fn.ApplicationStopped:
            return
        if found != told:
            told = found
            new = file.with_suffix(".new")
            new.write_text(json.dumps(found))
            new.replace(file)
        time.sleep(0.02)


def _play(store: StateStore, workload: Workload, rate: float, seed: int, journal: Path) -> None:
    known = {line[0] for line in lines_of(journal)[0]}
    draw = random.Random(len(known))
    again = draw.sample(sorted(known), min(AGAIN, len(known)))
    numbers = chain(again, (number for number in count() if number not in known))
    options = {"epoch_max": draw.choice(EPOCHS_MAX), "checkpoint": draw.choice(CHECKPOINTS)}
    with fn.Runtime(store, PROGRAM, workload.operators, workers=WORKERS, **options) as runtime:
        threading.Thread(target=_tell_workers, args=(runtime, workers_file(journal)), daemon=True).start()
        print(BEGUN, flush=True)
        _Player(runtime, Requests(workload, seed), journal).play(numbers, rate)


def _read(store: StateStore, workload: Workload, seed: int, file: Path) -> None:
    requests = Requests(workload, seed)
    lines = _Lines(file)
    print(BEGUN, flush=True)
    newest, seen = 0, {}
    while not _stopped:
        began = time.process_time()
        try:
            with store.pin_snapshot() as snapshot:
                epoch = snapshot.epoch
                if epoch != newest:
                    replies, tables = replies_at(snapshot), tables_of(snapshot, workload)
        except PASSING as error:
            print("again:", type(error).__name__, error, flush=True)
            time.sleep(0.1)
            continue
        if epoch != newest:
            wrong = workload.check([requests[number] for number in replies], list(replies.values()), tables)
            changed = [number for number, reply in seen.items() if replies.get(number) != reply]
            wrong += [f"reply {number} was {seen[number]}, and is {replies.get(number)}" for number in changed]
            if epoch < newest:
                wrong.append(f"epoch {epoch} came after {newest}")
            newest, seen = epoch, replies
            lines.add(epoch, len(replies), [one[:500] for one in wrong[:5]])
        # Two thirds of a processor it leaves to those who are killed.
        time.sleep(max(2 * (time.process_time() - began), 0.05))


def _stop(*_: object) -> None:
    global _stopped
    _stopped = True


def _main(role: str, url: str, name: str, seed: int, file: Path) -> None:
    signal.signal(signal.SIGTERM, _stop)
    played = PLAYED[name]
    with connect(url) as store:
        if role == "play":
            _play(store, played.make(), played.rate, seed, file)
        else:
            _read(store, played.make(), seed, file)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
