"""Errors over the wire: the client raises the class that the application raised, with the same facts."""

from typing import Any

import msgspec

from tussock.compute.applications import errors as ours
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.meta.rpc.errors import clip
from tussock.meta.rpc.errors import status_of as store_status_of
from tussock.statestore import errors as theirs
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import TussockError

__all__ = ["code_of", "error_of", "message_of"]

TEXT_BYTES_MAX = 2048
"""Of a message, and of each fact: an `Error` has to fit into the metadata of a call, of which gRPC takes 8 KiB."""
FACTS_MAX = 8
FACTS_BYTES_MAX = 4096
"""Of all facts: twice as many as the shortest that facts are cut to take, so that they fit in the end."""
FACT_BYTES_MIN = 256

_CODES: dict[type[TussockError], str] = {
    ours.ApplicationFenced: "FAILED_PRECONDITION",
    ours.ApplicationStopped: "FAILED_PRECONDITION",
    ours.BadRow: "ABORTED",
    ours.Full: "RESOURCE_EXHAUSTED",
    ours.FunctionFault: "INVALID_ARGUMENT",
    ours.HistoryGone: "NOT_FOUND",
    ours.NotDeterministic: "FAILED_PRECONDITION",
    ours.OutcomeUnknown: "UNKNOWN",
    ours.ProcedureError: "ABORTED",
    ours.ServiceUnavailable: "UNAVAILABLE",
    ours.StreamChanged: "FAILED_PRECONDITION",
    ours.TablesChanged: "FAILED_PRECONDITION",
    ours.TransactionAborted: "ABORTED",
    ours.WorkerFault: "FAILED_PRECONDITION",
}


def code_of(error: TussockError) -> str:
    """The name of the gRPC status that goes with an error."""
    return _CODES.get(type(error)) or store_status_of(error)


def message_of(error: TussockError) -> pb.Error:
    """An error as it travels; long texts and facts are cut, and end with `...` then."""
    return pb.Error(
        kind=type(error).__name__,
        message=clip(str(error), TEXT_BYTES_MAX),
        facts=_facts_of(error),
        code=code_of(error),
    )


def error_of(message: pb.Error) -> TussockError:
    """The error that the service raised; a kind that is not known here, or lacks facts, comes as `TussockError`."""
    kind: Any = None
    for known in (ours, theirs):
        if message.kind in known.__all__:
            kind = getattr(known, message.kind)
    if kind is not None:
        try:
            facts = msgspec.msgpack.decode(message.facts, type=list[Any]) if message.facts else []
            error: TussockError = kind(message.message, *facts)
        except (*UNREADABLE, TypeError):
            return TussockError(f"{message.kind}: {message.message}")
        return error
    return TussockError(f"{message.kind}: {message.message}")


def _facts_of(error: TussockError) -> bytes:
    """All facts, as long as fits: without one of them no client could raise the error's class."""
    bytes_max = TEXT_BYTES_MAX
    while True:
        facts = msgspec.msgpack.encode([_fact(value, bytes_max) for value in error.args[1 : 1 + FACTS_MAX]])
        if len(facts) <= FACTS_BYTES_MAX or bytes_max <= FACT_BYTES_MIN:
            return facts
        bytes_max //= 2


def _fact(value: object, bytes_max: int) -> object:
    """A fact as MessagePack has it."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return value
    if isinstance(value, bytes):
        return value if len(value) <= bytes_max else value[: bytes_max - 4] + b" ..."
    return clip(str(value), bytes_max)
