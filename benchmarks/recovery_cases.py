"""Cases of `compute_bench.py` without another side, run by `measure.py`: recoveries, and state beyond memory.

Each case takes an empty folder and a number of batches or keys. It ends with an error if a count is wrong.
"""

import os
import random
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.compute.procedures import App
from tussock.statestore import StateStore, connect

KEYS = 100_000
CACHE = 256 << 20
OUTSTANDING = 1_000
CHUNK = 1_000_000
CALLS = 100_000
LOG_MAX = 2 * DEFAULT_APPLICATION_LIMITS.records_behind
"""The most records that a recovery has to replay."""
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int64())])
GIVEN = pa.schema([("k", pa.int64())])

Sample = dict[str, Any]


def recovery(folder: Path, batches: int) -> Sample:
    """The process dies with all batches in the log, as far as the log is let grow, and none in the store."""
    return _recovered(folder, batches, 3600.0)


def recovery_after(folder: Path, batches: int) -> Sample:
    """The process dies after that many batches, with the default checkpoint."""
    return _recovered(folder, batches, 1.0)


def large_state(folder: Path, keys: int) -> Sample:
    """Random keys of many, with a cache that holds few of them."""
    with connect(folder.as_uri(), cache_bytes=CACHE) as store:
        store.create_table("counts", SCHEMA, primary_key=["k"])
        began = time.perf_counter()
        for first in range(0, keys, CHUNK):
            chunk = pa.table(
                {"k": pa.array(range(first, min(first + CHUNK, keys))), "n": [0] * min(CHUNK, keys - first)}
            )
            epoch = store.new_epoch()
            store.table("counts").upsert(chunk.cast(SCHEMA), epoch)
            store.commit_epoch(epoch)
        store.compact("counts")
        loaded = time.perf_counter() - began
        app = _counter(store, 1.0)
        began = time.perf_counter()
        with app:
            started = time.perf_counter() - began
            began = time.perf_counter()
            draw = random.Random(1)
            _submit(app, (draw.randrange(keys) for _ in range(CALLS)))
            seconds = time.perf_counter() - began
    return {"load_s": round(loaded, 1), "start_s": round(started, 3), "batches_s": round(CALLS / seconds)}


def _recovered(folder: Path, batches: int, checkpoint: float) -> Sample:
    command = [sys.executable, __file__, str(folder), str(batches), str(checkpoint)]
    subprocess.run(command, check=True)
    with connect(folder.as_uri()) as store:
        committed = store.table("_applications").get("counter")["seq"]
        app = _counter(store, checkpoint)
        began = time.perf_counter()
        app.start()
        seconds = time.perf_counter() - began
        app.stop()
        total = sum(sum(batch["n"].to_pylist()) for batch in store.table("counts").read(["n"]))
    if total != batches:
        raise SystemExit(f"{total} batches count, expected {batches}")
    return {"seconds": round(seconds, 3), "replayed": batches - committed}


def _counter(store: StateStore, checkpoint: float) -> App:
    # A log that no commit cuts gets twice as many records as begin one; here none begins before.
    app = App(store, "counter", checkpoint=checkpoint, limits=ApplicationLimits(records_behind=LOG_MAX))
    app.table("counts", SCHEMA, primary_key=["k"])

    @app.procedure("count", border=True, schema=GIVEN)
    def count(tx: Any, batch: pa.Table) -> None:
        counts = tx.table("counts")
        for k in batch["k"].to_pylist():
            row = counts.get(k)
            counts.upsert([{"k": k, "n": (row["n"] if row else 0) + 1}])

    return app


def _submit(app: App, keys: Any) -> None:
    tickets: deque[Any] = deque()
    for k in keys:
        if len(tickets) == OUTSTANDING:
            tickets.popleft().result()
        tickets.append(app.submit("count", [{"k": k}]))
    for ticket in tickets:
        ticket.result()


def _run_and_die() -> None:
    folder, batches, checkpoint = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    app = _counter(connect(folder.as_uri()), checkpoint)
    app.start()
    _submit(app, (number % KEYS for number in range(batches)))
    os._exit(0)


if __name__ == "__main__":
    _run_and_die()
