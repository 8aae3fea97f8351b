"""HTTP to a bucket's server for one probe, limited in time and in bytes.

Timeouts of sockets start again with each byte, so a server that sends one every few seconds would keep a thread for
ever. Here all requests of a probe share one deadline: when it is over, its connections are shut down, and everything
that waits for them fails. Responses have a maximum size, and redirects are not followed.
"""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Any, Literal, Self

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import BaseHTTPResponse

__all__ = ["CONNECTIONS_MAX", "AnswerTooLong", "BoundedPool"]

CONNECTIONS_MAX = 4
"""The most requests that a probe has under way."""
ANSWER_BYTES_MAX = 8 << 20
"""The longest response of a well-behaved server is a list of 1000 objects: about a megabyte."""


class AnswerTooLong(urllib3.exceptions.HTTPError):
    """A server sent more than any answer needs."""


class BoundedPool(urllib3.PoolManager):
    """The connections of one probe. As a context manager, it closes them."""

    def __init__(self, connect_seconds: float, answer_seconds: float, seconds: float) -> None:
        """`seconds` limits everything together; the others limit each connection and each wait for bytes."""
        timeout = urllib3.Timeout(connect=connect_seconds, read=answer_seconds)
        super().__init__(timeout=timeout, retries=False, maxsize=CONNECTIONS_MAX)
        self.is_over = False
        """Whether the deadline has passed."""
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()
        self.pool_classes_by_scheme = _pools(self._watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._timer.cancel()
        self.clear()
        with self._lock:
            for known in self._sockets:
                known.close()
            self._sockets.clear()
        return False

    def urlopen(self, method: str, url: str, redirect: bool = True, **given: Any) -> BaseHTTPResponse:  # type: ignore[override]  # noqa: ARG002 - urllib3's own
        """As in urllib3, with a body of at most `ANSWER_BYTES_MAX`, except for objects, which callers read in parts."""
        at_once = given.pop("preload_content", True)
        response = super().urlopen(method, url, redirect=False, preload_content=False, **given)
        self.check()
        if not at_once and response.status < 400:  # otherwise it is an error text, which the library reads whole
            return response
        body = response.read(ANSWER_BYTES_MAX + 1, decode_content=False)
        self.check()
        if len(body) > ANSWER_BYTES_MAX:
            response.close()
            raise AnswerTooLong(f"its answer has more than {ANSWER_BYTES_MAX >> 20} MiB")
        response.release_conn()
        return urllib3.HTTPResponse(body, response.headers, response.status, reason=response.reason)

    def check(self) -> None:
        """Raise `TimeoutError` after the deadline: a response that was cut off may look complete."""
        if self.is_over:
            raise TimeoutError("the deadline has passed")

    def _watch(self, made: socket.socket) -> None:
        # A duplicate survives TLS's wrapping of the socket, and shuts the same connection down.
        with self._lock:
            self._sockets.append(made.dup())
        if self.is_over:
            self._shut_down()

    def _shut_down(self) -> None:
        self.is_over = True
        with self._lock:
            for known in self._sockets:
                with contextlib.suppress(OSError):
                    known.shutdown(socket.SHUT_RDWR)


def _pools(watch: Any) -> dict[str, Any]:
    """Pools of connections that report their sockets to `watch`."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            watch(made)
            return made

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            watch(made)
            return made

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
