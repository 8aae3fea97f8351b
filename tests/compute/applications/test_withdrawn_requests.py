"""A request that is withdrawn: all who wait for it hear so at once, however they wait."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, as_completed, wait
from pathlib import Path
from typing import Any

import pytest

from support.functions.accounts import cells
from support.waiting import eventually
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.compute.applications.replies import WithdrawableFuture
from tussock.statestore import StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def calls(store: StateStore) -> ps.App:
    app = ps.App(store, "calls")

    @app.call_procedure("five")
    def five(tx: Any) -> int:
        return 5

    return app


def is_told(asked: "Callable[[], Future[Any]]") -> None:
    """Those who wait hear of a request that is withdrawn while they do, and those who ask later."""
    future = asked()
    heard = threading.Event()
    waiting = threading.Thread(target=lambda: (list(as_completed([future])), heard.set()))
    waiting.start()
    # It waits in there once it has left word with the future.
    eventually(lambda: future._waiters)  # type: ignore[attr-defined]
    assert future.cancel()
    assert heard.wait(SECONDS)
    waiting.join()
    assert wait([future], SECONDS).done == {future}
    assert future.cancel()


def test_those_who_wait_for_functions_hear_of_a_withdrawal(store: StateStore) -> None:
    """Story: `concurrent.futures.wait` never returned; with an id, too, and when the program has gone on or ended."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        runtime.pause()
        is_told(lambda: runtime.send("cell", "a", "write", 1))
        is_told(lambda: runtime.send("cell", "a", "write", 1, request_id="one"))
        is_told(lambda: runtime.send("cell", "a", "write", 2, request_id="one"))
        runtime.resume()
        assert runtime.query("cell", "a") is None


def test_those_who_wait_for_procedures_hear_of_a_withdrawal(store: StateStore) -> None:
    with calls(store) as app:
        app.pause()
        is_told(lambda: app.call_async("five"))
        app.resume()
        assert app.call("five", timeout=SECONDS) == 5
        assert app.stats()["records"] == 0


def test_those_who_wait_for_a_service_hear_of_a_withdrawal() -> None:
    """Before it was sent."""
    with fn.Client("127.0.0.1:1") as client:
        is_told(lambda: client.send("cell", "a", "write", 1))
        client.close(timeout=0)


def test_a_request_begins_once_or_is_withdrawn() -> None:
    """Whatever comes first, in two threads."""
    for _ in range(2000):
        future, begun = WithdrawableFuture(), []
        beginning = threading.Thread(
            target=lambda future=future, begun=begun: begun.append(future.set_running_or_notify_cancel())
        )
        beginning.start()
        withdrawn = future.cancel()
        beginning.join()
        assert begun == [not withdrawn]
        assert (withdrawn, not withdrawn) == (future.cancelled(), future.running())
