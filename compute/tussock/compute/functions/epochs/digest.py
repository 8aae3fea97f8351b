"""A number that the same results of an epoch have again."""

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.functions.epochs.transaction import FunctionTransaction

__all__ = ["digest_of", "encode_facts"]

encode_facts = msgspec.msgpack.Encoder(enc_hook=repr).encode
"""Bytes of states and replies, whatever types their columns have."""


def digest_of(ended: Sequence[FunctionTransaction], deferred: Sequence[int]) -> int:
    """CRC-32 of what each transaction wrote and answered, in the serial order, and of the numbers of those deferred."""
    return zlib.crc32(encode_facts([[_facts(one) for one in ended], deferred]))


def _facts(one: FunctionTransaction) -> list[Any]:
    run = one.run
    assert run is not None
    if run.aborted is not None:
        return [one.tid, run.aborted.kind, str(run.aborted)]
    return [one.tid, list(run.writes.items()), run.value]
