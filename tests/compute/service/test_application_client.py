"""`ps.Client` has the calls of the local `App`, with the same replies and the same errors."""

import datetime
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from tussock.compute import procedures as ps
from tussock.compute.procedures.borders.requests import pack_arguments
from tussock.compute.service.client.channel import OPTIONS, ApplicationChannel
from tussock.compute.service.client.connection import ApplicationConnection
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore import InvalidOption, SchemaMismatch
from tussock.statestore.base.identity import Access
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidBatch, MessageTooLarge

SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess((tmp_path_factory.mktemp("served") / "store").as_uri()) as process:
        yield process


@pytest.fixture
def client(node: ServeProcess) -> Iterator[ps.Client]:
    with ps.Client(node.address) as found:
        yield found


def error_of(ticket: "Future[Any]") -> Any:
    error = ticket.exception(SECONDS)
    assert error is not None
    return error


def test_every_call_comes_back_as_from_the_local_application(client: ps.Client) -> None:
    """Submit, call, trace, window rows, stats and status."""
    before = client.call("total", timeout=SECONDS)
    assert client.submit("take", [{"n": 1}, {"n": 2}]).result(SECONDS) == before + 3
    assert client.submit("take", pa.table({"n": [4, 5]})).result(SECONDS) == before + 12
    assert client.submit("take", []).result(SECONDS) == before + 12
    assert client.trace(2)[-2:] == [("take", client.status()["procedures"][0]["last_batch"]), client.trace(1)[0]]
    assert client.window_rows("newest").to_pylist() == [{"n": 1}, {"n": 2}, {"n": 4}, {"n": 5}]
    assert client.window_rows("newest", staged=True).num_rows == 0
    assert client.stats().keys() == {"records", "log_writes", "commits", "uncommitted", "feeds", "outputs"}
    assert client.status()["state"] == "running"


@pytest.mark.parametrize(
    "value",
    [None, True, -(1 << 63), (1 << 63) - 1, 1.5, "tëxt", b"\x00\xff", [1, [2, None]], {"a": {"b": 1}}],
    ids=repr,
)
def test_values_of_calls_come_back_as_they_went(client: ps.Client, value: Any) -> None:
    """Arguments and replies lose nothing."""
    assert client.call("echo", value, timeout=SECONDS) == [value]


def test_times_come_back(client: ps.Client) -> None:
    """A moment with a zone is a moment after the way there and back."""
    now = datetime.datetime(2026, 11, 23, 10, tzinfo=datetime.UTC)
    assert client.call("echo", now, timeout=SECONDS) == [now]


def test_rows_of_many_types_come_as_given(client: ps.Client) -> None:
    """A border without a schema gets what Arrow reads, from dicts and from tables."""
    table = pa.table({"t": [datetime.date(2026, 1, 1)], "l": [[1, 2]], "s": ["x"]})
    assert client.submit("anything", table).result(SECONDS).equals(table)
    assert client.submit("anything", table.to_pylist()).result(SECONDS).to_pylist() == table.to_pylist()
    assert client.submit("anything", [{"a": 1}, {"a": None}]).result(SECONDS).to_pylist() == [{"a": 1}, {"a": None}]


def test_a_large_batch_goes_through(client: ps.Client) -> None:
    """A megabyte of rows, as a table and as dicts."""
    numbers = pa.table({"n": pa.array([0] * 200_000, pa.int64())})
    total = client.call("total", timeout=SECONDS)
    assert client.submit("take", numbers).result(SECONDS) == total
    assert (
        client.submit(
            "take",
            [
                {
                    "n": 0,
                }
            ]
            * 300_000,
        ).result(SECONDS)
        == total
    )


def test_a_batch_that_comes_twice_gets_its_first_reply(client: ps.Client) -> None:
    """By its id, also from another client."""
    last = client.status()["procedures"][0]["last_batch"]
    first = client.submit("take", [{"n": 10}], batch_id=last + 5).result(SECONDS)
    assert client.submit("take", [{"n": 99}], batch_id=last + 5).result(SECONDS) == first
    error = error_of(client.submit("take", [{"n": 1}], batch_id=last + 4))
    assert type(error) is InvalidBatch


def test_a_procedure_that_raises_says_which_batch_and_why(client: ps.Client) -> None:
    """`ProcedureError` has the same fields; of a call no batch."""
    last = client.status()["procedures"][0]["last_batch"]
    error = error_of(client.submit("take", [{"n": -3}], batch_id=last + 1))
    assert type(error) is ps.ProcedureError
    assert (error.procedure, error.batch_id, error.cause) == ("take", last + 1, "ValueError: -3 is negative")
    again = error_of(client.submit("take", [{"n": -3}], batch_id=last + 1))
    assert (again.procedure, again.batch_id, again.cause) == (error.procedure, error.batch_id, error.cause)
    called = error_of(client.call_async("boom", "x" * 20_000))
    assert type(called) is ps.ProcedureError
    assert (called.procedure, called.batch_id) == ("boom", None)
    assert called.cause.startswith("LookupError")


@pytest.mark.parametrize(
    ("ask", "kind", "word"),
    [
        (lambda one: one.submit("nobody", [{"n": 1}]), InvalidOption, "nobody"),
        (lambda one: one.submit("add", [{"n": 1}]), InvalidOption, "add"),
        (lambda one: one.submit("take", [{"m": 1}]), SchemaMismatch, "take"),
        (lambda one: one.submit("take", [{"n": "one"}]), SchemaMismatch, "take"),
        (lambda one: one.submit("take", pa.table({"n": [None]})), SchemaMismatch, "take"),
        (lambda one: one.call_async("nobody"), InvalidOption, "nobody"),
        (lambda one: one.call_async("boom"), ps.ProcedureError, "boom"),
    ],
)
def test_what_is_wrong_comes_by_the_future(client: ps.Client, ask: Any, kind: type[Exception], word: str) -> None:
    """What the local application raises at once, and what a procedure raises."""
    try:
        error = error_of(ask(client))
    except SchemaMismatch as found:
        # Tables are held to the schema before they are sent.
        error = found
    assert type(error) is kind
    assert word in str(error)


def test_what_the_client_sees_itself_is_raised_at_once(node: ServeProcess, client: ps.Client) -> None:
    """Wrong arguments are not sent."""
    for ask in (
        lambda: client.submit("take", [], batch_id=0),
        lambda: client.submit("take", [], batch_id=True),
        lambda: client.call("echo", object()),
        lambda: client.trace(0),
        lambda: ps.Client("no-port"),
        lambda: ps.Client("a:1,b:2"),
        lambda: ps.Client(node.address, outstanding=0),
        lambda: ps.Client(node.address, deadline=-1),
    ):
        with pytest.raises(InvalidOption):
            ask()
    with pytest.raises(SchemaMismatch):
        client.submit("take", 7)
    for look in (lambda: client.window_rows("nobody"), lambda: client.trace(10_001)):
        with pytest.raises(InvalidOption):
            look()


def test_a_batch_that_no_message_holds_is_not_sent(client: ps.Client) -> None:
    """`MessageTooLarge` names both sizes, and the connection goes on."""
    client.stats()
    with pytest.raises(MessageTooLarge, match=r"limits\.message_bytes"):
        client.submit("take", pa.table({"n": pa.array([0] * 2_200_000, pa.int64())}))
    assert isinstance(client.call("total", timeout=SECONDS), int)


def test_a_client_that_is_closed_says_so(node: ServeProcess) -> None:
    """Closing waits for what is under way, and twice is once."""
    client = ps.Client(node.address)
    tickets = [client.call_async("echo", number) for number in range(100)]
    client.close()
    assert [ticket.result(0) for ticket in tickets] == [[number] for number in range(100)]
    client.close()
    with pytest.raises(ps.ApplicationStopped):
        client.call("total")


def test_nobody_at_the_address(tmp_path: Path) -> None:
    """After the deadline `ServiceUnavailable`, for a look and for a call: neither was sent."""
    with ps.Client("127.0.0.1:9", deadline=1.0) as client:
        ticket = client.call_async("total")
        with pytest.raises(ps.ServiceUnavailable):
            client.stats()
        with pytest.raises(ps.ServiceUnavailable):
            ticket.result(SECONDS)


@pytest.mark.long
@pytest.mark.slow
def test_a_client_that_waits_for_long_is_not_cut_off(tmp_path: Path) -> None:
    """It pings while it waits for a pause to end; a node that took them for too many would leave calls unknown."""
    # More often than the ten seconds of the product, and without the pauses of gRPC: minutes in half of one.
    often = [("grpc.keepalive_time_ms", 5_000), ("grpc.http2.max_pings_without_data", 0)]
    others = [one for one in OPTIONS if one[0] != "grpc.keepalive_time_ms"]
    with ServeProcess((tmp_path / "store").as_uri()) as node, ps.Client(node.address) as client:
        client.pause()
        channel = ApplicationChannel(node.address, Access(), RealSystem(), [*others, *often])
        connection = ApplicationConnection(channel, RealSystem(), deadline=SECONDS, outstanding=1)
        call = pb.Request(call=pb.Call(name="total", arguments=pack_arguments("total", ())))
        waiting = connection.ask(call, is_repeatable=False)
        with pytest.raises(TimeoutError):
            waiting.result(32)
        client.resume()
        assert waiting.result(60) == 0
        connection.close()
