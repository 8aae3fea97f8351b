"""The results of a state function, in whatever form, as batches of exactly their table's columns."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidBatch, SchemaMismatch
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.tables.typed_input import conform, key_rows

__all__ = ["CalledKeys", "batch_of", "one_batch"]


def batch_of(rows: Any, spec: TableSpec, *, keys_only: bool = False) -> pa.RecordBatch:
    """The rows in the table's columns and types, or its key columns only.

    `rows`: Arrow data, objects with Arrow's C stream interface (frames of Polars, relations of DuckDB), or a list of
    dicts; for keys also tuples or bare values. Raises `SchemaMismatch` for rows that do not fit.
    """
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        if hasattr(rows, "__arrow_c_stream__"):
            rows = pa.table(rows)
        elif isinstance(rows, str | bytes) or not isinstance(rows, Sequence):
            raise SchemaMismatch(
                f"table {spec.name!r}: a function returned a value of type {type(rows).__name__}; expected Arrow data, "
                "a frame or a list of dicts; nothing of the batch was stored"
            )
    schema = spec.arrow_schema()
    if keys_only:
        rows = key_rows(rows, spec.primary_key, spec.name)
        schema = pa.schema([schema.field(name) for name in spec.primary_key])
    return conform(rows, schema, spec.primary_key, spec.name)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """All rows of a table as one batch; `InvalidBatch` if a column is too large for that."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        # Arrow counts the bytes of a string column with 32 bits, and leaves larger columns in several pieces.
        raise InvalidBatch(
            f"{table.num_rows} rows of {table.schema.names} do not fit into one batch, as strings or lists of a column "
            "have 2 GiB or more; expected less in the rows and the state of a call; nothing of the batch was stored: "
            "give stateful smaller batches, or a key with fewer rows"
        )
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


class CalledKeys:
    """The keys of one call of the function, which may write state and timers only for these.

    Other keys belong to other calls, maybe in other tasks, which neither see what it writes nor wait for it.
    """

    def __init__(self, keys: pa.RecordBatch, encoder: KeyEncoder) -> None:
        self._keys = keys
        self._encoder = encoder

    @cached_property
    def _known_keys(self) -> pa.Array:
        return self._comparable(self._keys)

    def _comparable(self, keys: pa.RecordBatch) -> pa.Array:
        """One value per key, equal if the keys are; different bit patterns of a float may be the same key."""
        alone = keys.num_columns == 1 and not pt.is_floating(keys.column(0).type)
        return keys.column(0) if alone else self._encoder.encode(keys)

    def check(self, rows: pa.RecordBatch, table: str, what: str) -> None:
        """Raise `InvalidBatch` if a row's key is none of them; `what` the function returned for the table."""
        named = rows.select(self._keys.schema.names)
        # As a rule a function returns all keys, or all that have rows, in their order.
        if not named.equals(self._keys.slice(0, rows.num_rows)):
            self._places(named, table, what)

    def places(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The position of each row's key, which is one of the call's."""
        return self._places(rows.select(self._keys.schema.names), "", "")

    def _places(self, named: pa.RecordBatch, table: str, what: str) -> npt.NDArray[np.int64]:
        at = pc.index_in(self._comparable(named), value_set=self._known_keys)
        if at.null_count:
            foreign = int(np.flatnonzero(at.is_null().to_numpy(zero_copy_only=False))[0])
            key = tuple(named.slice(foreign, 1).to_pylist()[0].values())
            raise InvalidBatch(
                f"table {table!r}: the function returned {what} for key {key}, with which it was not called; expected "
                "only keys of batch.keys, since others are another call's, maybe in another task: write such rows to "
                "an output; nothing of the batch was stored",
                foreign,
                key,
            )
        places: npt.NDArray[np.int64] = at.to_numpy().astype(np.int64)
        return places
