"""CPU time of a task that writes 20,000 rows: as they are, compared by version, with deletes kept, merged. Prints JSON.

Usage: `python benchmarks/newer_than_bench.py [--keys 200000] [--rows 20000] [--rounds 5]`. It runs what Spark's tasks
run, without Spark, whose own share of a batch is the same for all. The cases take turns; the first round of each is not
counted. CPU time, since that of a busy machine's clock says nothing.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tussock.compute.spark.options.options import StoreAddress, WriteOptions, WritePlan
from tussock.compute.spark.reads.connections import close_stores, working_store
from tussock.compute.spark.writes.guard import guard_of
from tussock.compute.spark.writes.writer import Upload
from tussock.statestore import connect
from tussock.statestore.client import StateStore

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("lsn", pa.int64())])
KINDS = ("plain", "newer", "kept", "merge")
MERGE = {"v": "last", "n": "max", "lsn": "max"}
KEEP_SECONDS = 3600.0


def batch_of(draw: Any, number: int, rows: int, keys: int, has_deletes: bool) -> list[pa.RecordBatch]:
    """Rows of random keys with ascending versions, in batches as Spark sends them; each twentieth may be a delete."""
    at = np.arange(number * rows, (number + 1) * rows)
    columns = {"k": draw.integers(0, keys, rows), "v": [f"value of {n}" for n in at], "n": at, "lsn": at}
    if has_deletes:
        columns["op"] = np.where(at % 20 == 0, "d", "u").tolist()
    batch = pa.record_batch(columns)
    return [batch.slice(start, 10_000) for start in range(0, rows, 10_000)]


def seconds_of(store: StateStore, address: StoreAddress, kind: str, batches: list[pa.RecordBatch]) -> float:
    """CPU seconds of one task, whose rows are committed afterwards."""
    spec = store.table(kind).spec
    has_deletes, compares = kind == "kept", kind in ("newer", "kept")
    keep = KEEP_SECONDS if has_deletes else None
    guard = guard_of(store, spec, "lsn", keep) if compares else None
    plan = WritePlan(stage="", merge=MERGE if kind == "merge" else None, read_epoch=store.committed_epoch)
    options = WriteOptions(address, kind, False, "op" if has_deletes else None, None, None, plan)
    working_store(address).version()
    began = time.process_time()
    done = Upload(options, spec, guard).run(iter(batches))
    seconds = time.process_time() - began
    uploads = {kind: done.levels}
    if guard is not None and guard.tombstones is not None:
        uploads[guard.tombstones.name] = done.tombstones
    store.commit_uploaded(uploads)
    return seconds


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--keys", type=int, default=200_000)
    options.add_argument("--rows", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tussock-bench-"))
    address = StoreAddress((folder / "store").as_uri())
    draw = np.random.default_rng(1)
    took: dict[str, list[float]] = {kind: [] for kind in KINDS}
    first = {"k": range(given.keys), "v": [f"first {k}" for k in range(given.keys)]}
    try:
        with connect(address.url, compaction=False) as store:
            for kind in KINDS:
                table = store.create_table(kind, SCHEMA, ["k"])
                zeros = np.zeros(given.keys, np.int64)
                table.upsert(pa.table({**first, "n": zeros, "lsn": zeros - 1}), epoch := store.new_epoch())
                store.commit_epoch(epoch)
            for number in range(given.rounds + 1):
                for kind in KINDS[::-1] if number % 2 else KINDS:
                    batches = batch_of(draw, number, given.rows, given.keys, kind == "kept")
                    took[kind].append(seconds_of(store, address, kind, batches))
        counted = {kind: times[1:] for kind, times in took.items()}
        print(
            json.dumps(
                {
                    "median_ms": {kind: round(1000 * statistics.median(times), 1) for kind, times in counted.items()},
                    "to_plain": {kind: ratios(times, counted["plain"]) for kind, times in counted.items()},
                    "newer_to_merge": ratios(counted["newer"], counted["merge"]),
                    "load": round(os.getloadavg()[0], 1),
                }
            )
        )
    finally:
        close_stores()
        shutil.rmtree(folder, ignore_errors=True)


def ratios(times: list[float], others: list[float]) -> list[float]:
    """Of each round."""
    return [round(one / other, 2) for one, other in zip(times, others, strict=True)]


if __name__ == "__main__":
    main()
