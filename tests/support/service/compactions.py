"""Manual compactions in a thread, so that the test can watch them."""

import threading

from support.waiting import WAIT_SECONDS
from tussock.statestore import StateStore
from tussock.statestore.errors import TussockError


class CompactCall:
    """A call of `store.compact`, which begins at once."""

    def __init__(self, store: StateStore, table: str) -> None:
        self._error: TussockError | None = None
        self._thread = threading.Thread(target=self._run, args=(store, table), daemon=True)
        self._thread.start()

    def _run(self, store: StateStore, table: str) -> None:
        try:
            store.compact(table)
        except TussockError as error:
            self._error = error

    def wait(self) -> None:
        """Wait for its end; raises its error."""
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive(), "the compaction did not end"
        if self._error is not None:
            raise self._error
