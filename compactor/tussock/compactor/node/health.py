"""Liveness and readiness of a compactor node, over HTTP.

| path | 200 | 503 |
|---|---|---|
| `/healthz` | its threads run | one has ended, which only a restart can cure |
| `/readyz` | it has a session at the meta service | it has none, or is shutting down |

A node whose service is away lives: a restart would not bring the service back. Callers need no credentials, and nothing
of the store is told. Python's own server is enough for a probe every few seconds.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tussock.statestore.errors import InvalidOption

__all__ = ["start_health"]

_REQUEST_SECONDS_MAX = 5
"""How long a connection may take to ask."""

Answer = Callable[[], str]
"""What is wrong at this moment; empty if nothing is."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], answers: dict[str, Answer]) -> None:
        self.answers = answers
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS_MAX
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path)
        problem = "no such page" if answer is None else answer()
        body = f"{problem or 'ok'}\n".encode()
        self.send_response(404 if answer is None else 503 if problem else 200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Nothing: probes would fill the log."""


def start_health(address: str, alive: Answer, ready: Answer) -> str:
    """Answer at `address` (`host:port`; port 0 takes a free one) until the process ends; tells where that is.

    `alive` and `ready` are called from other threads. `InvalidOption` if nobody can listen there.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise InvalidOption(f"health_listen is HOST:PORT, such as 0.0.0.0:7372, and not {address!r}")
    try:
        server = _Server((host, int(port)), {"/healthz": alive, "/readyz": ready})
    except OSError as error:
        raise InvalidOption(f"health_listen: cannot listen at {address}: {error.strerror}") from None
    threading.Thread(target=server.serve_forever, name="tussock-health", daemon=True).start()
    return f"{host}:{server.server_port}"
