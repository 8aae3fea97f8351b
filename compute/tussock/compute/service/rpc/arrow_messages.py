"""Arrow's IPC stream from somebody who may not mean well.

Arrow trusts lengths and offsets that a stream states, and unpacks compressed buffers to the size that they state. So
streams with compression are refused, rows are bounded by the bytes, and all offsets are checked before a row is read.
"""

import struct

import pyarrow as pa

from tussock.compute.applications.ipc_streams import ipc_table
from tussock.statestore.errors import SchemaMismatch

__all__ = ["read_table"]

_DICTIONARY, _RECORDS = 2, 3
"""Kinds of `MessageHeader` in Arrow's Message.fbs."""
ROWS_PER_BYTE_MAX = 8
"""A column of booleans; columns of nulls take none, but nobody sends only these."""
ROWS_MIN = 1024


def read_table(data: bytes, what: str) -> pa.Table:
    """The table in an IPC stream; `SchemaMismatch` if the bytes are none, or one that nobody has to take."""
    try:
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(data)):
            if _is_compressed(message.metadata.to_pybytes()):
                raise SchemaMismatch(f"{what}: its Arrow stream is compressed; write it without compression")
        table = ipc_table(data)
        if table.num_rows > max(ROWS_MIN, ROWS_PER_BYTE_MAX * len(data)):
            raise SchemaMismatch(f"{what}: {len(data):,} bytes of Arrow cannot have {table.num_rows:,} rows")
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise SchemaMismatch(f"{what}: its rows are no IPC stream of Arrow: {error}") from None
    return table


def _is_compressed(metadata: bytes) -> bool:
    """Whether the `RecordBatch` in a flatbuffer `Message` has the field `compression`."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    kind = _field(metadata, message, 1)
    header = _field(metadata, message, 2)
    if not kind or not header or metadata[kind] not in (_DICTIONARY, _RECORDS):
        return False
    records = header + struct.unpack_from("<I", metadata, header)[0]
    if metadata[kind] == _DICTIONARY:
        data = _field(metadata, records, 1)
        if not data:
            return False
        records = data + struct.unpack_from("<I", metadata, data)[0]
    return bool(_field(metadata, records, 3))


def _field(data: bytes, table: int, number: int) -> int:
    """Where the field of a flatbuffer's table is; 0 if it has none."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at + 2 <= size else 0
    return table + offset if offset else 0
