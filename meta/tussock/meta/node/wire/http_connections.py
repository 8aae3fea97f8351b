"""Which connections the HTTP port takes, for how long they may ask nothing, and what the log says of bad requests.

Nobody needs a token to connect, so connections are counted for each host: one that holds many leaves room for the
kubelet's probes. A connection that has asked nothing for a while, or never ends its question, is closed. Where
there is no place left, the one that has been silent for longest makes room for a new one, of the same host or of the
host that has most: so a probe is answered beside any number of silent connections.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from tussock.meta.node.repeated_warnings import TOLD_SECONDS

__all__ = ["CONNECTIONS_MAX", "HOST_CONNECTIONS_MAX", "IDLE_SECONDS_MAX", "HttpConnections"]

CONNECTIONS_MAX = 1024
HOST_CONNECTIONS_MAX = 64
IDLE_SECONDS_MAX = 15.0
"""Without a request that has come to its end; also for a TLS handshake."""
SWEEP_SECONDS = 1.0


class HttpConnections:
    """The connections of one port: `listen`, then `cleanup`. Used by one event loop."""

    def __init__(self, app: web.Application) -> None:
        """Not listening yet; `app` must not have been started."""
        app.middlewares.append(self._watch_request)
        logger = logging.getLogger("tussock.meta.http")
        logger.filters[:] = [_Unreadable()]
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=IDLE_SECONDS_MAX, logger=logger)
        self._listening: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._hosts: dict[web.RequestHandler, str] = {}
        self._asked: dict[web.RequestHandler, float] = {}
        self._busy: set[asyncio.BaseProtocol] = set()

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Take connections from now on; returns the port, a free one for 0."""
        await self._runner.setup()
        self._listening = await asyncio.get_running_loop().create_server(
            lambda: _Newcomer(self), host, port, ssl=tls, ssl_handshake_timeout=IDLE_SECONDS_MAX if tls else None
        )
        self._sweeping = asyncio.create_task(self._sweep())
        address: tuple[str, int] = self._listening.sockets[0].getsockname()
        return address[1]

    async def cleanup(self) -> None:
        """Close all, once requests that are being answered are done."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()

    def admit(self, transport: asyncio.Transport) -> asyncio.BaseProtocol | None:
        """What serves a new connection; `None` if its host, or all together, have as many as they may, all at work."""
        self._forget()
        if self._runner.server is None:
            return None
        host = (transport.get_extra_info("peername") or ("",))[0]
        held = Counter(self._hosts.values())
        if held[host] >= HOST_CONNECTIONS_MAX:
            if not self._make_place(host):
                return None
        elif len(self._hosts) >= CONNECTIONS_MAX and not self._make_place(held.most_common(1)[0][0]):
            return None
        handler = self._runner.server()
        self._hosts[handler] = host
        self._asked[handler] = asyncio.get_running_loop().time()
        return handler

    def _make_place(self, host: str) -> bool:
        """Close the connection of the host that has asked nothing for longest; `False` if all of them are at work."""
        idle = [handler for handler, other in self._hosts.items() if other == host and handler not in self._busy]
        if not idle:
            return False
        oldest = min(idle, key=self._asked.__getitem__)
        del self._hosts[oldest], self._asked[oldest]
        # Not a close, which over TLS waits for the other side: many of those could be open at once.
        if oldest.transport is not None:
            oldest.transport.abort()
        return True

    @web.middleware
    async def _watch_request(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._busy.discard(request.protocol)
            self._asked[request.protocol] = asyncio.get_running_loop().time()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._forget()
            before = asyncio.get_running_loop().time() - IDLE_SECONDS_MAX
            for handler in self._runner.server.connections if self._runner.server else ():
                if handler not in self._busy and self._asked.get(handler, before) <= before:
                    handler.force_close()

    def _forget(self) -> None:
        """Drop what is known of connections that are gone."""
        alive = set(self._runner.server.connections) if self._runner.server else set()
        self._hosts = {handler: host for handler, host in self._hosts.items() if handler in alive}
        self._asked = {handler: at for handler, at in self._asked.items() if handler in alive}


class _Newcomer(asyncio.Protocol):
    """A connection that nobody has looked at: it is handed on, or closed without an answer."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        handler = self._connections.admit(transport)
        if handler is None:
            transport.abort()
            return
        transport.set_protocol(handler)
        handler.connection_made(transport)


class _Unreadable(logging.Filter):
    """Lets one line a minute through about requests that are none; aiohttp writes one for each, with a trace."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._told_at = -TOLD_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be written; it is made to tell of all since the last one."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        self._count += 1
        if record.created - self._told_at < TOLD_SECONDS:
            return False
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = f"{self._count} HTTP requests could not be read; of the last one: {error.message:.100}"
        record.args, record.exc_info, record.exc_text = (), None, None
        self._told_at, self._count = record.created, 0
        return True
