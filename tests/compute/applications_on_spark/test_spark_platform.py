"""Applications and transactions in Spark whose store is a platform, and whose bucket is an S3 server."""

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import tussock.compute.spark as ts
from support.buckets.minio import MinioServer
from support.procedures import ledger as ledger_module
from support.procedures.ledger import MOVE, TABLES, Ledger, ledger_app, random_moves
from support.service.meta_process import CompactorProcess, MetaProcess
from tussock.compute.procedures import ProcedureError
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import Conflict

pytestmark = [pytest.mark.spark, pytest.mark.minio, pytest.mark.slow]

# Spark's workers do not find the folder of the tests.
cloudpickle.register_pickle_by_value(ledger_module)

SPARK_MOVE = "bank string, account bigint, seq bigint, amount bigint"
KV = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def platform(minio: MinioServer) -> Iterator[str]:
    """URL of a platform of processes: a meta node and a compactor. Its clients are handed the bucket's keys."""
    with (
        MetaProcess(minio.fresh_url(), "--credentials.mode", "static").wait_until_it_leads() as meta,
        CompactorProcess(meta, "compactor").wait_until_connected(),
    ):
        yield meta.url


def rows_of(store: StateStore, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist())


def test_an_application_writes_what_plain_python_writes(spark: Any, platform: str) -> None:
    """Random batches in three tasks, each repeated once: one epoch each, and the ledger's tables."""
    chance, ledger = random.Random(4), Ledger()
    with connect(platform) as store:
        each = ts.run_batches(ledger_app(store), order_by="seq", errors="skip", partitions=3)
        for at in range(4):
            moves = random_moves(chance, at)
            ledger.batch(at + 1, moves)
            rows = [tuple(move[name] for name in MOVE.names) for move in moves]
            frame = spark.createDataFrame(rows, SPARK_MOVE)
            before = store.committed_epoch
            each(frame, at)
            after = store.committed_epoch
            each(frame, at)
            assert before < after == store.committed_epoch
        found = {name: [row[: 3 if name == "marks" else None] for row in rows_of(store, name)] for name in TABLES}
    assert found == ledger.tables()
    assert any(found.values())


def test_a_batch_that_fails_leaves_nothing(spark: Any, platform: str) -> None:
    """The error of the procedure names it and the batch, from the task to the driver."""
    with connect(platform) as store:
        each = ts.run_batches(ledger_app(store, "strict"), order_by="seq", partitions=3)
        epoch = store.committed_epoch
        rows = [("north", account, account, 666 if account == 5 else 1) for account in range(9)]
        with pytest.raises(ProcedureError, match=r"'book' failed on batch 1"):
            each(spark.createDataFrame(rows, SPARK_MOVE), 0)
        assert store.committed_epoch == epoch


@pytest.mark.long
def test_a_transaction_is_one_epoch_and_conflicts(spark: Any, platform: str) -> None:
    """Two tables in one epoch, own uploads seen; a commit of somebody else to what was read refuses all of it."""
    with connect(platform) as store:
        for name in ("from", "into"):
            store.create_table(name, KV, ["id"])
        with ts.transaction(spark, store=store) as tx:
            tx.upsert("from", spark.range(1000).selectExpr("id", "id * 2 v"))
            tx.upsert("into", tx.table("from").where("v < 10"))
            tx.delete("from", tx.table("into"))
        assert rows_of(store, "into") == [(at, 2 * at) for at in range(5)]
        assert len(rows_of(store, "from")) == 995
        assert tx.epoch == store.committed_epoch

        def overtaken() -> None:
            with ts.transaction(spark, store=store) as late:
                late.upsert("into", late.table("from").where("id = 7"))
                with connect(platform) as other:
                    other.table("from").upsert([{"id": 7, "v": 0}], epoch := other.new_epoch())
                    other.commit_epoch(epoch)

        with pytest.raises(Conflict, match="'from'"):
            overtaken()
        assert len(rows_of(store, "into")) == 5
