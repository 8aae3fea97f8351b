"""Bytes of the log in the bucket: one frame around a MessagePack payload, for entries, base versions, pins and backups.

Frozen, because it is on disk; `docs/version-log.md` lists every byte, and golden files hold it. All integers are
little-endian: magic (4 bytes), format version (u16), flags (u16, zero), sequence (u64), payload length (u32), payload,
crc32c over all of that (u32).

An entry that brings small SSTs along has them before its frame, behind a header of the same shape: magic, version,
flags (1), sequence, bytes of the SSTs (u32), the SSTs. So where each SST begins is known before the deltas that say it
are encoded, and the frame, which is what clients are sent, is the end of the object as it lies there.
"""

import struct
from collections.abc import Sequence
from typing import TypeVar, get_args

import crc32c
import msgspec
from msgspec import structs

from tussock.meta.version.deltas.delta import Delta
from tussock.meta.version.version import Version
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.contract.backend import BackupInfo, PinInfo
from tussock.statestore.contract.chunked import Chunked
from tussock.statestore.contract.records import entry_path
from tussock.statestore.errors import CorruptLog, LimitReached, NewerFormat

__all__ = [
    "CATALOGUE_MAGIC",
    "MAGICS",
    "MANIFEST_MAGIC",
    "OBJECT_BYTES_MAX",
    "SSTS_START",
    "BackupContent",
    "LogEntry",
    "as_known",
    "backup_path",
    "base_path",
    "decode_backup",
    "decode_base",
    "decode_entry",
    "decode_holder",
    "decode_pin",
    "decode_record",
    "deltas_bytes",
    "encode_backup",
    "encode_base",
    "encode_entry",
    "encode_pin",
    "encode_record",
    "entry_frame",
    "entry_path",
    "is_backup_path",
    "is_standby_path",
    "lease_path",
    "marker_path",
    "pin_path",
    "sequence_of",
    "standby_path",
    "with_ssts",
]

ENTRY_MAGIC = b"TSKL"
SNAPSHOT_MAGIC = b"TSKS"
PIN_MAGIC = b"TSKP"
BACKUP_MAGIC = b"TSKB"
STANDBY_PREFIX = "leader/standby-"
LEASE_MAGIC = b"TSKT"
CATALOGUE_MAGIC = b"TSKC"
MANIFEST_MAGIC = b"TSKM"
MAGICS = {"log": ENTRY_MAGIC, "snapshot": SNAPSHOT_MAGIC, "backup": BACKUP_MAGIC}
MAGICS |= {"catalogue": CATALOGUE_MAGIC, "parts": MANIFEST_MAGIC}
"""By folder, of the objects that may be large."""
OBJECT_BYTES_MAX = 1 << 30
"""Of one object; nothing larger is written or read. A version of five million SSTs is about as large."""
FORMAT_VERSION = 7
"""2 added terms, generations of writers and leases, 3 SSTs in entries, 4 altered tables, 5 records of writers, 6
history, 7 losses and periods of tables; what older ones wrote is read for ever."""
OLDEST_VERSION = 1
SSTS_VERSION = 3
"""The first in which an entry may bring SSTs along."""

HEADER = struct.Struct("<4sHHQI")
SSTS_START = HEADER.size
"""Where the first SST begins in an entry that brings some along."""
WITH_SSTS = 1
"""Flag of the header before those SSTs."""
CHECKSUM = struct.Struct("<I")
SEQUENCE_DIGITS = 20
BACKUP_ID_DIGITS = 32

Record = TypeVar("Record")


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the log: deltas that take effect together."""

    id: bytes
    """16 random bytes, by which a writer whose create was answered with an error knows its own entry again."""
    writer: str
    """Host, process and store that appended it, for people."""
    at_ms: int
    deltas: tuple[Delta, ...]
    term: int = 0
    """The term in which a leader of the meta service appended it; 0: a store without one."""


class _HeldPin(PinInfo, frozen=True, kw_only=True, omit_defaults=True):
    """A pin of a session as its object says it."""

    holder: str = ""


class BackupContent(msgspec.Struct, frozen=True, kw_only=True):
    """A backup's object: everything that a restore needs beside the SSTs."""

    info: BackupInfo
    """As it was when the object was written; the log says whether it was finished."""
    version: Version


def as_known(value: object) -> object:
    """What MessagePack knows, of what it does not: the one type of our records, and text and numbers of subclasses."""
    if isinstance(value, Chunked):
        return list(value)
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{type(value).__name__} has no place in the log")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=as_known)
_ENTRY_DECODER = msgspec.msgpack.Decoder(LogEntry)
_SNAPSHOT_DECODER = msgspec.msgpack.Decoder(Version)
_PIN_DECODER = msgspec.msgpack.Decoder(PinInfo)
_HELD_PIN_DECODER = msgspec.msgpack.Decoder(_HeldPin)
_BACKUP_DECODER = msgspec.msgpack.Decoder(BackupContent)


def base_path(seq: int) -> str:
    """Path of the base version that holds all entries up to `seq`."""
    return f"snapshot/{seq:0{SEQUENCE_DIGITS}d}"


def marker_path(seq: int) -> str:
    """Path of the marker that says: entries up to `seq` may be deleted, and no append up to it counts."""
    return f"log/boundary/{seq:0{SEQUENCE_DIGITS}d}"


def pin_path(pin_id: str) -> str:
    """Path of a pin's object."""
    return f"pins/{pin_id}"


def lease_path(term: int) -> str:
    """Path of the lease of that term's leader; terms begin at 1."""
    return f"leader/{term:0{SEQUENCE_DIGITS}d}"


def standby_path(standby_id: bytes) -> str:
    """Path of the mark of a replica that follows; `standby_id` are 8 random bytes. It holds a lease of term 0."""
    return f"{STANDBY_PREFIX}{standby_id.hex()}"


def is_standby_path(path: str) -> bool:
    """Whether a path is one that `standby_path` gives."""
    digits = path.removeprefix(STANDBY_PREFIX)
    return path.startswith(STANDBY_PREFIX) and len(digits) == 16 and all(one in "0123456789abcdef" for one in digits)


def backup_path(name: str, backup_id: str) -> str:
    """Path of a backup's object; the name is there for people, the id makes it unique."""
    return f"backup/{name}.{backup_id}"


def is_backup_path(path: str) -> bool:
    """Whether a path is one that `backup_path` gives; what else lies under `backup/` is foreign."""
    name, dot, backup_id = path.removeprefix("backup/").rpartition(".")
    is_id = len(backup_id) == BACKUP_ID_DIGITS and all(digit in "0123456789abcdef" for digit in backup_id)
    return path.startswith("backup/") and bool(name and dot) and "/" not in name and is_id


def sequence_of(path: str) -> int | None:
    """The sequence in the path of an entry, base version or marker, a lease's term; `None` for a foreign name."""
    digits = path.rpartition("/")[2].removesuffix(".delta")
    return int(digits) if len(digits) == SEQUENCE_DIGITS and digits.isascii() and digits.isdigit() else None


def deltas_bytes(deltas: Sequence[Delta]) -> int:
    """How many bytes deltas take up in an entry."""
    return len(_ENCODER.encode(deltas))


def encode_entry(seq: int, entry: LogEntry) -> bytes:
    """The frame of a log entry: the whole object, unless it brings SSTs along."""
    return encode_record(ENTRY_MAGIC, seq, entry)


def with_ssts(seq: int, frame: bytes, ssts: Sequence[bytes]) -> bytes:
    """The object of an entry that brings these SSTs along, the first of them at `SSTS_START`.

    `LimitReached` if it is too large; an entry takes no more calls long before.
    """
    if not ssts:
        return frame
    _check_bytes("an entry of the log", len(frame) + sum(map(len, ssts)))
    return b"".join([HEADER.pack(ENTRY_MAGIC, FORMAT_VERSION, WITH_SSTS, seq, sum(map(len, ssts))), *ssts, frame])


def entry_frame(path: str, seq: int, data: bytes) -> bytes:
    """The object of an entry without the SSTs in it; `CorruptLog` if there are some and their header is damaged."""
    if len(data) < HEADER.size:
        return data
    magic, version, flags, found_seq, length = HEADER.unpack_from(data)
    # What is no such header is for the frame's own checks to judge.
    if magic != ENTRY_MAGIC or not SSTS_VERSION <= version <= FORMAT_VERSION or flags != WITH_SSTS:
        return data
    if found_seq != seq or len(data) <= SSTS_START + length:
        raise CorruptLog(
            f"{path}: offset 8: expected sequence {seq} and at most {len(data)} bytes, found sequence {found_seq} and "
            f"{length} bytes of SSTs; the object is damaged, cut off or renamed"
        )
    return data[SSTS_START + length :]


def decode_entry(path: str, seq: int, data: bytes) -> LogEntry:
    """The entry in `data`, the object at `path` or its frame; `CorruptLog` if it is not the intact entry `seq`.

    SSTs in it are not looked at: they have their own checksums, and damage to one leaves the log whole.
    """
    return decode_record(_ENTRY_DECODER, path, ENTRY_MAGIC, seq, entry_frame(path, seq, data))


def encode_base(version: Version) -> bytes:
    """The bytes of a base version."""
    return encode_record(SNAPSHOT_MAGIC, version.seq, version)


def decode_base(path: str, seq: int, data: bytes) -> Version:
    """The version in `data`; `CorruptLog` if it is not the intact base version of `seq`."""
    version = decode_record(_SNAPSHOT_DECODER, path, SNAPSHOT_MAGIC, seq, data)
    if version.seq != seq:
        raise CorruptLog(f"{path}: expected a version of sequence {seq}, found sequence {version.seq} in the payload")
    return version


def encode_pin(pin: PinInfo, holder: str = "") -> bytes:
    """The bytes of a pin; its sequence field is 0. `holder` is the hash by which its holder proves to be that."""
    return encode_record(PIN_MAGIC, 0, _HeldPin(**structs.asdict(pin), holder=holder) if holder else pin)


def decode_pin(path: str, data: bytes) -> PinInfo:
    """The pin in `data`; `CorruptLog` if it is damaged, or not the one that its path names."""
    pin = decode_record(_PIN_DECODER, path, PIN_MAGIC, 0, data)
    # Compaction takes the first pin of a listing for the smallest, which holds if names tell the truth.
    if pin_path(pin.id) != path or not pin.id.startswith(f"{pin.epoch:0{SEQUENCE_DIGITS}d}-"):
        raise CorruptLog(
            f"{path}: holds pin {pin.id[:64]!r} on epoch {pin.epoch}; the object was renamed, copied or made up"
        )
    return pin


def decode_holder(path: str, data: bytes) -> str:
    """The hash of the holder of the pin in `data`; empty for an embedded process. `CorruptLog` if it is damaged."""
    return decode_record(_HELD_PIN_DECODER, path, PIN_MAGIC, 0, data).holder


def encode_backup(content: BackupContent) -> bytes:
    """The bytes of a backup; its sequence field is that of the version in it."""
    return encode_record(BACKUP_MAGIC, content.version.seq, content)


def decode_backup(path: str, data: bytes) -> BackupContent:
    """The backup in `data`; `CorruptLog` if it is damaged or not the one that its path names."""
    content = decode_record(_BACKUP_DECODER, path, BACKUP_MAGIC, None, data)
    if backup_path(content.info.name, content.info.id) != path:
        raise CorruptLog(
            f"{path}: holds backup {content.info.name!r} with id {content.info.id}; the object was renamed or copied"
        )
    return content


def encode_record(magic: bytes, seq: int, record: object) -> bytes:
    """The bytes of a record in the frame of this module."""
    return _frame(magic, seq, _ENCODER.encode(record))


def _check_bytes(what: str, size: int) -> None:
    if size > OBJECT_BYTES_MAX - HEADER.size - CHECKSUM.size:
        raise LimitReached(
            f"{what} would have {size} bytes, and may have {OBJECT_BYTES_MAX}, as it is read whole: nothing was "
            "written; commit fewer SSTs at once, or let vacuum forget dropped ones",
            OBJECT_BYTES_MAX,
        )


def _frame(magic: bytes, seq: int, payload: bytes) -> bytes:
    _check_bytes("an object of the log", len(payload))
    header = HEADER.pack(magic, FORMAT_VERSION, 0, seq, len(payload))
    # Joined at once: the payload of a large version is many megabytes, and each step would copy it.
    return b"".join((header, payload, CHECKSUM.pack(crc32c.crc32c(payload, crc32c.crc32c(header)))))


def decode_record(
    decoder: "msgspec.msgpack.Decoder[Record]", path: str, magic: bytes, seq: int | None, data: bytes
) -> Record:
    """The record in the object at `path`; `CorruptLog` if it is damaged, or not the one of that magic and sequence."""
    payload = _payload(path, magic, seq, data)
    try:
        return decoder.decode(payload)
    except UNREADABLE as error:
        unknown = _unknown_deltas(payload) if magic == ENTRY_MAGIC else []
        if unknown:
            raise NewerFormat(
                f"{path}: a change of kind {unknown[0][:64]!r}, which this reader does not know; open the store with a "
                "newer Tussock",
                unknown[0][:64],
            ) from error
        raise CorruptLog(f"{path}: payload at offset {HEADER.size} is intact but not understood: {error}") from error


def _unknown_deltas(payload: bytes) -> list[str]:
    """Kinds of deltas in an entry that this release does not know."""
    known = {kind.__struct_config__.tag for kind in get_args(Delta)}
    try:
        entry = msgspec.msgpack.decode(payload)
        return [kind for delta in entry["deltas"] if isinstance(kind := delta["type"], str) and kind not in known]
    except (*UNREADABLE, LookupError, TypeError):
        return []


def _payload(path: str, magic: bytes, seq: int | None, data: bytes) -> bytes:
    least = HEADER.size + CHECKSUM.size
    if len(data) < least:
        raise CorruptLog(
            f"{path}: expected at least {least} bytes, found {len(data)}; the object is cut off or foreign"
        )
    found_magic, version, flags, found_seq, length = HEADER.unpack_from(data)
    if found_magic != magic:
        raise CorruptLog(f"{path}: offset 0: expected magic {magic!r}, found {found_magic!r}; the object is foreign")
    hint = f"; or written by a newer Tussock, in format version {version}" if version > FORMAT_VERSION else ""
    if len(data) != least + length:
        raise CorruptLog(f"{path}: offset 16: expected {least + length} bytes in all, found {len(data)}{hint}")
    (expected,) = CHECKSUM.unpack_from(data, len(data) - CHECKSUM.size)
    found = crc32c.crc32c(memoryview(data)[: -CHECKSUM.size])
    if found != expected:
        raise CorruptLog(
            f"{path}: offset {len(data) - CHECKSUM.size}: expected crc32c {expected:#010x}, found {found:#010x} over "
            f"the bytes before it; the object is damaged{hint}"
        )
    # Every version has this frame, so a newer one is told from a flipped bit.
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"{path}: offset 4: written in format version {version}, and this reader knows versions up to "
            f"{FORMAT_VERSION}; open the store with a newer Tussock",
            version,
            FORMAT_VERSION,
        )
    if version < OLDEST_VERSION or flags != 0:
        raise CorruptLog(
            f"{path}: offset 4: expected a version from {OLDEST_VERSION} to {FORMAT_VERSION} and flags 0; found "
            f"version {version}, flags {flags}"
        )
    if seq is not None and found_seq != seq:
        raise CorruptLog(
            f"{path}: offset 8: expected sequence {seq}, found {found_seq}; the object was renamed or copied"
        )
    return bytes(memoryview(data)[HEADER.size : HEADER.size + length])
