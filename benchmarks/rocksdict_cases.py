"""The same cases in RocksDB by `rocksdict`, in the fastest way found that gives the same promise.

Writes: raw mode, batches of 10,000, no write-ahead log, then `flush`, which syncs the files before it returns: so
nothing is durable before the flush and all is after it, as with our commits. With the log it is 10 % slower, and
larger write buffers were slower too. Reads: the table is fully compacted, in a block cache of the same size as ours.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import dataset
import timing
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

Sample = dict[str, Any]

BATCH_ROWS = 10_000
RUNS = 4
PARALLELISM = 2


@contextmanager
def _open(folder: Path, *, compaction: bool = True, cache_bytes: int = timing.CACHE_BYTES) -> Iterator[Rdict]:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.increase_parallelism(PARALLELISM)
    options.set_max_subcompactions(PARALLELISM)
    options.set_disable_auto_compactions(not compaction)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(cache_bytes))
    options.set_block_based_table_factory(blocks)
    store = Rdict(str(folder), options)
    try:
        yield store
    finally:
        store.close()


def _write(store: Rdict, rows: dataset.Pairs) -> None:
    unlogged = WriteOptions()
    unlogged.disable_wal = True
    keys, values = rows
    for start in range(0, len(keys), BATCH_ROWS):
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in zip(keys[start : start + BATCH_ROWS], values[start : start + BATCH_ROWS], strict=True):
            put(key, value)
        store.write(batch, unlogged)
    store.flush()


def prepare_read(folder: Path, rows: int) -> Sample:
    with _open(folder) as store:
        _write(store, dataset.as_pairs(rows))
        store.compact_range(None, None)
    return {}


def prepare_runs(folder: Path, rows: int) -> Sample:
    with _open(folder, compaction=False) as store:
        for run in range(RUNS):
            _write(store, dataset.as_pairs(rows, values_seed=run + 2))
    return {}


def prepare_distinct_runs(folder: Path, rows: int) -> Sample:
    keys, values = dataset.as_pairs(rows)
    size = rows // RUNS
    with _open(folder, compaction=False) as store:
        for start in range(0, RUNS * size, size):
            _write(store, (keys[start : start + size], values[start : start + size]))
    return {}


def ingest(folder: Path, rows: int) -> Sample:
    pairs = dataset.as_pairs(rows)
    with _open(folder) as store:
        return {"rate": rows / timing.seconds(lambda: _write(store, pairs))}


def single_puts(folder: Path, rows: int) -> Sample:
    keys, values = dataset.as_pairs(rows)
    unlogged = WriteOptions()
    unlogged.disable_wal = True
    with _open(folder) as store:

        def work() -> None:
            for key, value in zip(keys, values, strict=True):
                store.put(key, value, unlogged)
            store.flush()

        return {"rate": rows / timing.seconds(work)}


def scan_hot(folder: Path, rows: int) -> Sample:
    with _open(folder) as store:
        return {"rate": rows / timing.hot_seconds(lambda: deque(store.items(), maxlen=0))}


def scan_cold(folder: Path, rows: int) -> Sample:
    timing.forget(folder)
    with _open(folder) as store:
        return {"rate": rows / timing.seconds(lambda: deque(store.items(), maxlen=0))}


def multi_get_hot(folder: Path, rows: int) -> Sample:
    lists = [dataset.some_keys(rows, timing.LIST_KEYS, seed=seed) for seed in range(timing.LISTS)]
    with _open(folder) as store:
        took = timing.hot_seconds(lambda: [store[keys] for keys in lists])
        return {"rate": timing.LISTS * timing.LIST_KEYS / took}


def get_hot(folder: Path, rows: int, *, cache_bytes: int = timing.CACHE_BYTES) -> Sample:
    keys = dataset.some_keys(rows, timing.GETS, seed=3)
    with _open(folder, cache_bytes=cache_bytes) as store:
        get = store.get

        def work() -> None:
            for key in keys:
                get(key)

        return {"rate": timing.GETS / timing.hot_seconds(work)}


def prepare_large(folder: Path, rows: int) -> Sample:
    return prepare_read(folder, rows)


def large_get(folder: Path, rows: int) -> Sample:
    return get_hot(folder, rows, cache_bytes=timing.LARGE_CACHE_BYTES)


def _large_multi_get(count: int, folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, count * timing.LARGE_LISTS[count], seed=6)
    lists = [keys[at : at + count] for at in range(0, len(keys), count)]
    with _open(folder, cache_bytes=timing.LARGE_CACHE_BYTES) as store:
        return {"rate": len(keys) / timing.hot_seconds(lambda: [store[some] for some in lists])}


large_multi_get_10 = partial(_large_multi_get, 10)
large_multi_get_100 = partial(_large_multi_get, 100)
large_multi_get_1000 = partial(_large_multi_get, 1_000)
large_multi_get_10000 = partial(_large_multi_get, 10_000)


def get_cold(folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, timing.COLD_GETS, seed=4)
    timing.forget(folder)
    with _open(folder) as store:
        return {"rate": timing.COLD_GETS / timing.seconds(lambda: [store.get(key) for key in keys])}


def short_scan_hot(folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, timing.SHORT_SCANS, seed=5)
    with _open(folder) as store:
        took = timing.hot_seconds(
            lambda: [list(islice(store.items(from_key=key), timing.SHORT_SCAN_ROWS)) for key in keys]
        )
        return {"rate": timing.SHORT_SCANS / took}


def compact(folder: Path, rows: int) -> Sample:
    with _open(folder, compaction=False) as store:
        took = timing.seconds(lambda: store.compact_range(None, None))
        return {"rate": RUNS * rows * dataset.ROW_BYTES / took}


def compact_distinct(folder: Path, rows: int) -> Sample:
    with _open(folder, compaction=False) as store:
        took = timing.seconds(lambda: store.compact_range(None, None))
        return {"rate": rows * dataset.ROW_BYTES / took}


def _synced() -> WriteOptions:
    synced = WriteOptions()
    synced.sync = True
    return synced


def small_commits_threads(folder: Path, rows: int) -> Sample:
    del rows
    count = timing.COMMITTERS * timing.SMALL_COMMITS
    keys, values = dataset.as_pairs(count)
    synced = _synced()
    with _open(folder) as store:

        def work(number: int) -> None:
            for at in range(number, count, timing.COMMITTERS):
                store.put(keys[at], values[at], synced)

        return {"rate": count / timing.threads_seconds(work)}


def small_commits(folder: Path, rows: int) -> Sample:
    del rows
    keys, values = dataset.as_pairs(timing.SMALL_COMMITS)
    synced = _synced()
    with _open(folder) as store:

        def work() -> None:
            for key, value in zip(keys, values, strict=True):
                store.put(key, value, synced)

        return {"rate": timing.SMALL_COMMITS / timing.seconds(work)}
