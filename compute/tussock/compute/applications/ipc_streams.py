"""Rows as bytes: streams of Arrow's IPC format, as records, messages and tables hold them."""

from typing import Any

import pyarrow as pa

__all__ = ["alone_bytes", "ipc_bytes", "ipc_table"]


def ipc_bytes(rows: pa.Table | pa.RecordBatch) -> bytes:
    """A stream of the rows, with their schema; raises `pyarrow.ArrowException` for types that nest too deep."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(sink.getvalue().to_pybytes())


def alone_bytes(rows: pa.Table | pa.RecordBatch, at: int = 0, count: int | None = None) -> bytes:
    """A stream of some of the rows, from number `at` on, without a byte of the others; without a `count` of all.

    A slice has what stands around it in its buffers, and a dictionary what other rows have in it: readers of a dead
    letter would read of rows that it is not about.
    """
    chosen = range(at, rows.num_rows if count is None else at + count)
    columns = [_alone(column, chosen) for column in rows.columns]
    return ipc_bytes(pa.record_batch(columns, schema=rows.schema))


def _alone(column: Any, chosen: range) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        return column.take(pa.array(chosen, pa.int64()))
    indices = column.indices.take(pa.array(chosen, pa.int64()))
    used = indices.drop_null().unique()
    places = {number: place for place, number in enumerate(used.to_pylist())}
    fresh = [None if one is None else places[one] for one in indices.to_pylist()]
    return pa.DictionaryArray.from_arrays(pa.array(fresh, indices.type), column.dictionary.take(used))


def ipc_table(data: bytes | pa.Buffer) -> pa.Table:
    """The rows of a stream; raises `pyarrow.ArrowException` for bytes that are none. It refers to `data`."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
