"""A transaction tried again: what it would come to with a mended function, and that nothing comes of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


class Prices:
    """`prices`, and `shares` of 100 divided by them; `fixed` is a mended function."""

    def __init__(self, store: StateStore, **options: Any) -> None:
        self.store = store
        self.prices = cl.Stream(store, "prices", schema=SCHEMA, key=["k"], **options)
        self.shares = cl.Stream(store, "shares", schema=SCHEMA, key=["k"], inputs=[self.prices], **options)

        @self.shares.compute
        def share(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
            if row.op == "DELETE":
                return [cl.safedelete(k=row["k"])]
            return [cl.upsert(k=row["k"], v=100 // row["v"])]

        self.flow = cl.Flow(store, [self.prices, self.shares], name="prices")

    def push(self, *records: cl.ChangeRecord) -> None:
        self.prices.push(records).result(10)
        self.flow.drain(10)

    def all(self) -> dict[str, Any]:
        """All that a try could change."""
        tables = {
            name: [row for batch in self.store.table(name).read() for row in batch.to_pylist()]
            for name in self.store.tables()
        }
        histories = [one.in_history() + one.out_history() for one in (self.prices, self.shares)]
        return {"tables": tables, "histories": repr(histories), "bad": self.shares.bad_rows()}


def fixed(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
    return [cl.upsert(k=row["k"], v=1000 // row["v"] if row["v"] else -1)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def prices(store: StateStore) -> Iterator[Prices]:
    made = Prices(store)
    with made.flow:
        made.push(cl.upsert(k="a", v=5), cl.upsert(k="b", v=10))
        made.push(cl.upsert(k="a", v=20), cl.upsert(k="c", v=50))
        made.push(cl.upsert(k="a", v=25))
        made.push(cl.safedelete(k="b"))
        yield made


def test_it_meets_the_rows_as_they_were(prices: Prices) -> None:
    """The second transaction has updated `a` from 20 to 5 and inserted `c`, whatever has come since."""
    found = prices.flow.what_if("shares", 2)
    block = "UPDATE_BLOCK(k='a', v=5; was {'k': 'a', 'v': 20})"
    assert [repr(one) for one in found.published] == [block, "INSERT(k='c', v=2)"]
    assert found.was == found.published
    assert found.taken == prices.shares.in_history()[1]
    assert (found.error, found.location, found.row) == ("", None, None)


def test_each_transaction_comes_to_what_it_has_come_to(prices: Prices) -> None:
    """A function that has not changed gives the same again, in both streams."""
    for stream in (prices.prices, prices.shares):
        for seq in range(1, 5):
            found = prices.flow.what_if(stream, seq)
            assert found.published == stream.out_history()[seq - 1].records == found.was


def test_another_function_can_be_tried(prices: Prices) -> None:
    """By record, and by batch; what it has published then stands beside it."""
    found = prices.flow.what_if(prices.shares, 3, compute=fixed)
    assert found.computed == [cl.upsert(k="a", v=40)]
    assert [repr(one) for one in found.published] == ["UPDATE_BLOCK(k='a', v=40; was {'k': 'a', 'v': 5})"]
    assert [repr(one) for one in found.was or ()] == ["UPDATE_BLOCK(k='a', v=4; was {'k': 'a', 'v': 5})"]

    def by_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        kept = batch.filter(pc.invert(batch.column("_old"))).select(["k", "v", "_op"])
        return kept.set_column(1, "v", pc.multiply(kept.column("v"), 3))

    again = prices.flow.what_if(prices.shares, 3, compute_batch=by_batch)
    assert again.published[0]["v"] == 75


def test_nothing_comes_of_it(prices: Prices) -> None:
    """Tables, histories and bad rows are as before; also in a pause, in the middle of a transaction."""
    prices.push(cl.upsert(k="z", v=0))
    before = prices.all()
    prices.flow.what_if("shares", 3, compute=fixed)
    prices.flow.what_if(bad=1, compute=fixed)
    prices.flow.what_if("shares", 2, compute=lambda row: 1 // 0)
    prices.flow.drain(10)
    assert prices.all() == before
    prices.flow.pause()
    prices.prices.push([cl.upsert(k="a", v=1), cl.upsert(k="b", v=2)])
    for _ in range(2):
        prices.flow.step("row")
    stood = prices.flow.paused_at
    prices.flow.what_if("prices", 1)
    assert prices.flow.paused_at == stood
    prices.flow.resume()
    prices.flow.drain(10)
    assert prices.shares.get("b") == {"k": "b", "v": 50}


def test_a_bad_transaction_is_tried_on_the_rows_of_now(prices: Prices) -> None:
    """With the function that failed it fails again; with a mended one it would have an effect."""
    prices.push(cl.upsert(k="a", v=50), cl.upsert(k="z", v=0))
    [bad] = prices.shares.bad_rows()
    found = prices.flow.what_if(bad=bad.number)
    assert (found.row, found.location, found.error) == (1, cl.Location.COMPUTE, bad.error)
    assert (found.published, found.was) == ([], None)
    mended = prices.flow.what_if(bad=bad.number, compute=fixed)
    assert [repr(one) for one in mended.published] == [
        "UPDATE_BLOCK(k='a', v=20; was {'k': 'a', 'v': 4})",
        "INSERT(k='z', v=-1)",
    ]


def test_a_try_can_be_bad(prices: Prices) -> None:
    """The record and the cause, of computing and of putting."""
    failed = prices.flow.what_if("shares", 2, compute=lambda row: 1 // 0)
    assert (failed.row, failed.location) == (0, cl.Location.COMPUTE)
    assert failed.error.startswith("ZeroDivisionError")
    clash = prices.flow.what_if("shares", 2, compute=lambda row: cl.insert(k=row["k"], v=1))
    assert (clash.row, clash.location) == (0, cl.Location.PUT)
    assert "which stream 'shares' has already" in clash.error


def test_it_is_the_same_after_a_restart(store: StateStore) -> None:
    """Which published transaction belongs to which taken one is stored, with bad ones in between."""
    first = Prices(store)
    with first.flow:
        first.push(cl.upsert(k="a", v=0))
        first.push(cl.upsert(k="a", v=5))
        first.push(cl.upsert(k="a", v=0))
        first.push(cl.upsert(k="a", v=2))
    second = Prices(store)
    with second.flow:
        assert [one.seq for one in second.shares.in_history()] == [2, 4]
        found = second.flow.what_if("shares", 4)
        assert [repr(one) for one in found.published] == ["UPDATE_BLOCK(k='a', v=50; was {'k': 'a', 'v': 20})"]
        assert found.was == found.published


def test_rows_that_have_expired_are_there_again(store: StateStore) -> None:
    """An expiry has a number among what is published, and none among what is taken."""
    kept = cl.Stream(store, "kept", schema=SCHEMA, key=["k"], keep="1 rows")
    with cl.Flow(store, [kept]) as flow:
        for at in range(3):
            kept.push([cl.upsert(k=f"k{at}", v=at)]).result(10)
            flow.drain(10)
        assert kept.get("k0") is None
        assert [repr(one) for one in flow.what_if("kept", 1).published] == ["INSERT(k='k0', v=0)"]
        assert flow.what_if("kept", 3).was == flow.what_if("kept", 3).published


def test_what_is_not_kept_cannot_be_tried(store: StateStore) -> None:
    """Each with a typed error that says why."""
    made = Prices(store, history=2)
    with made.flow as flow:
        assert isinstance(flow, cl.Flow)
        for at in range(1, 6):
            made.push(cl.upsert(k="a", v=at))
        with pytest.raises(InvalidOption, match="not in the history"):
            flow.what_if("shares", 1)
        with pytest.raises(InvalidOption, match="no bad transaction 7"):
            flow.what_if(bad=7)
        for wrong in ({}, {"stream": "shares"}, {"seq": 1}, {"stream": "shares", "seq": 1, "bad": 1}, {"bad": True}):
            with pytest.raises(InvalidOption, match="what_if takes"):
                flow.what_if(**wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="no stream"):
            flow.what_if("nothing", 1)
