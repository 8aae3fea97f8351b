"""What the input log holds, and its bytes; `docs/formats/input-log.md` describes them for a second implementation.

One object is one group of records, which became durable together:

    magic "TSIN", version (1 byte), length of the body (4 bytes, little-endian), CRC-32 (4 bytes), body

The checksum is that of the body; from version 3 on the byte of the version comes before it.

The body is msgpack: an array of the application's uid, the generation of the runner, the records, and from version 4
on the number of the object.
"""

import struct
import zlib
from enum import IntEnum
from typing import Any

import msgspec

from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.errors import CorruptLog, NewerFormat

__all__ = ["FED", "Group", "Record", "RecordKind", "decode_group", "encode_group"]

MAGIC = b"TSIN"
VERSION = 5
"""The newest, which all objects are written in. Version 2 has spans of a feed and the kinds from 6 on, version 3 epochs
of functions, version 4 changes of streams and the number of the object, version 5 sequencers of functions."""
CHECKED_VERSION = 3
"""From it on the checksum covers the version."""
NUMBERED_VERSION = 4
"""From it on the body has the number of the object."""
FED = b"F"
"""What `given` begins with where it is a span of a feed: neither rows nor arguments begin so."""
_HEAD = struct.Struct("<4sBII")


class RecordKind(IntEnum):
    """What a record says was done."""

    BATCH = 1
    """A border procedure was given a batch, and the whole graph ran on it."""
    STEP = 2
    """One procedure ran on one batch."""
    ABORT = 3
    """The batch was rolled back, its steps included."""
    CALL = 4
    """A call procedure ran."""
    INTENT = 5
    """A batch, or a call, is about to ask something outside; its own records follow, unless the runner died."""
    FEED = 6
    """A feed stands at a position: its first one, or one before which no rows are left."""
    SENT = 7
    """An output has been sent up to a sequence number."""
    EPOCH = 8
    """An epoch of functions ran."""
    CHANGES = 9
    """Streams of a flow were given transactions, and took some from their queues."""
    SEQUENCERS = 10
    """From the next epoch on functions have one sequencer for callers, and one for each of these feeds."""


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One logical epoch, or a step of one."""

    seq: int
    """Numbers records without gaps."""
    kind: int
    name: str
    """Of the procedure."""
    batch_id: int
    """Of a call 0; of functions the number of the epoch."""
    given: bytes
    """The rows of a batch, or the span of a feed; the arguments of a call; the requests of an epoch of functions, or
    its feeds; of a step that took its rows from a stream nothing."""
    drawn: list[Any]
    """Times, random numbers and answers from outside, in the order in which they were asked for."""
    digest: int | None
    """Of the writes, in their order; `None` if there were none."""
    failed: str = ""
    """The procedure that raised; then nothing was written."""
    error: str = ""
    """What it raised: class and text."""


class Group(msgspec.Struct, array_like=True, frozen=True):
    """The content of one object."""

    uid: str
    """Of the application, so that another one's log is not taken for it."""
    generation: int
    """Of the runner that wrote it."""
    records: list[Record]
    """None in the first object of a runner, by which it takes the log over."""
    number: int = 0
    """Of the object, so that another one of this log is not taken for it; 0 before version 4."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Group)


def encode_group(group: Group) -> bytes:
    """The bytes of one object."""
    body = _encoder.encode(group)
    return _HEAD.pack(MAGIC, VERSION, len(body), _checksum(VERSION, body)) + body


def _checksum(version: int, body: bytes | memoryview) -> int:
    """Without the version's byte a flipped bit would make one known version of another."""
    return zlib.crc32(body, zlib.crc32(bytes([version]))) if version >= CHECKED_VERSION else zlib.crc32(body)


def decode_group(data: bytes, path: str, number: int) -> Group:
    """The group of the object of that number; `CorruptLog` that names `path` if it is not what was written there."""
    if len(data) < _HEAD.size:
        raise CorruptLog(f"{path}: {len(data)} bytes, and the head alone takes {_HEAD.size}: the object is cut off")
    magic, version, length, checksum = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise CorruptLog(f"{path}: offset 0: expected magic {MAGIC!r}, found {magic!r}; the object is foreign")
    if not version:
        raise CorruptLog(f"{path}: offset 4: there is no version 0 of the input log; the object is damaged")
    if version > VERSION:
        raise NewerFormat(f"{path}: format {version} of the input log, known are those up to {VERSION}: upgrade this")
    body = memoryview(data)[_HEAD.size :]
    if len(body) != length:
        raise CorruptLog(f"{path}: expected {length} bytes after the head, found {len(body)}: the object is cut off")
    if _checksum(version, body) != checksum:
        raise CorruptLog(f"{path}: the checksum does not fit: bytes were changed since they were written")
    try:
        group = _decoder.decode(body)
    except UNREADABLE as error:
        raise CorruptLog(f"{path}: no group of records: {error}") from error
    if version >= NUMBERED_VERSION and group.number != number:
        raise CorruptLog(
            f"{path}: it has the content of object {group.number}: objects of the input log were changed for one "
            "another, or one was copied; put the right one back from a copy"
        )
    return group
