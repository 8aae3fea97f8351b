"""Cases of `changelog_bench.py`, run by `measure.py`: upserts over a million keys, in transactions of 100,000 rows.

Each case takes an empty folder and the number of rows, and returns rows a second. It ends with an error if the state at
the end is not that of a dict that was given the same rows.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

SEED = 11
KEYS = 1_000_000
TRANSACTION = 100_000
CHANGES_PER_SECOND = 10_000
PUSH = 100
"""Changes in a transaction, of the delay of a subscriber."""
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])

Sample = dict[str, Any]


def tussock_batch(folder: Path, rows: int) -> Sample:
    """Computed by batch."""

    def declare(store: StateStore) -> cl.Stream:
        stream = cl.Stream(store, "state", schema=SCHEMA, key=["k"])

        @stream.compute_batch
        def double(batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch.set_column(1, "v", pc.multiply(batch.column("v"), 2))

        return stream

    return _tussock(declare, folder, rows)


def tussock_rows(folder: Path, rows: int) -> Sample:
    """Computed by record."""

    def declare(store: StateStore) -> cl.Stream:
        stream = cl.Stream(store, "state", schema=SCHEMA, key=["k"])

        @stream.compute
        def double(row: cl.ChangeRecord) -> cl.ChangeRecord:
            return cl.upsert(k=row["k"], v=row["v"] * 2)

        return stream

    return _tussock(declare, folder, rows)


def bytewax_map(folder: Path, rows: int) -> Sample:
    """`stateful_map` of Bytewax, with a snapshot to its recovery store (SQLite) after each 100,000 rows."""
    from bytewax import operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import cluster_main

    batches = [
        [(str(key), value) for key, value in zip(keys.tolist(), values.tolist(), strict=True)]
        for keys, values in _columns(rows)
    ]
    state: dict[str, int] = {}

    class Part(StatefulSourcePartition):  # type: ignore[misc]
        def __init__(self) -> None:
            self._at = 0

        def next_batch(self) -> Any:
            if self._at == len(batches):
                raise StopIteration
            self._at += 1
            return batches[self._at - 1]

        def snapshot(self) -> int:
            return self._at

    class Source(FixedPartitionedSource):  # type: ignore[misc]
        def list_parts(self) -> list[str]:
            return ["one"]

        def build_part(self, *_: Any) -> Part:
            return Part()

    class SinkPart(StatelessSinkPartition):  # type: ignore[misc]
        def write_batch(self, items: Any) -> None:
            state.update(items)

    class Sink(DynamicSink):  # type: ignore[misc]
        def build(self, *_: Any) -> SinkPart:
            return SinkPart()

    flow = Dataflow("state")
    mapped = op.stateful_map("map", op.input("in", flow, Source()), lambda _, value: (value, value * 2))
    op.output("out", mapped, Sink())
    recovery = folder / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    began = time.perf_counter()
    cluster_main(flow, [], 0, epoch_interval=timedelta(0), recovery_config=RecoveryConfig(recovery))
    took = time.perf_counter() - began
    assert {int(key): value for key, value in state.items()} == _expected(rows)
    return {"rate": rows / took}


def subscriber_delay(folder: Path, seconds: int) -> Sample:
    """Changes come at a rate; from when a transaction is durable, and pushed, to when a subscriber has it."""
    pushed: list[float] = []
    durable: dict[int, float] = {}
    seen: dict[int, float] = {}
    count = seconds * CHANGES_PER_SECOND // PUSH
    with connect((folder / "store").as_uri()) as store:
        stream = cl.Stream(store, "state", schema=SCHEMA, key=["k"])
        with cl.Flow(store, [stream]):
            reader = threading.Thread(target=_read, args=(stream, count, seen))
            reader.start()
            began = time.perf_counter()
            for at in range(count):
                time.sleep(max(0, began + at * PUSH / CHANGES_PER_SECOND - time.perf_counter()))
                records = [cl.upsert(k=(at * PUSH + one) % KEYS, v=at) for one in range(PUSH)]
                pushed.append(time.perf_counter())
                stream.push(records).add_done_callback(
                    lambda answer: durable.setdefault(answer.result(), time.perf_counter())
                )
            reader.join()
    behind = sorted(1000 * max(0.0, seen[number] - durable[number]) for number in seen)
    since = sorted(1000 * (seen[number] - pushed[number - 1]) for number in seen)
    return {
        "rate": count * PUSH / (max(seen.values()) - began),
        "p50_ms": statistics.median(behind),
        "p99_ms": behind[int(0.99 * len(behind))],
        "since_push_p50_ms": statistics.median(since),
        "since_push_p99_ms": since[int(0.99 * len(since))],
    }


def single_pushes(folder: Path, rows: int) -> Sample:
    """A record a transaction, through two streams by record, from one client that does not wait for each."""
    with connect((folder / "store").as_uri()) as store:
        first = cl.Stream(store, "first", schema=SCHEMA, key=["k"])
        second = cl.Stream(store, "second", schema=SCHEMA, key=["k"], inputs=[first])
        second.compute(lambda row: cl.upsert(k=row["k"], v=-row["v"]))
        with cl.Flow(store, [first, second]) as flow:
            began = time.perf_counter()
            answers = [first.push([cl.upsert(k=at % 1000, v=at)]) for at in range(rows)]
            assert [one.result(60) for one in answers] == list(range(1, rows + 1))
            flow.drain()
            took = time.perf_counter() - began
            assert second.get((rows - 1) % 1000) == {"k": (rows - 1) % 1000, "v": 1 - rows}
    return {"rate": rows / took}


def _read(stream: cl.Stream, count: int, seen: dict[int, float]) -> None:
    with stream.subscribe(timeout=60) as found:
        for one in found:
            seen[one.seq] = time.perf_counter()
            if one.seq == count:
                return


def _columns(rows: int) -> Iterator[tuple[Any, Any]]:
    chance = np.random.default_rng(SEED)
    for _ in range(rows // TRANSACTION):
        yield chance.integers(0, KEYS, TRANSACTION), chance.integers(0, 1 << 40, TRANSACTION)


def _expected(rows: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for keys, values in _columns(rows):
        found.update(zip(keys.tolist(), (2 * values).tolist(), strict=True))
    return found


def _tussock(declare: Callable[[StateStore], cl.Stream], folder: Path, rows: int) -> Sample:
    batches = [
        pa.table({"k": keys, "v": values, "_op": pa.repeat("UPSERT", TRANSACTION)}) for keys, values in _columns(rows)
    ]
    with connect((folder / "store").as_uri()) as store:
        stream = declare(store)
        with cl.Flow(store, [stream]) as flow:
            began = time.perf_counter()
            answers = [stream.push(batch) for batch in batches]
            for one in answers:
                one.result(600)
            flow.drain()
            took = time.perf_counter() - began
        found = pa.Table.from_batches(list(store.table("state").read()))
    state = dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True))
    assert state == _expected(rows)
    return {"rate": rows / took}
