"""Requests as the input log and the progress keep them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.functions.epochs.transaction import FedPart, FunctionRequest, FunctionTransaction
from tussock.compute.functions.program.directory import Operators
from tussock.statestore import InvalidOption, TussockError
from tussock.statestore.base.damage import UNREADABLE

__all__ = [
    "FeedPlace",
    "FunctionProgress",
    "WaitingRecord",
    "pack_request",
    "read_progress",
    "unpack_request",
]


class WaitingRecord(msgspec.Struct, array_like=True):
    """A transaction that waits for the next epoch, in the progress."""

    tid: int
    request: list[Any]
    draws: dict[str, Any]


class FeedPlace(msgspec.Struct, array_like=True, frozen=True):
    """How far a feed is."""

    position: bytes
    """Of its source; all before it was taken."""
    span: bytes = b""
    """The batch behind it, of which some rows were taken, too; empty: none was."""
    taken: int = 0
    """How many."""


class FunctionProgress(msgspec.Struct):
    """What a program keeps beside its tables."""

    epoch: int
    given: list[int]
    """Of each sequencer, how many numbers it has given; the first one is that of callers."""
    deferred: list[WaitingRecord]
    feeds: dict[str, FeedPlace] = {}
    letters: int = 0
    """Dead letters of all runs."""
    outputs: dict[str, list[int]] = {}
    """Of each, its sequence, and what of it is sent."""
    code: str = ""
    """Of the functions that have run last, a number that other code does not have; a release before has none."""
    sequenced: list[list[str]] = []
    """The feeds whose sequencers are the other ones: the name of each, and its table of replies, or of those that wait
    for a topic, or an empty text."""
    reply_tables: dict[str, int] = {}
    """Of each table of replies, or of those for a topic, its sequence; a release before has it by feed alone."""


def read_progress(program: str, state: bytes) -> FunctionProgress:
    """What the newest commit holds; of a new program the beginning. `InvalidOption` for another layer's."""
    if not state:
        return FunctionProgress(0, [0], [])
    try:
        return msgspec.msgpack.decode(state, type=FunctionProgress)
    except UNREADABLE as error:
        raise InvalidOption(
            f"program {program!r}: the store has an application of that name which is none of functions; give the "
            "program another name"
        ) from error


def pack_request(request: FunctionRequest) -> list[Any]:
    """Operator, key, function, arguments, the request's id, and its feed if it is of one."""
    function, entity, arguments = request.target
    packed = [function.operator, entity[1], function.name, arguments, request.request_id]
    return packed if request.fed is None else [*packed, request.fed.feed]


def waiting_of(deferred: Sequence[FunctionTransaction]) -> list[WaitingRecord]:
    """Transactions that wait for the next epoch, with what they have drawn."""
    return [
        WaitingRecord(one.tid, pack_request(one.request), {} if one.draws is None else one.draws.kept)
        for one in deferred
    ]


def unpack_request(operators: Operators, program: str, packed: Sequence[Any]) -> FunctionRequest:
    """A request for which nobody waits; `NotDeterministic` if the program has no such function any more."""
    operator, key, function, arguments, request_id, *feed = packed
    try:
        target = operators.target(operator, key, function, tuple(arguments))
    except TussockError as error:
        raise NotDeterministic(
            f"the input log of program {program!r} has a request for {operator}.{function}, which cannot run now: "
            f"{error}; start it with the functions that it had"
        ) from error
    # Which row it was is of no use any more: how far the feed is stands beside the requests.
    return FunctionRequest(target, request_id, None, 0.0, FedPart(feed[0], b"", 0) if feed else None)
