"""What the procedures of one key draw from outside in a batch: the same again, in whichever process they run again."""

import datetime as dt
import hashlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tussock.statestore.errors import InvalidOption

__all__ = ["GroupDraws"]


class GroupDraws:
    """The draws of one key in one batch.

    Random values are derived from the application, the batch, the key and their number, so they are no secret. The time
    is the batch's, the same for all keys.
    """

    def __init__(self, application: str, batch_id: int, key: bytes, now: Callable[[], dt.datetime]) -> None:
        self._seed = f"{application}\0{batch_id}\0".encode() + key
        self._number = 0
        self._now = now
        self.lost = ""
        self.is_asking = False
        """As of `Draws`; there are no calls outside."""

    def now(self) -> dt.datetime:
        """The time of the batch, in UTC."""
        return self._now()

    def random(self) -> float:
        """A number from 0 to below 1, with 53 bits."""
        return (int.from_bytes(self._bytes()[:7], "big") >> 3) / (1 << 53)

    def uuid(self) -> UUID:
        """A UUID (version 4)."""
        return UUID(bytes=self._bytes()[:16], version=4)

    def call_external(self, fn: Callable[[str], Any], key: str) -> Any:
        """Refused: a task that runs twice would call twice, and the answers would be different ones."""
        raise InvalidOption(
            f"the outside call {key!r} of {getattr(fn, '__name__', fn)!r:.100}: procedures of a partitioned "
            "application call nothing outside, since a task may run several times at once; write the request to "
            "a table, and call from what reads that"
        )

    def _bytes(self) -> bytes:
        self._number += 1
        return hashlib.sha256(self._number.to_bytes(8, "big") + self._seed).digest()
