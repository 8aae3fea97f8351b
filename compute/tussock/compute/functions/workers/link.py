"""Frames over a socket between a program and one worker; how they look is in `messages.py`."""

import socket
import struct
import threading
from typing import Any

import msgspec

from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.workers.messages import FRAME_BYTES_MAX
from tussock.statestore.base.damage import UNREADABLE

__all__ = ["Link"]

_HEAD = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode


class Link:
    """One end. One thread receives; several may send."""

    def __init__(self, end: socket.socket, kinds: Any) -> None:
        """`kinds`: the messages that come, as a union."""
        self._end = end
        self._decode = msgspec.msgpack.Decoder(kinds).decode
        self._lock = threading.Lock()
        self._buffer = b""

    def send(self, message: Any, seconds: float | None) -> None:
        """Raises `WorkerLost` if the other end is gone, or takes nothing for that long, or the message is too large."""
        data = _encode(message)
        if len(data) > FRAME_BYTES_MAX:
            raise WorkerLost(f"a message of {len(data):,} bytes; at most {FRAME_BYTES_MAX:,} fit")
        try:
            with self._lock:
                self._end.settimeout(seconds)
                self._end.sendall(_HEAD.pack(len(data)) + data)
        except OSError as error:
            raise WorkerLost(f"it takes no messages: {type(error).__name__} {error}") from error

    def receive(self, seconds: float | None) -> Any:
        """The next message; `WorkerLost` if none comes for that long, the end is gone, or it is no message."""
        (length,) = _HEAD.unpack(self._read(_HEAD.size, seconds))
        if length > FRAME_BYTES_MAX:
            raise WorkerLost(f"it announced a message of {length:,} bytes; at most {FRAME_BYTES_MAX:,} fit")
        try:
            return self._decode(self._read(length, seconds))
        except UNREADABLE as error:
            raise WorkerLost(f"it sent what is no message: {error}") from error

    def close(self) -> None:
        """The other end notices."""
        self._end.close()

    def _read(self, count: int, seconds: float | None) -> bytes:
        if len(self._buffer) < count:
            pieces, size = [self._buffer], len(self._buffer)
            try:
                while size < count:
                    self._end.settimeout(seconds)
                    piece = self._end.recv(max(count - size, 1 << 16))
                    if not piece:
                        raise WorkerLost("its process has ended")
                    pieces.append(piece)
                    size += len(piece)
            except OSError as error:
                raise WorkerLost(f"it does not answer: {type(error).__name__} {error}") from error
            self._buffer = b"".join(pieces)
        found, self._buffer = self._buffer[:count], self._buffer[count:]
        return found
