"""The top of groups is what ordering all rows anew would give, after each transaction."""

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support.changelog.pooled_transactions import PooledTransactions
from support.changelog.view_checks import applied, comparable, table_rows
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

ROWS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        ("team", pa.string()),
        ("league", pa.float64()),
        ("score", pa.float64()),
        ("points", pa.int64()),
        ("word", pa.string()),
        ("day", pa.date32()),
        ("money", pa.decimal128(20, 4)),
        ("flag", pa.bool_()),
    ]
)
POOLS: dict[str, list[Any]] = {
    "id": list(range(-60, 60)),
    "part": ["", "a", "a\0", "\U0010ffff"],
    "team": [None, "", "x", "x\0", "é"],
    "league": [None, math.nan, 0.0, -0.0, 1.0],
    "score": [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.5, 2.5, -1.5],
    "points": [None, -(2**63), 2**63 - 1, *range(10)],
    "word": [None, "", "\0", "a", "b", "\U0001f600"],
    "day": [None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 1, 1)],
    "money": [None, Decimal("-1.5"), Decimal("9999999999999999.9999"), Decimal(0)],
    "flag": [None, True, False],
}

TOPS: dict[str, tuple[int, Any, list[str], str | None]] = {
    "best of each team": (1, ("score", "desc"), ["team"], None),
    "three of each team and league": (3, [("score", "asc"), ("word", "desc")], ["team", "league"], "place"),
    "best forty of all": (40, [("points", "desc"), "word"], [], None),
    "with ranks": (25, [("money", "desc"), ("day", "asc"), "flag"], ["flag"], "place"),
    "by the key downwards": (7, [("part", "desc"), ("id", "desc")], ["team"], "place"),
    "more than there are": (10_000, ["word"], ["team"], None),
    # More groups than are worked on at once.
    "many large groups": (10_000, ["word"], ["id"], "place"),
}


def transactions(seed: int) -> PooledTransactions:
    return PooledTransactions(seed, ROWS, ["id", "part"], POOLS)


def make(store: StateStore, of: str) -> tuple[cl.Stream, cl.Stream, cl.Flow]:
    n, order_by, by, rank = TOPS[of]
    source = cl.Stream(store, "source", schema=ROWS, key=["id", "part"])
    best = cl.top("best", source, n, order_by, by, rank=rank)
    return source, best, cl.Flow(store, [source, best], checkpoint=60.0)


def recomputed(source: PooledTransactions, of: str) -> list[dict[str, Any]]:
    n, order_by, by, rank = TOPS[of]
    order_by = [order_by] if isinstance(order_by, tuple) else order_by
    order = [(one, "asc") if isinstance(one, str) else one for one in order_by]
    order += [(one, "asc") for one in ("id", "part") if one not in [name for name, _ in order]]
    # One zero, as equal values are in the order of what follows.
    frame = pl.from_arrow(source.frame()).with_columns(pl.col(pl.Float64) + 0.0)
    found = frame.sort([one for one, _ in order], descending=[way == "desc" for _, way in order], nulls_last=True)
    place = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
    found = found.with_columns((place.over(by) if by else place).alias("place")).filter(pl.col("place") <= n)
    return (found if rank else found.drop("place")).to_dicts()


class TestTopLaw:
    @pytest.mark.parametrize("of", TOPS)
    def test_top_equals_its_recomputation(self, of: str) -> None:
        """Whatever is inserted, updated or deleted, few or many records at once."""
        store = connect("memory://")
        source, best, flow = make(store, of)
        random = transactions(11)
        count = 40
        with flow:
            for turn in range(count):
                records = random.next(random.size(2000 if turn % 4 == 0 else 60))
                source.push(random.as_arrow(records) if random.is_heads() else records).result()
                flow.drain()
                rows = table_rows(store, "best")
                assert comparable(rows, best.schema.names) == comparable(recomputed(random, of), best.schema.names), (
                    f"after transaction {turn}"
                )
            assert not best.bad_rows()
            assert comparable(applied(best, count), best.schema.names) == comparable(rows, best.schema.names)

    @pytest.mark.parametrize("of", ["best of each team", "with ranks"])
    def test_rows_behind_the_front_come_forward(self, of: str) -> None:
        """Deletes of the best, few or many at once, beyond what a front has in store."""
        n, _, by, _ = TOPS[of]
        for size in (5, 150):
            store = connect("memory://")
            source, best, flow = make(store, of)
            random = transactions(12)
            with flow:
                source.push(random.next(2000)).result()
                turn = 0
                while random.rows:
                    first = recomputed(random, of)[:size] if turn % 3 else list(random.rows.values())[:size]
                    source.push([cl.delete(id=row["id"], part=row["part"]) for row in first]).result()
                    for row in first:
                        del random.rows[row["id"], row["part"]]
                    if turn % 10 == 0 or size > 64:
                        flow.drain()
                        expected = recomputed(random, of)
                        assert comparable(table_rows(store, "best"), best.schema.names) == comparable(
                            expected, best.schema.names
                        ), f"{n} by {by}, {size} at once, turn {turn}"
                    turn += 1
                flow.drain()
                assert table_rows(store, "best") == []
            kept = [name for name in store.tables() if name.startswith("source.best")]
            assert len(kept) > 1
            assert all(table_rows(store, name) == [] for name in kept)

    @pytest.mark.parametrize("of", TOPS)
    def test_small_transactions_come_to_the_same_top(self, of: str) -> None:
        """Record by record or by columns."""
        found = []
        for size in (9, 350):
            store = connect("memory://")
            source, best, flow = make(store, of)
            records = transactions(13).next(700)
            with flow:
                for at in range(0, len(records), size):
                    source.push(records[at : at + size])
                flow.drain()
            rows = "source.best.rows"
            assert rows in store.tables()
            names = store.table(rows).schema.names
            found.append(
                (comparable(table_rows(store, "best"), best.schema.names), comparable(table_rows(store, rows), names))
            )
        assert found[0] == found[1]

    def test_top_goes_on_after_a_restart(self) -> None:
        """What it has is in its tables."""
        store = connect("memory://")
        random = transactions(14)
        for _ in range(4):
            source, best, flow = make(store, "with ranks")
            with flow:
                source.push(random.next(40)).result()
                source.push(random.as_arrow(random.next(400))).result()
            expected = recomputed(random, "with ranks")
            assert comparable(table_rows(store, "best"), best.schema.names) == comparable(expected, best.schema.names)

    def test_only_changes_are_published(self) -> None:
        """A row beyond the top changes nothing; one that enters pushes out the last one."""
        store = connect("memory://")
        schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
        source = cl.Stream(store, "source", schema=schema, key=["k"])
        best = cl.top("best", source, 2, ("v", "desc"))
        with cl.Flow(store, [source, best]) as flow:
            for records in (
                [cl.insert(k=1, v=10), cl.insert(k=2, v=20)],
                [cl.insert(k=3, v=5)],
                [cl.update(k=3, v=15)],
                [cl.delete(k=2)],
            ):
                source.push(records).result()
            flow.drain()
            published = [one.records for one in best.out_history()]
        gone = cl.ChangeRecord(cl.Op.DELETE, {"k": 1, "v": 10})
        assert published[1] == []
        assert published[2] == [gone, cl.insert(k=3, v=15)]
        assert published[3] == [cl.ChangeRecord(cl.Op.DELETE, {"k": 2, "v": 20}), cl.insert(k=1, v=10)]
