"""A way for a browser to a console that asks for certificates (`docs/console.md`).

A browser would need the certificate of a client, and would not know the console's own. So this process shows the one
and checks the other, and lets the browser in by a key that it draws: it is in the address that the user opens, and
then in a cookie. Nothing else on the machine, and no page of somebody else, gets through: only requests to look are
passed on, to one pod, from this machine's own address.
"""

import hmac
import http.client
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import BoundedSemaphore, Thread
from urllib.parse import parse_qs, urlsplit

from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.probes.platform import Certificates
from tussock.statestore.base.system import System

__all__ = ["tls_context", "way_in"]

ANSWER_SECONDS = 30.0
REQUESTS_MAX = 32
PIECE_BYTES = 64 << 10
KEY_BYTES = 24
_ASKED = ("Accept", "Authorization", "If-None-Match")
_ANSWERED = (
    "Cache-Control",
    "Content-Length",
    "Content-Security-Policy",
    "Content-Type",
    "Cross-Origin-Opener-Policy",
    "Cross-Origin-Resource-Policy",
    "ETag",
    "Referrer-Policy",
    "WWW-Authenticate",
    "X-Content-Type-Options",
)


class _Gateway(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = REQUESTS_MAX

    def __init__(self, port: int, towards: str, context: ssl.SSLContext, name: str, key: str) -> None:
        super().__init__(("127.0.0.1", port), _Visit)
        self.port = self.server_address[1]
        self.key = key
        self.cookie = f"tussock-console-{self.port}"
        self.turns = BoundedSemaphore(REQUESTS_MAX)
        self._towards, self._context, self._name = towards, context, name

    @contextmanager
    def connection(self) -> Iterator[http.client.HTTPConnection]:
        """A connection to the console, whose certificate has the service's name and not an address's."""
        host, _, port = self._towards.rpartition(":")
        plain = socket.create_connection((host, int(port)), ANSWER_SECONDS)
        found = http.client.HTTPConnection(self._name, timeout=ANSWER_SECONDS)
        try:
            found.sock = self._context.wrap_socket(plain, server_hostname=self._name)
            yield found
        finally:
            found.close()
            plain.close()

    def handle_error(self, *_: object) -> None:
        """A browser that goes away is no error."""


class _Visit(BaseHTTPRequestHandler):
    server: _Gateway
    protocol_version = "HTTP/1.1"
    timeout = ANSWER_SECONDS

    def do_GET(self) -> None:
        with self.server.turns:
            self._answer()

    do_HEAD = do_GET  # noqa: N815 - as above

    def _answer(self) -> None:
        asked = urlsplit(self.path)
        # Another name for this address is that of a page of somebody else.
        if self.headers.get("Host") not in (f"127.0.0.1:{self.server.port}", f"localhost:{self.server.port}"):
            self._refuse(403, "this is the console of Tussock at 127.0.0.1 alone")
        elif self._is_key(parse_qs(asked.query).get("key", [""])[0]):
            self._let_in()
        elif not self._is_key(self._shown()):
            self._refuse(403, "open the address that kubectl tussock console has printed")
        else:
            self._pass_on()

    def _is_key(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.server.key.encode())

    def _shown(self) -> str:
        pairs = (pair.strip().partition("=") for pair in self.headers.get("Cookie", "").split(";"))
        return next((value for name, _, value in pairs if name == self.server.cookie), "")

    def _let_in(self) -> None:
        """The key goes from the address, which browsers keep, into a cookie, which goes with the browser."""
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{self.server.cookie}={self.server.key}; Path=/; HttpOnly; SameSite=Strict")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _pass_on(self) -> None:
        try:
            with self.server.connection() as towards:
                headers = {name: self.headers[name] for name in _ASKED if name in self.headers}
                towards.request(self.command, self.path, headers=headers)
                answer = towards.getresponse()
                self._send(answer)
        except (OSError, http.client.HTTPException) as error:
            if self._has_begun:
                self.close_connection = True
            else:
                self._refuse(502, f"the console does not answer: {error}")

    _has_begun = False

    def _send(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name in _ANSWERED:
            if (value := answer.getheader(name)) is not None:
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            # Its end is that of the connection.
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self._has_begun = True
        while piece := answer.read(PIECE_BYTES):
            self.wfile.write(piece)
        self._has_begun = False

    def _refuse(self, code: int, why: str) -> None:
        text = f"{why}\n".encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing: an address may have the key."""


def tls_context(certificates: Certificates) -> ssl.SSLContext:
    """Trusts the store's CA, and shows the client's certificate; `KubectlFailed` if they are none."""
    try:
        context = ssl.create_default_context(cadata=certificates.ca.decode())
        # Python reads keys from files only; nobody else can read this one, and it is gone at once.
        with tempfile.TemporaryDirectory(prefix="tussock-console-") as folder:
            pair = Path(folder) / "pair.pem"
            handle = os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(certificates.certificate + b"\n" + certificates.key)
            context.load_cert_chain(pair)
    except (ssl.SSLError, ValueError) as error:
        raise KubectlFailed(f"the certificate in the secret cannot be used: {error}") from error
    return context


@contextmanager
def way_in(port: int, towards: str, context: ssl.SSLContext, name: str, system: System) -> Iterator[str]:
    """Serve the console at `towards` on that port of this machine (0: a free one); yields the address to open."""
    try:
        server = _Gateway(port, towards, context, name, system.random_bytes(KEY_BYTES).hex())
    except OSError as error:
        raise KubectlFailed(f"port {port} of this machine cannot be used: {error.strerror}") from error
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}/?key={server.key}"
    finally:
        server.shutdown()
        server.server_close()
