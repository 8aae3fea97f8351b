"""The end of a client: how long it takes, and what becomes of requests without a reply; and what `cancel` can do."""

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from support.applications.serve_process import ServeProcess
from support.service.platforms import addresses
from support.waiting import eventually
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption
from tussock.statestore.errors import WaitTimeout

SECONDS = 60
SOON_SECONDS = 15
"""Well below a client's deadline of 30 seconds, and enough for a busy machine."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path / "store").as_uri()) as process:
        yield process


def test_a_close_does_not_wait_for_a_paused_node(node: ServeProcess) -> None:
    """What was sent has an unknown outcome, with an id or without; nothing of it was run here."""
    client = ps.Client(node.address)
    client.pause()
    tickets = [client.call_async("set", 9), client.submit("take", [{"n": 1}], batch_id=1)]
    eventually(lambda: node.status()["waiting"] == 2)
    began = time.monotonic()
    client.close(timeout=0.1)
    assert time.monotonic() - began < SOON_SECONDS
    for ticket in tickets:
        with pytest.raises(ps.OutcomeUnknown, match="closed"):
            ticket.result(0)
    client.close()
    # The node sees that nobody waits, and withdraws what has not begun.
    eventually(lambda: node.status()["outstanding"] == 0 or node.status()["conversations"] == 0)
    with ps.Client(node.address) as other:
        other.resume()
        assert other.call("total", timeout=SECONDS) == 0


def test_a_close_waits_no_longer_than_the_deadline(node: ServeProcess) -> None:
    """Where no timeout is given."""
    client = ps.Client(node.address, deadline=0.5)
    client.pause()
    ticket = client.call_async("total")
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < SOON_SECONDS
    with pytest.raises(ps.OutcomeUnknown):
        ticket.result(0)


def test_a_close_without_a_node_says_that_nothing_was_sent() -> None:
    """`ServiceUnavailable`, at once."""
    (nobody,) = addresses(1)
    client = ps.Client(nobody)
    ticket = client.call_async("total")
    began = time.monotonic()
    client.close(timeout=0)
    assert time.monotonic() - began < SOON_SECONDS
    with pytest.raises(ps.ServiceUnavailable):
        ticket.result(0)


def test_a_block_that_raises_does_not_wait(node: ServeProcess) -> None:
    """The exception is what the caller has to see, not the end of somebody's pause."""

    def ask_and_fail() -> None:
        with ps.Client(node.address) as client:
            client.pause()
            tickets.append(client.call_async("total"))
            raise KeyError("mine")

    tickets: list[Future[Any]] = []
    began = time.monotonic()
    with pytest.raises(KeyError, match="mine"):
        ask_and_fail()
    assert time.monotonic() - began < SOON_SECONDS
    assert isinstance(tickets[0].exception(0), ps.OutcomeUnknown | ps.ServiceUnavailable)


def test_a_batch_that_may_have_run_is_not_called_unsent(node: ServeProcess) -> None:
    """One with an id that waits to go once more after its node was killed: it may have run there."""
    client = ps.Client(node.address)
    client.pause()
    ticket = client.submit("take", [{"n": 1}], batch_id=1)
    eventually(lambda: node.status()["waiting"] == 1)
    node.process.kill()
    node.wait()
    client.close(timeout=0.5)
    with pytest.raises(ps.OutcomeUnknown):
        ticket.result(0)


def test_a_close_with_a_time_that_is_none_is_refused() -> None:
    with ps.Client(addresses(1)[0]) as client, pytest.raises(InvalidOption):
        client.close(timeout=-1)


def test_cancel_withdraws_what_was_not_sent() -> None:
    """Without a node it waits in the client; it is never sent."""
    (nobody,) = addresses(1)
    client = ps.Client(nobody)
    ticket = client.call_async("total")
    assert ticket.cancel()
    client.close(timeout=0)


def test_cancel_does_not_withdraw_what_was_sent(node: ServeProcess) -> None:
    """It says so by `False`, and the request runs in its turn."""
    with ps.Client(node.address) as client:
        client.pause()
        ticket = client.call_async("set", 9)
        eventually(lambda: node.status()["waiting"] == 1)
        assert not ticket.cancel()
        client.resume()
        ticket.result(SECONDS)
        assert client.call("total", timeout=SECONDS) == 9


def test_a_timeout_withdraws_what_has_not_begun(node: ServeProcess) -> None:
    """Of a call and of a batch, at a paused node: it says so, and it is so."""
    with ps.Client(node.address) as client:
        client.pause()
        with pytest.raises(WaitTimeout, match="was not run"):
            client.call("set", 9, timeout=1.0)
        with pytest.raises(WaitTimeout, match="was not run"):
            client.submit("take", [{"n": 1}], timeout=0.5).result(SECONDS)
        client.resume()
        assert client.call("total", timeout=SECONDS) == 0


def test_a_timeout_without_a_node_says_that_nothing_was_sent() -> None:
    """And why, in the words of the connection."""
    (nobody,) = addresses(1)
    with ps.Client(nobody) as client:
        with pytest.raises(WaitTimeout, match=f"was not sent within 1 s, and does not run: .*{nobody}"):
            client.call("total", timeout=1.0)
        client.close(timeout=0)


def test_a_future_with_a_time_ends_without_a_node() -> None:
    """Story: it waited for the client's deadline, and so did the end of a client whose only request was withdrawn."""
    (nobody,) = addresses(1)
    began = time.monotonic()
    with ps.Client(nobody) as client:
        given = client.submit("take", [{"n": 1}], timeout=0.2)
        stays = client.submit("take", [{"n": 1}], batch_id=1)
        with pytest.raises(WaitTimeout, match="was not sent within its time, and does not run"):
            given.result(SECONDS)
        assert not stays.done()
        assert stays.cancel()
    assert time.monotonic() - began < SOON_SECONDS


def test_a_client_in_a_forked_process_says_so(node: ServeProcess) -> None:
    """Story: each call waited for threads that stay with the parent. There the client goes on."""
    context = multiprocessing.get_context("fork")
    with ps.Client(node.address) as client:
        client.call("set", 5, timeout=SECONDS)
        asked = client.call_async("total")
        told = context.SimpleQueue()

        def ask() -> None:
            for one in (
                lambda: client.call("total"),
                client.stats,
                lambda: client.submit("take", [{"n": 1}]),
                client.pause,
                asked.result,
                client.close,
            ):
                try:
                    told.put(f"returned {one()}")
                except Exception as error:
                    told.put(f"{type(error).__name__}: {error}")

        child = context.Process(target=ask)
        child.start()
        child.join(SECONDS)
        is_hung = child.is_alive()
        child.kill()
        assert not is_hung
        answers = [told.get() for _ in range(6)]
        assert all(one.startswith("StoreClosed: the client of the application at") for one in answers[:5]), answers
        assert answers[5] == "returned None"
        assert asked.result(SECONDS) == client.call("total", timeout=SECONDS) == 5
