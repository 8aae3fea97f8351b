"""What a transaction draws from outside: the time, random numbers, answers of other systems.

Each is recorded in the order in which it was asked for, and given again when the transaction is replayed.
"""

import datetime as dt
import inspect
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from tussock.compute.applications.arguments import check_plain, check_text
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
        self.lost = ""
        """The key of a call outside that gave no answer: nothing is recorded of it, so a replay has none."""
        self.is_asking = False
        """Whether the function of a call outside runs. That does not run again, so it may use nothing of this."""

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

        The answer is plain: None, booleans, numbers, strings, bytes, times with a zone, and lists and dicts of them, of
        at most 1 MiB. It comes as a replay reads it, so a tuple is a list.
        """
        # Before the request is made durable: what cannot be recorded would be asked for at each start again.
        check_text(key, "the key of an outside call")

        def ask() -> Any:
            self._before_call()
            self.lost, self.is_asking = key, True
            try:
                packed = self._answer(fn, key)
            finally:
                self.is_asking = False
            self.lost = ""
            return packed

        found = self._draw(f"call {key}", ask)
        # Each time a copy: what is done to one is not part of the answer, which may be asked for again.
        return msgspec.msgpack.decode(found if isinstance(found, msgspec.Raw) else msgspec.msgpack.encode(found))

    def _answer(self, fn: Callable[[str], Any], key: str) -> Any:
        return _packed(fn(key), f"the answer of the outside call {key!r:.100}")

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


def _packed(answer: Any, what: str) -> msgspec.Raw:
    if inspect.iscoroutine(answer):
        answer.close()
        raise InvalidOption(f"{what} is a coroutine: give a plain function, which waits for the answer itself")
    try:
        packed = msgspec.msgpack.encode(answer)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidOption(f"{what} cannot be recorded: {error}") from error
    if len(packed) > ANSWER_BYTES_MAX:
        raise InvalidOption(f"{what} has {len(packed):,} bytes; at most 1 MiB fit")
    check_plain(answer, what)
    return msgspec.Raw(packed)
