"""A name server with one address for all names, like one that knows a Service of Kubernetes."""

import socket
import struct
import threading
from types import TracebackType
from typing import Self

__all__ = ["NameServer"]

_HEADER_BYTES = 12
_TYPE_A = 1
_RESPONSE = 0x8400
"""Flags: an authoritative answer without an error."""


class NameServer:
    """A name server on a port of this machine (UDP), while it is entered. Names have IPv4 addresses only."""

    def __init__(self, answer: str) -> None:
        """`answer`: the address of every name, until it is set to another."""
        self.answer = answer
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # A datagram without a header is what ends the thread.
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            asked, sender = self._socket.recvfrom(512)
            if len(asked) < _HEADER_BYTES:
                return
            self._socket.sendto(self._answer(asked), sender)

    def _answer(self, asked: bytes) -> bytes:
        """The question and behind it the address, if that was asked for (RFC 1035, section 4.1)."""
        end = asked.index(b"\0", _HEADER_BYTES) + 5
        question = asked[_HEADER_BYTES:end]
        is_address = struct.unpack_from("!H", question, len(question) - 4)[0] == _TYPE_A
        header = asked[:2] + struct.pack("!5H", _RESPONSE, 1, int(is_address), 0, 0)
        # The name by a pointer to the question; class IN, no time to live, four bytes.
        record = struct.pack("!3HIH", 0xC000 | _HEADER_BYTES, _TYPE_A, 1, 0, 4) + socket.inet_aton(self.answer)
        return header + question + (record if is_address else b"")
