"""An operator that declares more columns, or wider ones: its table follows at the start, or the start is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.applications.grown_purses import FIRST, GROWN, purses
from support.applications.work_process import WorkProcess
from support.functions.joined_port import joined_port
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.statestore import SchemaMismatch, StateStore, connect

SECONDS = 60
APP = "support.applications.grown_purses:make"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def program(store: StateStore, schema: pa.Schema, **options: Any) -> fn.Runtime:
    return fn.Runtime(store, "p", [purses(schema)], checkpoint=3600.0, **options)


def add(runtime: fn.Runtime, key: str, amount: int) -> Any:
    return runtime.send("purse", key, "add", amount).result(SECONDS)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_table_follows_its_operator(store: StateStore, workers: int) -> None:
    """Story: the second release of a program, with a column more, did not start, and no way out was told."""
    with program(store, FIRST, workers=workers) as first:
        assert [add(first, key, 5) for key in "abcd"] == [5] * 4
    with program(store, GROWN, workers=workers) as second:
        before = {"note": None, "total": 5, "tags": None}
        assert [second.query("purse", key) for key in "abcd"] == [before] * 4
        assert second.send("purse", "a", "mark", "rich").result(SECONDS) == before
        assert add(second, "a", 2**40) == 2**40 + 5
        assert second.query("purse", "a") == {"note": "rich", "total": 2**40 + 5, "tags": ["rich", None]}
        assert second.send_many("purse", "notes", ["a", "b"])["reply"].to_pylist() == ["rich", None]
    assert store.table("purse").get("a") == {"key": "a", "total": 2**40 + 5, "note": "rich", "tags": ["rich", None]}
    # What was killed is replayed, under the schema that it was written under.
    killed = program(store, GROWN)
    killed.start()
    assert add(killed, "b", 1) == 6
    with connect(store.url, compaction=False) as other, program(other, GROWN, workers=workers) as third:
        assert third.query("purse", "b") == {"note": None, "total": 6, "tags": None}
        assert third.query("purse", "a") == {"note": "rich", "total": 2**40 + 5, "tags": ["rich", None]}
    with pytest.raises(fn.ApplicationFenced):
        killed.stop()
    with pytest.raises(
        SchemaMismatch, match=r"column 'total' was int64, and is int32.*it has key string not null, tot"
    ):
        program(store, FIRST).start()


def test_a_worker_that_joined_before_has_the_columns(store: StateStore) -> None:
    """And may have opened the store when the table had not got them."""
    with program(store, FIRST) as first:
        assert [add(first, key, 5) for key in "abcd"] == [5] * 4
    second = program(store, GROWN, workers=1)
    with joined_port(second) as address, WorkProcess(address, store.url, app=APP) as worker:
        worker.wait_until_ready()
        with second:
            assert second.send("purse", "a", "mark", "rich").result(SECONDS) == {
                "note": None,
                "total": 5,
                "tags": None,
            }
            assert second.query("purse", "a") == {"note": "rich", "total": 5, "tags": ["rich", None]}


def test_load_gives_columns_too(store: StateStore) -> None:
    """Before a first start, and between two."""
    program(store, FIRST).load("purse", [{"key": "a", "total": 1}])
    program(store, GROWN).load("purse", [{"key": "b", "total": 2, "note": "new"}])
    with program(store, GROWN) as runtime:
        assert [add(runtime, key, 1) for key in "ab"] == [2, 3]
        assert runtime.query("purse", "b") == {"note": "new", "total": 3, "tags": None}


def test_what_the_log_has_is_of_the_former_columns(store: StateStore) -> None:
    """So a program that runs, or was killed, keeps its table, and goes on; stopped in order it makes way."""
    running = program(store, FIRST)
    running.start()
    assert add(running, "a", 1) == 1
    with connect(store.url, compaction=False) as other:
        for refused in (program(other, GROWN).start, lambda: program(other, GROWN).load("purse", [])):
            with pytest.raises(
                SchemaMismatch, match=r"was not stopped in order.*tags list<.*repair application p --giv"
            ):
                refused()
    assert store.table("purse").schema.names == ["key", "total"]
    # It was not shut out, and the next start of its kind replays.
    assert add(running, "a", 1) == 2
    with connect(store.url, compaction=False) as other, program(other, FIRST) as again:
        assert add(again, "a", 1) == 3
    with pytest.raises(fn.ApplicationFenced):
        running.stop()
    with connect(store.url, compaction=False) as other, program(other, GROWN) as grown:
        assert grown.query("purse", "a") == {"note": None, "total": 3, "tags": None}


def test_a_program_that_is_idle_makes_way(store: StateStore) -> None:
    """As for any other start of its name; it ends with `ApplicationFenced`, and cannot start again."""
    running = fn.Runtime(store, "p", [purses(FIRST)], checkpoint=0.05)
    running.start()
    assert add(running, "a", 1) == 1
    eventually(lambda: not running.stats()["uncommitted"])
    with connect(store.url, compaction=False) as other, program(other, GROWN) as grown:
        assert add(grown, "a", 1) == 2
        with pytest.raises(fn.ApplicationFenced):
            add(running, "a", 1)
    with pytest.raises(fn.ApplicationFenced):
        running.stop()
    with pytest.raises(SchemaMismatch, match="column 'total' was int64, and is int32"):
        program(store, FIRST).start()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([("sum", pa.int32())]), "'total' was int32, and is gone: no column can be dropped"),
        (pa.schema([("total", pa.int16())]), "'total' was int32, and is int16: a column only takes"),
        (pa.schema([("total", pa.string())]), "'total' was int32, and is string: a column only takes"),
        (pa.schema([pa.field("total", pa.int32(), nullable=False)]), "whether a column may be null never changes"),
        (pa.schema([("total", pa.int32()), pa.field("n", pa.int8(), nullable=False)]), "'n' was none, and is int8 not"),
    ],
)
def test_what_no_table_can_follow_is_told_with_both(store: StateStore, schema: pa.Schema, why: str) -> None:
    """And nothing is altered."""
    with program(store, FIRST) as runtime:
        add(runtime, "a", 1)
    with pytest.raises(SchemaMismatch, match=why) as refused:
        fn.Runtime(store, "p", [purses(schema)]).start()
    assert "it has key string not null, total int32; declared are key string not null, " in str(refused.value)
    assert "give it another name" in str(refused.value)
    assert store.table("purse").schema.names == ["key", "total"]


def test_a_start_that_fails_gives_no_columns(store: StateStore) -> None:
    """A feed of a table that is not there is found before the program that runs is shut out, and its table altered."""
    running = fn.Runtime(store, "p", [purses(FIRST)], checkpoint=0.05)
    running.start()
    add(running, "a", 1)
    eventually(lambda: not running.stats()["uncommitted"])
    with connect(store.url, compaction=False) as other:
        grown = program(other, GROWN)
        grown.feed("purse", "add", fn.TableFeed("nowhere"))
        with pytest.raises(Exception, match="nowhere"):
            grown.start()
        assert other.table("purse").schema.names == ["key", "total"]
    assert add(running, "a", 1) == 2
    running.stop()


def test_an_operator_that_was_left_out_is_told(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    """Its entities stay, and come back with it; another application does not get its table meanwhile."""
    both = [purses(FIRST), purses(FIRST, "chest")]
    with fn.Runtime(store, "p", both) as runtime:
        runtime.send("chest", "c", "add", 7).result(SECONDS)
    with fn.Runtime(store, "p", both[:1]) as runtime:
        (told,) = [one.getMessage() for one in caplog.records if "without operators that it had" in one.getMessage()]
        assert "chest" in told
        assert "purse" not in told
        with pytest.raises(fn.FunctionFault, match="there is no operator 'chest'"):
            runtime.send("chest", "c", "add", 7)
    with fn.Runtime(store, "p", both) as runtime:
        assert sum("without operators" in one.getMessage() for one in caplog.records) == 1
        assert runtime.send("chest", "c", "add", 1).result(SECONDS) == 8
