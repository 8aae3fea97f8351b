"""The block: rows as raw column buffers, compressed, with a checksum. The unit of compression and of point reads.

Layout before compression, little-endian; every buffer starts at a multiple of 8 bytes from the block's start:

    offset size  field
    0      u32   rows
    4      u16   flags: 1 keys share one width, 2 rows carry epochs, 4 rows carry delete marks
    6      u16   number of value columns
    8      u32   key width where flag 1 is set, else 0
    12     u32   number of buffers b
    16     8*b   per buffer: u32 offset, u32 length
    ...          the buffers: key offsets (i32 x rows+1; absent under flag 1), key bytes, epochs (u64 x rows; only
                 under flag 2), delete marks (bitmap; only under flag 4), then per value column its buffers as
                 `columns.py` lists them

In the `.data` object the compressed bytes are followed by a trailer of 12 bytes: u8 codec, 3 zero bytes, u32 length
before compression, u32 crc32c of all before it (compressed bytes and the trailer's first 8). Why not an Arrow IPC
message: see `docs/decisions/0004-columnar-blocks-not-arrow-ipc.md`.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.columns import Buffer, buffer_count, column_buffers, column_from_buffers
from tussock.statestore.rows.key_arrays import binary_buffers, offsets_of_width
from tussock.statestore.rows.rows import Epochs, Rows

__all__ = ["CODECS", "TRAILER_BYTES", "decode_block", "encode_block"]

_HEADER = struct.Struct("<IHHII")
_TRAILER_HEAD = struct.Struct("<BxxxI")
_CRC = struct.Struct("<I")
_ALIGNMENT = 8
TRAILER_BYTES = _TRAILER_HEAD.size + _CRC.size

_FIXED_KEYS = 1
_ROW_EPOCHS = 2
_DELETES = 4
_KNOWN_FLAGS = _FIXED_KEYS | _ROW_EPOCHS | _DELETES

# Numbers on disk: never reuse one.
CODECS = {"none": 0, "lz4": 1, "zstd": 2}
_ARROW_CODECS = {1: pa.Codec("lz4_raw"), 2: pa.Codec("zstd")}


def _buffers(rows: Rows) -> tuple[int, int, list[Buffer]]:
    """Flags, key width and buffers of a block."""
    flags = 0
    buffers: list[Buffer] = []
    offsets, data = binary_buffers(rows.keys)
    start, count = int(offsets[0]), len(rows)
    width = (int(offsets[-1]) - start) // count
    # Two ends that fit a stride do not prove it; the comparison does.
    if width and np.array_equal(
        offsets, np.arange(start, start + (count + 1) * width, width, dtype=np.int32)[: count + 1]
    ):
        flags |= _FIXED_KEYS
    else:
        width = 0
        buffers.append((offsets - np.int32(start)).tobytes())
    buffers.append(data[start : int(offsets[-1])])
    if not isinstance(rows.epochs, int):
        flags |= _ROW_EPOCHS
        buffers.append(np.ascontiguousarray(rows.epochs, "<u8").tobytes())
    if rows.deletes is not None and rows.deletes.any():
        flags |= _DELETES
        buffers.append(np.packbits(rows.deletes, bitorder="little").tobytes())
    for column in rows.columns:
        buffers.extend(column_buffers(column))
    return flags, width, buffers


def encode_block(rows: Rows, codec: int) -> tuple[bytes, int, int]:
    """Encode at least one row; returns the bytes with their trailer, their length before compression, the crc32c.

    An int in `rows.epochs` is not written: the block index or the version gives it. `codec` is one of `CODECS`.
    """
    flags, width, buffers = _buffers(rows)
    table: list[int] = []
    pieces: list[Buffer] = []
    position = _HEADER.size + 8 * len(buffers)
    for buffer in buffers:
        size = buffer.size if isinstance(buffer, pa.Buffer) else memoryview(buffer).nbytes
        table += [position, size]
        pieces.append(buffer)
        padding = -size % _ALIGNMENT
        if padding:
            pieces.append(bytes(padding))
        position += size + padding
    head = _HEADER.pack(len(rows), flags, len(rows.columns), width, len(buffers))
    raw = b"".join([head, struct.pack(f"<{len(table)}I", *table), *pieces])
    body = raw if codec == 0 else _ARROW_CODECS[codec].compress(raw, asbytes=True)
    if len(body) >= len(raw):
        codec, body = 0, raw
    trailer = _TRAILER_HEAD.pack(codec, len(raw))
    crc = crc32c(trailer, crc32c(body))
    return b"".join([body, trailer, _CRC.pack(crc)]), len(raw), crc


def decode_block(
    data: memoryview,
    crc: int,
    epoch: int,
    types: Sequence[pa.DataType],
    columns: Sequence[int] | None,
    where: str,
) -> Rows:
    """Decode a block with its trailer.

    `crc` is what the block index says; `epoch` stands for rows that carry none; `types` are all value columns as
    stored, and `columns` picks some of them in its order (all if `None`). Raises `CorruptSst` naming `where`.
    """
    if len(data) < TRAILER_BYTES:
        raise CorruptSst(f"{where}: block has {len(data)} bytes, its trailer alone takes {TRAILER_BYTES}")
    found = crc32c(data[:-4])
    if found != crc or _CRC.unpack(data[-4:])[0] != crc:
        raise CorruptSst(f"{where}: checksum mismatch, the block index says {crc:#010x}, the bytes give {found:#010x}")
    codec, raw_bytes = _TRAILER_HEAD.unpack(data[-TRAILER_BYTES:-4])
    body = pa.py_buffer(data[:-TRAILER_BYTES])
    try:
        raw = _align(body) if codec == 0 else _ARROW_CODECS[codec].decompress(body, raw_bytes)
        return _rows(raw, epoch, types, columns)
    except (LookupError, ValueError, OSError, struct.error, pa.ArrowException) as error:
        # The checksum held, so this was written so: a writer of another format, or a defect of one.
        raise CorruptSst(f"{where}: not a block of this format: {error}") from error


def _align(body: pa.Buffer) -> pa.Buffer:
    """The bytes of a block that did not compress, where its buffers are aligned as the layout promises.

    In its object, or in the answer to a request, such a block begins at any address; a decompressed one never does.
    """
    return pa.py_buffer(body.to_pybytes()) if body.address % _ALIGNMENT else body


def _rows(raw: pa.Buffer, epoch: int, types: Sequence[pa.DataType], columns: Sequence[int] | None) -> Rows:
    count, flags, column_count, width, buffer_total = _HEADER.unpack_from(raw)
    table = struct.unpack_from(f"<{2 * buffer_total}I", raw, _HEADER.size)
    if column_count != len(types):
        raise ValueError(f"{column_count} value columns, the SST's schema has {len(types)}")
    if not count or flags & ~_KNOWN_FLAGS:
        raise ValueError(f"{count} rows, flags {flags:#x}: expected rows, and flags of {_KNOWN_FLAGS:#x} only")

    def buffer(index: int) -> pa.Buffer:
        offset, size = table[2 * index], table[2 * index + 1]
        if offset + size > raw.size:
            raise ValueError(f"buffer {index} ends at {offset + size}, the block at {raw.size}")
        return raw.slice(offset, size)

    if flags & _FIXED_KEYS:
        data, at = buffer(0), 1
        if data.size != count * width:
            raise ValueError(f"{data.size} bytes of keys, {count} rows of {width} take {count * width}")
        keys = pa.Array.from_buffers(pa.binary(), count, [None, offsets_of_width(width, count), data])
    else:
        keys, at = column_from_buffers(pa.binary(), count, [raw.slice(0, 0), buffer(0), buffer(1)]), 2
    epochs: Epochs = epoch
    if flags & _ROW_EPOCHS:
        epochs = np.frombuffer(buffer(at), "<u8", count)
        at += 1
    deletes = None
    if flags & _DELETES:
        marks = np.frombuffer(buffer(at), np.uint8, (count + 7) // 8)
        deletes = np.unpackbits(marks, count=count, bitorder="little").view(np.bool_)
        at += 1
    starts = [at, *accumulate(map(buffer_count, types), initial=at)][1:]
    values = []
    for index in range(len(types)) if columns is None else columns:
        parts = [buffer(part) for part in range(starts[index], starts[index + 1])]
        values.append(column_from_buffers(types[index], count, parts))
    return Rows(keys, epochs, deletes, tuple(values))
