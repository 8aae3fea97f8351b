"""Child processes of the store's tests: `python child.py commit|upkeep|write URL ...`."""

import select
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tussock.statestore import Conflict, StateStore, TussockError, connect


def rows_of(name: str, batch: int) -> list[tuple[bytes, bytes]]:
    """What a writer puts in one epoch: some keys that it alone writes, and one that all writers share."""
    rows = [(f"{name}/{batch:05d}/{at}".encode(), f"{name} {batch}".encode()) for at in range(5)]
    rows.append((b"shared", f"{name} {batch}".encode()))
    return sorted(rows)


def commit(url: str, name: str, batches: int) -> None:
    """After a line on stdin, commit `batches` epochs; print a line `batch epoch` for each."""
    with connect(url, retention=3600, gc_grace=60) as store:
        kv = store.table("kv")
        print("ready", flush=True)
        sys.stdin.readline()
        for batch in range(batches):
            epoch = store.new_epoch()
            kv.ingest_batch(rows_of(name, batch), epoch)
            print(batch, store.commit_epoch(epoch, writer=name, batch_id=batch), flush=True)


def count(url: str, name: str, times: int) -> None:
    """After a line on stdin, add one to a shared counter `times` times, by read, conditional commit and retry."""
    with connect(url, retention=3600, gc_grace=60) as store:
        kv = store.table("kv")
        print("ready", flush=True)
        sys.stdin.readline()
        for _ in range(times):
            _add_one(store, kv)
        print(name, flush=True)


def _add_one(store: StateStore, kv: object) -> None:
    while True:
        read = store.committed_epoch
        value = int(kv.get(b"counter", epoch=read) or b"0") if read else 0  # type: ignore[attr-defined]
        epoch = store.new_epoch()
        kv.ingest_batch([(b"counter", b"%d" % (value + 1))], epoch)  # type: ignore[attr-defined]
        try:
            store.commit_epoch(epoch, expect={"kv": read})
            return
        except Conflict:
            continue


def upkeep(url: str) -> None:
    """Compact and vacuum with no grace for uploads of this process, until stdin ends; then print how often."""
    rounds = 0
    with connect(url, retention=3600, gc_grace=60, compaction=False) as store:
        print("ready", flush=True)
        while True:
            store.compact("kv")
            store.vacuum()
            rounds += 1
            if rounds == 1:
                print("once", flush=True)
            if sys.stdin in _readable():
                break
    print(rounds, flush=True)


def _readable() -> list[object]:
    return select.select([sys.stdin], [], [], 0)[0]


def write(url: str, first: int) -> None:
    """Commit batches from `first` on until killed, with tiny buffers, and acknowledge each on stdout."""
    store = connect(url, retention=3600, gc_grace=0, buffer_bytes=300)
    kv = store.table("kv")
    print("ready", flush=True)
    for batch in range(first, first + 1_000_000):
        epoch = store.new_epoch()
        kv.ingest_batch(rows_of("w", batch)[:3], epoch)
        kv.ingest_batch(rows_of("w", batch), epoch)
        store.commit_epoch(epoch, writer="w", batch_id=batch)
        print(batch, flush=True)
        if batch % 7 == 0:
            # Compaction is the background thread's: asked for here, it would wait for claims of those who were killed.
            store.vacuum()


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case ["commit", url, name, batches]:
                commit(url, name, int(batches))
            case ["count", url, name, times]:
                count(url, name, int(times))
            case ["upkeep", url]:
                upkeep(url)
            case ["write", url, first]:
                write(url, int(first))
    except TussockError as error:
        sys.exit(f"{type(error).__name__}: {error}")
