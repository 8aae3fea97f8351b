"""Event time: which rows are late, and how far the stream has come.

The watermark of a batch is the largest event time of earlier batches minus the delay. Rows at or before it are late,
which is Spark's rule. A table keeps the largest event time, written in the epoch of the batch, so a batch that runs
again finds the watermark that it had.
"""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.errors import InvalidBatch

__all__ = ["MICROS", "later", "micros", "newest", "split_late", "units_of", "watermark_before", "watermark_micros"]

MICROS = pa.timestamp("us", "UTC")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_FIRST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICRO
_LAST = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MICRO
_INT64 = np.iinfo(np.int64)
_PER_MICRO = {"s": (1, 1_000_000), "ms": (1, 1_000), "us": (1, 1), "ns": (1_000, 1)}
"""Units in a microsecond, and microseconds in a unit."""


def micros(times: pa.Array) -> pa.Int64Array:
    """Timestamps as microseconds since 1970, nulls kept; UTC if they have no zone.

    A moment within a microsecond counts as its beginning, and one beyond 64 bits as the last that fits.
    """
    values = times.cast(pa.int64())
    fine, coarse = _PER_MICRO[times.type.unit]
    if coarse > 1:
        limits = (pa.scalar(limit, pa.int64()) for limit in (-(_INT64.max // coarse), _INT64.max // coarse))
        low, high = limits
        bounded = pc.min_element_wise(pc.max_element_wise(values, low, skip_nulls=False), high, skip_nulls=False)
        return pc.multiply(bounded, pa.scalar(coarse, pa.int64()))
    if fine > 1:
        numbers = values.fill_null(0).to_numpy() // fine
        return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))
    return values


def units_of(time: int, kind: pa.TimestampType) -> pa.TimestampScalar:
    """Microseconds since 1970 as a timestamp of that type: the last one that is not later."""
    fine, coarse = _PER_MICRO[kind.unit]
    return pa.scalar(min(max(time * fine // coarse, _INT64.min), _INT64.max), pa.int64()).cast(kind)


def watermark_before(newest: int | None, delay: int) -> int | None:
    """The watermark in microseconds: `delay` before the largest event time, if a `datetime` can hold that.

    `None` if there is none yet, or if it would lie too early.
    """
    return None if newest is None or newest - delay < _FIRST else min(newest - delay, _LAST)


def later(times: pa.Int64Array, by: int, column: str) -> pa.Int64Array:
    """Each time plus `by` microseconds, nulls kept; `InvalidBatch` if one exceeds 64 bits.

    `column` is the event time that they come from.
    """
    try:
        return pc.add_checked(times, pa.scalar(by, pa.int64()))
    except pa.ArrowInvalid as error:
        raise InvalidBatch(
            f"event time {column!r}: {by / 1_000_000} s after a row's time exceed 64 bits of microseconds; "
            "nothing of the batch was stored, leave such rows out of the query"
        ) from error


def split_late(batch: pa.RecordBatch, column: str, until: int | None) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The rows in time, and the late ones, at or before `until`, if there are any. Null is in time."""
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
    """A watermark in microseconds since 1970; before any time if there is none yet."""
    return int(np.iinfo(np.int64).min) if watermark is None else int(watermark.astype(np.int64))
