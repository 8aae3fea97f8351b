"""What the input log holds, and its bytes; `docs/formats/input-log.md` describes them for a second implementation.

One object is one group of records, which became durable together:

    magic "TSIN", version (1 byte), length of the body (4 bytes, little-endian), CRC-32 (4 bytes), body

The checksum is that of the body; from version 3 on the byte of the version comes before it.

The body is msgpack: an array of the application's uid, the generation of the runner, and the records.
"""

import struct
import zlib
from enum import IntEnum
from typing import Any

import msgspec

from tussock.statestore.errors import CorruptLog, NewerFormat

__all__ = ["FED", "Group", "Record", "RecordKind", "decode_group", "encode_group"]

MAGIC = b"TSIN"
VERSION = 3
"""The newest. Version 2 has spans of a feed and the kinds from 6 on, version 3 epochs of functions as well."""
CHECKED_VERSION = 3
"""From it on the checksum covers the version."""
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
    """The rows of a batch, or the span of a feed; the arguments of a call; the requests of an epoch of functions; of a
    step that took its rows from a stream nothing."""
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


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Group)


def encode_group(group: Group) -> bytes:
    """The bytes of one object."""
    body = _encoder.encode(group)
    # A log stays readable for releases that know all that is in it.
    version = max((_version_of(record) for record in group.records), default=1)
    return _HEAD.pack(MAGIC, version, len(body), _checksum(version, body)) + body


def _checksum(version: int, body: bytes | memoryview) -> int:
    """Without the version's byte a flipped bit would make one known version of another."""
    return zlib.crc32(body, zlib.crc32(bytes([version]))) if version >= CHECKED_VERSION else zlib.crc32(body)


def _version_of(record: Record) -> int:
    """The first version of the log that has such a record."""
    if record.kind >= RecordKind.EPOCH:
        return 3
    return 2 if record.kind >= RecordKind.FEED or record.given[:1] == FED else 1


def decode_group(data: bytes, path: str) -> Group:
    """The group of one object; `CorruptLog` that names `path` if the bytes are not those that were written."""
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
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise CorruptLog(f"{path}: no group of records: {error}") from error
