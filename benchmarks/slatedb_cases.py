"""The cases in SlateDB, with its Python package and its local object store, in the fastest way found.

Its ingest makes no call of fsync, so what it calls durable need not survive a power failure: an advantage in writing
that is left to it. Writes: batches of 10,000, four in flight, no write-ahead log, then a flush of the memtable. Gets:
one after the other and 500 in flight, the faster of the two counts. Scans: batches of 100 rows, which was faster than
1,000 and 10,000. The block cache is of the same size as ours. Nothing is compacted by hand: the package has no call
for that on an open store.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import dataset
import timing
from slatedb import uniffi as slatedb

Sample = dict[str, Any]
T = TypeVar("T")

BATCH_ROWS = 10_000
BATCHES_IN_FLIGHT = 4
GETS_IN_FLIGHT = 500
SCAN_BATCH_ROWS = 100
GETS = timing.GETS // 10


async def _open(folder: Path) -> Any:
    builder = slatedb.DbBuilder(str(folder).strip("/"), slatedb.ObjectStore.resolve("file:///"))
    settings = slatedb.Settings.default()
    settings.set("wal_enabled", json.dumps(False))
    builder.with_settings(settings)
    options = slatedb.FoyerCacheOptions(max_capacity=timing.CACHE_BYTES, shards=8)
    builder.with_db_cache(slatedb.DbCache.new_foyer_cache(options), 0)
    return await builder.build()


def _with_store(folder: Path, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        store = await _open(folder)
        try:
            return await work(store)
        finally:
            await store.shutdown()

    return asyncio.run(run())


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    clock = asyncio.get_running_loop().time
    start = clock()
    await work()
    return clock() - start


async def _hot_seconds(work: Callable[[], Awaitable[object]]) -> float:
    await work()
    return sorted([await _seconds(work) for _ in range(timing.PASSES)])[timing.PASSES // 2]


async def _write(store: Any, rows: dataset.Pairs) -> None:
    keys, values = rows
    flying: list[asyncio.Future[Any]] = []
    for start in range(0, len(keys), BATCH_ROWS):
        batch = slatedb.WriteBatch()
        put = batch.put
        for key, value in zip(keys[start : start + BATCH_ROWS], values[start : start + BATCH_ROWS], strict=True):
            put(key, value)
        flying.append(asyncio.ensure_future(store.write(batch)))
        if len(flying) == BATCHES_IN_FLIGHT:
            await flying.pop(0)
    await asyncio.gather(*flying)
    await store.flush_with_options(slatedb.FlushOptions(flush_type=slatedb.FlushType.MEM_TABLE))


async def _scan(store: Any) -> int:
    whole = slatedb.KeyRange(start=None, start_inclusive=True, end=None, end_inclusive=False)
    rows = await store.scan(whole)
    seen = 0
    while batch := await rows.next_batch(SCAN_BATCH_ROWS):
        seen += len(batch)
    return seen


async def _get_one_by_one(store: Any, keys: list[bytes]) -> None:
    for key in keys:
        await store.get(key)


async def _get_many(store: Any, keys: list[bytes]) -> None:
    for start in range(0, len(keys), GETS_IN_FLIGHT):
        await asyncio.gather(*map(store.get, keys[start : start + GETS_IN_FLIGHT]))


def prepare_read(folder: Path, rows: int) -> Sample:
    pairs = dataset.as_pairs(rows)
    _with_store(folder, lambda store: _write(store, pairs))
    return {}


def ingest(folder: Path, rows: int) -> Sample:
    pairs = dataset.as_pairs(rows)
    return {"rate": rows / _with_store(folder, lambda store: _seconds(lambda: _write(store, pairs)))}


def scan_hot(folder: Path, rows: int) -> Sample:
    # A scan takes seconds, so one timed pass after the warming one is steady enough.
    async def work(store: Any) -> float:
        assert await _scan(store) == rows
        return await _seconds(lambda: _scan(store))

    return {"rate": rows / _with_store(folder, work)}


def get_hot(folder: Path, rows: int) -> Sample:
    keys = dataset.some_keys(rows, GETS, seed=3)

    async def work(store: Any) -> float:
        alone = await _hot_seconds(lambda: _get_one_by_one(store, keys))
        return min(alone, await _hot_seconds(lambda: _get_many(store, keys)))

    return {"rate": GETS / _with_store(folder, work)}
