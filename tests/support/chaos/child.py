"""Processes of the chaos tests: `python child.py write|read|upkeep URL HISTORY NAME SEED FIRST`.

Each writes what it did to the file HISTORY, one JSON object a line, by the machine's monotonic clock, which all
processes share. A line is one `write` to a file opened for appending: `kill -9` loses none that was written, and two
processes may share a file. A commit has a line before it is called and one when it is answered, so a process that dies
in between leaves a commit of unknown outcome.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tussock.statestore import StateStore, connect
from tussock.statestore.errors import (
    Conflict,
    EpochTooOld,
    Fenced,
    MetaUnavailable,
    ObjectStoreUnavailable,
    SnapshotExpired,
    StaleUpload,
    WriteStalled,
)

KEYS = [f"k{number}" for number in range(8)]
COUNTER = "counter"
TABLE = "kv"
READY = "ready"
"""What is printed when a process begins its work; a writer then has taken over its name."""
FENCED = 3
"""Exit code of a writer whose name another process has taken over."""
OPTIONS: dict[str, Any] = {"retention": 3600, "gc_grace": 8, "deadline": 2.0}
"""The bucket stands still for longer than the deadline now and then, so that answers are lost."""
COUNTS_EVERY = 4
"""One of this number of batches adds to the counter, by a conditional commit."""
TRY_AGAIN = (ObjectStoreUnavailable, MetaUnavailable, WriteStalled)

_stopped = False


def is_conditional(batch: int) -> bool:
    """Whether a batch of a writer reads first; the rows of the others follow from name and number."""
    return batch % COUNTS_EVERY == COUNTS_EVERY - 1


def rows_of(name: str, batch: int, seed: int) -> dict[str, str]:
    """The rows of an unconditional batch: some of the keys that all writers share."""
    chance = random.Random(f"{seed} {name} {batch}")
    return dict.fromkeys(chance.sample(KEYS, chance.randrange(1, 5)), f"{name}.{batch}")


class History:
    """The file, and its clock."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, **what: object) -> None:
        os.write(self._file, json.dumps({**what, "pid": os.getpid()}).encode() + b"\n")


def now() -> int:
    return time.monotonic_ns()


def scan_rows(rows: Any) -> dict[str, str]:
    """All rows of a scan."""
    found: dict[str, str] = {}
    for batch in rows:
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        found.update((key.decode(), value.decode()) for key, value in zip(keys, values, strict=True))
    return found


def stubborn(work: Callable[[], Any]) -> Any:
    """The result of `work`, repeated while a server that it needs is away."""
    while True:
        try:
            return work()
        except TRY_AGAIN as error:
            print("try again:", type(error).__name__, error, flush=True)
            time.sleep(0.05)


def write(store: StateStore, history: History, name: str, seed: int, first: int) -> None:
    """Commit batches from `first` on, each repeatedly until it gets an answer."""
    generation = stubborn(lambda: store.open_writer(name))
    print(READY, flush=True)
    batch = first
    while not _stopped:
        saw: dict[str, str | None] = {}
        read_epoch = None
        wrote = rows_of(name, batch, seed)
        if is_conditional(batch):
            value, read_epoch = stubborn(lambda: _counter(store))
            saw = {COUNTER: value}
            wrote = {COUNTER: f"{int(value.split()[0]) + 1 if value else 1} {name}.{batch}"}
        history.add(client=name, batch=batch, at=now(), saw=saw, wrote=wrote)
        try:
            epoch = _commit(store, (name, batch, generation), wrote, read_epoch)
            history.add(client=name, batch=batch, at=now(), epoch=epoch)
        except Conflict:
            history.add(client=name, batch=batch, at=now(), conflict=True)
        except Fenced as error:
            print("fenced:", error, flush=True)
            sys.exit(FENCED)
        batch += 1


def _counter(store: StateStore) -> tuple[str | None, int]:
    """The counter and the epoch at which it was read; read again if the pin was lost while this process stood still."""
    while True:
        with store.pin_snapshot() as snapshot:
            try:
                value = snapshot.table(TABLE).get(COUNTER.encode())
            except SnapshotExpired as error:
                print("expired:", error, flush=True)
                continue
            return value.decode() if value else None, snapshot.epoch


def _commit(store: StateStore, who: tuple[str, int, int], wrote: dict[str, str], read_epoch: int | None) -> int:
    name, batch, generation = who
    expect = None if read_epoch is None else {TABLE: read_epoch}
    rows = sorted((key.encode(), value.encode()) for key, value in wrote.items())
    while True:
        try:
            epoch = store.new_epoch()
            store.table(TABLE).ingest_batch(rows, epoch)
            return int(
                stubborn(
                    lambda epoch=epoch: store.commit_epoch(
                        epoch, writer=name, batch_id=batch, expect=expect, generation=generation
                    )
                )
            )
        except (StaleUpload, EpochTooOld) as error:
            print("write again:", type(error).__name__, error, flush=True)


def read(store: StateStore, history: History, name: str) -> None:
    """Read all rows: in a fresh snapshot, of the version known here, and now and then in a snapshot that is kept."""
    number = 0
    while not _stopped:
        kept = stubborn(store.pin_snapshot)
        try:
            for _ in range(15):
                number += 1
                _read_once(store, history, name, number)
                if _stopped:
                    break
            rows = stubborn(lambda kept=kept: scan_rows(kept.table(TABLE).scan()))
            history.add(client=name, kind="kept", epoch=kept.epoch, rows=rows)
        except SnapshotExpired as error:
            print("expired:", error, flush=True)
        finally:
            kept.close()


def _read_once(store: StateStore, history: History, name: str, number: int) -> None:
    called = now()
    if number % 2:
        with stubborn(store.pin_snapshot) as snapshot:
            rows = stubborn(lambda: scan_rows(snapshot.table(TABLE).scan()))
            epoch, kind = snapshot.epoch, "snapshot"
    else:
        # Of the version that this process knows, which may be a little old; the rows tell which it was.
        epoch, kind = None, "plain"
        rows = stubborn(lambda: scan_rows(store.table(TABLE).scan()))
    history.add(client=name, kind=kind, called=called, returned=now(), epoch=epoch, rows=rows)


def upkeep(store: StateStore, history: History, name: str) -> None:
    """Compact and vacuum without a pause."""
    rounds = 0
    while not _stopped:
        stubborn(lambda: store.compact(TABLE))
        deleted = stubborn(store.vacuum).deleted
        rounds += 1
        history.add(client=name, kind="upkeep", rounds=rounds, deleted=len(deleted))


def _stop(*_: object) -> None:
    global _stopped
    _stopped = True


def main(role: str, url: str, path: str, name: str, seed: str, first: str) -> None:
    signal.signal(signal.SIGTERM, _stop)
    history = History(path)
    # An embedded store is compacted by those who commit; on a platform the option says nothing.
    with stubborn(lambda: connect(url, compaction=role == "write", **OPTIONS)) as store:
        match role:
            case "write":
                write(store, history, name, int(seed), int(first))
            case "read":
                print(READY, flush=True)
                read(store, history, name)
            case _:
                print(READY, flush=True)
                upkeep(store, history, name)


if __name__ == "__main__":
    main(*sys.argv[1:])
