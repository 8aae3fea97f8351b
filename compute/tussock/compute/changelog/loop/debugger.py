"""Whether streams may go on: a flow that runs, is paused, or makes one step. Used by the thread of the flow.

A pause is noticed when a location is entered, and before each record of COMPUTE. A stream in OUTPUT delivers all the
same, so that subscribers get what there is.
"""

from collections.abc import Collection
from typing import Literal, Protocol

from tussock.compute.changelog.loop.location import Location, PausedAt

__all__ = ["Debugger", "Step", "Steppable"]

Step = Literal["row", "trans", "location"]


class Steppable(Protocol):
    """A stream's loop, as far as steps need it."""

    name: str

    @property
    def location(self) -> Location:
        """Where it is."""

    @property
    def row(self) -> int | None:
        """In COMPUTE, the number of the record that it stands at."""

    @property
    def has_rows_left(self) -> bool:
        """Whether COMPUTE has a record that is not computed."""


class Debugger:
    """Of one flow."""

    def __init__(self) -> None:
        self.is_paused = False
        self._breakpoint: int | None = None
        self._stream: Steppable | None = None
        """The one that has paused the flow, or made the newest step."""
        self._rows: float = 0
        self._locations: float = 0
        self._stepping: Steppable | None = None
        self._quiescing: frozenset[str] = frozenset()
        """Streams that run on in spite of the pause."""
        self.asks_breakpoints = True
        """Not while it steps by itself."""

    def pause(self, stream: Steppable | None = None, breakpoint_number: int | None = None) -> None:
        """Stand still; `stream` is where."""
        self.is_paused = True
        self._rows = self._locations = 0
        self._quiescing = frozenset()
        self._breakpoint = breakpoint_number
        if stream is not None:
            self._stream = stream

    def resume(self) -> None:
        """Go on."""
        self.is_paused = False
        self._breakpoint = None
        self._stream = None

    def at(self, waiting: Steppable | None) -> PausedAt | None:
        """Where the flow stands, `None` while it runs; `waiting` is a stream that has something to do."""
        if not self.is_paused:
            return None
        stream = self._stream
        if stream is None or (stream.location is Location.INPUT and waiting is not None):
            stream = waiting if waiting is not None else stream
        if stream is None:
            return PausedAt("", Location.INPUT, None, self._breakpoint)
        return PausedAt(stream.name, stream.location, stream.row, self._breakpoint)

    def begin_step(self, stream: Steppable, step: Step) -> None:
        """Grant a stream what a step takes; `end_step` takes back what is left of it."""
        self._stepping = self._stream = stream
        self._breakpoint = None
        in_compute = stream.location is Location.COMPUTE
        if step == "row":
            # Where no record is left to compute, a step goes on to where the next one is.
            computes = in_compute and stream.has_rows_left
            self._rows, self._locations = (1, 0) if computes else (0, 1)
        elif step == "location":
            self._rows, self._locations = (float("inf"), 0) if in_compute else (0, 1)
        else:
            self._rows, self._locations = float("inf"), (0 if in_compute else float("inf"))

    def begin_quiesce(self, streams: Collection[str]) -> None:
        """Let these run; `end_step` lets them stand still."""
        self._breakpoint = None
        self._quiescing = frozenset(streams)

    def end_step(self) -> None:
        """Stand still again."""
        self._stepping = None
        self._rows = self._locations = 0
        self._quiescing = frozenset()

    def is_free(self, stream: Steppable) -> bool:
        """Whether the stream goes on until something pauses it."""
        return not self.is_paused or stream.name in self._quiescing

    def computed_all(self, stream: Steppable) -> None:
        """A transaction has come to the end of COMPUTE, where a step of a transaction ends."""
        if self._stepping is stream:
            self._locations = 0

    def may_compute(self, stream: Steppable) -> bool:
        """Whether the stream may compute its next record."""
        if self.is_free(stream):
            return True
        if self._stepping is stream and self._rows:
            self._rows -= 1
            return True
        return False

    def may_enter(self, stream: Steppable) -> bool:
        """Whether it may do what its location asks for."""
        if self.is_free(stream):
            return True
        if self._stepping is stream and self._locations:
            self._locations -= 1
            return True
        return False
