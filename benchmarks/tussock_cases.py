"""The cases as a user of Tussock writes them, with the default options unless a case says otherwise."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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


def single_puts(folder: Path, rows: int) -> Sample:
    keys, values = dataset.as_pairs(rows)
    with _store(folder) as store:
        kv: Any = store.create_table("kv")

        def work() -> None:
            epoch = store.new_epoch()
            for key, value in zip(keys, values, strict=True):
                kv.ingest_batch([(key, value)], epoch)
            store.commit_epoch(epoch)

        return {"rate": rows / timing.seconds(work), "requests": store.requests()}


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


def get_hot(folder: Path, rows: int, **options: Any) -> Sample:
    keys = dataset.some_keys(rows, timing.GETS, seed=3)
    with _store(folder, **options) as store:
        get = store.table("kv").get

        def work() -> None:
            for key in keys:
                get(key)

        return {"rate": timing.GETS / timing.hot_seconds(work), "requests": store.requests()}


def prepare_large(folder: Path, rows: int) -> Sample:
    """As `prepare_read`, for the cases with many rows."""
    return prepare_read(folder, rows)


def large_get(folder: Path, rows: int) -> Sample:
    """Single gets among many rows."""
    return get_hot(folder, rows, cache_bytes=timing.LARGE_CACHE_BYTES)


def _large_multi_get(count: int, folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, count * timing.LARGE_LISTS[count], seed=6)
    lists = [keys[at : at + count] for at in range(0, len(keys), count)]
    with _store(folder, cache_bytes=timing.LARGE_CACHE_BYTES) as store:
        kv = store.table("kv")
        took = timing.hot_seconds(lambda: [kv.multi_get(some) for some in lists])
        return {"rate": len(keys) / took, "requests": store.requests()}


large_multi_get_10 = partial(_large_multi_get, 10)
large_multi_get_100 = partial(_large_multi_get, 100)
large_multi_get_1000 = partial(_large_multi_get, 1_000)
large_multi_get_10000 = partial(_large_multi_get, 10_000)


def _read_kinds(rows: int) -> dict[str, Callable[[Any], object]]:
    """One pass of each kind of read of a table, by what it is called in the report."""
    keys = dataset.some_keys(rows, timing.GETS, seed=8)
    kinds: dict[str, Callable[[Any], object]] = {
        f"get, {timing.GETS:,} keys": lambda kv: [kv.get(key) for key in keys],
        f"scan of {timing.SHORT_SCAN_ROWS} rows": lambda kv: [
            list(kv.scan(key, limit=timing.SHORT_SCAN_ROWS)) for key in keys[: timing.MIX_SHORT_SCANS]
        ],
        "full scan": lambda kv: pa.Table.from_batches(kv.scan()),
    }
    for count, lists in timing.MIX_LISTS.items():
        some = dataset.some_keys(rows, count * lists, seed=count)
        kinds[f"multi_get, {count:,} keys"] = partial(_multi_gets, some, count)
    return kinds


def _multi_gets(keys: list[bytes], count: int, kv: Any) -> None:
    for at in range(0, len(keys), count):
        kv.multi_get(keys[at : at + count])


def mixed_reads(folder: Path, rows: int) -> Sample:
    """Each kind of read alone on a separate store, then all in turn on one open store; seconds of processor time.

    Alone and in turn the middle of some passes counts, after one that is not timed.
    """
    kinds = _read_kinds(rows)
    alone: dict[str, float] = {}
    for name, work in kinds.items():
        with _store(folder) as store:
            alone[name] = statistics.median(timing.passes(partial(work, store.table("kv"))))
    mixed: dict[str, list[float]] = {name: [] for name in kinds}
    with _store(folder) as store:
        kv = store.table("kv")
        for number in range(timing.PASSES + 1):
            for name, work in kinds.items():
                took = timing.processor_seconds(partial(work, kv))
                if number:
                    mixed[name].append(took)
        requests = store.requests()
    return {
        "alone": alone,
        "mixed": {name: statistics.median(times) for name, times in mixed.items()},
        "requests": requests,
    }


def versions_scan(folder: Path, rows: int) -> Sample:
    """Scans of the present where each key has many versions: all retained, and none; rows a second of processor time.

    The two stores are scanned in turn, and the middle of some passes counts, after one that is not timed.
    """
    keys = rows // timing.VERSIONS
    with _store(folder / "retained", compaction=False) as kept, _store(folder / "none", retention=0) as none:
        stores = {"retained": kept, "none": none}
        for store in stores.values():
            store.create_table("kv")
            for version in range(timing.VERSIONS):
                _commit(store, dataset.as_table(keys, values_seed=version))
            store.compact("kv")
        oldest = kept.table("kv").change_epochs(0)[0]
        work = {name: partial(_scan_all, store, timing.VERSION_SCANS) for name, store in stores.items()}
        work["oldest"] = partial(_scan_all, kept, 1, epoch=oldest)
        took: dict[str, list[float]] = {name: [] for name in work}
        for number in range(timing.PASSES + 1):
            for name, scan in work.items():
                seconds = timing.processor_seconds(scan)
                if number:
                    took[name].append(seconds)
        counts = dict.fromkeys(stores, timing.VERSION_SCANS) | {"oldest": 1}
        return {
            "rates": {name: keys * counts[name] / statistics.median(times) for name, times in took.items()},
            "requests": kept.requests(),
        }


def _scan_all(store: StateStore, times: int, **options: Any) -> None:
    for _ in range(times):
        for _ in store.table("kv").scan(**options):
            pass


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


def small_commits_threads(folder: Path, rows: int) -> Sample:
    """Each a transaction: those that end while one commits share the next commit."""
    del rows
    count = timing.COMMITTERS * timing.SMALL_COMMITS
    table = dataset.as_table(count)
    with _store(folder) as store:
        store.create_table("kv")

        def work(number: int) -> None:
            for at in range(number, count, timing.COMMITTERS):
                with store.transaction() as tx:
                    tx.table("kv").upsert(table.slice(at, 1))

        took = timing.threads_seconds(work)
        return {"rate": count / took, "requests": store.requests()}


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
