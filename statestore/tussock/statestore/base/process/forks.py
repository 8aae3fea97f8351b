"""Stores, and libraries, whose threads do not survive a fork: a call in the child would wait for ever.

So it is told instead, by `StoreClosed` or `InvalidOption`.
"""

import os
import weakref
from typing import Protocol

from tussock.statestore.errors import InvalidOption

__all__ = ["ForkGuard", "close_in_child"]


class _Closable(Protocol):
    closed: bool


_open: "weakref.WeakSet[_Closable]" = weakref.WeakSet()


def close_in_child(store: _Closable) -> None:
    """Have the store closed in processes that are forked off: its threads, locks and pins stay with this one.

    There it would hang, or answer from stale state.
    """
    _open.add(store)


def _close_all() -> None:
    for store in _open:
        store.closed = True


os.register_at_fork(after_in_child=_close_all)


class ForkGuard:
    """Whether one such library can be used in this process. Made once, when a module is loaded."""

    def __init__(self, library: str) -> None:
        """`library`: what it is for, in words, for people."""
        self._library = library
        self._used = False
        self._lost = False
        os.register_at_fork(after_in_child=self._note_fork)

    def use(self, what: str) -> None:
        """Note that it is used from here on; `InvalidOption` if the process that this one was forked from did.

        `what`: the thing that needs it.
        """
        if self._lost:
            raise InvalidOption(
                f"{what} cannot be opened in process {os.getpid()}: it was forked from one that had used "
                f"{self._library}, whose threads stayed there, so each request would wait for ever; start child "
                "processes by 'spawn' or 'forkserver' (multiprocessing.get_context), or fork before the first connect"
            )
        self.note()

    def note(self) -> None:
        """Note that its threads run in this process, for something that a fork of it does not need them for."""
        self._used = True

    def _note_fork(self) -> None:
        self._lost = self._lost or self._used
