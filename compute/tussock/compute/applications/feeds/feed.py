"""What a feed is: a durable source whose parts can be read again.

A client's batch is kept in the input log. What a feed gives is durable already, so the log keeps a span, which says
which part of the source a batch was; a replay reads the span again. How far the application has read, a position, is
in its state, and so in the same epoch as what it did with the batch.
"""

from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.base.system import System

__all__ = ["BadMessage", "FedBatch", "InputFeed", "OnBad", "Source", "check_on_bad"]

OnBad = Literal["stop", "skip"]


class BadMessage(NamedTuple):
    """Something of the source that is no row."""

    origin: str
    """Where it is in the source."""
    data: bytes
    cause: str


class FedBatch(NamedTuple):
    """One batch of a feed."""

    span: bytes
    """The part of the source that it is."""
    rows: pa.Table
    bad: tuple[BadMessage, ...] = ()
    """What was left out of the rows."""
    place: str = "a batch"
    """What it is of the source, for messages."""


class InputFeed(Protocol):
    """What a program declares; opened at each start."""

    @property
    def on_bad(self) -> OnBad:
        """Whether what cannot be used stops the application, or goes into its table of dead letters."""

    def open(self, store: StateStore, system: System, what: str) -> "Source":
        """The source, for one run; `what` names the feed in errors."""


class Source(Protocol):
    """One run's reader of a feed, used by one thread at a time.

    `seek` to what is committed, `again` for each span that is replayed, `seek` to what follows, then `read`.
    """

    schema: pa.Schema
    """Of the batches."""
    trouble: str
    """Why nothing can be read at present; empty if nothing is known to be wrong."""

    def begin(self) -> bytes:
        """The position at which an application begins that has read nothing yet."""

    def seek(self, position: bytes) -> None:
        """Go on at a position; `InputLost` if what comes there is gone, `InvalidOption` if it is another source's."""

    def read(self, seconds: float) -> FedBatch | None:
        """The next batch; `None` if there is none within the time."""

    def again(self, span: bytes) -> FedBatch:
        """The batch of a span once more; `InputLost` if it is gone."""

    def after(self, position: bytes, span: bytes) -> bytes:
        """The position behind a span that began at `position`."""

    def standing(self) -> bytes:
        """The position before what `read` gives next, past all that is no row."""

    def release(self, position: bytes) -> None:
        """The state up to this position is committed: nothing before it will be read again."""

    def newest(self) -> Any:
        """A mark of all that is in the source now."""

    def has_reached(self, mark: Any) -> bool:
        """Whether `read` has given all that a mark stands for."""

    def close(self) -> None:
        """End; a second call is no error."""


def check_on_bad(value: object, what: str) -> None:
    """`InvalidOption` unless it is one of the two words."""
    if value not in ("stop", "skip"):
        raise InvalidOption(f"{what}: on_bad={value!r:.100}; expected 'stop' or 'skip'")
