"""Rows as bytes: streams of Arrow's IPC format, as records, messages and tables hold them."""

import pyarrow as pa

__all__ = ["ipc_bytes", "ipc_table"]


def ipc_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    """A stream of the rows, with their schema; raises `pyarrow.ArrowException` for types that nest too deep."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(sink.getvalue().to_pybytes())


def ipc_table(data: bytes | pa.Buffer) -> pa.Table:
    """The rows of a stream; raises `pyarrow.ArrowException` for bytes that are none. It refers to `data`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
