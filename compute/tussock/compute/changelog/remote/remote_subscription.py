"""A subscription to a stream whose flow another process serves: asks again and again, from what it has not had."""

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from tussock.compute.changelog.changes.transaction import StreamTransaction, published
from tussock.compute.changelog.remote.wire import from_bytes
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.statestore.errors import TussockError, WaitTimeout

if TYPE_CHECKING:
    from tussock.compute.changelog.remote.client import FlowClient

__all__ = ["RemoteSubscription"]

WAIT_MS = 2000
"""For which the node waits with its answer."""


class RemoteSubscription:
    """An iterator over the transactions of a stream, until `close`; for one thread at a time."""

    def __init__(
        self,
        client: "FlowClient",
        stream: str,
        from_seq: int | None,
        *,
        blocks: bool,
        buffer: int,
        timeout: float | None,
    ) -> None:
        """Registers with the node, so that nothing goes meanwhile. Raises `HistoryGone`, `InvalidOption`."""
        self.stream = stream
        self.is_closed = False
        self._client = client
        self._blocks = blocks
        self._buffer = buffer
        self._timeout = timeout
        self._name = client.unique_name()
        self._ready: deque[StreamTransaction] = deque()
        self.next = 1 if from_seq is None else max(from_seq, 1)
        """The number of the transaction that comes next."""
        self._asked_from = self.next
        self._poll(0, newest=from_seq is None)
        if from_seq is None:
            self.next = self._asked_from

    def __iter__(self) -> Iterator[StreamTransaction]:
        return self

    def __next__(self) -> StreamTransaction:
        """The next transaction, once it is durable. Raises `WaitTimeout`, `HistoryGone`, and what asking does."""
        until = None if self._timeout is None else self._client.monotonic() + self._timeout
        while not self._ready:
            if self.is_closed:
                raise StopIteration
            left = None if until is None else until - self._client.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeout(f"stream {self.stream!r} published nothing for {self._timeout:g} s")
            self._poll(WAIT_MS if left is None else min(WAIT_MS, int(1000 * left) + 1))
        one = self._ready.popleft()
        self.next = one.seq + 1
        return published(one, blocks=True) if self._blocks else one

    def close(self) -> None:
        """End; the stream waits for it no more. A second call is no error."""
        if self.is_closed:
            return
        self.is_closed = True
        self._ready.clear()
        asked = pb.Subscribe(stream=self.stream, subscriber=self._name, close=True)
        # Else the node finds out by itself that it is gone.
        with contextlib.suppress(TussockError):
            self._client.ask(pb.Request(subscribe=asked), is_repeatable=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _poll(self, wait_ms: int, *, newest: bool = False) -> None:
        asked = pb.Subscribe(
            stream=self.stream,
            subscriber=self._name,
            from_seq=self._asked_from,
            newest=newest,
            blocks=self._blocks,
            wait_ms=wait_ms,
            buffer=self._buffer,
        )
        found: dict[str, Any] = self._client.ask_now(pb.Request(subscribe=asked), is_repeatable=True)
        shapes = self._client.shapes()
        self._ready.extend(from_bytes(one, shapes) for one in found["transactions"])
        self._asked_from = found["next"]
