"""Brings a program back to where it was when a process that it shares its entities with is lost.

All of them go back to the newest commit, and what came since runs again from its records, as after a start; then what
was interrupted runs again. Callers wait meanwhile, and none of them fails.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from tussock.compute.applications.durability.troubles import WORKERS
from tussock.compute.applications.program import Host
from tussock.compute.applications.records import Record
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.errors import WorkerFault, WorkerLost
from tussock.statestore.base.logs import get_logger

__all__ = ["Comeback", "Interrupted"]

T = TypeVar("T")

log = get_logger("tussock.compute.functions.comeback")

LOSSES_MAX = 5
"""One after the other, without an end of what they were lost in."""


class Interrupted(NamedTuple):
    """What a loss has interrupted."""

    running: list[FunctionTransaction]
    waiting: dict[int, FunctionRequest]
    """By number, as callers wait for their replies."""
    is_replay: bool


class Comeback:
    """For the thread that runs the program."""

    def __init__(
        self, program: str, restore: Callable[[], None] | None, again: Callable[[bytes, Sequence[Record]], None]
    ) -> None:
        """`restore` brings the processes back to the newest commit, `again` runs records on the progress of a cut.

        Without a `restore` there are no other processes: nothing is lost, and nothing kept.
        """
        self._program = program
        self._begin_anew = restore
        self._again = again
        self._state = b""
        self._records: list[Record] = []
        self._nbytes = 0
        self.host: Host | None = None
        self.count = 0
        """How often processes were lost."""

    def begin(self, host: Host, state: bytes) -> None:
        """The program is loaded: let the processes begin at its newest commit, whose progress `state` is."""
        self.host = host
        self.note_cut(state)
        if self._begin_anew is not None:
            self.through(self._begin_anew)

    @property
    def nbytes(self) -> int:
        """Of the records that are kept."""
        return self._nbytes

    def note_cut(self, state: bytes) -> None:
        """This is the newest cut: nothing before it runs again."""
        self._state, self._records, self._nbytes = state, [], 0

    def note(self, record: Record) -> None:
        """This ran since the cut."""
        if self._begin_anew is None:
            return
        self._records.append(record)
        self._nbytes += len(record.given)

    def through(self, work: Callable[[], T]) -> T:
        """What `work` returns, however often it has to be repeated; `WorkerFault` if that is too often."""
        losses = 0
        while True:
            try:
                return work()
            except WorkerLost as error:
                lost: WorkerLost | None = error
            while lost is not None:
                losses += 1
                self.count += 1
                if losses > LOSSES_MAX:
                    raise WorkerFault(
                        f"program {self._program!r}: its workers were lost {losses} times in a row, the last time so: "
                        f"{lost}; look at their messages, and start the program again"
                    ) from lost
                log.warning("program goes back to its newest commit", program=self._program, error=str(lost))
                self._note(lost)
                try:
                    self._go_back()
                    self._note(None)
                    lost = None
                except WorkerLost as error:
                    lost = error

    def _note(self, lost: WorkerLost | None) -> None:
        if self.host is None:
            return
        if lost is None:
            self.host.troubles.end(WORKERS)
        else:
            self.host.troubles.note(WORKERS, lost)

    def _go_back(self) -> None:
        assert self._begin_anew is not None
        if self.host is not None:
            self.host.wait_committed()
        self._begin_anew()
        self._again(self._state, self._records)
