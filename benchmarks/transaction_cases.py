"""Cases of `compute_bench.py`, run by `measure.py`: transactions that add one to a row of a million, and in SQLite.

Each case takes an empty folder and the number of transactions, and returns transactions a second. It ends with an error
if the sum of all rows is not what they added.
"""

import random
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.statestore import StateStore, connect

ROWS = 1_000_000
THREADS = 16
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])

Sample = dict[str, Any]


def tussock_one(folder: Path, count: int) -> Sample:
    """One thread."""
    return _tussock(folder, count, 1)


def tussock_sixteen(folder: Path, count: int) -> Sample:
    """Sixteen threads on one open store."""
    return _tussock(folder, count, THREADS)


def sqlite_one(folder: Path, count: int) -> Sample:
    """One connection: SQLite writes one transaction at a time."""
    connection = sqlite3.connect(folder / "rows.sqlite", isolation_level=None)
    run = connection.execute
    run("PRAGMA journal_mode=WAL")
    run("PRAGMA synchronous=FULL")
    run("PRAGMA cache_size=-262144")
    run("CREATE TABLE numbers (k INTEGER PRIMARY KEY, v INTEGER)")
    run("BEGIN")
    connection.executemany("INSERT INTO numbers VALUES (?, 0)", ((k,) for k in range(ROWS)))
    run("COMMIT")
    draw = random.Random(1)
    began = time.perf_counter()
    for _ in range(count):
        k = draw.randrange(ROWS)
        run("BEGIN IMMEDIATE")
        (v,) = run("SELECT v FROM numbers WHERE k = ?", (k,)).fetchone()
        run("UPDATE numbers SET v = ? WHERE k = ?", (v + 1, k))
        run("COMMIT")
    seconds = time.perf_counter() - began
    _check(run("SELECT sum(v) FROM numbers").fetchone()[0], count)
    return {"rate": count / seconds}


def _tussock(folder: Path, count: int, threads: int) -> Sample:
    with connect(folder.as_uri()) as store:
        store.create_table("numbers", SCHEMA, primary_key=["k"])
        epoch = store.new_epoch()
        zeros = pa.array([0] * ROWS, pa.int64())
        store.table("numbers").upsert(pa.table({"k": pa.array(range(ROWS)), "v": zeros}, SCHEMA), epoch)
        store.commit_epoch(epoch)
        store.compact("numbers")
        failures: list[BaseException] = []
        each = -(-count // threads)
        workers = [threading.Thread(target=_add, args=(store, seed, each, failures)) for seed in range(threads)]
        began = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - began
        if failures:
            raise SystemExit(f"{len(failures)} threads failed, the first with {failures[0]!r}")
        total = sum(sum(batch["v"].to_pylist()) for batch in store.table("numbers").read(["v"]))
    _check(total, each * threads)
    return {"rate": each * threads / seconds}


def _add(store: StateStore, seed: int, count: int, failures: list[BaseException]) -> None:
    draw = random.Random(seed)

    def transaction(tx: Any) -> None:
        table = tx.table("numbers")
        table.upsert([{"k": k, "v": table.get(k)["v"] + 1}])

    try:
        for _ in range(count):
            k = draw.randrange(ROWS)
            store.transact(transaction, attempts=1_000)
    except BaseException as error:
        failures.append(error)


def _check(total: int, expected: int) -> None:
    if total != expected:
        raise SystemExit(f"the sum of all rows is {total}, expected {expected}")
