"""What a callback of a reply may ask of its client: what waits would wait for the thread that runs the callback."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.applications.serve_process import ServeProcess
from tussock.compute import changelog as cl
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.statestore.errors import InvalidOption

SECONDS = 60

WAITS: dict[str, Callable[[fn.Client], Any]] = {
    "query": lambda client: client.query("account", "p0"),
    "send_many": lambda client: client.send_many("account", "credit", ["p0"], {"amount": [1000]}),
    "call_graph": lambda client: client.call_graph("none"),
    "status": lambda client: client.status(),
    "pause": lambda client: client.pause(),
    "drain": lambda client: client.drain(),
    "result": lambda client: client.send("account", "p1", "credit", 5).result(),
    "exception": lambda client: client.send_many_async("account", "credit", ["p1"], {"amount": [5]}).exception(5),
}


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    app = "support.applications.served_bank:make"
    with ServeProcess((tmp_path_factory.mktemp("served") / "store").as_uri(), app=app) as process:
        yield process


def told(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return error


@pytest.mark.parametrize("what", WAITS)
def test_a_callback_does_not_wait_for_its_client(bank: ServeProcess, what: str) -> None:
    """Story: the client gave no reply for as long as the wait could last, which of a future was for ever."""
    with fn.Client(bank.address) as client:
        before = client.query("account", "p0")
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # A callback that comes after the reply would run in this thread.
        client.pause()
        asked = client.send("account", "p2", "credit", 1)
        asked.add_done_callback(lambda _: found.put(told(lambda: WAITS[what](client))))
        client.resume()
        refused = found.get(timeout=SECONDS)
        assert isinstance(refused, fn.FunctionFault)
        assert "a callback of a reply" in str(refused)
        assert client.query("account", "p0") == before, "it was not sent"
        client.send("account", "p3", "credit", 1).result(SECONDS)


def test_a_callback_may_send_and_look_at_what_is_there(bank: ServeProcess) -> None:
    """Also in the callback of what it sent, and of replies that will not come."""
    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with fn.Client(bank.address) as client:

        def again(done: Any) -> None:
            found.put(done.result())
            client.send("cell", "c", "add", 1).add_done_callback(lambda last: found.put(last.result()))

        client.pause()
        client.send("cell", "c", "add", 1).add_done_callback(again)
        client.resume()
        first, second = found.get(timeout=SECONDS), found.get(timeout=SECONDS)
        assert second == first + 1
        client.pause()
        last = client.send("cell", "c", "add", 1)
        other = client.send("cell", "d", "add", 1)
        last.add_done_callback(lambda _: found.put(told(other.exception)))
        client.close(timeout=0)
        assert isinstance(found.get(timeout=SECONDS), fn.FunctionFault)
    with fn.Client(bank.address) as client:
        client.resume()


def test_a_callback_does_not_wait_for_a_client_of_procedures(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The error is that of the local application."""
    url = (tmp_path_factory.mktemp("adder") / "store").as_uri()
    with ServeProcess(url) as node, ps.Client(node.address) as client:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client.pause()
        client.call_async("echo", 1).add_done_callback(lambda _: found.put(told(lambda: client.call("echo", 1))))
        client.resume()
        assert isinstance(found.get(timeout=SECONDS), InvalidOption)
        assert client.call("echo", 2, timeout=SECONDS) == [2]


def test_a_callback_does_not_wait_for_a_client_of_flows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nor is anything held or stepped, or looked for; what was pushed goes on."""
    url = (tmp_path_factory.mktemp("flow") / "store").as_uri()
    with (
        ServeProcess(url, app="support.applications.served_orders:make") as node,
        cl.Client(node.address) as client,
    ):
        asked: list[Callable[[], Any]] = [
            lambda: client.stream("prices").hold(),
            lambda: client.stream("shares").get("a"),
            lambda: client.step("row"),
            lambda: client.stream("prices").push([cl.upsert(k="c", v=1)]).result(SECONDS),
        ]
        mine = threading.get_ident()
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def callback(_: Any) -> None:
            # The reply may be there before the callback is, which then runs in the thread of the test.
            found.put(None if threading.get_ident() == mine else [told(ask) for ask in asked])

        for number in range(1000):
            client.stream("prices").push([cl.upsert(k="a", v=number)]).add_done_callback(callback)
            if (refused := found.get(timeout=SECONDS)) is not None:
                break
        assert [type(one) for one in refused] == [InvalidOption] * 4
        client.stream("prices").push([cl.upsert(k="b", v=1)]).result(SECONDS)
