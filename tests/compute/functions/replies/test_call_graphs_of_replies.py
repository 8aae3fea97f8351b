"""The number of a transaction, and what it called, are asked for by the id of its request once its reply is there."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute import functions as fn
from tussock.statestore import StateStore, connect

SECONDS = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def trips() -> list[fn.Operator]:
    """`go` of a trip calls places: the first one is awaited, and `fails` says whether it raises."""
    trip = fn.Operator("trip", key=pa.binary(), partitions=4)
    place = fn.Operator("place", key=pa.int64(), partitions=4)

    @trip.register
    async def go(ctx: fn.FunctionContext, places: int, fails: bool) -> int:
        await ctx.call("place", 7, "visit", fails)
        for at in range(places):
            ctx.call_async("place", at, "visit", False)
        return places

    @place.register
    def visit(ctx: fn.FunctionContext, fails: bool) -> None:
        if fails:
            raise ValueError("x" * 5000)
        ctx.put({"seen": True})

    return [trip, place]


@pytest.mark.parametrize("workers", [0, 2])
def test_who_has_a_reply_finds_its_transaction_by_the_id_of_the_request(store: StateStore, workers: int) -> None:
    """Asked for in a callback of the reply, it is there; sent again the request is still the first one."""
    key, found = b"\x00" * 500, list[Any]()
    with fn.Runtime(store, "trips", trips(), workers=workers) as runtime:

        def look(reply: "Future[Any]") -> None:
            found.append(runtime.call_graph(request_id="short"))

        sent = runtime.send("trip", key, "go", 2, False, request_id="short")
        sent.add_done_callback(look)
        assert sent.result(SECONDS) == 2
        long = runtime.send("trip", key, "go", 1500, False, request_id="long")
        failing = runtime.send("trip", key, "go", 3, True, request_id="failing")
        assert (long.result(SECONDS), type(failing.exception(SECONDS))) == (1500, fn.TransactionAborted)
        assert runtime.send("trip", key, "go", 2, False, request_id="short").result(SECONDS) == 2
        short = runtime.call_graph("short")
        assert short is not None
        assert found == [short]
        assert (short["tid"], short["epoch"], short["phase"], short["runs"]) == (1, 1, "lock_free", 1)
        shares = [(one["function"], one["caller"], one["share"], one["is_awaited"]) for one in short["calls"]]
        assert shares == [
            ("go", -1, "1/1", False),
            ("visit", 0, "1/2", True),
            ("visit", 0, "1/4", False),
            ("visit", 0, "1/4", False),
        ]
        graphs = [runtime.call_graph(name) for name in ("short", "long", "failing")]
        assert graphs == [runtime.call_graph(tid=number) for number in (1, 2, 3)]
        long_one, failed = graphs[1:]
        assert long_one is not None
        assert failed is not None
        assert (len(long_one["calls"]), len(long_one["calls"][0]["key"])) == (1000, 200)
        assert (failed["phase"], failed["kind"], failed["error"]) == ("aborted", "ValueError", "x" * 1000)
        assert failed["at"].startswith("test_call_graphs_of_replies.py:")
        assert [one["function"] for one in failed["calls"]] == ["go", "visit"]
