"""`kill -9` of a node of functions: each request has one reply and one effect, whichever client asks again."""

import random
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.applications.serve_process import ServeProcess
from support.applications.served_bank import PEOPLE, START
from tussock.compute import functions as fn

SECONDS = 120
THREADS = 16
CONNECTIONS = 4
KILLS = 2
REPLIES_A_LIFE = 400
APP = "support.applications.served_bank:slow_commits"


class Node:
    """The process that serves, and its successors at the same address."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.process = ServeProcess(url, app=APP)
        self.address = self.process.address

    def kill(self) -> None:
        """`kill -9`, and a successor."""
        self.process.process.kill()
        self.process.wait()
        self.process = ServeProcess(self._url, "--listen", self.address, app=APP)

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait()


class Transfer(NamedTuple):
    """What a client asked for, and heard."""

    debtor: str
    creditor: str
    amount: int
    left: int | None
    """The reply; `None`: there was not enough credit."""


def test_a_repeated_id_gets_its_first_reply_after_a_kill(tmp_path: Path) -> None:
    """Of a reply and of an abort, by another client of the successor; the effect is there once."""
    node = Node((tmp_path / "store").as_uri())
    asked = ("account", "p0", "transfer", "p1")
    with fn.Client(node.address) as client:
        assert client.send(*asked, 30, request_id="order-1").result(SECONDS) == 70
        first = client.send(*asked, 1000, request_id="order-2").exception(SECONDS)
        client.send("account", "p0", "credit", 5000).result(SECONDS)
    node.kill()
    with fn.Client(node.address, deadline=SECONDS) as client:
        assert client.send(*asked, 30, request_id="order-1").result(SECONDS) == 70
        # There is enough credit by now.
        again = client.send(*asked, 1000, request_id="order-2").exception(SECONDS)
        assert (type(again), str(again)) == (fn.TransactionAborted, "not enough credit: p0")
        assert again is not None
        assert first is not None
        assert again.args == first.args
        assert client.query("account", "p0") == {"balance": 5070}
        assert client.query("account", "p1") == {"balance": 130}
    assert node.end() == 0


def test_requests_under_way_run_once_in_spite_of_a_kill(tmp_path: Path) -> None:
    """The client gives them ids and sends them again by itself; a `send_many` does not know what became of it."""
    node = Node((tmp_path / "store").as_uri())
    with fn.Client(node.address, deadline=SECONDS) as client:
        futures = [client.send("account", "p2", "credit", 1) for _ in range(200)]
        futures[20].result(SECONDS)
        client.pause()
        waiting = [client.send("account", "p3", "transfer", "p2", 1) for _ in range(10)]
        many = client.send_many_async("account", "credit", ["p4"], {"amount": [1]})
        # A look comes back behind them, so they were taken.
        assert client.status()["state"] == "paused"
        node.kill()
        assert isinstance(many.exception(SECONDS), fn.OutcomeUnknown)
        assert [one.result(SECONDS) for one in futures] == [None] * 200
        assert sorted(one.result(SECONDS) for one in waiting) == list(range(90, 100))
        assert client.query("account", "p2") == {"balance": START + 210}
        # It waited in the pause, so it never began.
        assert client.query("account", "p4") == {"balance": START}
    assert node.end() == 0


@pytest.mark.long
@pytest.mark.slow
def test_sums_are_exact_and_replies_hold_through_kills(tmp_path: Path) -> None:
    """Sixteen threads pay each other: each account has what the replies say, to the coin."""
    node = Node((tmp_path / "store").as_uri())
    clients = [fn.Client(node.address, deadline=SECONDS) for _ in range(CONNECTIONS)]
    heard: list[Transfer] = []
    failures: list[BaseException] = []
    is_over = threading.Event()

    def pay(at: int) -> None:
        chance, client = random.Random(at), clients[at % CONNECTIONS]
        try:
            while not is_over.is_set():
                debtor, creditor = (f"p{one}" for one in chance.sample(range(PEOPLE), 2))
                amount = chance.randrange(1, 2 * START)
                asked = client.send("account", debtor, "transfer", creditor, amount)
                error = asked.exception(SECONDS)
                if error is not None:
                    assert (type(error), str(error)) == (fn.TransactionAborted, f"not enough credit: {debtor}")
                heard.append(Transfer(debtor, creditor, amount, asked.result() if error is None else None))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pay, args=(at,)) for at in range(THREADS)]
    for thread in threads:
        thread.start()
    for life in range(KILLS + 1):
        wanted, deadline = len(heard) + REPLIES_A_LIFE, time.monotonic() + SECONDS
        while len(heard) < wanted:
            assert not failures, failures[:3]
            assert time.monotonic() < deadline, f"{len(heard)} replies, and {wanted} were to come"
            time.sleep(0.002)
        if life < KILLS:
            node.kill()
    is_over.set()
    for thread in threads:
        thread.join(SECONDS)
    assert not failures, failures[:3]
    found: dict[str, Any] = {f"p{one}": clients[0].query("account", f"p{one}") for one in range(PEOPLE)}
    expected = dict.fromkeys(found, START)
    for one in heard:
        if one.left is not None:
            assert one.left >= 0
            expected[one.debtor] -= one.amount
            expected[one.creditor] += one.amount
    assert {name: state["balance"] for name, state in found.items()} == expected
    assert sum(expected.values()) == PEOPLE * START
    assert sum(one.left is None for one in heard) > 0
    for client in clients:
        client.close()
    assert node.end() == 0
