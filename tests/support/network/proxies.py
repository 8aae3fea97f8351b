"""Proxies: one for the names of a cluster, one for a slow way, and one for a way that is closed for a while.

gRPC goes through the first where the variable `grpc_proxy` says so, so programs run as they are, names of hosts
included: what asks for a Service gets a process of this machine.
"""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

__all__ = ["ClosingPort", "ClusterProxy", "CutPort", "SlowPort"]


class _Proxy:
    """Listens on a free port of this machine while it is entered."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone does not wake the thread that waits in `accept`.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        raise NotImplementedError


class ClusterProxy(_Proxy):
    """An HTTP proxy for CONNECT."""

    def __init__(self) -> None:
        super().__init__()
        self.services: dict[str, str] = {}
        """`host:port` of a Service -> of the process. Other names are reached as they are."""

    @property
    def environment(self) -> dict[str, str]:
        return {"grpc_proxy": f"http://{self.address}"}

    def _serve(self, client: socket.socket) -> None:
        with client:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                received = client.recv(4096)
                if not received:
                    return
                head += received
            wanted = head.split(b" ")[1].decode()
            host, _, port = self.services.get(wanted, wanted).rpartition(":")
            try:
                server = socket.create_connection((host, int(port)), timeout=5)
            except OSError:
                client.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            server.settimeout(None)
            with server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                _join(client, server)


class SlowPort(_Proxy):
    """Another way to the server at `target` (`host:port`), whose first answer takes `seconds`."""

    def __init__(self, target: str, seconds: float) -> None:
        super().__init__()
        self._target, self._seconds = target, seconds

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self._target.rpartition(":")
        with client, socket.create_connection((host, int(port))) as server:
            time.sleep(self._seconds)
            _join(client, server)


class ClosingPort(_Proxy):
    """Another way to the server at `target` (`host:port`), which closes its connections while `is_closing`."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = target
        self.is_closing = True
        self.closed = 0
        self.carried = 0

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self._target.rpartition(":")
        with client:
            if self.is_closing:
                self.closed += 1
                return
            self.carried += 1
            with socket.create_connection((host, int(port))) as server:
                _join(client, server)


class CutPort(_Proxy):
    """Another way to the server at `target` (`host:port`), which is cut instead of the next reply by `cut`."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self._target = target
        self._is_cut = threading.Event()
        self.cuts = 0

    def cut(self) -> None:
        """Whatever the server sends next is lost, and its connection with it."""
        self._is_cut.set()

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self._target.rpartition(":")
        with client, socket.create_connection((host, int(port))) as server:
            back = threading.Thread(target=self._replies, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()

    def _replies(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if self._is_cut.is_set():
                    self._is_cut.clear()
                    self.cuts += 1
                    break
                client.sendall(data)
        for end in (server, client):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _join(client: socket.socket, server: socket.socket) -> None:
    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
    back.start()
    _copy(client, server)
    back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
