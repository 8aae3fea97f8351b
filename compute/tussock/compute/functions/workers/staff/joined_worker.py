"""A worker that has joined over a network: the port moves its messages, and the program's thread waits for them."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from tussock.compute.functions.errors import WorkerLost
from tussock.compute.functions.workers.messages import FRAME_BYTES_MAX, FromWorker, StillAlive
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import InvalidOption

__all__ = ["JoinedWorker", "is_alive"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromWorker).decode
ALIVE_BYTES_MAX = 16
"""No other message is so short and may come unasked."""


def is_alive(message: bytes) -> bool:
    """Whether it is `StillAlive`; `InvalidOption` for a short one that is no message."""
    if len(message) > ALIVE_BYTES_MAX:
        return False
    try:
        return type(_decode(message)) is StillAlive
    except UNREADABLE as error:
        raise InvalidOption(f"it sent what is no message: {error}") from None


class JoinedWorker:
    """A `Worker` and its link. It holds one answer at most, so nothing that comes has to wait for room."""

    process = 0

    def __init__(self, peer: str, carry: Callable[[bytes | None], None]) -> None:
        """`carry` sends a message, and hangs up for `None`."""
        self.name = f"at {peer}"
        self.link = self
        self._carry = carry
        self._changed = threading.Condition()
        self._is_asked = False
        self._answer: bytes | None = None
        self._why = ""
        """Why it is gone."""

    @property
    def is_there(self) -> bool:
        """Whether it is not known to be gone."""
        return not self._why

    # --- For the program ---------------------------------------------------------------------------------------------

    def send(self, message: Any, seconds: float | None) -> None:  # noqa: ARG002 - the port sends, and does not wait
        """Ask it for something."""
        data = _encode(message)
        if len(data) > FRAME_BYTES_MAX:
            raise WorkerLost(f"a message of {len(data):,} bytes; at most {FRAME_BYTES_MAX:,} fit")
        with self._changed:
            if self._why:
                raise WorkerLost(self._why)
            self._is_asked = True
        self._carry(data)

    def receive(self, seconds: float | None) -> Any:  # noqa: ARG002 - the port ends it once it is silent
        """Its answer; `WorkerLost` once it is gone, or for what is no message."""
        with self._changed:
            self._changed.wait_for(lambda: self._answer is not None or self._why)
            data, self._answer = self._answer, None
        if data is None:
            raise WorkerLost(self._why)
        try:
            return _decode(data)
        except UNREADABLE as error:
            raise WorkerLost(f"it sent what is no message: {error}") from error

    def close(self) -> None:
        """Hang up."""
        self.gone("the program has hung up on it")
        self._carry(None)

    # --- For the port ------------------------------------------------------------------------------------------------

    def take(self, message: bytes) -> None:
        """It has said something; `InvalidOption` for an answer that nobody has asked for."""
        if is_alive(message):
            return
        with self._changed:
            if not self._is_asked:
                raise InvalidOption("it answered what nobody had asked")
            self._is_asked = False
            self._answer = message
            self._changed.notify_all()

    def gone(self, why: str) -> None:
        """Nothing comes any more."""
        with self._changed:
            self._why = self._why or why
            self._changed.notify_all()
