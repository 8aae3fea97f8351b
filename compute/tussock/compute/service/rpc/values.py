"""Rows, arguments and replies as bytes of the protocol."""

from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_bytes, ipc_table
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.arrow_messages import read_table
from tussock.compute.service.rpc.kinds import PLAIN_BYTES_MAX
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import InvalidOption, MessageTooLarge, SchemaMismatch

__all__ = ["get_rows", "plain_arguments", "plain_list", "plain_value", "reply_value", "set_result"]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_rows = msgspec.msgpack.Decoder(list[dict[str, Any]]).decode
_decode_list = msgspec.msgpack.Decoder(list[Any]).decode


def get_rows(submit: pb.Submit) -> Any:
    """The rows of a batch, as `App.submit` takes them; `SchemaMismatch` if the bytes are none."""
    what = f"procedure {submit.procedure!r:.120}"
    if submit.WhichOneof("rows") == "arrow":
        return read_table(submit.arrow, what)
    _check_plain(submit.plain, what)
    try:
        return _decode_rows(submit.plain) if submit.plain else []
    except (*UNREADABLE, ValueError) as error:
        raise SchemaMismatch(f"{what}: its rows are no array of maps in MessagePack: {error}") from None


def plain_arguments(call: pb.Call) -> list[Any]:
    """The arguments of a call; `InvalidOption` if the bytes are none."""
    return plain_list(call.arguments, f"call procedure {call.name!r:.120}")


def plain_list(data: bytes, what: str) -> list[Any]:
    """Arguments, none without bytes; `InvalidOption` if the bytes are no array."""
    _check_plain(data, what)
    try:
        return _decode_list(data) if data else []
    except (*UNREADABLE, ValueError) as error:
        raise InvalidOption(f"{what}: its arguments are no array in MessagePack: {error}") from None


def plain_value(data: bytes, what: str) -> Any:
    """One value, such as a key; `InvalidOption` if the bytes are none."""
    _check_plain(data, what)
    try:
        return _decode(data)
    except (*UNREADABLE, ValueError) as error:
        raise InvalidOption(f"{what}: {len(data):,} bytes are no value in MessagePack: {error}") from None


def set_result(reply: pb.Reply, value: Any, bytes_max: int) -> None:
    """Put what a request is answered into its reply.

    `MessageTooLarge` and `SchemaMismatch` if no message can have it.
    """
    if isinstance(value, pa.Table):
        data = ipc_bytes(value)
        reply.arrow = data
    else:
        try:
            data = _encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatch(f"the reply cannot be MessagePack: {error}; ask for it as Arrow") from error
        reply.plain = data
    if len(data) > bytes_max:
        reply.ClearField("result")
        raise MessageTooLarge(
            f"the reply has {len(data):,} bytes, and a message at most {bytes_max:,}; what was asked for has been "
            "done: read the rows from the store, ask for less at a time, or raise limits.message_bytes of the service",
            len(data),
            bytes_max,
        )


def reply_value(reply: pb.Reply) -> Any:
    """What a request was answered."""
    if reply.WhichOneof("result") == "arrow":
        return ipc_table(reply.arrow)
    return _decode(reply.plain)


def _check_plain(data: bytes, what: str) -> None:
    if len(data) > PLAIN_BYTES_MAX:
        raise MessageTooLarge(
            f"{what}: {len(data):,} bytes of MessagePack, and at most {PLAIN_BYTES_MAX:,} fit; give rows as Arrow",
            len(data),
            PLAIN_BYTES_MAX,
        )
