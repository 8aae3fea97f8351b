"""Where a stream is in its loop, and where a flow stands still."""

from enum import Enum, StrEnum, auto
from typing import NamedTuple

__all__ = ["Location", "LoopProgress", "PausedAt"]


class Location(StrEnum):
    """Of a stream."""

    INPUT = "INPUT"
    """It waits for a transaction, or takes the first one of its queue."""
    COMPUTE = "COMPUTE"
    """It computes, record by record."""
    PUT = "PUT"
    """What was computed goes into its store."""
    OUTPUT = "OUTPUT"
    """It waits until subscribers and the streams behind it have room."""
    BAD_ROW = "BAD_ROW"
    """A record of the transaction cannot be: nothing of it is stored, and it is kept among the bad ones."""


class LoopProgress(Enum):
    """What came of letting a stream go on."""

    MOVED = auto()
    IDLE = auto()
    """There is nothing to do."""
    BLOCKED = auto()
    """Somebody behind it has no room."""
    PAUSED = auto()
    """The flow is paused."""


class PausedAt(NamedTuple):
    """Where a paused flow stands."""

    stream: str
    """The one that steps go on with; empty while nothing is on its way."""
    location: Location
    row: int | None = None
    """In COMPUTE, the number of the input record, from 0."""
    breakpoint: int | None = None
    """Of the breakpoint that has paused the flow; `None`: a user has."""
