"""An upload for one table is committed to that table: another table, or another store, refuses it whole."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore import InvalidBatch, StateStore, connect
from tussock.statestore.contract.records import Run

I64 = pa.int64()
PRICES = pa.schema([("k", I64), ("price", I64), ("cost", I64)])
SWAPPED = pa.schema([("k", I64), ("cost", I64), ("price", I64)])
ROWS = [pa.RecordBatch.from_pylist([{"k": k, "price": 10, "cost": 20} for k in range(100)], schema=PRICES)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect(f"file://{tmp_path}/store", compaction=False) as opened:
        yield opened


def as_of_old(runs: list[Any]) -> list[Run]:
    """The runs as an earlier release returned and pickled them, without their table."""
    return pickle.loads(pickle.dumps([Run(ssts=run.ssts) for run in runs]))


def as_they_are(runs: list[Any]) -> list[Run]:
    return pickle.loads(pickle.dumps(runs))


@pytest.mark.parametrize("passed", [as_they_are, as_of_old])
@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (SWAPPED, {}),
        (pa.schema([("k", I64), ("price", I64)]), {}),
        (pa.schema([("k", I64), ("price", pa.float64()), ("cost", I64)]), {}),
        (PRICES, {"vnodes": 16}),
        (None, {}),
    ],
    ids=["swapped", "fewer", "type", "vnodes", "raw"],
)
def test_a_table_refuses_uploads_for_another(
    store: StateStore, schema: pa.Schema | None, options: dict[str, int], passed: Callable[[list[Any]], list[Run]]
) -> None:
    """The record of `upload` decides, or else the SST's meta; nothing is stored, and the table stays readable."""
    runs = store.create_table("from", PRICES, ["k"]).upload(ROWS)
    into = store.create_table("into", schema, ["k"] if schema else None, **options)
    before = store.version()
    with pytest.raises(InvalidBatch, match=rf"table 'into'(?s:.*){runs[0].ssts[0].id}"):
        store.commit_uploaded({"into": passed(runs)}, writer="w", batch_id=1)
    assert store.version().seq == before.seq
    assert list(into.read() if schema else into.scan()) == []
    store.compact("into")
    store.commit_uploaded({"from": passed(runs)}, writer="w", batch_id=1)
    assert store.table("from").get(7) == {"k": 7, "price": 10, "cost": 20}


@pytest.mark.parametrize("schema", [PRICES, SWAPPED])
def test_a_table_refuses_uploads_for_a_dropped_one_of_its_name(store: StateStore, schema: pa.Schema) -> None:
    """Even with the same columns: the job's rows were meant for the table that is gone."""
    runs = store.create_table("t", PRICES, ["k"]).upload(ROWS)
    store.drop_table("t")
    table = store.create_table("t", schema, ["k"])
    with pytest.raises(InvalidBatch, match="uploaded for another table 't', which was dropped"):
        store.commit_uploaded({"t": runs})
    assert table.get(7) is None
    assert store.committed_epoch == 0


def test_a_repeated_upload_gets_its_epoch_though_its_table_was_replaced(store: StateStore) -> None:
    """A client that repeats a commit whose answer was lost gets the epoch of that commit."""
    runs = store.create_table("t", PRICES, ["k"]).upload(ROWS)
    epoch = store.commit_uploaded({"t": runs}, writer="w", batch_id=1)
    store.drop_table("t")
    store.create_table("t", PRICES, ["k"])
    assert store.commit_uploaded({"t": runs}, writer="w", batch_id=1) == epoch
    assert store.table("t").get(7) is None


@pytest.mark.parametrize("rows", [2, 100_000], ids=["one object", "two objects"])
def test_a_store_refuses_uploads_to_another(store: StateStore, tmp_path: Path, rows: int) -> None:
    """The tables have the same name and id; the SSTs are missing, and every read would fail."""
    table = store.create_table("t")
    with connect(f"file://{tmp_path}/other", compaction=False) as other:
        keys = [b"%012d" % row for row in range(rows)]
        runs = other.create_table("t").upload([pa.record_batch({"key": keys, "value": keys})])
        with pytest.raises(InvalidBatch, match=f"table 't' (?s:.*){runs[0].ssts[0].id}"):
            store.commit_uploaded({"t": runs}, writer="w", batch_id=0)
    assert list(table.scan()) == []
    assert store.committed_epoch == 0


def test_the_proof_of_an_upload_costs_one_request_and_no_blocks(store: StateStore) -> None:
    """One request for the meta of each SST."""
    table = store.create_table("t")
    runs = [
        run
        for size in (2, 60_000, 2)
        for run in table.upload([pa.record_batch({"key": [b"%012d" % k for k in range(size)], "value": [b"v"] * size})])
    ]
    ssts = [sst for run in runs for sst in run.ssts]
    assert {sst.meta_in_data for sst in ssts} == {True, False}
    before = store.requests()
    store.commit_uploaded({"t": runs})
    requests = size = 0
    for caller, operations in store.requests().items():
        for operation in ("get", "get_range"):
            (now, bytes_now), (then, bytes_then) = (
                operations.get(operation, (0, 0)),
                before.get(caller, {}).get(operation, (0, 0)),
            )
            requests, size = requests + now - then, size + bytes_now - bytes_then
    assert requests <= len(ssts) + 1
    assert size <= sum(sst.meta_bytes for sst in ssts) + 4096
