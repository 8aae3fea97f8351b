"""The acceptance scenarios of S-Store's procedures that need no crash: PS1 to PS8."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.procedures.procedure_story import Story, X, batch
from tussock.compute import procedures as ps
from tussock.statestore import InvalidBatch, StateStore, connect

KV = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture(params=["weak", "strong"])
def recovery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_ps1_a_batch_runs_through_the_graph_in_one_epoch(store: StateStore, recovery: str) -> None:
    """S1, S5: three procedures, in order, on one batch; its effects are one epoch of the store."""
    story = Story(store, recovery=recovery, checkpoint=0)
    with story.app as app:
        before = store.committed_epoch
        assert app.submit("SP1", batch(1, 2, 3), batch_id=1).result(10) == 18
        assert app.trace() == [("SP1", 1), ("SP2", 1), ("SP3", 1)]
        assert store.committed_epoch > before
        assert app.stats()["commits"] == 1
        assert store.table("sum").get(0) == {"k": 0, "v": 18}


def test_ps2_nothing_runs_between_the_procedures_of_a_batch(store: StateStore, recovery: str) -> None:
    """S4, S7, S8: neither the next batch nor a call."""
    story = Story(store, recovery=recovery)
    story.go_on.clear()
    with story.app as app:
        tickets = [app.submit("SP1", batch(1), batch_id=1)]
        assert story.in_sp2.wait(10)
        tickets.append(app.submit("SP1", batch(2), batch_id=2))
        read = app.call_async("read_sum")
        story.go_on.set()
        assert [ticket.result(10) for ticket in tickets] == [4, 10]
        assert read.result(10) in (4, 10)
        trace = [one for one in app.trace() if one[0] != "read_sum"]
        assert trace == [("SP1", 1), ("SP2", 1), ("SP3", 1), ("SP1", 2), ("SP2", 2), ("SP3", 2)]


def test_ps3_an_empty_batch_flows_through_the_graph(store: StateStore, recovery: str) -> None:
    """S2: all three run on nothing."""
    story = Story(store, recovery=recovery)
    with story.app as app:
        for number in range(1, 5):
            app.submit("SP1", batch(1), batch_id=number).result(10)
        assert app.submit("SP1", [], batch_id=5).result(10) == 16
        assert app.trace(3) == [("SP1", 5), ("SP2", 5), ("SP3", 5)]
        assert app.submit("SP1", batch(1)).result(10) == 20
        assert app.trace(1) == [("SP3", 6)]


def test_ps4_a_batch_that_comes_twice_is_answered_the_same(store: StateStore, recovery: str) -> None:
    """S6: and not run again, after a restart neither."""
    story = Story(store, recovery=recovery)
    with story.app as app:
        assert app.submit("SP1", batch(1), batch_id=1).result(10) == 4
        assert app.submit("SP1", batch(2), batch_id=2).result(10) == 10
        assert app.submit("SP1", batch(9), batch_id=1).result(10) == 4
        assert story.sum() == 10
    again = Story(store, recovery=recovery)
    with again.app as app:
        assert app.submit("SP1", batch(9), batch_id=1).result(10) == 4
        assert again.sum() == 10
        assert again.runs == []


def test_ps5_an_earlier_batch_is_refused(store: StateStore, recovery: str) -> None:
    """S4: an id below the last one that was never given."""
    story = Story(store, recovery=recovery)
    with story.app as app:
        app.submit("SP1", batch(1), batch_id=4).result(10)
        with pytest.raises(InvalidBatch, match="batch 3 comes after batch 4"):
            app.submit("SP1", batch(1), batch_id=3).result(10)
        assert story.sum() == 4


def test_ps6_an_error_rolls_the_whole_batch_back(store: StateStore, recovery: str) -> None:
    """S1, S10: what SP1 wrote goes, too; the id is used up, and the next batch runs."""
    story = Story(store, recovery=recovery)
    story.fail_on = {2}
    with story.app as app:
        app.submit("SP1", batch(1), batch_id=1).result(10)
        with pytest.raises(ps.ProcedureError, match=r"'SP2' failed on batch 2.*no such luck") as caught:
            app.submit("SP1", batch(7), batch_id=2).result(10)
        assert (caught.value.procedure, caught.value.batch_id) == ("SP2", 2)
        with pytest.raises(ps.ProcedureError, match="no such luck"):
            app.submit("SP1", batch(7), batch_id=2).result(10)
        assert app.submit("SP1", batch(3), batch_id=3).result(10) == 12
        assert app.trace(4) == [("SP3", 1), ("SP1", 3), ("SP2", 3), ("SP3", 3)]
    assert story.log() == [1, 3]


@pytest.mark.parametrize(
    ("first", "seen", "slides"),
    [
        ("slide", [[], [1, 2], [1, 2], [1, 2, 3, 4], [1, 2, 3, 4], [3, 4, 5, 6], [3, 4, 5, 6]], 3),
        ("full", [[], [], [], [1, 2, 3, 4], [1, 2, 3, 4], [3, 4, 5, 6], [3, 4, 5, 6]], 2),
    ],
)
def test_ps7_a_window_by_tuples(store: StateStore, first: Any, seen: list[list[int]], slides: int) -> None:
    """S11 to S14: staged tuples are invisible until a slide; the window's trigger fires then."""
    app = ps.App(store, "windows", checkpoint=60)
    votes = app.stream("votes", X)
    recent = app.window("recent", on=votes, rows=4, slide=2, first=first)
    fired: list[list[int]] = []
    inserted: list[int] = []
    app.procedure("in", border=True, emits=votes)(lambda _, given: given)

    @app.trigger(recent)
    def board(_: Any, rows: pa.Table) -> None:
        fired.append(rows["x"].to_pylist())

    @app.trigger(votes)
    def each(_: Any, rows: pa.Table) -> None:
        inserted.extend(rows["x"].to_pylist())

    with app:
        visible = []
        for x in range(1, 8):
            app.submit("in", batch(x)).result(10)
            visible.append(app.window_rows("recent")["x"].to_pylist())
        assert visible == seen
        assert app.window_rows("recent", staged=True)["x"].to_pylist() == [7]
    assert len(fired) == slides
    assert inserted == [1, 2, 3, 4, 5, 6, 7]
    again = ps.App(store, "windows", checkpoint=60)
    again.window("recent", on=again.stream("votes", X), rows=4, slide=2, first=first)
    with again:
        assert again.window_rows("recent")["x"].to_pylist() == [3, 4, 5, 6]
        assert again.window_rows("recent", staged=True)["x"].to_pylist() == [7]


def test_ps8_a_window_by_batches(store: StateStore) -> None:
    """S11: an empty batch counts."""
    app = ps.App(store, "windows", checkpoint=60)
    votes = app.stream("votes", pa.schema([("v", pa.string())]))
    recent = app.window("recent", on=votes, batches=2, slide=1)
    fired = []
    app.procedure("in", border=True, emits=votes)(lambda _, given: given)

    @app.trigger(recent)
    def board(_: Any, rows: pa.Table) -> None:
        fired.append(rows["v"].to_pylist())

    with app:
        for rows in (["a", "b"], [], ["c"]):
            app.submit("in", [{"v": one} for one in rows]).result(10)
        assert app.window_rows("recent")["v"].to_pylist() == ["c"]
    assert fired == [["a", "b"], ["a", "b"], ["c"]]


def test_a_trigger_on_a_table_fires_for_each_row(store: StateStore, recovery: str) -> None:
    """S13: in the transaction that inserts, by procedure or call; not for deletes; what it raises undoes the batch."""
    app = ps.App(store, "triggers", checkpoint=60, recovery=recovery)
    app.table("stock", KV, primary_key=["k"])
    app.table("seen", KV, primary_key=["k"])
    fired: list[list[dict[str, int]]] = []

    @app.procedure("put", border=True)
    def put(tx: Any, given: pa.Table) -> None:
        rows = [{"k": x, "v": 10 * x} for x in given["x"].to_pylist()]
        tx.table("stock").upsert(rows[:1])
        tx.table("stock").upsert(pa.Table.from_pylist(rows[1:], schema=KV))
        tx.table("stock").delete([1])
        tx.reply(sorted(row["k"] for part in tx.table("seen").read() for row in part.to_pylist()))

    @app.call_procedure("set")
    def set_one(tx: Any, k: int, v: int) -> None:
        tx.table("stock").upsert([{"k": k, "v": v}])

    @app.trigger("stock")
    def note(tx: Any, rows: pa.Table) -> None:
        fired.append(rows.to_pylist())
        row = fired[-1][0]
        tx.table("seen").upsert([row])
        if row["v"] < 0 or row["k"] == 13:
            raise ValueError(f"no {row}")

    with app:
        # The procedure sees what its triggers have written.
        assert app.submit("put", batch(1, 2, 3)).result(10) == [1, 2, 3]
        assert fired == [[{"k": 1, "v": 10}], [{"k": 2, "v": 20}], [{"k": 3, "v": 30}]]
        app.call("set", 2, 21)
        assert fired[3:] == [[{"k": 2, "v": 21}]]
        with pytest.raises(ps.ProcedureError, match=r"no \{'k': 13, 'v': 130\}"):
            app.submit("put", batch(4, 13, 5)).result(10)
        with pytest.raises(ps.ProcedureError, match=r"no \{'k': 6, 'v': -1\}"):
            app.call("set", 6, -1)
    found = {
        name: {row["k"]: row["v"] for part in store.table(name).read() for row in part.to_pylist()}
        for name in ("stock", "seen")
    }
    assert found == {"stock": {2: 21, 3: 30}, "seen": {1: 10, 2: 21, 3: 30}}
