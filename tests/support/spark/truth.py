"""What the killed streaming program (`stream.py`) should have written, by plain arithmetic.

All its streams read the numbers 0, 1, 2, ...; batch b has those from 200 b on. Ten consecutive numbers are of one key,
and keys come round after two batches: half of the keys have rows in a batch, the others only timers.
"""

import datetime as dt
import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from support.store.stores import changes_of
from tussock.statestore.client import StateStore

__all__ = [
    "GROUP",
    "KEYS",
    "ODD_KEY",
    "ODD_STATE",
    "ODD_SUM",
    "ODD_VALUE",
    "POINTS",
    "ROWS_PER_BATCH",
    "batches_of",
    "check_exact",
    "create_tables",
    "writer_of",
]

ROWS_PER_BATCH = 200
GROUP = 10
KEYS = 2 * ROWS_PER_BATCH // GROUP
ODD_SUM, ODD_STATE = "odd.`sum`", "odd state"
"""Tables that are written without a writer's name, by helpers of one function; with columns of such names, too."""
ODD_KEY, ODD_VALUE = "k.`1`", "n.b"
POINTS = ("sink", "totals", "counts", ODD_SUM, ODD_STATE, "accounts", "sums", "moves")
"""The writers of the program, each with a commit a batch: the sink, `write_epoch`, `upsert` after it, an `upsert` and a
`stateful` that are named by their tables, `stateful`, an application of procedures, and a transaction after it.
"""

_TIME = pa.timestamp("us", "UTC")
_TABLES: dict[str, tuple[dict[str, pa.DataType], list[str]]] = {
    "sink": ({"id": pa.int64(), "v": pa.string()}, ["id"]),
    "totals": ({"k": pa.int64(), "n": pa.int64(), "total": pa.int64()}, ["k"]),
    "seen": ({"id": pa.int64(), "batch": pa.int64()}, ["id"]),
    "counts": ({"k": pa.int64(), "n": pa.int64()}, ["k"]),
    # The rows' keys are doubles from 1 on, of which four are one key here.
    ODD_SUM: ({ODD_KEY: pa.float32(), ODD_VALUE: pa.int64()}, [ODD_KEY]),
    ODD_STATE: ({ODD_KEY: pa.int64(), ODD_VALUE: pa.int64()}, [ODD_KEY]),
    "accounts": ({"k": pa.int64(), "n": pa.int64(), "total": pa.int64(), "fired": pa.int64()}, ["k"]),
    "bookings": ({"k": pa.int64(), "batch": pa.int64(), "n": pa.int64(), "total": pa.int64()}, ["k", "batch"]),
    "calls": ({"k": pa.int64(), "at": _TIME, "watermark": _TIME}, ["k", "at"]),
    "sums": ({"k": pa.int64(), "n": pa.int64(), "total": pa.int64()}, ["k"]),
    "steps": ({"k": pa.int64(), "batch": pa.int64(), "n": pa.int64()}, ["k", "batch"]),
    "moved": ({"id": pa.int64(), "k": pa.int64()}, ["id"]),
    "copied": ({"id": pa.int64(), "k": pa.int64()}, ["id"]),
}

Rows = set[tuple[Any, ...]]


def create_tables(store: StateStore) -> None:
    """Make the tables that the program writes."""
    for name, (columns, key) in _TABLES.items():
        store.create_table(name, schema=pa.schema(list(columns.items())), primary_key=key)


def batches_of(store: StateStore) -> dict[str, int]:
    """The number of batches that each writer has committed."""
    return {point: _batch_count(store, writer_of(store, point)) for point in POINTS}


def writer_of(store: StateStore, point: str) -> str:
    """The writer's name in the ledger: for commits without a name that of the query and the table."""
    if point not in (ODD_SUM, ODD_STATE):
        return point
    version: Any = store.version()
    names = [name for name in version.ledger if name.endswith(f" {json.dumps([point])}")]
    assert len(names) <= 1, "one query wrote it"
    return names[0] if names else f"nobody wrote {point}"


def check_exact(store: StateStore) -> dict[str, int]:
    """Compare every table with what it should hold, and how often it was written; returns the batches by writer."""
    batches = batches_of(store)
    _check_written_once(store, "sink", {(number,) for number in _numbers(batches["sink"])}, ["id"])
    totals = {(key, len(numbers), sum(numbers)) for key, numbers in _by_key(batches["totals"]).items()}
    assert _read(store, "totals") == totals
    seen = {(number, number // ROWS_PER_BATCH) for number in _numbers(batches["totals"])}
    _check_written_once(store, "seen", seen, ["id", "batch"])
    assert _read(store, "counts") == {(key, len(numbers)) for key, numbers in _by_key(batches["counts"]).items()}
    for table, first in ((ODD_SUM, 1), (ODD_STATE, 0)):
        assert _read(store, table) == {(first + key, len(numbers)) for key, numbers in _by_key(batches[table]).items()}
    _check_stateful(store, batches["accounts"])
    sums = {(key, len(numbers), sum(numbers)) for key, numbers in _by_key(batches["sums"]).items()}
    assert _read(store, "sums") == sums
    steps = {(_key(those[0]), batch, len(those)) for batch in range(batches["sums"]) for those in _groups(batch)}
    _check_written_once(store, "steps", steps, ["k", "batch", "n"])
    moved = {(number, _key(number)) for number in _numbers(batches["moves"])}
    _check_written_once(store, "moved", moved, ["id", "k"])
    assert _read(store, "copied") == moved
    return batches


def _check_stateful(store: StateStore, batches: int) -> None:
    """Check state, both outputs, timers and the watermark of the stateful stream: all of the same batches."""
    groups = [(batch, _key(numbers[0]), numbers) for batch in range(batches) for numbers in _groups(batch)]
    # A timer of a batch is due in the next one, whose watermark is the last time of that batch.
    due = [(key, numbers[-1], _numbers(batch + 1)[-1]) for batch, key, numbers in groups if batch + 1 < batches]
    fired = {key: sum(of == key for of, _, _ in due) for key in range(KEYS)}
    state = {(key, len(numbers), sum(numbers), fired[key]) for key, numbers in _by_key(batches).items()}
    assert _read(store, "accounts") == state
    bookings = {(key, batch, len(numbers), sum(numbers)) for batch, key, numbers in groups}
    _check_written_once(store, "bookings", bookings, ["k", "batch", "n", "total"])
    calls = {(key, _moment(at), _moment(watermark)) for key, at, watermark in due}
    _check_written_once(store, "calls", calls, ["k", "at", "watermark"])
    if batches:
        waiting = {(_moment(numbers[-1]), _key(numbers[0])) for numbers in _groups(batches - 1)}
        assert _read(store, "accounts.timers") == waiting
        newest = max(row[1] for row in _read(store, "accounts.watermark"))
        assert newest == _moment(_numbers(batches)[-1])


def _check_written_once(store: StateStore, table: str, expected: Rows, columns: list[str]) -> None:
    written = changes_of(store.table(table))
    found = [tuple(row[name] for name in columns) for row in written]
    assert len(found) == len(expected), f"table {table!r}: a row was written twice or never"
    assert set(found) == expected


def _read(store: StateStore, table: str) -> Rows:
    return {tuple(row.values()) for batch in store.table(table).read() for row in batch.to_pylist()}


def _batch_count(store: StateStore, writer: str) -> int:
    # The ledger answers for the newest batches one by one, and takes older ones to be done.
    batch = 0
    while store.committed_batch(writer, batch) is not None:
        batch += 1
    return batch


def _numbers(batches: int) -> range:
    return range(batches * ROWS_PER_BATCH)


def _groups(batch: int) -> Iterable[range]:
    first = batch * ROWS_PER_BATCH
    return [range(start, start + GROUP) for start in range(first, first + ROWS_PER_BATCH, GROUP)]


def _key(number: int) -> int:
    return number // GROUP % KEYS


def _by_key(batches: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for number in _numbers(batches):
        found.setdefault(_key(number), []).append(number)
    return found


def _moment(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)
