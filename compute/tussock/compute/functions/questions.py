"""What the thread that runs a program is asked for, and what it answers."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tussock.compute.applications.program import Outcome
from tussock.compute.functions.batches.columns_request import ColumnsRequest
from tussock.compute.functions.errors import TransactionAborted

__all__ = ["Act", "Answer", "Look", "NextColumns", "NextEpoch"]


class NextEpoch(NamedTuple):
    """A request of the runner: run an epoch of what waits."""

    take: Callable[[], Sequence[Any]]
    """Called when its turn has come."""
    put_back: Callable[[Sequence[Any]], None]
    """Called with the last of these, where they are to wait for a later epoch."""
    ended: Callable[[bool], None]
    """Called when it has run, with whether transactions wait for the next one."""


class NextColumns(NamedTuple):
    """A request of the runner: run a batch function."""

    request: ColumnsRequest


class Look(NamedTuple):
    """A request of the runner: look at something between two epochs."""

    look: Callable[[], Any]


class Act(NamedTuple):
    """A request of the runner: do something between two epochs, with the number of its record."""

    act: Callable[[int], Outcome]


class Answer(NamedTuple):
    """What a caller gets."""

    reply: "Future[Any] | None"
    value: Any
    aborted: TransactionAborted | None
