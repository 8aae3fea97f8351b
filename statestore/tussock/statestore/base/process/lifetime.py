"""Whether an open store may be used: not after `close`, and not in a process that was forked off since."""

import os

from tussock.statestore.base.process.forks import close_in_child
from tussock.statestore.errors import StoreClosed

__all__ = ["Lifetime"]


class Lifetime:
    """Of one open store; all its parts look at the same."""

    def __init__(self, url: str) -> None:
        self.closed = False
        self._url = url
        self._process = os.getpid()
        close_in_child(self)

    @property
    def is_inherited(self) -> bool:
        """Whether the store was opened before this process was forked off; its pins and threads are the parent's."""
        return self.closed and os.getpid() != self._process

    def check_process(self) -> None:
        """Raise `StoreClosed` in a process that was forked after the store was opened, before it waits for a lock."""
        if self.is_inherited:
            self.check_usable()

    def check_usable(self) -> None:
        """Raise `StoreClosed` after `close`, and in a process that was forked after the store was opened."""
        if self.closed:
            what = "was closed" if os.getpid() == self._process else "was opened before this process was forked off"
            raise StoreClosed(f"the store at {self._url} {what}; connect again")
