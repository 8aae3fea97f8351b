"""`send_many` sends all of its requests or none, so that its caller can go on."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.functions.accounts import cells
from tussock.compute import functions as fn
from tussock.compute.functions.intake import WAITING_MAX
from tussock.statestore import StateStore, connect

SECONDS = 30


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://whole", compaction=False) as opened:
        yield opened


def test_what_is_full_amid_requests_has_sent_none_or_all(store: StateStore) -> None:
    """Story: with room for one of a hundred it sent that one and raised `Full`; sent again, the first ran twice."""
    keys, columns = ["total"] * 100, {"amount": [1] * 100}
    told: list[str] = []
    has_told = threading.Event()
    with fn.Runtime(store, "p", [cells()]) as runtime:

        def ask(_: Any) -> None:
            """In a callback, where nobody waits for room."""
            for send in (
                lambda: runtime.send_many_async("cell", "add", keys, columns),
                lambda: runtime.send("cell", "total", "add", 1),
            ):
                try:
                    send()
                except fn.Full as error:
                    told.append(str(error))
            has_told.set()

        runtime.pause()
        for at in range(WAITING_MAX - 1):
            runtime.send("cell", f"k{at}", "add", 1)
        whole = runtime.send_many_async("cell", "add", keys, columns)
        assert runtime.stats()["waiting"] == WAITING_MAX + 99
        runtime.query_async("cell", "total").add_done_callback(ask)
        assert has_told.wait(SECONDS)
        assert [one.partition("; ")[2] for one in told] == ["none of these 100 began", "this one did not begin"]
        assert runtime.stats()["waiting"] == WAITING_MAX + 99
        runtime.resume()
        assert whole.result(SECONDS)["reply"].to_pylist() == list(range(1, 101))
        assert runtime.query("cell", "total") == {"value": 100}
