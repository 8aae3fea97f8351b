"""Idle connections to the HTTP port, and malformed requests: bounded, and no flood in the log."""

import asyncio
import logging
import socket

import pytest
from aiohttp import web

from support.service.statuses import bare_status
from tussock.meta.node.auth.caller import ANYONE
from tussock.meta.node.wire.http_connections import HOST_CONNECTIONS_MAX, IDLE_SECONDS_MAX
from tussock.meta.node.wire.http_port import start_http
from tussock.meta.server.wire.http_server import make_app

BAD_REQUEST = b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n"


async def _get(port: int, source: str, path: str = "/healthz") -> bytes:
    """The answer of a page to a client with this address; empty if the connection is closed at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the other side has ended the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 0.02) == b"" and reader.at_eof()
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.long
@pytest.mark.slow
def test_half_open_connections_of_a_host_are_bounded_and_closed() -> None:
    """Other hosts are served meanwhile, and so is that host after a while."""

    async def body() -> None:
        app = make_app(bare_status, lambda: bare_status().replica, lambda: b"", lambda _: ANYONE)
        connections, port = await start_http(app, "127.0.0.1", 0)
        held = []
        try:
            for _ in range(HOST_CONNECTIONS_MAX):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /healthz HTTP/1.1\r\nA: ")
                held.append((reader, writer))
            assert await _get(port, "127.0.0.2") != b""
            assert not await _is_closed(held[0][0])
            await asyncio.sleep(IDLE_SECONDS_MAX + 2)
            assert [await _is_closed(reader) for reader, _ in held] == [True] * HOST_CONNECTIONS_MAX
            assert b"200 OK" in await _get(port, "127.0.0.1")
        finally:
            for _, writer in held:
                writer.close()
            await connections.cleanup()

    asyncio.run(asyncio.wait_for(body(), 60))


def test_a_new_connection_takes_the_place_of_a_silent_one() -> None:
    """A probe is answered beside any number of silent connections of its host, and no connection at work is closed."""

    async def body() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def wait(_: web.Request) -> web.Response:
            asked.set()
            await answer.wait()
            return web.Response(text="done")

        app = make_app(bare_status, lambda: bare_status().replica, lambda: b"", lambda _: ANYONE)
        app.router.add_get("/wait", wait)
        connections, port = await start_http(app, "127.0.0.1", 0)
        at_work = asyncio.create_task(_get(port, "127.0.0.1", "/wait"))
        await asked.wait()
        held = []
        try:
            held += [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * HOST_CONNECTIONS_MAX)]
            for source in ("127.0.0.1", "127.0.0.1", "127.0.0.2"):
                assert b"200 OK" in await _get(port, source)
            closed = [await _is_closed(reader) for reader, _ in held]
            # Beside them are the one at work and a probe, or both probes.
            assert HOST_CONNECTIONS_MAX - 3 <= closed.count(False) <= HOST_CONNECTIONS_MAX - 2
            assert closed == sorted(closed, reverse=True)
            answer.set()
            assert b"done" in await at_work
        finally:
            answer.set()
            for _, writer in held:
                writer.close()
            await connections.cleanup()

    asyncio.run(asyncio.wait_for(body(), 120))


def test_malformed_requests_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The line has no traceback, for any number of requests; they need no token."""

    def send(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(BAD_REQUEST)
            try:
                while connection.recv(4096):
                    pass
            except ConnectionError:
                pass

    async def body() -> None:
        connections, port = await start_http(
            make_app(bare_status, lambda: bare_status().replica, lambda: b"", lambda _: ANYONE), "127.0.0.1", 0
        )
        try:
            for _ in range(100):
                await asyncio.to_thread(send, port)
        finally:
            await connections.cleanup()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(asyncio.wait_for(body(), 60))
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage().partition(";")[0] for record in told] == ["1 HTTP requests could not be read"]
    assert told[0].exc_info is None
