"""Times that Arrow has and Python has not, such as one of a day in nanoseconds: no digit of them is lost."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from support.applications.served_replies import KINDS, clock, clocks, exact
from support.feeds.sums import rows_of
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.statestore import StateStore, connect

SECONDS = 60
APP = "support.applications.served_replies:clocks"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def is_exact(state: dict[str, Any] | None) -> bool:
    """Whether a state has all values as they were given."""
    assert state is not None
    return all(pa.array([state[kind]], KINDS[kind]).equals(exact(kind)) for kind in KINDS)


def told(program: Any, column: str, keys: list[str]) -> bool:
    """Whether a batch function got, and gave, that column of states as it was given."""
    table = program.send_many("clock", "tell", keys, {"column": [column] * len(keys)})
    assert table["error"].null_count == len(keys)
    return bool(table["reply"].combine_chunks().equals(exact(column, len(keys))))


@pytest.mark.parametrize("workers", [0, 2])
def test_states_keep_all_digits(store: StateStore, workers: int) -> None:
    """Story: a function that stored what it had just read cut a time of a day to microseconds, without a word."""
    keys = [f"k{at}" for at in range(5)]
    loaded = pa.table({"key": ["loaded"], **{kind: exact(kind) for kind in KINDS}})
    runtime = fn.Runtime(store, "clocks", [clock()], workers=workers)
    runtime.load("clock", loaded)
    for _ in range(2):
        with runtime:
            assert runtime.send_many("clock", "wind", keys)["error"].null_count == len(keys)
            runtime.send_many("clock", "again", [*keys, "loaded"])
            assert all(is_exact(runtime.query("clock", key)) for key in [*keys, "loaded"])
            assert [kind for kind in KINDS if not told(runtime, kind, keys)] == []
    found = pa.Table.from_batches(list(store.table("clock").read()))
    assert [kind for kind in KINDS if not found[kind].combine_chunks().equals(exact(kind, 6))] == []


def test_a_replay_comes_to_the_same_digits(store: StateStore) -> None:
    """It is held to them."""
    first = fn.Runtime(store, "clocks", [clock()], checkpoint=3600)
    first.start()
    first.send_many("clock", "wind", ["a", "b"])
    first.send("clock", "a", "again").result(SECONDS)
    assert told(first, "pair", ["a", "b"])
    with fn.Runtime(store, "clocks", [clock()]) as second:
        assert is_exact(second.query("clock", "a"))
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


def test_clients_get_all_digits(tmp_path: Path) -> None:
    """In states and in tables of replies."""
    with ServeProcess((tmp_path / "store").as_uri(), app=APP) as node, fn.Client(node.address) as client:
        client.send_many("clock", "wind", ["a", "b"])
        assert is_exact(client.query("clock", "a"))
        assert [kind for kind in KINDS if not told(client, kind, ["a", "b"])] == []


def test_replies_of_feeds_have_all_digits_in_their_text(store: StateStore) -> None:
    """Story: in JSON, which has no times, a reply in nanoseconds was one in microseconds."""
    schema = pa.schema([("id", pa.int64()), ("key", pa.string()), ("time", pa.time64("ns"))])
    store.create_table("asked", schema, primary_key=["id"])
    with store.transaction() as tx:
        tx.table("asked").upsert(pa.table([[1], ["a"], exact("time")], schema=schema))
    runtime = clocks(store)
    runtime.feed(
        "clock", "echo", fn.TableFeed("asked"), arguments=["time"], request_id="id", replies="answers", name="echoes"
    )
    with runtime:
        runtime.drain(SECONDS)
        assert runtime.send("clock", "a", "look", request_id="1").result(SECONDS) == "00:00:01.000000001"
    assert [json.loads(row["reply"]) for row in rows_of(store.table("answers"))] == ["00:00:01.000000001"]


def test_nested_replies_of_feeds_have_all_digits_too(store: StateStore) -> None:
    """A list, a struct and a map of such times are lists and dicts of texts."""
    schema = pa.schema([("id", pa.int64()), ("key", pa.string()), ("column", pa.string())])
    store.create_table("asked", schema, primary_key=["id"])
    runtime = clocks(store)
    runtime.feed("clock", "tell", fn.TableFeed("asked"), arguments=["column"], request_id="id", replies="answers")
    with runtime:
        runtime.send_many("clock", "wind", ["a"])
        for at, column in enumerate(KINDS):
            with store.transaction() as tx:
                tx.table("asked").upsert([{"id": at, "key": "a", "column": column}])
            runtime.drain(SECONDS)
    found = {row["request_id"]: json.loads(row["reply"]) for row in rows_of(store.table("answers"))}
    fine = "00:00:01.000000001"
    replies = dict(zip(KINDS, [found[str(at)] for at in range(len(KINDS))], strict=True))
    assert (replies["time"], replies["times"], replies["named"]) == (fine, [fine, None], [["a", fine]])
    assert replies["moment"] == "1970-01-01T00:00:01.000000001+00:00"
    assert replies["span"] == "P0DT0H0M1.000000001S"
    assert replies["pair"]["time"] == fine
    assert "1000000000000" in replies["late"]


def test_outputs_of_procedures_have_all_digits(store: StateStore) -> None:
    """Story: of few rows a table had cut times, and of many rows whole ones."""
    schema = pa.schema(KINDS.items())
    app = ps.App(store, "echo", checkpoint=0.05)
    stream = app.stream("said", schema)
    app.output(stream, "heard")

    @app.procedure("say", border=True, emits=stream)
    def say(tx: Any, batch: pa.Table) -> Any:
        return batch

    with app:
        for rows in (1, 300):
            app.submit("say", pa.table({kind: exact(kind, rows) for kind in KINDS}, schema=schema)).result(SECONDS)
    found = pa.Table.from_batches(list(store.table("heard").read()))
    assert [kind for kind in KINDS if not found[kind].combine_chunks().equals(exact(kind, 301))] == []


def test_messages_have_all_digits() -> None:
    """Story: a row with a time in nanoseconds was no message, or one with another time."""
    rows = pa.table({kind: exact(kind) for kind in KINDS})
    ((key, value),) = ps.KafkaTopic("nowhere:9092", "times", key="time").messages(1, rows)
    fine = "00:00:01.000000001"
    told = json.loads(value or b"")
    assert (key, told["time"], told["times"], told["named"]) == (fine.encode(), fine, [fine, None], [["a", fine]])
    assert told["moment"] == f"1970-01-01T{fine}+00:00"
