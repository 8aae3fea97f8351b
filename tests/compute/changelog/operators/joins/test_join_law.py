"""A join is what joining its sides anew would be, after each transaction of either of them."""

import math
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support.changelog.pooled_transactions import PooledTransactions
from support.changelog.view_checks import applied, comparable, table_rows
from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

LEFT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("v", pa.float64()),
    ]
)
RIGHT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        ("word", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("w", pa.bool_()),
    ]
)
PARTS = ["", "a", "a\0", "\U0010ffff"]
WORDS = [None, "", "é", "\0", "zz", "a", "b", "c"]
NUMBERS = [None, -(2**31), 2**31 - 1, 0, 1, 2, 3]
FLOATS = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.5]
POOLS = {
    "id": range(-15, 15),
    "part": PARTS,
    "name": WORDS,
    "word": WORDS,
    "n": NUMBERS,
    "f": FLOATS,
    "v": [None, math.nan, 1.0, 2.0],
    "w": [None, True, False],
}

ON: dict[str, list[Any]] = {
    "many to many": [("name", "word"), "n"],
    "floats": ["f"],
    "right key": [("n", "n"), "id", "part"],
    "each other's key": ["id", "part"],
    "part of the keys": ["part", ("n", "n")],
}
KEYS = {
    ("inner", "many to many"): ("id", "part", "r_id", "r_part"),
    ("inner", "floats"): ("id", "part", "r_id", "r_part"),
    ("inner", "part of the keys"): ("id", "part", "r_id"),
    ("full", "each other's key"): ("id", "part"),
}


def side(seed: int, schema: pa.Schema) -> PooledTransactions:
    return PooledTransactions(seed, schema, ["id", "part"], {name: list(POOLS[name]) for name in schema.names})


def make(store: StateStore, on: list[Any], how: Any) -> tuple[cl.Stream, cl.Stream, cl.Stream, cl.Flow]:
    left = cl.Stream(store, "left", schema=LEFT, key=["id", "part"])
    right = cl.Stream(store, "right", schema=RIGHT, key=["id", "part"])
    joined = cl.join("joined", left, right, on, how, right_prefix="r_")
    return left, right, joined, cl.Flow(store, [left, right, joined], checkpoint=60.0)


def recomputed(left: PooledTransactions, right: PooledTransactions, on: list[Any], how: Any) -> list[dict[str, Any]]:
    pairs = [(one, one) if isinstance(one, str) else one for one in on]
    shared = [one for one, other in pairs if one == other]
    theirs = pl.from_arrow(right.frame())
    theirs = theirs.rename({name: f"R.{name}" for name in theirs.columns})
    found = pl.from_arrow(left.frame()).join(
        theirs,
        left_on=[one for one, _ in pairs],
        right_on=[f"R.{other}" for _, other in pairs],
        how=how,
        nulls_equal=False,
        coalesce=False,
    )
    shown = [pl.coalesce(name, f"R.{name}").alias(name) if name in shared else pl.col(name) for name in LEFT.names]
    theirs_shown = [name for name in RIGHT.names if name not in shared]
    shown += [pl.col(f"R.{name}").alias(f"r_{name}" if name in LEFT.names else name) for name in theirs_shown]
    return found.select(shown).to_dicts()


class TestJoinLaw:
    @pytest.mark.parametrize("how", ["inner", "left", "full"])
    @pytest.mark.parametrize("on", ON)
    def test_join_equals_its_recomputation(self, on: str, how: str) -> None:
        """Whatever is inserted, updated or deleted on either side, few or many records at once."""
        store = connect("memory://")
        left, right, joined, flow = make(store, ON[on], how)
        sides = [(left, side(1, LEFT)), (right, side(2, RIGHT))]
        columns = [name for name in joined.schema.names if name != "_pair"]
        pushed = 0
        with flow:
            for turn in range(24):
                stream, random = sides[turn % 2 if turn > 3 else turn // 2]
                records = random.next(random.size(1500 if turn % 5 else 60))
                stream.push(random.as_arrow(records) if random.is_heads() else records).result()
                pushed += 1
                flow.drain()
                rows = table_rows(store, "joined")
                expected = recomputed(sides[0][1], sides[1][1], ON[on], how)
                assert comparable(rows, columns) == comparable(expected, columns), f"after transaction {turn}"
            assert not joined.bad_rows()
            published = applied(joined, pushed)
            assert comparable(published, joined.schema.names) == comparable(rows, joined.schema.names)
        assert joined.key == KEYS.get((how, on), joined.key)

    @pytest.mark.parametrize("how", ["inner", "left", "full"])
    @pytest.mark.parametrize("on", ["many to many", "right key"])
    def test_small_transactions_come_to_the_same_as_large_ones(self, on: str, how: str) -> None:
        """Record by record or by columns: the same join, and the same rows kept of each side."""
        kept = []
        for size in (7, 700):
            store = connect("memory://")
            left, right, _, flow = make(store, ON[on], how)
            of_left, of_right = side(3, LEFT), side(3, RIGHT)
            with flow:
                for stream, random in ((left, of_left), (right, of_right), (left, of_left)):
                    records = random.next(1400)
                    for at in range(0, len(records), size):
                        stream.push(records[at : at + size])
                flow.drain()
            tables = [name for name in store.tables() if name.startswith("left.joined") or name == "joined"]
            kept.append({name: _without_slots(table_rows(store, name)) for name in tables})
        assert kept[0].keys() == kept[1].keys()
        assert len(kept[0]) > 1
        assert kept[0] == kept[1]

    def test_join_goes_on_after_a_restart(self) -> None:
        """What it had taken of each side is in its tables."""
        store = connect("memory://")
        sides = [side(5, LEFT), side(6, RIGHT)]
        for _ in range(4):
            left, right, joined, flow = make(store, ON["many to many"], "full")
            with flow:
                for stream, random in zip((left, right), sides, strict=True):
                    stream.push(random.next(30)).result()
                    stream.push(random.as_arrow(random.next(300))).result()
                flow.drain()
            expected = recomputed(sides[0], sides[1], ON["many to many"], "full")
            columns = [name for name in joined.schema.names if name != "_pair"]
            assert comparable(table_rows(store, "joined"), columns) == comparable(expected, columns)


def _without_slots(rows: list[dict[str, Any]]) -> list[Any]:
    """In which slot a row lies is not the same."""
    names = [name for name in rows[0] if name != "slot"] if rows else []
    return comparable(rows, names)
