"""Bad transactions of streams with functions: kept, listed, given again."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

PRICES = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
NAMES = pa.schema([pa.field("k", pa.int64(), nullable=False), ("name", pa.string()), ("rank", pa.float64())])
OUT = pa.schema([pa.field("k", pa.int64(), nullable=False), ("text", pa.string())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect(f"memory://{tmp_path.name}", compaction=False) as opened:
        yield opened


def test_a_transaction_given_again_is_of_the_input_that_it_was_of(store: StateStore) -> None:
    """It may be bad again, as often as it is given, and good in the end, with the columns of that input."""
    prices = cl.Stream(store, "prices", schema=PRICES, key=["k"])
    names = cl.Stream(store, "names", schema=NAMES, key=["k"])
    texts = cl.Stream(store, "texts", schema=OUT, key=["k"], inputs=[prices, names])
    is_mended = False

    @texts.compute
    def text(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
        if not is_mended:
            raise ValueError(f"of {[*row]}")
        return [cl.upsert(k=row["k"], text=str([*row.values()]))]

    with cl.Flow(store, [prices, names, texts]) as flow:
        prices.push([cl.upsert(k=1, v=7)]).result(10)
        names.push([cl.upsert(k=2, name="a", rank=0.5)]).result(10)
        flow.drain(10)
        expected = {"prices": "ValueError: of ['k', 'v']", "names": "ValueError: of ['k', 'name', 'rank']"}
        for _ in range(3):
            bad = texts.bad_rows()
            assert {one.source: one.error for one in bad} == expected
            for one in bad:
                flow.replay_bad(one.number)
            flow.drain(10)
        is_mended = True
        for one in texts.bad_rows():
            flow.replay_bad(one.number)
        flow.drain(10)
        assert (texts.get(1), texts.get(2)) == ({"k": 1, "text": "[1, 7]"}, {"k": 2, "text": "[2, 'a', 0.5]"})
        assert texts.bad_rows() == []


def test_a_transaction_given_again_does_not_bring_back_the_past(store: StateStore) -> None:
    """Rows that were changed or deleted since are what they are; those of untouched ones come as they did."""
    source = cl.Stream(store, "source", schema=PRICES, key=["k"])
    groups = pa.schema([pa.field("g", pa.int64(), nullable=False), ("v", pa.int64())])
    moved = cl.Stream(store, "moved", schema=groups, key=["g"], inputs=[source])
    is_bad, seen = False, []

    @moved.compute
    def move(row: cl.ChangeRecord) -> list[cl.ChangeRecord]:
        """By another key, 100 rows on for negative values, so that an update moves a row."""
        if is_bad:
            raise ValueError("not yet")
        seen.append(row.op)

        def place(one: cl.ChangeRecord) -> int:
            return int(one["k"]) + (100 if one["v"] < 0 else 0)

        old = row.old if row.op == "UPDATE_BLOCK" else row if row.op == "DELETE" else None
        gone = [] if old is None else [cl.safedelete(g=place(old))]
        return gone if row.op == "DELETE" else [*gone, cl.upsert(g=place(row), v=row["v"])]

    def rows(stream: cl.Stream) -> list[list[int]]:
        return sorted([*row.values()] for row in stream.snapshot()[0])

    with cl.Flow(store, [source, moved]) as flow:
        source.push([cl.insert(k=k, v=-k) for k in range(1, 7)]).result(10)
        flow.drain(10)
        is_bad = True
        came = [cl.insert(k=k, v=k) for k in (7, 8, 9)]
        source.push([*(cl.update(k=k, v=k) for k in range(1, 5)), cl.delete(k=5), cl.delete(k=6), *came]).result(10)
        flow.drain(10)
        is_bad = False
        source.push([cl.update(k=1, v=10), cl.delete(k=2), cl.insert(k=5, v=50)]).result(10)
        source.push([cl.update(k=7, v=70), cl.delete(k=8)]).result(10)
        flow.drain(10)
        [bad] = moved.bad_rows()
        shown = flow.what_if(bad=bad.number).taken
        seen.clear()
        flow.replay_bad(bad.number)
        flow.drain(10)
        assert [one.op for one in shown] == seen
        assert seen == [
            "UPDATE_BLOCK",
            "DELETE",
            "UPDATE_BLOCK",
            "UPDATE_BLOCK",
            "UPDATE_BLOCK",
            "DELETE",
            "UPDATE_BLOCK",
            "INSERT",
        ]
        expected = [[1, 10], [3, 3], [4, 4], [5, 50], [7, 70], [9, 9]]
        assert rows(source) == expected == rows(moved)


class Few:
    """A stream whose function takes no negative values."""

    def __init__(self, store: StateStore) -> None:
        self.prices = cl.Stream(store, "prices", schema=PRICES, key=["k"])
        self.others = cl.Stream(store, "others", schema=PRICES, key=["k"])
        self.few = cl.Stream(store, "few", schema=PRICES, key=["k"], inputs=[self.prices])
        self.flow = cl.Flow(store, [self.prices, self.others, self.few], name="flow")

        @self.few.compute
        def check(row: cl.ChangeRecord) -> cl.ChangeRecord:
            if row["v"] < 0:
                raise ValueError("negative")
            return cl.upsert(row)

    def push(self, value: int) -> None:
        self.prices.push([cl.upsert(k=1, v=value)]).result(10)
        self.flow.drain(10)


def rows_by_hand(start: int, stop: int, stream: str, nbytes: int | None) -> pa.Table:
    """Rows as a flow has them."""
    count = stop - start
    return pa.table(
        {
            "number": range(start, stop),
            "stream": [stream] * count,
            "source": ["prices"] * count,
            "seq": range(start, stop),
            "row": pa.nulls(count, pa.int64()),
            "location": ["COMPUTE"] * count,
            "cause": ["by hand"] * count,
            "bytes": pa.array([nbytes] * count, pa.int64()),
            "data": pa.array([None if nbytes is None else b"D"] * count, pa.binary()),
        }
    )


def test_bad_transactions_are_listed_page_by_page(store: StateStore) -> None:
    """Each once, the newest page first, also where those of other streams lie between them."""
    few = Few(store)
    with few.flow:
        for turn in range(30):
            few.prices.push([cl.upsert(k=1, v=-turn - 1)])
            few.others.push([cl.delete(k=1)])
        few.flow.drain(10)
        numbers = [one.number for one in few.few.bad_rows()]
        assert len(numbers) == 30
        assert len(few.others.bad_rows()) == 30
        pages: list[int] = []
        while page := few.few.bad_rows(7, before=pages[0] if pages else None):
            assert len(page) == 7 or page[0].number == numbers[0]
            pages = [one.number for one in page] + pages
        assert pages == numbers
        assert all(one.is_kept for one in few.few.bad_rows())
        with pytest.raises(InvalidOption, match="before=0; expected the number of a bad one"):
            few.few.bad_rows(before=0)


@pytest.mark.parametrize(
    ("count", "nbytes"), [(99_999, None), (1, (256 << 20) - 1)], ids=["as many as may be", "as large as they may be"]
)
def test_a_flow_stops_where_no_more_bad_transactions_can_be_kept(
    store: StateStore, count: int, nbytes: int | None
) -> None:
    """None is dropped for another one; once some have gone, the flow goes on with the same transaction."""
    few = Few(store)
    with few.flow:
        few.push(1)
    with store.transaction() as tx:
        tx.table("flow.bad_rows").upsert(rows_by_hand(1000, 1000 + count, "others", nbytes))
    few = Few(store)
    few.flow.start()
    if nbytes is None:
        few.push(-1)
        assert len(few.few.bad_rows()) == 1
    few.prices.push([cl.upsert(k=1, v=-2)]).result(10)
    with pytest.raises(cl.BadRow, match=r"table 'flow.bad_rows' has .* bad transactions of .* are kept") as stopped:
        few.flow.drain(10)
    assert (stopped.value.stream, stopped.value.cause) == ("few", "ValueError: negative")
    with pytest.raises(cl.BadRow):
        few.flow.stop()
    with store.transaction() as tx:
        tx.table("flow.bad_rows").delete([(1000,)])
    few = Few(store)
    with few.flow:
        few.flow.drain(10)
        assert few.few.bad_rows()[-1].seq == (3 if nbytes is None else 2)
        few.push(7)
        assert few.few.get(1) == {"k": 1, "v": 7}


def test_rows_that_go_make_room_while_the_flow_runs(store: StateStore) -> None:
    """By hand, in table `FLOW.bad_rows`."""
    few = Few(store)
    with few.flow:
        few.push(1)
    with store.transaction() as tx:
        tx.table("flow.bad_rows").upsert(rows_by_hand(1000, 1000 + 99_999, "others", None))
    few = Few(store)
    with few.flow:
        few.push(-1)
        with store.transaction() as tx:
            tx.table("flow.bad_rows").delete([(1000,), (1001,)])
        few.push(-2)
        few.push(-3)
        assert [one.seq for one in few.few.bad_rows()] == [2, 3, 4]
