"""Event time: which rows are late, and how far the stream has come.

The watermark of a batch is the largest event time of earlier batches minus the delay. Rows at or before it are late,
which is Spark's rule. The largest event time is kept in a table and is written in the epoch of the batch, so a batch
that is run again finds the watermark that it had.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["MICROS", "micros", "newest", "split_late", "watermark_micros"]

MICROS = pa.timestamp("us", "UTC")


def micros(times: pa.Array) -> pa.Int64Array:
    """Timestamps as microseconds since 1970, nulls kept; those without a zone are taken as UTC."""
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())


def split_late(batch: pa.RecordBatch, column: str, until: int | None) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The rows in time, and the late ones if there are any: those until this time. Null is in time."""
    if until is None or not batch.num_rows:
        return batch, None
    late: pa.BooleanArray = pc.fill_null(pc.less_equal(micros(batch.column(column)), until), False)
    if not late.true_count:
        return batch, None
    return batch.filter(pc.invert(late)), batch.filter(late)


def newest(batch: pa.RecordBatch, column: str) -> int | None:
    """The largest event time of a batch, in microseconds; `None` if it has none."""
    largest: int | None = pc.max(micros(batch.column(column))).as_py()
    return largest


def watermark_micros(watermark: np.datetime64 | None) -> int:
    """A watermark in microseconds since 1970; less than any time where there is none yet."""
    return int(np.iinfo(np.int64).min) if watermark is None else int(watermark.astype(np.int64))
