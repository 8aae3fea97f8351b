"""Programs of functions beside Spark: its jobs write their requests, and read their entities while they run."""

from typing import Any

import polars as pl
import pytest

from support.feeds.fed_bank import PEOPLE, START, fed_bank
from support.feeds.transfers import answers, table_of
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore.client import StateStore

pytestmark = pytest.mark.spark

SECONDS = 60
TRANSFERS = 30
"""Of each job."""


@pytest.mark.slow
def test_spark_writes_requests_and_reads_entities_at_any_epoch(spark: Any, store: StateStore, url: str) -> None:
    """Each row is a request once; what a job reads is one epoch, in which no money is on its way, and never changes."""
    table_of(store)

    def read(epoch: int) -> dict[str, int]:
        spark.read.format("tussock").options(store=url, asOfEpoch=epoch).load("account").createOrReplaceTempView("now")
        return {row.key: row.balance for row in spark.sql("SELECT key, balance FROM now").collect()}

    with fed_bank(store, fn.TableFeed("transfers"), "answers", by_columns=True, checkpoint=0.05) as bank:
        seen = {store.committed_epoch: dict.fromkeys((f"p{at}" for at in range(PEOPLE)), START)}
        for job in range(2):
            rows = spark.range(job * TRANSFERS, (job + 1) * TRANSFERS, 1, 3).selectExpr(
                "id", "concat('p', id % 3) payer", "concat('p', id % 3 + 3) payee", "1L amount"
            )
            rows.write.format("tussock").mode("append").option("store", url).save("transfers")
            bank.drain(SECONDS)
            eventually(lambda: bank.stats()["uncommitted"] == 0)
            moved = (job + 1) * TRANSFERS // 3
            newest = store.committed_epoch
            seen[newest] = {f"p{at}": START + (moved if at >= 3 else -moved) for at in range(PEOPLE)}
            assert read(newest) == seen[newest]
        assert {epoch: read(epoch) for epoch in seen} == seen
        assert len(seen) == 3
        frame = pl.from_arrow(store.table("account").read())
        assert isinstance(frame, pl.DataFrame)
        assert frame["balance"].sum() == PEOPLE * START
    assert set(answers(store)) == {str(at) for at in range(2 * TRANSFERS)}
