"""The voter in Spark's tasks: what of it can be partitioned by key, for more votes than one process takes.

One phone's votes do not need another's, and one contestant's count does not need another's. So there are two
applications: `phones` judges votes phone by phone, and `counts` counts what it accepted, contestant by contestant.

Both do without removals, and so without what is trending. Removals need one home: which contestant goes depends on all
votes so far, in their order, and gives votes back to phones of all partitions; whether a later vote counts depends on
that. So here Spark judges votes and counts them, and reads rank the counts, of which there are as many as contestants.
`checker.py` without removals says which votes count.

For the whole show Spark does what needs no other vote, and one application the rest: `make_screen` drops votes for
contestants that never were, in Spark's tasks, and `application.make` with a feed of its table judges what is left,
removes and keeps the board, embedded or served. `checker.py` says what comes of all votes.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from voter.board import VOTE

import tussock.compute.spark as ts
from tussock.compute.procedures import App
from tussock.statestore import StateStore

__all__ = ["count_votes", "make_counts", "make_phones", "make_screen", "top"]

ACCEPTED = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("contestant", "phone", "nth")])


def make_phones(
    store: StateStore, name: str = "phones", *, contestants: int = 25, votes_per_phone: int = 1, **options: Any
) -> App:
    """Judges votes: table `phone_votes` gets those that count."""
    app = App(store, name, partition_by=["phone"], **options)
    votes = pa.schema([pa.field(column, pa.int64(), nullable=False) for column in ("phone", "nth", "contestant")])
    app.table("phone_votes", votes, primary_key=["phone", "nth"])

    @app.procedure("validate", border=True, schema=VOTE)
    def validate(tx: Any, batch: pa.Table) -> None:
        used = sum(part.num_rows for part in tx.table("phone_votes").read())
        wanted = [one for one in batch["contestant"].to_pylist() if 1 <= one <= contestants]
        phone = batch["phone"][0].as_py()
        left = wanted[: votes_per_phone - used]
        tx.table("phone_votes").upsert(
            [{"phone": phone, "nth": used + at, "contestant": contestant} for at, contestant in enumerate(left)]
        )

    return app


def make_counts(store: StateStore, name: str = "counts", **options: Any) -> App:
    """Counts accepted votes: table `vote_counts`."""
    app = App(store, name, partition_by=["contestant"], **options)
    counts = pa.schema([pa.field(column, pa.int64(), nullable=False) for column in ("contestant", "votes")])
    app.table("vote_counts", counts, primary_key=["contestant"])

    @app.procedure("count", border=True, schema=ACCEPTED)
    def count(tx: Any, batch: pa.Table) -> None:
        contestant = batch["contestant"][0].as_py()
        row = tx.table("vote_counts").get(contestant) or {"votes": 0}
        tx.table("vote_counts").upsert([{"contestant": contestant, "votes": row["votes"] + batch.num_rows}])

    return app


def make_screen(store: StateStore, name: str = "screen", *, contestants: int = 25, **options: Any) -> App:
    """Leaves votes for contestants that never were; table `screened` gets the others, with their place `at` in time."""
    app = App(store, name, partition_by=["phone"], **options)
    votes = pa.schema([*VOTE, pa.field("at", pa.int64(), nullable=False)])
    app.table("screened", votes, primary_key=["phone", "at"])

    @app.procedure("screen", border=True, schema=votes)
    def screen(tx: Any, batch: pa.Table) -> None:
        tx.table("screened").upsert([vote for vote in batch.to_pylist() if 1 <= vote["contestant"] <= contestants])

    return app


def count_votes(
    store: StateStore, phones: App, counts: App, *, order_by: str, partitions: int | None = None
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: votes of `VOTE` and a column that orders them; both applications, each once a batch."""
    judge = ts.run_batches(phones, order_by=order_by, partitions=partitions)
    count = ts.run_batches(counts, partitions=partitions)

    def run(rows: DataFrame, batch_id: int) -> None:
        # What a repeated batch has accepted is in the epoch that it had the first time.
        epoch = judge(rows, batch_id)
        feed = rows.sparkSession.read.format("tussock").options(store=store.url, readChangeFeed=True)
        accepted = feed.options(startingEpoch=epoch, endingEpoch=epoch).load("phone_votes")
        count(accepted.select(*ACCEPTED.names), batch_id)

    return run


def top(store: StateStore, places: int = 3) -> list[list[int]]:
    """Pairs of contestant and votes; of equally many the smaller number is ahead."""
    rows = [row for batch in store.table("vote_counts").read() for row in batch.to_pylist()]
    ranked = sorted(rows, key=lambda row: (-row["votes"], row["contestant"]))
    return [[row["contestant"], row["votes"]] for row in ranked[:places]]
