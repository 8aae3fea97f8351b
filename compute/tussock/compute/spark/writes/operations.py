"""Finds the rows of a write that are deletes, and gathers its rows for encoding.

The words for operations are Tussock's, and those of the sources of changes that people write to a table as they are:
Debezium's `op`, and `_op` or `_change_type` of change feeds (Tussock's, Delta's, Spark's).
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.errors import InvalidBatch

__all__ = ["DELETE_COLUMN", "DELETE_WORDS", "SKIPPED_WORDS", "UPSERT_WORDS", "gather_batches", "marked_deletes"]

UPSERT_WORDS = ("upsert", "put", "insert", "update", "update_postimage", "c", "r", "u")
DELETE_WORDS = ("delete", "d")
SKIPPED_WORDS = ("update_preimage",)
"""Rows as they were before an update, which the row after it replaces."""

_REFUSED_WORDS = {
    "t": "a truncate, Debezium's 't', does not say which rows are gone: empty the table by a write with "
    "mode('overwrite'), and filter such events out",
    "m": "a message, Debezium's 'm', has no row: filter such events out",
}

DELETE_COLUMN = "\0delete"
"""Name of the boolean column that marks deletes; no table can have it, as Spark has no such column."""

_GATHER_BYTES = 1 << 20
"""Spark sends batches of 10,000 rows; a few at once cost less per row, many at once exceed the CPU's caches."""


def marked_deletes(batches: Iterable[pa.RecordBatch], op_column: str, table: str) -> Iterator[pa.RecordBatch]:
    """The batches with `DELETE_COLUMN` in place of `op_column`, a column of words in any case; some rows are left out.

    Raises `InvalidBatch` for an unknown word or null.
    """
    upserts, deletes, skips = pa.array(UPSERT_WORDS), pa.array(DELETE_WORDS), pa.array(SKIPPED_WORDS)
    for batch in batches:
        words = pc.utf8_lower(batch.column(op_column).cast(pa.string()))
        marks = pc.is_in(words, value_set=deletes)
        wanted = pc.or_(marks, pc.is_in(words, value_set=upserts))
        known = pc.or_(wanted, pc.is_in(words, value_set=skips))
        if not pc.all(known, min_count=0).as_py():
            at = pc.index(known, False).as_py()
            reason = _REFUSED_WORDS.get(words[at].as_py())
            raise InvalidBatch(
                f"table {table!r}: column {op_column!r} holds {batch.column(op_column)[at].as_py()!r}; "
                + (reason or f"expected one of {[*UPSERT_WORDS, *DELETE_WORDS, *SKIPPED_WORDS]}")
                + "; nothing of the write was stored"
            )
        marked = batch.drop_columns([op_column]).append_column(DELETE_COLUMN, marks)
        yield marked if pc.all(wanted, min_count=0).as_py() else marked.filter(wanted)


def gather_batches(batches: Iterable[pa.RecordBatch], bytes_max: int = _GATHER_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer, larger batches of about `bytes_max`."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= bytes_max:
            yield _join(held)
            held, size = [], 0
    if held:
        yield _join(held)


def _join(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
