"""What a flow can be asked for; its engine runs one after the other."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tussock.compute.changelog.changes.changes import Changes

__all__ = ["Applied", "FlowAct", "FlowHalt", "FlowLook", "Marks", "Pump", "Push", "Tick"]

Marks = Mapping[str, int]
"""By stream, the number of the newest transaction that is durable with an outcome."""


class Push(NamedTuple):
    """A transaction for a stream without inputs."""

    stream: str
    changes: Changes
    given: bytes
    request_id: str = ""
    """One that comes again with it has no other effect."""


class Pump(NamedTuple):
    """Let the streams go on."""


class Tick(NamedTuple):
    """A second has passed: let rows go that are too old."""


class FlowLook(NamedTuple):
    """Something to look at between two transactions, in the flow's thread."""

    look: Callable[[], Any]


class FlowAct(NamedTuple):
    """The same, after which streams may go on."""

    act: Callable[[], Any]


class FlowHalt(NamedTuple):
    """A feed or an output has failed, and the flow with it."""

    error: Exception


class Applied(NamedTuple):
    """What a request gave."""

    value: Any
    marks: Marks
