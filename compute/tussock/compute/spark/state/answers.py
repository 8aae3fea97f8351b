"""Rows that a state function answers, in whatever form, as a batch of exactly their table's columns."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tussock.statestore.catalog import TableSpec
from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.tables.conform import conform, key_rows

__all__ = ["batch_of", "one_batch"]


def batch_of(rows: Any, spec: TableSpec, *, keys_only: bool = False) -> pa.RecordBatch:
    """The rows in the table's columns and types, or its key columns only.

    `rows`: Arrow data, what has Arrow's C stream interface (frames of Polars, relations of DuckDB), or a list of
    dicts; of keys also tuples or bare values. Raises `SchemaMismatch` for what does not fit.
    """
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        if hasattr(rows, "__arrow_c_stream__"):
            rows = pa.table(rows)
        elif isinstance(rows, str | bytes) or not isinstance(rows, Sequence):
            raise SchemaMismatch(
                f"table {spec.name!r}: a function answered a {type(rows).__name__}; expected Arrow data, a frame or a "
                "list of dicts; nothing of the batch was stored"
            )
    schema = spec.arrow_schema()
    if keys_only:
        rows = key_rows(rows, spec.primary_key, spec.name)
        schema = pa.schema([schema.field(name) for name in spec.primary_key])
    return conform(rows, schema, spec.primary_key, spec.name)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
