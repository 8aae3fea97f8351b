"""A lock under which an interrupt leaves nothing half done: Ctrl-C may end the main thread between any two steps."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

__all__ = ["mending"]


@contextmanager
def mending(lock: AbstractContextManager[object], mend: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for a change, which `mend` sets right where it ends with an error, an interrupt included."""
    with lock:
        try:
            yield
        except BaseException:
            mend()
            raise
