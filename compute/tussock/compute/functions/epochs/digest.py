"""A number that the same results of an epoch have again.

It is a sum, so that processes which share the entities add up what each of them has to the number of one process.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.program.context import Entity
from tussock.statestore.rows.python_values import plain_parts

__all__ = ["DIGEST_MASK", "digest_of", "encode_facts", "writes_digest"]


def _fact(value: Any) -> Any:
    """What msgpack lacks; of what Python lacks all digits, too."""
    if not isinstance(value, pa.Scalar):
        return repr(value)
    parts = plain_parts(value)
    if parts is not value:
        return parts
    return value.cast(pa.int64()).as_py() if pa.types.is_temporal(value.type) else repr(value)


encode_facts = msgspec.msgpack.Encoder(enc_hook=_fact).encode
"""Bytes of states and replies, whatever types their columns have."""
DIGEST_MASK = (1 << 32) - 1


def writes_digest(tid: int, writes: Mapping[Entity, Any]) -> int:
    """Sum of the CRC-32 of each write of a transaction."""
    return sum([zlib.crc32(encode_facts((tid, entity, stored))) for entity, stored in writes.items()])


def digest_of(ended: Sequence[FunctionTransaction], deferred: Iterable[int], written: int) -> int:
    """Of what an epoch wrote, which is `written`, of its replies in the serial order, and of the numbers deferred."""
    return (written + zlib.crc32(encode_facts([[_reply(one) for one in ended], deferred]))) & DIGEST_MASK


def _reply(one: FunctionTransaction) -> list[Any]:
    run = one.run
    assert run is not None
    if run.aborted is not None:
        return [one.tid, run.aborted.kind, str(run.aborted)]
    return [one.tid, run.value]
