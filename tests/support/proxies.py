"""A proxy that stands for the names of a cluster: what asks for a Service gets a process of this machine.

gRPC goes through it where the variable `grpc_proxy` says so, so programs run as they are, names of hosts included.
"""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

__all__ = ["ClusterProxy"]


class ClusterProxy:
    """An HTTP proxy for CONNECT, on a free port, while it is entered."""

    def __init__(self) -> None:
        self.services: dict[str, str] = {}
        """`host:port` of a Service -> of the process. What is not in it is reached as it is called."""
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def environment(self) -> dict[str, str]:
        return {"grpc_proxy": f"http://127.0.0.1:{self._listener.getsockname()[1]}"}

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
