"""Transactions of operators tried again: their tables are as they were then, and nothing of the try is kept."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.compute import changelog as cl
from tussock.compute.applications.errors import HistoryGone
from tussock.statestore import StateStore, connect

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("shop", pa.string(), nullable=False),
        pa.field("paid", pa.int64()),
        pa.field("at", pa.int64(), nullable=False),
    ]
)
SHOPS = pa.schema([pa.field("shop", pa.string(), nullable=False), pa.field("town", pa.string())])
LARGE = (1 << 63) - 10


class Shops:
    """Orders and shops, with one of each operator that keeps tables behind them."""

    def __init__(self, store: StateStore, *, history: int = 1000) -> None:
        self.store = store
        self.orders = cl.Stream(store, "orders", schema=SCHEMA, key=["id"], history=history)
        self.others = cl.Stream(store, "others", schema=SCHEMA, key=["id"])
        self.shops = cl.Stream(store, "shops", schema=SHOPS, key=["shop"])
        steps = {"small": pc.field("paid") < 40, "large": pc.field("paid") >= 60}
        values = {"n": ("count",), "sum": ("sum", "paid"), "max": ("max", "paid"), "last": ("last", "id", "at")}
        self.views = [
            cl.aggregate("sums", self.orders, "shop", values),
            cl.distinct("names", self.orders, "shop"),
            cl.top("best", self.orders, 3, ("paid", "desc"), by=["shop"], rank="place"),
            cl.pattern("grown", self.orders, ["shop"], "at", steps, 2000),
            cl.join("named", self.orders, self.shops, "shop", "left"),
            cl.union("both", self.others, self.orders),
            cl.project("by_key", self.orders, {"key": "id", "paid": "paid", "shop": "shop", "one": "at"}, key="one"),
        ]
        self.flow = cl.Flow(store, [self.orders, self.others, self.shops, *self.views], name="shops")

    def push(self, *records: cl.ChangeRecord, to: cl.Stream | None = None) -> None:
        (self.orders if to is None else to).push(records).result(10)
        self.flow.drain(10)

    def all(self) -> dict[str, Any]:
        """All that a try could change."""
        tables = {
            name: [row for batch in self.store.table(name).read() for row in batch.to_pylist()]
            for name in self.store.tables()
        }
        return {"tables": tables, "histories": repr([one.in_history() + one.out_history() for one in self.views])}


def order(chance: random.Random, count: int) -> cl.ChangeRecord:
    number = chance.randrange(count)
    if chance.random() < 0.25:
        return cl.safedelete(id=number)
    paid = None if chance.random() < 0.1 else chance.randrange(100)
    return cl.upsert(id=number, shop=chance.choice("abc"), paid=paid, at=number * 1000 + chance.randrange(50))


def play(made: Shops, chance: random.Random) -> None:
    """Few records and many, of all sources."""
    for _ in range(12):
        many = chance.random() < 0.3
        made.push(*(order(chance, 300 if many else 12) for _ in range(120 if many else chance.randrange(5))))
        if chance.random() < 0.4:
            made.push(cl.upsert(shop=chance.choice("abc"), town=chance.choice("xyz")), to=made.shops)
        if chance.random() < 0.3:
            made.push(order(chance, 12), to=made.others)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def as_set(records: list[cl.ChangeRecord] | None) -> list[str]:
    return sorted(repr(one) for one in records or ())


@pytest.mark.parametrize("seed", range(3))
def test_each_transaction_of_an_operator_comes_to_what_it_has_come_to(store: StateStore, seed: int) -> None:
    """Of the whole history, by record and by columns; rows of one join column may come in another order."""
    made = Shops(store)
    with made.flow:
        play(made, random.Random(seed))
        for view in made.views:
            assert not view.bad_rows()
            history, published = view.in_history(), view.out_history()
            assert len(history) == len(published) >= 12
            for one, result in zip(history, published, strict=True):
                found = made.flow.what_if(view, one.seq)
                assert (found.error, found.was) == ("", result.records)
                assert as_set(found.published) == as_set(result.records), f"{view.name} {one.seq}"


def test_nothing_of_a_try_is_kept(store: StateStore) -> None:
    """Tables and histories are as before, and what comes is right; also where a transaction is half computed."""
    made = Shops(store)
    with made.flow:
        play(made, random.Random(7))
        before = made.all()
        for view in made.views:
            for one in view.in_history():
                made.flow.what_if(view, one.seq)
        made.flow.drain(10)
        assert made.all() == before
        made.flow.pause()
        records = [cl.upsert(id=900 + at, shop="a", paid=at, at=900_000 + at) for at in range(3)]
        made.orders.push(records).result(10)
        made.flow.quiesce("orders")
        for view in made.views:
            made.flow.step("location", view)
            made.flow.step("row", view)
            stood = made.flow.paused_at, repr(view.out_row), repr(view.out_trans)
            for other in made.views:
                made.flow.what_if(other, other.in_history()[0].seq)
            assert (made.flow.paused_at, repr(view.out_row), repr(view.out_trans)) == stood
        made.flow.resume()
        made.flow.drain(10)
        rows = [row for batch in store.table("orders").read() for row in batch.to_pylist()]
        counts = {row["shop"]: row["n"] for batch in store.table("sums").read() for row in batch.to_pylist()}
        assert counts == {shop: sum(row["shop"] == shop for row in rows) for shop in {row["shop"] for row in rows}}
        assert made.views[0].out_history()[-1].records[0]["n"] == counts["a"]


def test_a_bad_transaction_of_an_operator_can_be_tried(store: StateStore) -> None:
    """On its tables as they are: it is bad again for as long as the sum is too large."""
    made = Shops(store)
    sums = made.views[0]
    with made.flow:
        made.push(cl.upsert(id=1, shop="a", paid=LARGE, at=1))
        made.push(cl.upsert(id=2, shop="a", paid=100, at=2), cl.upsert(id=3, shop="b", paid=5, at=3))
        (bad,) = sums.bad_rows()
        found = made.flow.what_if(bad=bad.number)
        assert (found.row, found.location, found.error) == (0, cl.Location.COMPUTE, bad.error)
        assert [one.number for one in sums.bad_rows()] == [bad.number]
        assert made.flow.what_if(sums, 1).published == sums.out_history()[0].records


def test_what_is_not_in_the_history_is_said(store: StateStore) -> None:
    """With the number from which on an operator's transactions can be tried."""
    made = Shops(store)
    with made.flow:
        made.push(cl.upsert(id=1, shop="a", paid=1, at=1))
        made.orders.push(
            pa.table(
                {
                    "id": range(100_000),
                    "shop": ["a"] * 100_000,
                    "paid": [1] * 100_000,
                    "at": range(100_000),
                    "_op": ["upsert"] * 100_000,
                }
            )
        ).result(10)
        made.flow.drain(60)
        made.push(cl.upsert(id=3, shop="b", paid=5, at=200_000))
        sums = made.views[0]
        assert made.flow.what_if(sums, 3).published == sums.out_history()[2].records
        with pytest.raises(HistoryGone, match="it can be tried from transaction 2 on") as gone:
            made.flow.what_if(sums, 1)
        assert gone.value.args[1] == 2
        assert made.flow.what_if(sums, 2).published == sums.out_history()[1].records
