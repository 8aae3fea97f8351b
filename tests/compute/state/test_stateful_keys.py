"""Keys of `stateful`: exactly those of the rows, written only by the call that has them; and reserved names."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from support.spark.stateful_batches import run_batch, table_rows
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch

TIME = pa.timestamp("us", "UTC")
MOMENTS = [datetime(2013, 1, day, tzinfo=UTC) for day in (1, 2)]
COUNT = ts.merges(n="count")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """An open store with a state table `totals` of {k (key), n}."""
    with connect(tmp_path.as_uri(), compaction=False) as opened:
        opened.create_table("totals", schema=pa.schema([("k", pa.int64()), ("n", pa.int64())]), primary_key=["k"])
        yield opened


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int32(), pa.array([1, (1 << 32) + 1], pa.int64())),
        (pa.int8(), pa.array([1, 257], pa.int16())),
        (pa.decimal128(10, 1), pa.array([Decimal("1.04"), Decimal("1.01")], pa.decimal128(10, 2))),
        (pa.decimal128(4, 0), pa.array([Decimal(1), Decimal(10001)], pa.decimal128(10, 0))),
        (pa.float32(), pa.array([0.1, 0.1 + 1e-12], pa.float64())),
        (pa.float32(), pa.array([1.0, 1e300], pa.float64())),
    ],
    ids=str,
)
def test_two_keys_never_become_one(store: StateStore, kind: pa.DataType, keys: pa.Array) -> None:
    """A key that the table's type cannot hold exactly is refused by name, and nothing is stored."""
    store.create_table("t", schema=pa.schema([("k", kind), ("n", pa.int64())]), primary_key=["k"])
    write = ts.stateful("t", key="k", fn=COUNT, store=store)
    with pytest.raises(SchemaMismatch, match=r"table 't': key column 'k': expected .* two keys could become one"):
        run_batch(write, store, pa.table({"k": keys}), 0)
    assert store.committed_epoch == 0


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        (pa.int64(), pa.array([1, -128, 1], pa.int8()), [-128, 1]),
        (pa.int8(), pa.array([1, -128, 1], pa.int64()), [-128, 1]),
        (pa.decimal128(10, 1), pa.array([Decimal("1.10"), Decimal("1.00")], pa.decimal128(10, 2)), [1, Decimal("1.1")]),
        (pa.float32(), pa.array([0.5, -0.0, 0.0], pa.float64()), [0.0, 0.5]),
        (pa.float64(), pa.array([0.5, 2.5], pa.float32()), [0.5, 2.5]),
        (pa.string(), pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
    ],
    ids=str,
)
def test_keys_may_have_another_type_if_their_values_fit(
    store: StateStore, kind: pa.DataType, keys: pa.Array, expected: list[Any]
) -> None:
    """A wider or narrower type is accepted as long as no value changes."""
    table = store.create_table("t", schema=pa.schema([("k", kind), ("n", pa.int64())]), primary_key=["k"])
    run_batch(ts.stateful("t", key="k", fn=COUNT, store=store), store, pa.table({"k": keys}), 0)
    assert [row["k"] for row in table_rows(table)] == expected
    assert sum(row["n"] for row in table_rows(table)) == len(keys)


def test_nan_is_one_key(store: StateStore) -> None:
    """All NaN are one key, also if the table's type differs from the rows'."""
    table = store.create_table("t", schema=pa.schema([("k", pa.float32()), ("n", pa.int64())]), primary_key=["k"])
    write = ts.stateful("t", key="k", fn=COUNT, store=store)
    for batch in range(2):
        run_batch(write, store, pa.table({"k": np.array([np.nan, -np.nan, 1.0])}), batch)
    assert sorted(row["n"] for row in table_rows(table)) == [2, 4]


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda batch: ts.Update(state=[{"k": 77, "n": 1}]), r"state for key \(77,\)"),
        (lambda batch: ts.Update(deletes=[77]), r"a delete for key \(77,\)"),
        (lambda batch: ts.Update(state={"totals": [{"k": 1, "n": 1}, {"k": 77, "n": 1}]}), r"state for key \(77,\)"),
        (lambda batch: ts.Update(timers=pa.table({"k": [77], "timer_at": pa.array([0], TIME)})), "a timer for key"),
    ],
)
def test_a_call_writes_its_own_keys_only(store: StateStore, answer: Any, what: str) -> None:
    """State, deletes and timers of other keys are refused: they may be another task's."""
    write = ts.stateful("totals", key="k", fn=answer, store=store, event_time="at", delay=0)
    rows = pa.table({"k": [1], "at": pa.array([1], TIME)})
    with pytest.raises(InvalidBatch, match=f"table 'totals.*': the function returned {what}"):
        run_batch(write, store, rows, 0, tasks=1)
    assert table_rows(store.table("totals")) == []
    run_batch(ts.stateful("totals", key="k", fn=COUNT, store=store), store, rows, 0)
    assert [row["k"] for row in table_rows(store.table("totals"))] == [1]


def test_the_last_of_several_rows_of_a_key_stays(store: StateStore) -> None:
    """This holds in state and in an output; of a delete and a row in one update the row stays."""
    store.create_table("out", schema=pa.schema([("k", pa.int64()), ("v", pa.int64())]), primary_key=["k"])

    def twice(batch: ts.KeyedBatch) -> ts.Update:
        state = [{"k": k, "n": n} for n in (1, 2) for k in batch.keys.column("k").to_pylist()]
        return ts.Update(state=state, deletes=batch.keys, outputs={"out": [{"k": 1, "v": v} for v in (1, 3, 2)]})

    write = ts.stateful("totals", key="k", fn=twice, store=store, outputs={"out": "out"})
    run_batch(write, store, pa.table({"k": [5, 6, 7]}), 0, tasks=1)
    assert table_rows(store.table("totals")) == [{"k": k, "n": 2} for k in (5, 6, 7)]
    assert table_rows(store.table("out")) == [{"k": 1, "v": 2}]


@pytest.mark.parametrize(
    ("key", "options", "message"),
    [
        (
            "timer_at",
            {"fn": COUNT, "event_time": "at", "delay": 0},
            "'timer_at', and stateful keeps the times",
        ),
        ("expires", {"fn": ts.deduplicate()}, "'expires' of timestamp.*in which deduplicate keeps its times"),
        (
            "start",
            {"fn": ts.sessions(1, event_time="at"), "event_time": "at", "delay": 0},
            r"\['start'\], which",
        ),
    ],
)
def test_reserved_names_of_keys_are_refused(store: StateStore, key: str, options: dict[str, Any], message: str) -> None:
    """A key may not have the name of a column that a ready function or timers need."""
    kind = pa.struct([("start", TIME), ("end", TIME)])
    schema = pa.schema([(key, pa.int64()), ("n", pa.int64()), ("open", pa.list_(kind))])
    store.create_table("t", schema=schema, primary_key=[key])
    rows = pa.table({key: [1], "at": pa.array([1], TIME)})
    with pytest.raises(InvalidOption, match=message):
        run_batch(ts.stateful("t", key=key, store=store, **options), store, rows, 0)


@pytest.mark.parametrize("output", ["totals", "totals.timers"])
def test_a_state_table_as_an_output_is_refused(store: StateStore, output: str) -> None:
    """It would evade the rule that a call writes only its own keys."""
    write = ts.stateful("totals", key="k", fn=COUNT, store=store, outputs={"x": "totals"}, event_time="at", delay=0)
    rows = pa.table({"k": [1], "at": pa.array([1], TIME)})
    run_batch(ts.stateful("totals", key="k", fn=COUNT, store=store, event_time="at", delay=0), store, rows, 0)
    write = ts.stateful("totals", key="k", fn=COUNT, store=store, outputs={"x": output}, event_time="at", delay=0)
    with pytest.raises(InvalidOption, match=f"output 'x': table '{output}' is one in which this stateful keeps"):
        run_batch(write, store, rows, 1)


def test_tables_left_behind_by_an_earlier_state_are_refused(store: StateStore) -> None:
    """Timers of a dropped table are not those of a new one with another key."""
    rows = pa.table({"k": [1], "at": pa.array([1], TIME)})
    run_batch(ts.stateful("totals", key="k", fn=COUNT, store=store, event_time="at", delay=0), store, rows, 0)
    store.drop_table("totals")
    store.create_table("totals", schema=pa.schema([("k", pa.string()), ("n", pa.int64())]), primary_key=["k"])
    write = ts.stateful("totals", key="k", fn=COUNT, store=store, event_time="at", delay=0)
    with pytest.raises(InvalidOption, match=r"'totals\.timers' is not of state table 'totals'.* drop it"):
        run_batch(write, store, pa.table({"k": ["1"], "at": pa.array([1], TIME)}), 1)


def test_a_table_of_late_rows_has_to_take_whole_rows(store: StateStore) -> None:
    """The error says that the output `late` takes whole rows."""
    store.create_table("late", schema=pa.schema([("k", pa.int64()), ("at", TIME)]), primary_key=["k"])
    options: dict[str, Any] = {"event_time": "at", "delay": 0, "outputs": {"late": "late"}}
    rows = pa.table({"k": [1], "at": pa.array([1], TIME), "v": [2]})
    message = r"output 'late' takes the rows that come too late, with all their columns.*unknown columns \['v'\]"
    with pytest.raises(SchemaMismatch, match=message):
        run_batch(ts.stateful("totals", key="k", fn=COUNT, store=store, **options), store, rows, 0)


def test_rows_with_two_columns_of_one_name_are_refused(store: StateStore) -> None:
    """Tussock does not guess which of them is meant."""
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["k", "v", "v"])
    with pytest.raises(SchemaMismatch, match=r"several columns of the names \['v'\]"):
        run_batch(ts.stateful("totals", key="k", fn=COUNT, store=store), store, rows, 0)


@pytest.mark.parametrize("function", ["first", "last", "collect"])
def test_merges_of_structs_that_are_null(store: StateStore, function: str) -> None:
    """The fields of a null struct mean nothing, also if they may not be null."""
    kind = pa.struct([pa.field("x", pa.binary(), nullable=False)])
    stored = pa.list_(kind) if function == "collect" else kind
    table = store.create_table("t", schema=pa.schema([("k", pa.int64()), ("v", stored)]), primary_key=["k"])
    # As Spark sends them: the field of a null struct is null.
    mask = pa.array([False, True, True])
    values = pa.StructArray.from_arrays([pa.array([b"a", None, None])], fields=list(kind), mask=mask)
    how = ("collect", "v", 2) if function == "collect" else function
    write = ts.stateful("t", key="k", fn=ts.merges(v=how), store=store)
    for batch in range(2):
        run_batch(write, store, pa.table({"k": [1, 1, 2], "v": values}), batch)
    once = {"first": {"x": b"a"}, "last": None, "collect": [{"x": b"a"}] * 2}[function]
    assert [row["v"] for row in table_rows(table)] == [once, [] if function == "collect" else None]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (pa.int32(), pa.array([1 << 40]), "table 't': column 'v': expected int32, found int64 with values that do not"),
        (
            pa.int64(),
            pa.array(["x"]),
            "table 't': column 'v': expected int64, found string with values that",
        ),
        (pa.float32(), pa.array([1e300]), "table 't': column 'v': expected float, found double with a value that"),
        (pa.int64(), pa.array([{"x": 1}]), "table 't': column 'v': expected int64, found struct"),
    ],
)
def test_merges_of_values_that_do_not_fit_are_refused(
    store: StateStore, kind: Any, values: pa.Array, message: str
) -> None:
    """The error names table and column, and nothing is stored."""
    store.create_table("t", schema=pa.schema([("k", pa.int64()), ("v", kind)]), primary_key=["k"])
    with pytest.raises(SchemaMismatch, match=message):
        run_batch(
            ts.stateful("t", key="k", fn=ts.merges(v="last"), store=store), store, pa.table({"k": [1], "v": values}), 0
        )
    assert store.committed_epoch == 0


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.bool_(), False, True),
        (pa.int8(), -1, 2),
        (pa.uint64(), 1, 1 << 63),
        (pa.float16(), -1.5, 2.0),
        (pa.float32(), -1.5, 2.0),
        (pa.decimal128(38, 10), Decimal(-1), Decimal(2)),
        (pa.decimal256(50, 1), Decimal(-1), Decimal(2)),
        (pa.string(), "a", "b"),
        (pa.binary(), b"a", b"b"),
        (pa.date32(), date(2013, 1, 1), date(2013, 1, 2)),
        (TIME, *MOMENTS),
        (pa.timestamp("us"), *(moment.replace(tzinfo=None) for moment in MOMENTS)),
        (pa.duration("us"), timedelta(1), timedelta(2)),
        (pa.list_(pa.int64()), [1], [2]),
        (pa.struct([("x", pa.int64())]), {"x": 1}, {"x": 2}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 2)]),
    ],
    ids=str,
)
def test_a_merge_works_in_every_batch_or_in_none(store: StateStore, kind: pa.DataType, low: Any, high: Any) -> None:
    """Each function on each type, within a batch and with stored rows: right, or refused before any task runs."""
    unordered = pa.types.is_nested(kind) or kind in (pa.float16(), pa.decimal256(50, 1))
    batches = [pa.array(values, kind) for values in ([high, None, low], [None, high])]
    expected = {"first": high, "last": high, "min": low, "max": high, "collect": [high, low, high]}
    for at, (function, value) in enumerate(expected.items()):
        stored = pa.list_(kind) if function == "collect" else kind
        table = store.create_table(function, schema=pa.schema([("k", pa.int8()), ("v", stored)]), primary_key=["k"])
        how = ("collect", "v", 3) if function == "collect" else function
        write = ts.stateful(function, key="k", fn=ts.merges(v=how), store=store)
        rows = [pa.table({"k": pa.repeat(1, len(values)), "v": values}) for values in batches]
        if unordered and function in ("min", "max"):
            with pytest.raises(InvalidOption, match="cannot be merged by"):
                run_batch(write, store, rows[0], 2 * at, tasks=1)
            continue
        for number, part in enumerate(rows):
            run_batch(write, store, part, 2 * at + number, tasks=1)
        assert table.get(1)["v"] == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order_by": "m"}, "order_by names column 'm' of map<.*, which has no order"),
        ({"ttl": ts.Ttl("at", 5)}, "ttl names column 'at'; expected a timestamp of table 't', beside its key"),
    ],
)
def test_columns_that_cannot_order_or_expire_are_refused(
    store: StateStore, options: dict[str, Any], message: str
) -> None:
    """A column without an order; and a key that is the time of a write, which would become another key."""
    store.create_table("t", schema=pa.schema([("at", TIME), ("n", pa.int64())]), primary_key=["at"])
    rows = pa.table({"at": pa.array([1], TIME), "m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(InvalidOption, match=message):
        run_batch(ts.stateful("t", key="at", fn=COUNT, store=store, **options), store, rows, 0)
