"""Tables of a flow that others alter, drop or write to: the flow notices, and says so by a typed error."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import StateStore, TableNotFound, connect

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("g", pa.int64()), ("v", pa.int32())])
SECONDS = 20
numbers = itertools.count()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


@pytest.fixture
def other(store: StateStore) -> Iterator[StateStore]:
    """Another process's view of the same store, which has none of the program."""
    with connect(store.url, compaction=False) as opened:
        yield opened


def flow_of(store: StateStore, schema: pa.Schema = SCHEMA, **options: Any) -> cl.Flow:
    """`a`, `x` behind it, which passes rows on, and `sums` of these."""
    a = cl.Stream(store, "a", schema, ["k"])
    x = cl.Stream(store, "x", schema, ["k"], inputs=[a])
    return cl.Flow(store, [a, x, cl.aggregate("sums", x, [], {"v": ("sum", "v")})], name="f", **options)


def begun(store: StateStore) -> None:
    with flow_of(store) as flow:
        flow.stream("a").push([cl.insert(k=k, g=0, v=k) for k in range(5)]).result(SECONDS)
        flow.drain(SECONDS)


def put(store: StateStore, table: str, *rows: dict[str, Any]) -> None:
    with store.transaction() as tx:
        tx.table(table).upsert(list(rows))


ALTERED: dict[str, tuple[dict[str, Any], pa.Schema, str]] = {
    "a column": ({"add": {"w": pa.int64()}}, SCHEMA.append(pa.field("w", pa.int64())), r"has the column 'w' \(int64\)"),
    "a wider one": (
        {"widen": {"v": pa.int64()}},
        SCHEMA.set(2, pa.field("v", pa.int64())),
        "its column 'v' is int64; expected int32",
    ),
    "another kind": (
        {"widen": {"g": pa.decimal128(21, 2)}},
        SCHEMA.set(1, pa.field("g", pa.decimal128(21, 2))),
        r"its column 'g' is decimal128\(21, 2\); expected int64",
    ),
}


@pytest.mark.parametrize("what", ALTERED)
def test_a_table_that_was_altered_while_the_flow_stood(store: StateStore, other: StateStore, what: str) -> None:
    """The next start says so; declared as the table is, the stream goes on, and an operator behind it is rebuilt."""
    change, schema, words = ALTERED[what]
    begun(store)
    for name in ("a", "x"):
        other.alter_table(name, **change)
    with pytest.raises(cl.StreamChanged, match=f"stream 'a' .* was altered by somebody else, and {words}") as caught:
        flow_of(store).start()
    assert "Declare it with the columns of its table, ['k', 'g', 'v'" in str(caught.value)
    flow = flow_of(store, schema)
    flow.rebuild("sums")
    with flow:
        flow.stream("a").push([cl.upsert(k=9, g=1, v=9)]).result(SECONDS)
        flow.drain(SECONDS)
        assert flow.stream("sums").snapshot()[0][0]["v"] == 19
        assert {record["v"] for one in flow.stream("x").out_history() for record in one} == {0, 1, 2, 3, 4, 9}


@pytest.mark.parametrize("count", [1, 200])
@pytest.mark.parametrize("what", ALTERED)
def test_a_table_that_is_altered_while_the_flow_runs(
    store: StateStore, other: StateStore, what: str, count: int
) -> None:
    """It ends with the error, by a transaction of one record or of many; nothing that was acknowledged is lost."""
    change, schema, words = ALTERED[what]
    begun(store)
    flow = flow_of(store, checkpoint=3600)
    flow.start()
    a = flow.stream("a")
    a.push([cl.insert(k=10, g=0, v=10)]).result(SECONDS)
    for name in ("a", "x"):
        other.alter_table(name, **change)
    acknowledged = 1

    def push_on() -> None:
        nonlocal acknowledged
        for _ in range(100):
            assert store.committed_epoch  # which looks at the log
            more = [cl.upsert(k=1000 + k, g=0, v=0) for k in range(count)]
            a.push([cl.update(k=10, g=0, v=10 + acknowledged), *more])
            flow.drain(SECONDS)
            acknowledged += 1

    with pytest.raises(cl.StreamChanged, match=f"stream '[ax]' was altered while the flow ran, and {words}"):
        push_on()
    with pytest.raises(cl.StreamChanged):
        flow.stop()
    again = flow_of(store, schema)
    again.rebuild("sums")
    with again:
        again.drain(SECONDS)
        found = again.stream("a").get(10)["v"]
        assert found in (10 + acknowledged - 1, 10 + acknowledged)
        assert again.stream("x").get(10)["v"] == found
        assert again.stream("sums").snapshot()[0] == [{**again.stream("sums").snapshot()[0][0], "v": 10 + found}]


def test_a_flow_that_has_nothing_to_do_hears_of_it_at_its_next_commit(store: StateStore, other: StateStore) -> None:
    """Here of a transaction that does not reach the table."""
    flow = flow_of(store, checkpoint=3600)
    flow.start()
    flow.stream("a").push([cl.insert(k=1, g=0, v=1)]).result(SECONDS)
    flow.drain(SECONDS)
    other.alter_table("x", add={"w": pa.int64()})
    assert store.committed_epoch  # which looks at the log
    flow.stream("x").hold()
    flow.stream("a").push([cl.insert(k=2, g=0, v=2)]).result(SECONDS)
    with pytest.raises(cl.StreamChanged, match="stream 'x' was altered while the flow ran"):
        flow.stop()
    assert store.table("a").get(2) == {"k": 2, "g": 0, "v": 2}


DROPS: dict[str, Callable[[StateStore], Any]] = {
    "a stream": lambda store: store.drop_table("x"),
    "what an operator keeps": lambda store: store.drop_table("f.sums.groups"),
    "histories": lambda store: store.drop_table("f.histories"),
}


@pytest.mark.parametrize("what", DROPS)
def test_a_table_that_is_dropped_while_the_flow_runs(store: StateStore, other: StateStore, what: str) -> None:
    """The store does not know whose it is, as of those of procedures and functions: the commit fails, and the flow."""
    begun(store)
    flow = flow_of(store, checkpoint=3600)
    flow.start()
    flow.stream("a").push([cl.insert(k=10, g=0, v=10)]).result(SECONDS)
    DROPS[what](other)
    with pytest.raises((TableNotFound, cl.ApplicationFenced), match="dropped"):
        flow.drain(SECONDS)
    with pytest.raises((TableNotFound, cl.ApplicationFenced), match="dropped"):
        flow.stop()
    with pytest.raises(TableNotFound, match=r"was dropped, .*--forget"):
        flow_of(store).start()


WRITES: dict[str, tuple[str, Callable[[StateStore], Any], str]] = {
    "a row of an input": ("a", lambda store: put(store, "a", {"k": 1, "g": 0, "v": 100}), "a"),
    "a row of a stream": ("x", lambda store: put(store, "x", {"k": 77, "g": 0, "v": 100}), "x"),
    "a deletion": ("x", lambda store: delete(store, "x", 1), "x"),
    "a row of an operator": ("sums", lambda store: put(store, "sums", {**first(store, "sums"), "v": 5}), "sums"),
    "what it keeps": ("f.sums.groups", lambda store: delete_all(store, "f.sums.groups"), "sums"),
}


def first(store: StateStore, table: str) -> dict[str, Any]:
    return next(row for batch in store.table(table).read() for row in batch.to_pylist())


def delete(store: StateStore, table: str, key: Any) -> None:
    with store.transaction() as tx:
        tx.table(table).delete([(key,)])


def delete_all(store: StateStore, table: str) -> None:
    with store.transaction() as tx:
        opened = tx.table(table)
        for batch in list(store.table(table).read(list(opened.primary_key))):
            opened.delete(batch)


@pytest.mark.parametrize("what", WRITES)
def test_rows_that_others_wrote_while_the_flow_stood(store: StateStore, other: StateStore, what: str) -> None:
    """Story: a start went on with them, and what was computed of the rows before did not belong to them."""
    table, write, stream = WRITES[what]
    begun(store)
    write(other)
    with pytest.raises(cl.TablesChanged, match=f"somebody else has committed to its table '{table}'") as caught:
        flow_of(store).start()
    assert caught.value.args[1:] == (table, other.version().find_table(table).last_epoch)
    assert f"rebuild('{stream}')" in str(caught.value)
    flow = flow_of(store)
    flow.rebuild(stream)
    with flow:
        flow.stream("a").push([cl.upsert(k=9, g=0, v=9)]).result(SECONDS)
        flow.drain(SECONDS)
        rows = {name: {row["k"]: row["v"] for row in flow.stream(name).snapshot()[0]} for name in "ax"}
        assert rows["a"] == rows["x"]
        assert rows["a"][1] == (100 if stream == "a" else 1)
        assert flow.stream("sums").snapshot()[0][0]["v"] == sum(rows["a"].values())
    with flow_of(store):
        pass


@pytest.mark.parametrize("table", ["a", "x", "f.sums.groups"])
def test_rows_that_others_write_while_the_flow_runs(store: StateStore, other: StateStore, table: str) -> None:
    """The flow ends; a start runs what the log has, tells of it, and the next one makes what it concerns anew."""
    begun(store)
    flow = flow_of(store, checkpoint=3600)
    flow.start()
    flow.stream("a").push([cl.insert(k=10, g=0, v=10)]).result(SECONDS)
    if table == "f.sums.groups":
        delete_all(other, table)
    else:
        put(other, table, {"k": 1, "g": 0, "v": 100})
    with pytest.raises(cl.ApplicationFenced, match="somebody else has committed to a table of it"):
        flow.drain(SECONDS)
    with pytest.raises(cl.ApplicationFenced):
        flow.stop()
    with pytest.raises(cl.TablesChanged, match=f"somebody else has committed to (its )?table '{table}'") as caught:
        flow_of(store).start()
    if "cannot be run again" in str(caught.value):
        return
    assert "What its input log had is done and committed" in str(caught.value)
    with flow_of(store) as again:
        again.drain(SECONDS)
        rows = {name: {row["k"]: row["v"] for row in again.stream(name).snapshot()[0]} for name in "ax"}
        assert rows["a"] == rows["x"]
        assert (rows["a"][10], rows["a"][1]) == (10, 100 if table == "a" else 1)
        assert again.stream("sums").snapshot()[0][0]["v"] == sum(rows["a"].values())


def test_a_rebuild_of_another_stream_does_not_hide_what_others_wrote(store: StateStore, other: StateStore) -> None:
    """What was written to is made anew with it, and so are those behind."""
    begun(store)
    put(other, "x", {"k": 1, "g": 0, "v": 100})
    flow = flow_of(store)
    flow.rebuild("a")
    with flow:
        flow.drain(SECONDS)
        assert flow.stream("x").get(1) == {"k": 1, "g": 0, "v": 1}
        assert flow.stream("sums").snapshot()[0][0]["v"] == 10


def test_histories_that_others_wrote_to_cannot_be_made_anew(store: StateStore, other: StateStore) -> None:
    """A backup can bring them back; else the flow has to be given up."""
    begun(store)
    delete_all(other, "f.histories")
    for attempt in (flow_of(store).start, lambda: flow_of(store).rebuild("x")):
        with pytest.raises(cl.TablesChanged, match=r"'f.histories' .*`tussock repair application f --forget`"):
            attempt()


def test_bad_transactions_may_be_deleted_by_all(store: StateStore, other: StateStore) -> None:
    """Also while the flow stands; and the tables of others are none of its business."""
    with flow_of(store) as flow:
        flow.stream("a").push([cl.update(k=1, g=0, v=1)])
        flow.drain(SECONDS)
        assert len(flow.stream("a").bad_rows()) == 1
    delete_all(other, "f.bad_rows")
    with flow_of(store) as flow:
        assert flow.stream("a").bad_rows() == []


def test_a_start_over_a_runner_that_commits_is_no_foreign_write(store: StateStore, other: StateStore) -> None:
    """What the former one commits, until it is shut out, is the flow's own."""
    begun(store)
    flow = flow_of(other, checkpoint=0)
    flow.start()
    for k in range(20, 30):
        flow.stream("a").push([cl.insert(k=k, g=0, v=0)]).result(SECONDS)
    with flow_of(store) as again:
        assert again.stream("x").get(29) == {"k": 29, "g": 0, "v": 0}
    with pytest.raises(cl.ApplicationFenced):
        flow.stream("a").push([cl.insert(k=40, g=0, v=0)]).result(SECONDS)
