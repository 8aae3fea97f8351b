"""What an application of procedures can be asked for; the engine runs one after the other."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.compute.applications.arguments import check_nesting
from tussock.compute.applications.feeds.feed import FedBatch
from tussock.statestore.errors import InvalidOption

__all__ = ["BATCH_ID_MAX", "Ask", "BatchRequest", "CallRequest", "Halt", "MoveRequest", "SentRequest", "pack_arguments"]

BATCH_ID_MAX = (1 << 63) - 1
"""Tables keep ids as signed numbers of 64 bits."""


class BatchRequest(NamedTuple):
    """A batch for a border procedure."""

    procedure: str
    batch_id: int | None
    table: pa.Table
    given: bytes
    fed: FedBatch | None = None
    """Of a feed."""


class MoveRequest(NamedTuple):
    """The feed of a procedure has nothing more before a position."""

    procedure: str
    position: bytes


class SentRequest(NamedTuple):
    """The output of a stream is in its topic, up to a sequence."""

    stream: str
    sequence: int


class Halt(NamedTuple):
    """What works beside the application has failed, and so has the application."""

    error: Exception


def pack_arguments(name: str, arguments: tuple[Any, ...]) -> bytes:
    """Arguments of a call, for the log and the wire; `InvalidOption` if they cannot be read from there again."""
    try:
        packed = msgspec.msgpack.encode(arguments)
        msgspec.msgpack.decode(packed)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.DecodeError) as error:
        raise InvalidOption(
            f"call procedure {name!r:.120}: its arguments cannot be recorded: {error}; expected None, booleans, "
            "numbers, strings, bytes, lists and dicts of them"
        ) from error
    check_nesting(arguments, f"call procedure {name!r:.120}: its arguments")
    return packed


class CallRequest(NamedTuple):
    """A call between the batches."""

    name: str
    arguments: bytes


class Ask(NamedTuple):
    """Something to look at between two requests, in their thread."""

    look: Callable[[], Any]
