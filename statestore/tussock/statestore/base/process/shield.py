"""Methods of a store that Ctrl-C must not end halfway; see `interrupts.py`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tussock.statestore.base.system import System

__all__ = ["uninterrupted"]


class _WithSystem(Protocol):
    @property
    def system(self) -> System: ...


class _OfStore(Protocol):
    @property
    def _parts(self) -> _WithSystem: ...


P = ParamSpec("P")
T = TypeVar("T")
Self = TypeVar("Self", bound=_OfStore)


def uninterrupted(method: Callable[Concatenate[Self, P], T]) -> Callable[Concatenate[Self, P], T]:
    """The method, done as a whole; if the main thread is interrupted, it goes on, or does not begin.

    What it returned is closed then, if it can be: nobody has it.
    """

    @wraps(method)
    def run(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._parts.system.uninterrupted(lambda: method(self, *args, **kwargs), _close)

    return run


def _close(unwanted: Any) -> None:
    close = getattr(unwanted, "close", None)
    if close is not None:
        close()
