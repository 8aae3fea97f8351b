"""What a transaction draws from outside: the time, random numbers, answers of other systems.

Each is recorded in the order in which it was asked for, and given again when the transaction is replayed.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from tussock.compute.applications.errors import NotDeterministic
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

__all__ = ["Draws"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ANSWER_BYTES_MAX = 1 << 20


class Draws:
    """The draws of one transaction."""

    def __init__(self, system: System, before_call: Callable[[], None], recorded: list[Any] | None = None) -> None:
        """`recorded` are those of the run that is replayed; `before_call` makes durable what led to a call outside."""
        self._system = system
        self._before_call = before_call
        self._recorded = None if recorded is None else iter(recorded)
        self.drawn: list[Any] = []

    def now(self) -> dt.datetime:
        """The wall clock, in milliseconds, with UTC as its zone."""
        return _EPOCH + dt.timedelta(milliseconds=self._draw("now", self._system.now_ms))

    def random(self) -> float:
        """A number from 0 to below 1, with 53 random bits."""
        return int(self._draw("random", lambda: int.from_bytes(self._system.random_bytes(7), "big") >> 3)) / (1 << 53)

    def uuid(self) -> UUID:
        """A random UUID (version 4)."""
        return UUID(bytes=self._draw("uuid", lambda: self._system.random_bytes(16)), version=4)

    def call_external(self, fn: Callable[[str], Any], key: str) -> Any:
        """What `fn(key)` answered the first time; `key` is for the other side to tell a repeated call by.

        The answer is plain: None, booleans, numbers, strings, bytes, and lists and dicts of them, of at most 1 MiB.
        """
        if not isinstance(key, str) or not key:
            raise InvalidOption(f"the key of an outside call is {key!r:.100}; expected a string that is the same again")

        def ask() -> Any:
            self._before_call()
            answer = fn(key)
            try:
                nbytes = len(msgspec.msgpack.encode(answer))
            except (TypeError, OverflowError) as error:
                raise InvalidOption(f"the answer of the outside call {key!r} cannot be recorded: {error}") from error
            if nbytes > ANSWER_BYTES_MAX:
                raise InvalidOption(f"the answer of the outside call {key!r} has {nbytes} bytes; at most 1 MiB fit")
            return answer

        return self._draw(f"call {key}", ask)

    def _draw(self, what: str, ask: Callable[[], Any]) -> Any:
        if self._recorded is None:
            value = ask()
        else:
            pair = next(self._recorded, None)
            if pair is None or pair[0] != what:
                found = "nothing more" if pair is None else f"{pair[0]!r}"
                raise NotDeterministic(f"the replay asked for {what!r}, and the first run had asked for {found} there")
            value = pair[1]
        self.drawn.append((what, value))
        return value
