"""What takes the rows of an output away: where they go, and the thread that brings them there."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from tussock.statestore.base.system import System

__all__ = ["Outbox", "OutputTarget", "Sender", "UnsentRow"]


class UnsentRow(NamedTuple):
    """A row that the target refuses, whatever is tried."""

    sequence: int
    position: int
    cause: str
    key: bytes | None
    value: bytes | None


class Outbox(Protocol):
    """What there is to send."""

    def newest(self) -> int:
        """The sequence of the newest rows, be they committed or not."""

    def read(self, after: int) -> Iterator[tuple[int, pa.Table]]:
        """Committed rows after a sequence: for each sequence all its rows, ascending, of some first ones."""

    def sent(self, sequence: int) -> None:
        """All rows up to this one are there."""

    def unsent(self, rows: Sequence[UnsentRow]) -> None:
        """Keep these, durably, as they are left out; again is no error."""

    def halt(self, error: Exception) -> None:
        """Nothing can be sent any more: end the application with this."""


class Sender(Protocol):
    """The thread of one output."""

    sent: int
    """The newest sequence that is there."""
    trouble: str
    """Why nothing is sent at present; empty if nothing is known to be wrong."""

    def check(self) -> None:
        """`InvalidOption` if the place is not there; nothing if it does not answer, which may pass."""

    def start(self, outbox: Outbox) -> None:
        """Begin to send, in a thread."""

    def hurry(self) -> None:
        """Send what there is, however little, as somebody waits for it."""

    def stop(self) -> None:
        """Send no more."""


class OutputTarget(Protocol):
    """Where an output goes, as a program declares it."""

    @property
    def lag_rows(self) -> int:
        """Rows that may wait to be sent; with more of them what emits them waits, too."""

    def check(self, stream: str, schema: Any) -> None:
        """`InvalidOption` if rows of the schema cannot go there."""

    def sender(self, system: System, owner: str, name: str, sent: int, begun: int) -> Sender:
        """What brings them, for one run.

        `owner` is what tells this application from all others, `name` what names its output where the target does not.
        `sent` is what the state knows to be there; `begun` the newest sequence when the run began.
        """
