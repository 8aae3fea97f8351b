"""What the engine is given of a flow: its streams as they were declared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tussock.compute.applications.arguments import cause_of
from tussock.compute.changelog.bad_rows import Handling
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.computations import Computation
from tussock.compute.changelog.definitions import Definition
from tussock.compute.changelog.expiry.ages import Ages
from tussock.compute.changelog.loop.stream_loop import BadTransaction, Queued
from tussock.statestore.errors import InvalidOption

__all__ = ["BadHandler", "FlowPlan", "StreamPlan", "handler_of", "skips_nothing"]

HANDLINGS = ("dead-letter", "skip", "stop")
BadHandler = Callable[[Any], Handling | None]


@dataclass(frozen=True)
class StreamPlan:
    """One stream."""

    name: str
    shape: StreamShape
    inputs: tuple[str, ...]
    computation: Computation
    queue: int
    """Transactions that may wait for it."""
    history: int
    """Transactions that are kept of each side."""
    history_seconds: float | None
    ages: Ages | None
    """Of a stream whose rows expire."""
    handle_bad: Callable[[Queued, BadTransaction], Handling]
    definition: Definition
    """What it is, in words."""


class FlowPlan:
    """All streams of a flow."""

    def __init__(self, name: str, streams: Sequence[StreamPlan]) -> None:
        """`InvalidOption` if a stream reads one that is not there."""
        self.name = name
        self.streams = tuple(streams)
        self._by_name: Mapping[str, StreamPlan] = {one.name: one for one in streams}
        if len(self._by_name) < len(self.streams):
            names = [one.name for one in streams]
            twice = next(one for one in names if names.count(one) > 1)
            raise InvalidOption(f"flow {name!r} has stream {twice!r} twice")
        for one in streams:
            for source in one.inputs:
                if source not in self._by_name:
                    raise InvalidOption(
                        f"flow {name!r}: stream {one.name!r} reads stream {source!r}, which is not in the "
                        "flow: list it, too"
                    )

    def table(self, *parts: str) -> str:
        """The name of a table that the flow keeps."""
        return ".".join((self.name, *parts))

    def behind(self, name: str) -> set[str]:
        """The names of the streams that read one, or one behind it."""
        found: set[str] = set()
        for one in reversed(self.from_the_end()):
            if found.union((name,)).intersection(self._by_name[one].inputs):
                found.add(one)
        return found

    def from_the_end(self) -> list[str]:
        """The names of the streams, each before those that it reads. There are no circles: a stream is made of some."""
        found: dict[str, None] = {}

        def visit(one: StreamPlan) -> None:
            for source in one.inputs:
                if source not in found:
                    visit(self._by_name[source])
            found[one.name] = None

        for one in self.streams:
            if one.name not in found:
                visit(one)
        return list(reversed(found))


def handler_of(stream: str, handler: Handling | BadHandler, bad: Callable[[Queued, BadTransaction], Any]) -> Any:
    """What decides about bad transactions: a word, or a user's function of what `bad` makes."""
    if isinstance(handler, str):
        if handler not in HANDLINGS:
            raise InvalidOption(_expected(stream, handler))
        return lambda _taken, _why: handler
    if not callable(handler):
        raise InvalidOption(_expected(stream, handler))

    def ask(taken: Queued, why: BadTransaction) -> Handling:
        try:
            said = handler(bad(taken, why))
        except Exception as error:
            raise InvalidOption(f"stream {stream!r}: the handler of bad rows raised {cause_of(error)}") from error
        if said is None:
            return "dead-letter"
        if said not in HANDLINGS:
            raise InvalidOption(_expected(stream, said))
        return said

    return ask


def skips_nothing(stream: str) -> str:
    """What is wrong with a handler of an operator that leaves out what is bad."""
    return (
        f"stream {stream!r}: a handler of bad rows is or returns 'skip', and an operator can leave no transaction out: "
        "its rows would be wrong from then on; hold it back, by 'dead-letter', or filter the rows before it"
    )


def _expected(stream: str, found: object) -> str:
    return f"stream {stream!r}: a handler of bad rows is or returns {found!r:.100}; expected one of {HANDLINGS}"
