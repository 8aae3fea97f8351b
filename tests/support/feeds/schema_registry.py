"""A server that speaks the HTTP interface of a schema registry, as far as readers need it."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["RegistryServer", "registry_server"]


class RegistryServer(ThreadingHTTPServer):
    """Schemas by number, and by subject and version."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[tuple[str, int], dict[str, Any]] = {}
        self.asked: list[str] = []
        self.user: tuple[str, str] | None = None
        self.answer: tuple[int, bytes] | None = None
        """In place of any other."""

    def register(self, number: int, schema: Any, **more: Any) -> None:
        """A schema under a number."""
        self.schemas[number] = {"schema": json.dumps(schema), **more}

    def found(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        """The answer to a question."""
        self.asked.append(path)
        if self.answer is not None:
            return self.answer
        if self.user is not None:
            expected = base64.b64encode(":".join(self.user).encode()).decode()
            if authorization != f"Basic {expected}":
                return 401, b'{"error_code":401,"message":"Unauthorized"}'
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, json.dumps(self.schemas[int(number)]).encode()
            case ["subjects", subject, "versions", version] if (subject, int(version)) in self.subjects:
                return 200, json.dumps(self.subjects[subject, int(version)]).encode()
        return 404, b'{"error_code":40403,"message":"Schema not found"}'


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        status, body = self.server.found(self.path, self.headers.get("Authorization"))
        self.send_response(status)
        if status in (301, 302):
            self.send_header("Location", body.decode())
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """A running one."""
    server = RegistryServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
