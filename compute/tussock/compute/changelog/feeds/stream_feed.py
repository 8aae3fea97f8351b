"""What a feed of a stream is: a source whose batches are changes, with `_op` and `_old`."""

from typing import Protocol

from tussock.compute.applications.feeds.feed import OnBad, Source
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.statestore import StateStore
from tussock.statestore.base.system import System

__all__ = ["StreamFeed"]


class StreamFeed(Protocol):
    """What a program declares; opened at each start."""

    @property
    def on_bad(self) -> OnBad:
        """Whether what cannot be used stops the flow, or goes into its table of dead letters."""

    def open_changes(self, store: StateStore, system: System, what: str, shape: StreamShape) -> Source:
        """The source, for one run of a stream; `what` names the feed in errors."""
