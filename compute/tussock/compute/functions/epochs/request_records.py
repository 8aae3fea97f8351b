"""Requests as the input log and the progress keep them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.applications.errors import NotDeterministic
from tussock.compute.functions.epochs.transaction import FunctionRequest, FunctionTransaction
from tussock.compute.functions.program.directory import Operators
from tussock.statestore import InvalidOption, TussockError

__all__ = ["FunctionProgress", "WaitingRecord", "names_of", "pack_request", "read_progress", "unpack_request"]

NAMES_MAX = 10


class WaitingRecord(msgspec.Struct, array_like=True):
    """A transaction that waits for the next epoch, in the progress."""

    tid: int
    request: list[Any]
    draws: dict[str, Any]


class FunctionProgress(msgspec.Struct):
    """What a program keeps beside its tables."""

    epoch: int
    given: list[int]
    """Of each sequencer, how many numbers it has given."""
    deferred: list[WaitingRecord]


def read_progress(program: str, state: bytes) -> FunctionProgress:
    """What the newest commit holds; of a new program the beginning. `InvalidOption` for another layer's."""
    if not state:
        return FunctionProgress(0, [0], [])
    try:
        return msgspec.msgpack.decode(state, type=FunctionProgress)
    except msgspec.DecodeError as error:
        raise InvalidOption(
            f"program {program!r}: the store has an application of that name which is none of functions: {error}; "
            "give the program another name"
        ) from error


def pack_request(request: FunctionRequest) -> list[Any]:
    """Operator, key, function, arguments, and the request's id."""
    function, entity, arguments = request.target
    return [function.operator, entity[1], function.name, arguments, request.request_id]


def unpack_request(operators: Operators, program: str, packed: Sequence[Any]) -> FunctionRequest:
    """A request for which nobody waits; `NotDeterministic` if the program has no such function any more."""
    operator, key, function, arguments, request_id = packed
    try:
        target = operators.target(operator, key, function, tuple(arguments))
    except TussockError as error:
        raise NotDeterministic(
            f"the input log of program {program!r} has a request for {operator}.{function}, which cannot run now: "
            f"{error}; start it with the functions that it had"
        ) from error
    return FunctionRequest(target, request_id, None, 0.0)


def names_of(transactions: Sequence[FunctionTransaction]) -> str:
    """Numbers and functions of the first ten, for messages."""
    targets = [(one.tid, one.request.target.function) for one in transactions[:NAMES_MAX]]
    names = ", ".join(f"{tid}: {function.operator}.{function.name}" for tid, function in targets)
    return names + (" ..." if len(transactions) > NAMES_MAX else "")
