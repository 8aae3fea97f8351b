"""A server that is slow, or says too much, costs the operator a moment, and no other resource anything."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tussock.operator.cluster.seen import Key
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.probes.bucket import S3Target, check
from tussock.operator.probes.cache import NAMESPACE_PROBES_MAX, Probes
from tussock.operator.probes.computes.driver import ANSWER_BYTES_MAX, ask_driver
from tussock.operator.probes.marker import Owner

STATUS = b'{"committedEpoch": 7}'
OWNER = Owner("1", "n", "s")


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that handles each connection with `serve`; yields `host:port`."""
    listening = socket.create_server(("127.0.0.1", 0))

    def handle(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.close()


def trickle(header: bytes) -> Callable[[socket.socket], None]:
    """Send a byte now and then after the header, so that a timeout of the socket never ends it."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(header)
        while True:
            connection.sendall(b"x")
            time.sleep(0.05)

    return serve


TRICKLES = {
    "in the header": b"HTTP/1.1 200 OK\r\nX-Long: ",
    "in the body": b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n",
    "of an error": b"HTTP/1.1 503 No\r\nContent-Type: application/xml\r\nContent-Length: 4000000\r\n\r\n",
}


@pytest.mark.parametrize("header", TRICKLES.values(), ids=TRICKLES)
def test_a_bucket_that_trickles_ends_with_the_deadline(header: bytes) -> None:
    """Story: timeouts counted for each read, so one endpoint kept a thread of the operator for any time."""
    with server(trickle(header)) as address:
        target = S3Target(f"http://{address}", "data", "p", "us-east-1", "user", "password", call_seconds=0.5)
        found = check(target, OWNER, "", write=True)
    assert found.reason is Reason.BUCKET_UNREACHABLE
    assert "it had not answered after 0.5 s" in found.message


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 500 No\r\nContent-Type: application/xml\r\n\r\n")
        while True:
            connection.sendall(b"<" * 65536)

    with server(serve) as address:
        found = check(S3Target(f"http://{address}", "data", "p", "us-east-1"), OWNER, "", write=True)
    assert found.reason is Reason.BUCKET_UNREACHABLE


def test_a_problem_of_a_server_has_the_same_text_each_time() -> None:
    """Story: the text held the address of a Python object, which differs at each probe, and each was a write."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = {
        check(S3Target(f"http://127.0.0.1:{port}", "data", "p", "us-east-1"), OWNER, "", write=True) for _ in range(3)
    }
    [fact] = found
    assert " at 0x" not in fact.message
    assert "host=" not in fact.message, "how Python writes a connection"
    assert "refused" in fact.message


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n" + STATUS + b" " * ANSWER_BYTES_MAX, id="long"),
        pytest.param(b"HTTP/1.1 302 Found\r\nLocation: http://LOCATION/status\r\n\r\n", id="elsewhere"),
    ],
)
def test_a_drivers_long_answers_and_redirects_are_ignored(answer: bytes) -> None:
    """The server is a user's program: it must not fill the operator's memory, nor redirect it."""
    with (
        server(lambda other: other.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + STATUS)) as there,
        server(lambda connection: connection.sendall(answer.replace(b"LOCATION", there.encode()))) as address,
    ):
        found = asyncio.run(ask_driver(address))
    assert found is None or found.committed_epoch == 0


def test_probes_of_one_namespace_leave_room_for_the_others() -> None:
    """Story: after eight probes of one slow endpoint, the buckets of other tenants were not checked any more."""
    release = threading.Event()

    async def passes() -> str | None:
        probes = Probes(lambda _: None)

        async def slow() -> str:
            await probes.call_in_thread(release.wait)
            return "late"

        async def quick() -> str:
            return await probes.call_in_thread(lambda: "found")

        for number in range(10 * NAMESPACE_PROBES_MAX):
            probes.fact(Key("StateStore", "slow", str(number)), "bucket", slow, 60)
        await asyncio.sleep(0)
        other = Key("StateStore", "other", "s")
        probes.fact(other, "bucket", quick, 60)
        async with asyncio.timeout(30):
            while (found := probes.latest_fact(other, "bucket")) is None:
                await asyncio.sleep(0.01)
        release.set()
        await probes.close()
        return str(found)

    assert asyncio.run(passes()) == "found"


def test_a_hanging_call_is_not_repeated_beside_itself() -> None:
    """Even after it was given up: its thread is busy, and counts for its namespace."""
    release, calls = threading.Event(), []

    async def passes() -> None:
        probes = Probes(lambda _: None, probe_seconds=0.02)

        async def slow() -> str:
            await probes.call_in_thread(lambda: (calls.append(1), release.wait()))
            return "late"

        for _ in range(10):
            probes.fact(Key("StateStore", "n", "s"), "bucket", slow, 0)
            await asyncio.sleep(0.02)
        assert len(calls) == 1
        release.set()
        async with asyncio.timeout(30):
            while len(calls) == 1:
                probes.fact(Key("StateStore", "n", "s"), "bucket", slow, 0)
                await asyncio.sleep(0.01)
        await probes.close()

    asyncio.run(passes())
