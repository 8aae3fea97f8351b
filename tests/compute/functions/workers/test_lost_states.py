"""States that are lost or garbled: no outage that will pass, so nobody waits for them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from support.functions.accounts import cells, column_accounts
from support.store.stores import OBJECTS
from tussock.compute import functions as fn
from tussock.statestore import connect
from tussock.statestore.errors import CorruptSst

SECONDS = 60


@contextmanager
def lost_states(folder: Path, workers: int) -> Iterator[fn.Runtime]:
    """A program that knows of `b` only, when all objects of states are gone; they are back at the end."""
    url = (folder / "store").as_uri()
    operators = [cells(), column_accounts()]
    with connect(url, compaction=False, limits=OBJECTS) as store:
        first = fn.Runtime(store, "p", operators)
        first.load("account", [{"key": key, "balance": 1} for key in "ab"])
        with first:
            assert [first.send("cell", key, "add", 1).result(SECONDS) for key in "ac"] == [1, 1]
    with connect(url, compaction=False, limits=OBJECTS) as store:
        runtime = fn.Runtime(store, "p", operators, workers=workers)
        runtime.start()
        assert runtime.send("cell", "b", "add", 1).result(SECONDS) == 1
        gone = (folder / "store" / "sst").rename(folder / "aside")
        try:
            yield runtime
        finally:
            with pytest.raises(CorruptSst):
                runtime.stop()
    gone.rename(folder / "store" / "sst")
    with connect(url, compaction=False) as store, fn.Runtime(store, "p", operators) as runtime:
        assert [runtime.query("cell", key) for key in "abc"] == [{"value": 1}] * 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_program_ends_with_what_the_store_says_of_a_lost_state(tmp_path: Path, workers: int) -> None:
    """Story: with workers it waited for ever, as for a bucket that is away."""
    with lost_states(tmp_path, workers) as runtime, pytest.raises(CorruptSst, match="there is no object"):
        runtime.send("cell", "a", "add", 1).result(SECONDS)


@pytest.mark.parametrize("workers", [0, 2])
def test_who_asks_for_a_lost_state_hears_so(tmp_path: Path, workers: int) -> None:
    """Story: it cost six workers one after the other, and who asked heard of these, and not of the state."""
    with lost_states(tmp_path, workers) as runtime:
        processes = runtime.worker_processes()
        for _ in range(2):
            with pytest.raises(CorruptSst, match="there is no object"):
                runtime.query("cell", "a")
        assert runtime.query("cell", "b") == {"value": 1}
        assert runtime.worker_processes() == processes
        # A function would end the program by it, and so ends this one.
        with pytest.raises(CorruptSst):
            runtime.send("cell", "a", "add", 1).result(SECONDS)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_function_that_needs_a_lost_state_ends_the_program_with_it(tmp_path: Path, workers: int) -> None:
    """As any other function does."""
    with lost_states(tmp_path, workers) as runtime, pytest.raises(CorruptSst, match="there is no object"):
        runtime.send_many("account", "transfer", ["a"], pa.table({"payee": ["b"], "amount": [1]}))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("state", ['{"value":', "[1]", "5", "[" * 100_000])
def test_a_state_that_somebody_else_wrote_wrongly_is_told_to_who_asks(tmp_path: Path, workers: int, state: str) -> None:
    """Story: one `query` of it ended the program, with an error of the library that reads JSON."""
    with connect((tmp_path / "store").as_uri(), compaction=False) as store:
        with fn.Runtime(store, "p", [cells()]) as runtime:
            assert [runtime.send("cell", key, "add", 1).result(SECONDS) for key in "ab"] == [1, 1]
        with store.transaction() as tx:
            tx.table("cell").upsert([{"key": "a", "state": state}])
        with fn.Runtime(store, "p", [cells()], workers=workers) as runtime:
            with pytest.raises(fn.FunctionFault, match="table 'cell' is not the JSON of an object"):
                runtime.query("cell", "a")
            with pytest.raises(fn.TransactionAborted, match="not the JSON of an object"):
                runtime.send("cell", "a", "add", 1).result(SECONDS)
            assert runtime.query("cell", "b") == {"value": 1}
