"""`ts.run` of a flow: its streams inside the tasks of a streaming query do what they do embedded."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.functions import lit

import tussock.compute.spark as ts
from support.changelog import keyed_flow as keyed_flow_module
from support.changelog.keyed_flow import ROW, TABLES, keyed_flow
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

pytestmark = pytest.mark.spark

# Spark's workers do not find the folder of the tests.
cloudpickle.register_pickle_by_value(keyed_flow_module)

CHANGES = "shop string, item bigint, v bigint, note string, _op string"


def contents(store: StateStore) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist())
        for name in TABLES
    }


def random_changes(chance: random.Random, rows: set[tuple[str, int]]) -> list[tuple[Any, ...]]:
    """Each key once, as Spark gives the rows of a key in any order."""
    found = []
    for shop in "abc":
        for item in chance.sample(range(30), 12):
            op = chance.choice(("UPSERT", "upsert", "SAFEDELETE", "DELETE" if (shop, item) in rows else "INSERT"))
            found.append((shop, item, chance.choice((1, 40, 60, 14)), chance.choice((None, "x")), op))
            (rows.discard if "DELETE" in op else rows.add)((shop, item))
    return found


@pytest.mark.long
def test_tables_of_a_flow_are_those_of_an_embedded_run(spark: Any, tmp_path: Path) -> None:
    """Random changes: embedded, and in 1, 2 and 7 tasks; each micro-batch is one epoch."""
    chance, rows = random.Random(5), set[tuple[str, int]]()
    batches = [random_changes(chance, rows) for _ in range(4)]
    with connect((tmp_path / "embedded").as_uri(), compaction=False) as store:
        with keyed_flow(store) as flow:
            for batch in batches:
                records = [
                    cl.ChangeRecord(cl.Op(row[-1].upper()), dict(zip(ROW.names, row[:-1], strict=True)))
                    for row in batch
                ]
                flow.streams["stock"].push(records).result(60)
            flow.drain(60)
            assert [one.bad_rows() for one in flow.streams.values()] == [[], [], []]
        expected = contents(store)
    assert all(expected.values())
    for tasks in (1, 2, 7):
        with connect((tmp_path / f"tasks{tasks}").as_uri(), compaction=False) as store:
            each = ts.run_batches(keyed_flow(store), partitions=tasks)
            epochs = [each(spark.createDataFrame(batch, CHANGES), at) for at, batch in enumerate(batches)]
            assert contents(store) == expected
            assert len(set(epochs)) == len(batches)
            assert each(spark.createDataFrame(batches[-1], CHANGES), len(batches) - 1) == epochs[-1]


def test_a_batch_that_is_bad_leaves_nothing(spark: Any, tmp_path: Path) -> None:
    """In no table; the query ends, or goes on; rows without `_op` are upserts."""
    rows = spark.createDataFrame([("a", 1, 60, None), ("b", 2, 13, None)], CHANGES.replace(", _op string", ""))
    fine = spark.createDataFrame([("a", 1, 60, None)], CHANGES.replace(", _op string", ""))
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        flow = keyed_flow(store)
        with pytest.raises(cl.BadRow, match="stream 'doubled': batch 1 is bad: ValueError: 13 is unlucky") as error:
            ts.run_batches(flow, partitions=2)(rows, 0)
        assert error.value.stream == "doubled"
        skipping = ts.run_batches(flow, partitions=2, errors="skip")
        skipping(rows, 0)
        assert contents(store) == {name: [] for name in TABLES}
        skipping(fine, 1)
        assert contents(store)["large"] == [("a", 1, 120, None)]
        # Another start of the query finds the rows of the one before.
        ts.run_batches(keyed_flow(store), partitions=2)(rows.filter("item = 1").withColumn("v", lit(70)), 2)
        assert contents(store)["large"] == [("a", 1, 140, None)]


def test_flows_that_cannot_run_in_tasks(tmp_path: Path) -> None:
    """Each says why."""

    def flow(store: StateStore, **options: Any) -> cl.Flow:
        first = cl.Stream(store, "first", schema=ROW, key=["shop", "item"])
        more = {"schema": ROW, "key": ["shop", "item"], "inputs": [first], **options}
        return cl.Flow(store, [first, cl.Stream(store, "second", **more)])

    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        with pytest.raises(InvalidOption, match=r"'second' has the key \['item'\], and 'first' has \['shop', 'item'\]"):
            ts.run_batches(flow(store, key=["item"]))
        with pytest.raises(InvalidOption, match="'second' lets rows expire"):
            ts.run_batches(flow(store, keep="5s"))
        with pytest.raises(InvalidOption, match="2 streams without inputs"):
            ts.run_batches(flow(store, inputs=[]))
        with pytest.raises(InvalidOption, match="has no procedures"):
            ts.run_batches(flow(store), procedure="p")
        running = keyed_flow(store)
        with running, pytest.raises(InvalidOption, match="runs; stop it before"):
            ts.run_batches(running)
