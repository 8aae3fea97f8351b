"""The voter of `examples/voter/spark_voter.py` counts the votes that its checker counts, in Spark and embedded."""

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tussock.compute.spark as ts
from tussock.compute import procedures as ps
from tussock.statestore import connect
from tussock.statestore.client import StateStore

pytestmark = pytest.mark.spark

EXAMPLES = str(Path(__file__).resolve().parents[3] / "examples")
if EXAMPLES not in sys.path:
    sys.path.insert(0, EXAMPLES)

CONTESTANTS = 9
BATCH = 400


def rows_of(store: StateStore, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist())


def test_the_voter_in_spark_counts_what_its_checker_counts(spark: Any, store: StateStore, tmp_path: Path) -> None:
    """A phone has two votes; the last batch comes twice; an embedded run of the first application has its tables."""
    from voter import spark_voter
    from voter.checker import Checker
    from voter.generator import make_votes

    votes = make_votes(3 * BATCH, 7, contestants=CONTESTANTS, phones=500)
    truth = Checker(contestants=CONTESTANTS, votes_per_phone=2, remove_every=10**9)
    truth.batch(zip(votes["phone"].to_pylist(), votes["contestant"].to_pylist(), strict=True))
    phones = spark_voter.make_phones(store, contestants=CONTESTANTS, votes_per_phone=2)
    run = spark_voter.count_votes(store, phones, spark_voter.make_counts(store), order_by="at", partitions=2)
    numbered = votes.append_column("at", pa.array(range(len(votes))))
    for batch_id in (0, 1, 2, 2):
        part = numbered.slice(batch_id * BATCH, BATCH)
        run(spark.createDataFrame(part).repartition(3), batch_id)
    found = rows_of(store, "phone_votes")
    assert sorted((phone, contestant) for phone, _, contestant in found) == truth.votes()
    assert spark_voter.top(store) == truth.board()["top"]
    assert sum(count for _, count in rows_of(store, "vote_counts")) == truth.valid == len(found)
    with connect((tmp_path / "embedded").as_uri(), compaction=False) as embedded:
        with spark_voter.make_phones(embedded, contestants=CONTESTANTS, votes_per_phone=2) as app:
            for at in range(3):
                app.submit("validate", votes.slice(at * BATCH, BATCH)).result(60)
        assert rows_of(embedded, "phone_votes") == found


def test_spark_and_one_application_together_keep_the_whole_board(spark: Any, store: StateStore) -> None:
    """Spark screens votes, one batch twice; what is fed from them removes contestants: its board is the checker's."""
    from voter import application, spark_voter
    from voter.checker import Checker
    from voter.generator import make_votes

    rules: dict[str, Any] = {"contestants": CONTESTANTS, "votes_per_phone": 2, "remove_every": 150}
    votes = make_votes(3 * BATCH, 11, contestants=CONTESTANTS, remove_every=150, phones=300)
    numbered = votes.append_column("at", pa.array(range(len(votes))))
    screen = spark_voter.make_screen(store, contestants=CONTESTANTS)
    run = ts.run_batches(screen, order_by="at", partitions=2)
    truth = Checker(**rules)
    run(spark.createDataFrame(numbered.slice(0, BATCH)).repartition(3), 0)
    with application.make(store, feed=ps.TableFeed("screened"), **rules) as board:
        for batch_id in (1, 2, 2):
            run(spark.createDataFrame(numbered.slice(batch_id * BATCH, BATCH)).repartition(3), batch_id)
        board.drain(60)
        assert board.stats()["feeds"]["validate"]["batches"] == 3
        found = board.call("board", timeout=60)
    for at in range(3):
        part = votes.slice(at * BATCH, BATCH)
        truth.batch(zip(part["phone"].to_pylist(), part["contestant"].to_pylist(), strict=True))
    assert found == truth.board()
    assert CONTESTANTS - found["left"] >= 3
    assert 0 < len(rows_of(store, "screened")) < len(votes)
