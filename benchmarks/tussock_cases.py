"""The cases as a user of Tussock writes them, with the default options unless a case says otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dataset
import pyarrow as pa
import timing

from tussock.statestore import StateStore, connect

Sample = dict[str, Any]

RUNS = 4
"""Overlapping runs in the cases of compaction."""

MEMORY_CACHE_BYTES = 64 << 20
MEMORY_BUFFER_BYTES = 64 << 20


@contextmanager
def _store(folder: Path, **options: Any) -> Iterator[StateStore]:
    with connect(f"file://{folder}", **options) as store:
        yield store


def _commit(store: StateStore, rows: pa.Table) -> None:
    epoch = store.new_epoch()
    store.table("kv").upsert(rows, epoch)
    store.commit_epoch(epoch)


def prepare_read(folder: Path, rows: int) -> Sample:
    """All rows in one committed epoch, fully compacted."""
    with _store(folder) as store:
        store.create_table("kv")
        _commit(store, dataset.as_table(rows))
        store.compact("kv")
    return {}


def prepare_runs(folder: Path, rows: int) -> Sample:
    """The same keys written four times over: four runs that overlap whole."""
    with _store(folder, compaction=False) as store:
        store.create_table("kv")
        for run in range(RUNS):
            _commit(store, dataset.as_table(rows, values_seed=run + 2))
    return {}


def prepare_distinct_runs(folder: Path, rows: int) -> Sample:
    """Four runs of a quarter of the rows each, whose key ranges overlap and whose keys do not repeat."""
    table = dataset.as_table(rows)
    with _store(folder, compaction=False) as store:
        store.create_table("kv")
        for run in range(RUNS):
            _commit(store, table.slice(run * (rows // RUNS), rows // RUNS))
    return {}


def prepare_memory(folder: Path, rows: int) -> Sample:
    """Four runs of distinct keys, made piece by piece so that any number of rows fits."""
    with _store(folder, compaction=False) as store:
        store.create_table("kv")
        for run in range(RUNS):
            _commit(store, dataset.as_table(rows // RUNS, keys_seed=100 + run))
    return {}


def ingest(folder: Path, rows: int) -> Sample:
    table = dataset.as_table(rows)
    with _store(folder) as store:
        store.create_table("kv")
        took = timing.seconds(lambda: _commit(store, table))
        return {"rate": rows / took, "requests": store.requests()}


def scan_hot(folder: Path, rows: int) -> Sample:
    with _store(folder) as store:
        kv = store.table("kv")
        took = timing.hot_seconds(lambda: pa.Table.from_batches(kv.scan()))
        return {"rate": rows / took, "requests": store.requests()}


def scan_cold(folder: Path, rows: int) -> Sample:
    timing.forget(folder)
    with _store(folder) as store:
        kv = store.table("kv")
        took = timing.seconds(lambda: pa.Table.from_batches(kv.scan()))
        return {"rate": rows / took, "requests": store.requests()}


def multi_get_hot(folder: Path, rows: int) -> Sample:
    lists = [dataset.some_keys(rows, timing.LIST_KEYS, seed=seed) for seed in range(timing.LISTS)]
    with _store(folder) as store:
        kv = store.table("kv")
        took = timing.hot_seconds(lambda: [kv.multi_get(keys) for keys in lists])
        return {"rate": timing.LISTS * timing.LIST_KEYS / took, "requests": store.requests()}


def get_hot(folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, timing.GETS, seed=3)
    with _store(folder) as store:
        get = store.table("kv").get

        def work() -> None:
            for key in keys:
                get(key)

        return {"rate": timing.GETS / timing.hot_seconds(work), "requests": store.requests()}


def get_cold(folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, timing.COLD_GETS, seed=4)
    timing.forget(folder)
    with _store(folder) as store:
        kv = store.table("kv")
        took = timing.seconds(lambda: [kv.get(key) for key in keys])
        return {"rate": timing.COLD_GETS / took, "requests": store.requests()}


def short_scan_hot(folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, timing.SHORT_SCANS, seed=5)
    with _store(folder) as store:
        kv = store.table("kv")
        took = timing.hot_seconds(lambda: [list(kv.scan(key, limit=timing.SHORT_SCAN_ROWS)) for key in keys])
        return {"rate": timing.SHORT_SCANS / took, "requests": store.requests()}


def compact(folder: Path, rows: int) -> Sample:
    # Retention 0: RocksDB keeps no older versions either once no snapshot needs them.
    with _store(folder, compaction=False, retention=0) as store:
        took = timing.seconds(lambda: store.compact("kv"))
        return {"rate": RUNS * rows * dataset.ROW_BYTES / took, "requests": store.requests()}


def compact_distinct(folder: Path, rows: int) -> Sample:
    with _store(folder, compaction=False, retention=0) as store:
        took = timing.seconds(lambda: store.compact("kv"))
        return {"rate": rows * dataset.ROW_BYTES / took, "requests": store.requests()}


def small_commits(folder: Path, rows: int) -> Sample:
    del rows
    table = dataset.as_table(timing.SMALL_COMMITS)
    with _store(folder) as store:
        store.create_table("kv")
        took = timing.seconds(lambda: [_commit(store, table.slice(at, 1)) for at in range(timing.SMALL_COMMITS)])
        return {"rate": timing.SMALL_COMMITS / took, "requests": store.requests()}


def _bounded(folder: Path) -> Any:
    return _store(
        folder,
        compaction=False,
        retention=0,
        cache_bytes=MEMORY_CACHE_BYTES,
        buffer_bytes=MEMORY_BUFFER_BYTES,
    )


def memory_scan(folder: Path, rows: int) -> Sample:
    """A scan whose batches are dropped as they come."""
    with _bounded(folder) as store:
        seen = sum(batch.num_rows for batch in store.table("kv").scan())
        assert seen == rows, f"{seen} rows scanned, {rows} written"
        return {"requests": store.requests()}


def memory_compact(folder: Path, rows: int) -> Sample:
    del rows
    with _bounded(folder) as store:
        store.compact("kv")
        return {"requests": store.requests()}


def memory_open(folder: Path, rows: int) -> Sample:
    """What a process takes that opens the store and reads one key: the libraries, mostly."""
    del rows
    with _bounded(folder) as store:
        store.table("kv").get(b"")
        return {"requests": store.requests()}
