"""The worker's end of the call by which it has joined a program."""

import queue
from collections.abc import Iterator

import grpc

from tussock.compute.applications.errors import ServiceUnavailable
from tussock.compute.service.client.channel import ApplicationChannel
from tussock.compute.service.rpc.worker_parts import MessageParts, parts_of

__all__ = ["WorkerCall"]

WAITING_MAX = 64
"""Messages that may wait to be sent; beyond, those are left out that nobody misses."""


class WorkerCall:
    """One thread receives; several may send."""

    def __init__(self, channel: ApplicationChannel, bytes_max: int) -> None:
        """Dials; `bytes_max`: of a message that comes. `InvalidOption` if a token's or certificate's file is bad."""
        self._channel = channel
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._parts = MessageParts(bytes_max)
        self._stream = channel.work(self._messages())

    def send(self, message: bytes, *, is_dispensable: bool = False) -> None:
        """Let it go behind what waits; one that is dispensable not if much waits. Tells nothing of a broken call."""
        if not is_dispensable or self._outbox.qsize() < WAITING_MAX:
            self._outbox.put(message)

    def receive(self) -> bytes:
        """The next message. Raises the error by which the program ended the call, and `ServiceUnavailable`."""
        try:
            for data in self._stream:
                message = self._parts.take(data)
                if message is not None:
                    return message
        except grpc.RpcError as error:
            raise self._channel.error_of(error) from None
        raise ServiceUnavailable(f"the program at {self._channel.address} has hung up")

    def finish(self) -> None:
        """Say nothing more behind what waits; what comes may still be received."""
        self._outbox.put(None)

    def close(self) -> None:
        """End at once."""
        self._outbox.put(None)
        self._stream.cancel()

    def _messages(self) -> Iterator[bytes]:
        while (message := self._outbox.get()) is not None:
            yield from parts_of(message)
