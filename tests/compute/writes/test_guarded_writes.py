"""Writes that are compared with what is stored, without Spark: what tasks upload, and what the driver commits."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from support.models.versioned_events import Event, final_rows
from tussock.compute.spark.batches.task_times import Meter
from tussock.compute.spark.options.options import StoreAddress, WriteOptions, WritePlan
from tussock.compute.spark.writes.guard import guard_of
from tussock.compute.spark.writes.guarded_upload import Compared, GuardedUpload, expected_epochs, guarded_upload
from tussock.compute.spark.writes.newest import hash_places
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict, InvalidBatch, SchemaMismatch

VERSIONS: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int8(): lambda n: n - 3,
    pa.int64(): lambda n: n * 10**15 - 3,
    pa.uint64(): lambda n: 2**63 + n,
    pa.decimal128(38, 0): lambda n: Decimal(10**30 + n),
    pa.decimal256(50, 2): lambda n: Decimal(n) - Decimal("0.01"),
    pa.date32(): lambda n: date(1969, 12, 28) + timedelta(n),
    pa.date64(): lambda n: date(1969, 12, 28) + timedelta(n),
    pa.time32("s"): lambda n: time(second=n),
    pa.time64("us"): lambda n: time(microsecond=n),
    pa.timestamp("us", "UTC"): lambda n: datetime(1969, 12, 31, 23, 59, 55, tzinfo=UTC) + timedelta(seconds=n),
    pa.timestamp("ns"): lambda n: datetime(1969, 12, 31, 23, 59, 55) + timedelta(seconds=n),
    pa.string(): lambda n: f"binlog.{n:03}/é",
    pa.large_string(): lambda n: "z" * n,
    pa.string_view(): lambda n: f"a version of more than twelve bytes {n:02}",
    pa.binary(): lambda n: bytes([n]) * n,
    pa.large_binary(): lambda n: bytes([128 + n]),
    pa.binary_view(): lambda n: bytes([n]),
    pa.binary(10): lambda n: n.to_bytes(10, "big"),
}


def options_of(op_column: str | None = "op", plan: WritePlan | None = None) -> WriteOptions:
    """Those of a sink; the address is not used, as the store is open."""
    return WriteOptions(StoreAddress("memory://"), "t", False, op_column, None, None, plan)


def columns_of(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """The columns of the tables here: key, value, version."""
    return [("k", pa.int64()), ("v", pa.string()), ("lsn", kind)]


SENT = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Spark sends no views."""


def rows_of(events: Sequence[Event], kind: pa.DataType, typed: Callable[[int], Any]) -> pa.RecordBatch:
    """Rows as Spark sends them; a delete has key and version alone."""
    return pa.record_batch(
        {
            "k": pa.array([event.key for event in events], pa.int64()),
            "v": pa.array([None if event.is_delete else event.value for event in events], pa.string()),
            "lsn": pa.array([typed(event.version) for event in events], SENT.get(kind, kind)),
            "op": pa.array(["d" if event.is_delete else "u" for event in events]),
        }
    )


@pytest.fixture
def store() -> Iterator[StateStore]:
    """An empty store without an end of its history."""
    with connect("memory://", compaction=False) as opened:
        yield opened


def write(store: StateStore, batches: Sequence[pa.RecordBatch], keep: float | None = 60.0, **options: Any) -> int:
    """One commit of tasks with these rows, as a sink makes it."""
    spec = store.table("t").spec
    guard = guard_of(store, spec, "lsn", keep)
    tasks = [guarded_upload(store, spec, guard, options_of(**options), [batch], Meter()) for batch in batches]
    return commit(store, tasks, keep)


def commit(store: StateStore, tasks: Sequence[GuardedUpload], keep: float | None) -> int:
    """What the driver does with the answers of tasks."""
    spec = store.table("t").spec
    guard = guard_of(store, spec, "lsn", keep)
    expect = expected_epochs(spec, guard, [task.compared for task in tasks])
    uploads = {"t": [run for task in tasks for run in task.levels]}
    if guard.tombstones is not None:
        uploads[guard.tombstones.name] = [run for task in tasks for run in task.tombstones]
    return store.commit_uploaded(uploads, expect=expect)


def stored(store: StateStore, name: str = "t") -> list[dict[str, Any]]:
    """The rows of a table, by key."""
    rows = [row for batch in store.table(name).read() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["k"]))


@pytest.mark.parametrize("kind", VERSIONS, ids=str)
def test_a_table_ends_with_the_newest_versions(store: StateStore, kind: pa.DataType) -> None:
    """For each type of versions, by what tasks do: random deliveries to two tasks, with repeats of all that came."""
    draw = random.Random(7)
    store.create_table("t", pa.schema(columns_of(kind)), ["k"])
    typed = VERSIONS[kind]
    came: list[Event] = []
    for _ in range(6):
        batch = [Event(draw.randrange(12), draw.randrange(9)) for _ in range(15)] + came[-5:]
        draw.shuffle(batch)
        came += batch
        tasks: list[list[Event]] = [[], []]
        for event in batch:
            tasks[hash_places([pa.array([event.key])]).bit_length() % 2].append(event)
        write(store, [rows_of(part, kind, typed) for part in tasks if part])
        expected = {key: {"v": value, "lsn": typed(version)} for key, (version, value) in final_rows(came).items()}
        assert {row.pop("k"): row for row in stored(store)} == expected
    assert any(event.is_delete for event in came)


def test_a_delete_is_remembered_for_a_time(store: StateStore) -> None:
    """An older change that comes later is old until the tombstone has expired, and then it is all there is."""
    store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"])

    def change(version: int, op: str) -> pa.RecordBatch:
        return pa.record_batch({"k": [1], "v": [f"at {version}"], "lsn": [version], "op": [op]})

    for version, op, there in [(5, "c", [5]), (7, "d", []), (6, "u", []), (7, "u", []), (8, "u", [8]), (9, "d", [])]:
        write(store, [change(version, op)], keep=1.0)
        assert [row["lsn"] for row in stored(store)] == there
    assert stored(store, "t.tombstones") == [{"k": 1, "lsn": 9}]
    assert store.table("t.tombstones").spec.ttl_ms == 1000
    later = store.new_epoch() + (2000 << 16)
    other = store.create_table("other")
    other.ingest_batch([(b"a", b"b")], later)
    store.commit_epoch(later)
    assert stored(store, "t.tombstones") == []
    write(store, [change(6, "u")], keep=1.0)
    assert [row["lsn"] for row in stored(store)] == [6]


def test_without_tombstones_an_older_change_after_a_delete_counts(store: StateStore) -> None:
    """As the page says: nothing is known of the key any more."""
    store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"])
    for version, op in ((5, "insert"), (7, "delete"), (6, "update")):
        write(store, [pa.record_batch({"k": [1], "v": ["x"], "lsn": [version], "op": [op]})], keep=None)
    assert [row["lsn"] for row in stored(store)] == [6]
    assert store.tables() == ["t"]


def test_rows_without_a_version_are_older_than_any(store: StateStore) -> None:
    """A row that was stored otherwise, with null, gives way; and a delete takes it, too."""
    table = store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"])
    table.upsert([{"k": key, "v": "old", "lsn": None} for key in (1, 2, 3)], epoch := store.new_epoch())
    store.commit_epoch(epoch)
    rows = pa.record_batch({"k": [1, 2], "v": ["new", None], "lsn": [-5, -5], "op": ["u", "d"]})
    write(store, [rows])
    assert [(row["k"], row["v"]) for row in stored(store)] == [(1, "new"), (3, "old")]


def test_two_tasks_with_rows_of_one_key_are_refused(store: StateStore) -> None:
    """Each would find its row to be newer than what is stored, and the order of tasks would decide."""
    store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"], vnodes=1)
    rows = [rows_of([Event(1, version)], pa.int64(), int) for version in (1, 2)]
    told = r"two of 2 tasks may have rows of the same key; write rows.repartition\(n, 'k'\)"
    with pytest.raises(InvalidBatch, match=told):
        write(store, rows)
    assert stored(store) == []
    # Few virtual nodes are no reason to refuse keys of different tasks.
    apart = [key for key in range(9) if hash_places([pa.array([key])]) != hash_places([pa.array([1])])]
    write(store, [rows[0], rows_of([Event(apart[0], 1)], pa.int64(), int)])
    # Tasks that a helper has given their keys may share a hash.
    epoch = store.committed_epoch
    plan = WritePlan(stage="", read_epoch=epoch)
    write(store, [rows[0], rows_of([Event(apart[1], 1)], pa.int64(), int)], plan=plan)


def test_a_commit_in_between_is_a_conflict(store: StateStore) -> None:
    """The smallest of the epochs that the tasks read decides, for the table and for that of the deletes."""
    table = store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"])
    guard = guard_of(store, table.spec, "lsn", 60.0)
    for name in ("t", "t.tombstones"):
        tasks = []
        for key in (1, 2):
            rows = rows_of([Event(key, 4)], pa.int64(), int)
            tasks.append(guarded_upload(store, table.spec, guard, options_of(), [rows], Meter()))
            if key == 1:
                row = {"k": 9, "lsn": 1} | ({"v": "x"} if name == "t" else {})
                store.table(name).upsert([row], epoch := store.new_epoch())
                store.commit_epoch(epoch)
        with pytest.raises(Conflict, match=f"table '{name}' was read at epoch"):
            commit(store, tasks, 60.0)


def test_a_task_without_rows_reads_nothing(store: StateStore) -> None:
    """Nor do preimages alone: then the commit expects nothing, and holds nothing up."""
    table = store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"])
    guard = guard_of(store, table.spec, "lsn", None)
    before = rows_of([Event(1, 4)], pa.int64(), int).set_column(3, "op", pa.array(["Update_Preimage"]))
    upload = guarded_upload(store, table.spec, guard, options_of(), [before], Meter())
    assert upload == GuardedUpload([], [], None)
    assert expected_epochs(table.spec, guard, [None, Compared(5, 1), Compared(3, 2)]) == {"t": 3}
    assert expected_epochs(table.spec, guard, [None]) == {}


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"k": [1, 2], "lsn": [1, None]}, InvalidBatch, r"column 'lsn' is null in a row with the key {'k': 2}"),
        ({"k": [1], "lsn": pa.array([None], pa.int64()), "op": ["d"]}, InvalidBatch, "column 'lsn' is null"),
        ({"k": pa.array([None], pa.int64()), "lsn": [1]}, SchemaMismatch, "column 'k' is null at position 0"),
        ({"k": [1], "lsn": [1], "v": [5]}, SchemaMismatch, "column 'v': expected string, found int64"),
        ({"k": [1], "lsn": [1], "op": ["t"]}, InvalidBatch, r"'op' holds 't'; a truncate.*mode\('overwrite'\)"),
        ({"k": [1], "lsn": [1], "op": ["M"]}, InvalidBatch, "'op' holds 'M'; a message, .* has no row"),
        ({"k": [1], "lsn": [1], "op": ["x"]}, InvalidBatch, "expected one of .*'update_postimage', 'c', 'r', 'u', 'd"),
        ({"k": [1], "lsn": [1], "op": pa.array([None], pa.string())}, InvalidBatch, "'op' holds None; expected one of"),
    ],
)
def test_bad_rows_are_refused_whole(
    store: StateStore, columns: dict[str, Any], error: type[Exception], message: str
) -> None:
    """With the table, the column and what is wrong with it."""
    store.create_table("t", pa.schema(columns_of(pa.int64())), ["k"])
    rows = pa.record_batch({"op": pa.array(["c"] * len(columns["k"])), **columns})
    with pytest.raises(error, match=f"table 't': .*{message}"):
        write(store, [rows])
    assert stored(store) == []


def test_a_row_that_wins_is_held_to_the_schema(store: StateStore) -> None:
    """A column that is never null is asked of rows that are written, and not of deletes."""
    fields = [pa.field("k", pa.int64()), pa.field("v", pa.string(), nullable=False), pa.field("lsn", pa.int64())]
    store.create_table("t", pa.schema(fields), ["k"])
    rows = pa.record_batch({"k": [1], "v": pa.array([None], pa.string()), "lsn": [1], "op": ["u"]})
    with pytest.raises(SchemaMismatch, match="column 'v' is null"):
        write(store, [rows])
    write(store, [rows.set_column(3, "op", pa.array(["d"]))])
    assert stored(store, "t.tombstones") == [{"k": 1, "lsn": 1}]


def test_tombstones_follow_a_wider_column(store: StateStore) -> None:
    """The next delete may have a version that the old type cannot hold."""
    store.create_table("t", pa.schema(columns_of(pa.int32())), ["k"])
    write(store, [rows_of([Event(0, 3)], pa.int32(), int)])
    store.alter_table("t", widen={"lsn": pa.int64()})
    write(store, [rows_of([Event(3, 3)], pa.int64(), lambda n: n + 2**40)])
    assert [row["lsn"] for row in stored(store, "t.tombstones")] == [3, 3 + 2**40]
