"""What users of changelog streams give wrongly: each is told by a typed error that names the object."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, WaitTimeout, connect

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def stream(store: StateStore, name: Any = "s", **options: Any) -> cl.Stream:
    return cl.Stream(store, name, **{"schema": SCHEMA, "key": ["k"], **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "a stream is named 'a b'"),
        ({"name": "x" * 101}, "at most 100 letters"),
        ({"name": 7}, "a stream is named 7"),
        ({"schema": {"k": "string"}}, "expected a pyarrow.Schema"),
        ({"schema": pa.schema([])}, "expected a pyarrow.Schema with columns"),
        ({"key": ["x"]}, r"key=\['x'\]; expected some of the columns"),
        ({"key": []}, "expected some of the columns"),
        ({"key": ["k", "k"]}, "each once"),
        ({"key": [3]}, "expected some of the columns"),
        ({"key": None}, "key=None; expected some of the columns"),
        ({"inputs": None}, "inputs has None; expected streams"),
        (
            {"schema": pa.schema([("k", pa.string()), ("_op", pa.string())])},
            "are what batches add",
        ),
        ({"queue": 0}, "queue=0; expected 1 to"),
        ({"queue": True}, "queue=True"),
        ({"history": 10**9}, "history=1000000000; expected 1 to"),
        ({"history_seconds": -1}, "history_seconds"),
        ({"inputs": ["s"]}, "inputs has 's'; expected streams"),
        ({"keep": "5"}, "keep='5'; expected such as '5s'"),
        ({"keep": "0 rows"}, "keep='0 rows'"),
        ({"keep": 5}, "keep=5"),
        ({"keep": "1000000000000 rows"}, "at most 366 days or"),
    ],
)
def test_declarations_of_streams(store: StateStore, options: dict[str, Any], message: str) -> None:
    """Before anything is made."""
    with pytest.raises(InvalidOption, match=message):
        stream(store, options.pop("name", "s"), **options)
    assert list(store.tables()) == []


def test_declarations_of_flows(store: StateStore) -> None:
    """Streams that are missing, twice, of another store or another flow; options."""
    s = stream(store)
    for given in ([], None, 7, ["s"], "s"):
        with pytest.raises(InvalidOption, match="expected streams"):
            cl.Flow(store, given)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="reads stream 's', which is not in the flow"):
        cl.Flow(store, [stream(store, "d", inputs=[s])])
    with pytest.raises(InvalidOption, match="has stream 's' twice"):
        cl.Flow(store, [s, stream(store)])
    for options, message in (
        ({"name": "a.b"}, "a flow is named 'a.b'"),
        ({"checkpoint": -1}, "checkpoint is -1"),
        ({"group_commit": "1"}, "group_commit is '1'"),
        ({"timeout": 0}, "timeout=0"),
    ):
        with pytest.raises(InvalidOption, match=message):
            cl.Flow(store, [stream(store)], **options)
    flow = cl.Flow(store, [s])
    with pytest.raises(InvalidOption, match="is part of flow 's' already"):
        cl.Flow(store, [s])
    with connect("memory://") as other, pytest.raises(InvalidOption, match="is of another store"):
        cl.Flow(other, [stream(store, "x")])
    with flow, pytest.raises(InvalidOption, match="runs already"):
        flow.start()


def test_functions_that_are_none(store: StateStore) -> None:
    """And two of one stream."""
    s = stream(store)
    with pytest.raises(InvalidOption, match="7 is no function"):
        s.compute(7)  # type: ignore[type-var]
    s.compute(lambda row: row)
    with pytest.raises(InvalidOption, match="has a function already"):
        s.compute_batch(lambda batch: batch)
    with pytest.raises(InvalidOption, match="'dead-letter', 'skip', 'stop'"):
        s.on_bad_row("drop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"k": "a", "v": 1}], "is no record"),
        ([7], "7 is no record"),
        ([cl.upsert(k="a", v="1")], "column 'v': expected int64"),
        ([cl.upsert(k="a", x=1)], r"unknown columns \['x'\]"),
        ([cl.upsert(v=1)], "column 'k'"),
        ([cl.upsert(k=None, v=1)], "column 'k'"),
        ([cl.upsert(k="a", v=1 << 63)], "column 'v'"),
        ([cl.safedelete(v=1)], "column 'k'"),
        ([cl.upsert(k="\ud800", v=1)], "column 'k'"),
        ("upsert", "expected records, or Arrow data"),
        (7, "expected records, or Arrow data"),
        ({"k": "a"}, "expected records, or Arrow data"),
        (pa.table({"k": ["a"], "v": [1]}), "expected one column '_op'"),
        (pa.table({"k": ["a"], "v": [1], "_op": ["PUT"]}), "operation 'PUT'; expected one of"),
        (pa.table({"k": ["a"], "v": [1], "_op": [3]}), "column '_op' has type int64"),
        (pa.table({"k": ["a"], "v": ["1"], "_op": ["UPSERT"]}), "column 'v'"),
        (pa.table({"k": pa.array([None], pa.string()), "v": [1], "_op": ["DELETE"]}), "column 'k'"),
        (pa.table({"k": ["a"], "v": [1], "x": [1], "_op": ["UPSERT"]}), r"unknown columns \['x'\]"),
        (pa.table({"k": ["a"], "v": [1], "_op": ["UPSERT"], "_old": ["no"]}), "column '_old' has type string"),
        (pa.table({"k": ["a", "b"], "v": [1, 2], "_op": ["UPSERT", None]}), "column '_op' is null at position 1"),
        (
            pa.table({"k": ["a"], "v": [1], "_op": ["UPSERT"], "_old": pa.array([None], pa.bool_())}),
            "column '_old' is null at position 0",
        ),
        (pa.table({"k": ["a"], "v": [1], "_op": ["\u0131nsert"]}), "operation '\u0131nsert'; expected one of"),
    ],
)
def test_pushes_that_do_not_fit(store: StateStore, records: Any, message: str) -> None:
    """Nothing of them is taken; the next one is."""
    s = stream(store)
    with cl.Flow(store, [s]) as flow:
        with pytest.raises((SchemaMismatch, InvalidOption), match=message):
            s.push(records)
        s.push([cl.upsert(k="a", v=1)]).result(10)
        flow.drain(10)
        assert len(s.in_history()) == 1


def test_one_record_and_one_stream_need_no_list(store: StateStore) -> None:
    s = stream(store)
    behind = stream(store, "behind", inputs=s)
    with cl.Flow(store, [s, behind]) as flow:
        s.push(cl.upsert(k="a", v=1)).result(10)
        flow.drain(10)
        assert behind.snapshot()[0] == [{"k": "a", "v": 1}]


def test_records_are_made_of_mappings_and_columns() -> None:
    """Anything else is refused at once."""
    assert cl.upsert({"k": "a", "v": 1}, v=2) == cl.upsert(k="a", v=2)
    with pytest.raises(SchemaMismatch, match="expected a mapping of columns"):
        cl.upsert("a")  # type: ignore[arg-type]


def test_a_stream_with_inputs_takes_no_pushes(store: StateStore) -> None:
    """Nor does one that does not run."""
    s = stream(store)
    d = stream(store, "d", inputs=[s])
    with pytest.raises(cl.ApplicationStopped, match="is in no flow"):
        s.push([])
    flow = cl.Flow(store, [s, d])
    for ask in (lambda: s.push([]), s.in_history, s.subscribe, flow.pause, flow.drain, lambda: flow.step("row")):
        with pytest.raises(cl.ApplicationStopped, match="is not running"):
            ask()
    with flow, pytest.raises(InvalidOption, match="reads other streams"):
        d.push([])
    assert (s.location, s.in_trans, flow.paused_at) == (None, None, None)


def test_a_full_queue(store: StateStore) -> None:
    """Without waiting `Full`, with a limit `WaitTimeout`; nothing of them is taken."""
    s = stream(store, queue=2)
    with cl.Flow(store, [s]) as flow:
        flow.pause()
        for _ in range(2):
            s.push([]).result(10)
        with pytest.raises(cl.Full, match="its queue of 2 is full"):
            s.push([], wait=False)
        with pytest.raises(WaitTimeout, match=r"was full for 0\.01 s"):
            s.push([], timeout=0.01)
        with pytest.raises(WaitTimeout, match="it is paused at "):
            flow.drain(0.01)
        flow.resume()
        s.push([]).result(10)
        flow.drain(10)
        assert len(s.in_history()) == 3


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda s: s.subscribe(from_seq=-1), "from_seq=-1"),
        (lambda s: s.subscribe(from_seq=5), "from_seq=5, and the newest transaction is 0"),
        (lambda s: s.subscribe(buffer=0), "buffer=0"),
        (lambda s: s.break_on("middle"), "expected 'input' or 'output'"),
        (lambda s: s.break_on("input", 7), "expected a function"),
        (lambda s: s.break_on("input", every=0), "every=0"),
        (lambda s: s.flow.step("row"), "is not paused"),
        (lambda s: s.flow.step("jump"), "step\\('jump'\\)"),
        (lambda s: s.flow.replay_bad(1), "no bad transaction 1"),
        (lambda s: s.flow.replay_bad("1"), "expected a number"),
        (lambda s: s.bad_rows(last=0), "last=0"),
    ],
)
def test_questions_that_cannot_be(store: StateStore, ask: Callable[[cl.Stream], Any], message: str) -> None:
    """The flow runs on."""
    s = stream(store)
    with cl.Flow(store, [s]) as flow:
        with pytest.raises(InvalidOption, match=message):
            ask(s)
        s.push([cl.upsert(k="a", v=1)]).result(10)
        flow.drain(10)


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (lambda row: 7, "expected records, a list of them, or None"),
        (lambda row: [cl.upsert(k="a", v="x")], "column 'v'"),
        (lambda row: [{"k": "a"}], "is no record"),
        (lambda row: row["x"], "KeyError: 'x'"),
        (lambda row: (yield 7), "is no record"),
    ],
)
def test_functions_that_return_what_is_none(store: StateStore, function: Any, cause: str) -> None:
    """The transaction is bad, and says why."""
    s = stream(store)
    d = stream(store, "d", inputs=[s])
    d.compute(function)
    with cl.Flow(store, [s, d]) as flow:
        s.push([cl.upsert(k="a", v=1)]).result(10)
        flow.drain(10)
        [bad] = d.bad_rows()
        assert cause in bad.error
        assert bad.row == 0


def test_a_function_that_does_not_return(store: StateStore) -> None:
    """Its time is up after `timeout` seconds; the record that it was at is told."""
    s = stream(store)

    @s.compute
    def forever(row: cl.ChangeRecord) -> cl.ChangeRecord:
        while row["v"] == 3:
            pass
        return row

    with cl.Flow(store, [s], timeout=0.2) as flow:
        s.push([cl.upsert(k=f"k{at}", v=at) for at in range(5)]).result(10)
        flow.drain(10)
        [bad] = s.bad_rows()
        assert (bad.row, bad.error) == (3, "it did not return within 0.2 s")
        s.push([cl.upsert(k="a", v=1)]).result(10)
        flow.drain(10)
        assert s.get("a") == {"k": "a", "v": 1}


def test_a_breakpoint_whose_condition_raises_pauses_and_is_disabled(store: StateStore) -> None:
    """It says what was raised."""
    s = stream(store)
    with cl.Flow(store, [s]) as flow:
        point = s.break_on("input", lambda row: row["nothing"])
        s.push([cl.upsert(k="a", v=1)]).result(10)
        assert flow.wait_paused(10).breakpoint == point.number
        assert (point.is_enabled, point.error) == (False, "KeyError: 'nothing'")
        flow.resume()
        flow.drain(10)


def test_tables_that_are_in_the_way(store: StateStore) -> None:
    """Of other columns or none, or with rows that the stream did not write."""
    key = pa.field("k", pa.string(), nullable=False)
    for name, fields, primary_key, told in (
        ("a", None, None, "of keys and values without columns"),
        ("b", [key, ("v", pa.string())], ["k"], "and its column 'v' is string; expected int64"),
        ("c", [("k", pa.string()), ("v", pa.int64())], ["k"], "and its column 'k' is string; expected string not null"),
        ("d", [key], ["k"], "and has no column 'v'"),
        ("e", [key, ("v", pa.int64()), ("w", pa.int64())], ["k"], r"and has the column 'w' \(int64\), too"),
        ("g", [key, pa.field("v", pa.int64(), nullable=False)], ["v"], r"with the key \('v',\); expected \('k',\)"),
    ):
        store.create_table(name, None if fields is None else pa.schema(fields), primary_key=primary_key)
        with pytest.raises(InvalidOption, match=f"table '{name}' is there, {told}: give the stream another name"):
            cl.Flow(store, [stream(store, name)]).start()
    store.create_table("s")
    with store.transaction() as tx:
        tx.table("s").ingest_batch([(b"a", b"b")])
    with pytest.raises(InvalidOption, match="table 's'"):
        cl.Flow(store, [stream(store)]).start()
    store.drop_table("s")
    store.create_table("t", stream(store, "t").schema, primary_key=["k"])
    with store.transaction() as tx:
        tx.table("t").upsert([{"k": "mine", "v": 1}])
    with pytest.raises(InvalidOption, match="table 't' is there and has rows that the application did not write"):
        cl.Flow(store, [stream(store, "t")]).start()
    assert store.table("t").get("mine") == {"k": "mine", "v": 1}


def test_questions_from_within_a_function(store: StateStore) -> None:
    """They would wait for themselves: the transaction is bad."""
    s = stream(store)
    flow = cl.Flow(store, [s])

    @s.compute
    def ask(row: cl.ChangeRecord) -> cl.ChangeRecord:
        (flow.drain, flow.stop, s.in_history, lambda: s.push([]))[row["v"]]()
        return row

    with flow:
        for at in range(4):
            s.push([cl.upsert(k="a", v=at)]).result(10)
        flow.drain(10)
        assert ["InvalidOption" in one.error for one in s.bad_rows()] == [True] * 4
