"""Joins of two streams, with both sides kept as tables: `stream_join`.

A micro-batch has rows of both sides, each with a key and a time. New rows are joined with the other side's stored rows
and with each other. Then rows that no later row can match are forgotten, and those of them that never matched go to a
separate table, which makes the join an outer one: a joined row and half of one can't share a primary key. Matches, kept
rows and forgotten rows are one epoch.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from tussock.compute.spark.options.schemas import arrow_target, column_named
from tussock.compute.spark.reads.connections import opened_store, table_or_new
from tussock.compute.spark.state import KeyedBatch, Update, stateful
from tussock.compute.spark.state.checks import micros_of, names_of
from tussock.compute.spark.state.event_time import MICROS, watermark_micros
from tussock.compute.spark.state.merges import in_type
from tussock.compute.spark.state.plan import AT
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch
from tussock.statestore.rows.conversion import same_kind

__all__ = ["StreamJoin", "stream_join"]

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)
TIME = "_time"
_MATCHED = "matched"
TIME_MICROS_MAX = 1 << 61
"""More than 73,000 years: the largest distance of a time from 1970, in microseconds, and the largest `within`."""


def stream_join(
    table: str,
    *,
    on: str | Sequence[str],
    event_time: tuple[str, str],
    within: tuple[timedelta | float, timedelta | float],
    delay: timedelta | float,
    matched: str,
    unmatched_left: str | None = None,
    unmatched_right: str | None = None,
    store: str | StateStore,
    writer: str | None = None,
    partitions: int | None = None,
) -> "StreamJoin":
    """Join two streams by key and time; `union` their rows, and pass the result to `foreachBatch`.

    Rows match if they agree in the columns `on` and the right one's time minus the left one's is from `within[0]` to
    `within[1]` (timedeltas or seconds, negative ones too, both ends included); `event_time` names the time of each
    side. Pairs go to the table `matched`, which has columns for `on` and for both sides. With `unmatched_left` it is a
    left outer join, with `unmatched_right` a right outer one, with both a full one: rows that match nothing go to that
    table, once the watermark has passed all that could match them. The kept rows of the sides are in the tables
    `<table>.left` and `<table>.right`, which are created if they are missing.

    The watermark is the largest time of earlier batches, of both sides together, minus `delay`, so the delay covers
    how far one side may be behind the other. Rows at or before it are dropped. `writer` and `partitions` as in
    `stateful`. Raises `InvalidOption` for arguments that cannot work.
    """
    keys = names_of(on, "on")
    if not (isinstance(event_time, tuple) and len(event_time) == 2 and all(isinstance(x, str) for x in event_time)):
        raise InvalidOption(f"event_time is {event_time!r}; expected the names of the left and the right time column")
    try:
        low, high = (micros_of(length) for length in within)
    except (TypeError, ValueError, OverflowError):
        low, high = 1, 0
    if low > high:
        raise InvalidOption(f"within is {within!r}; expected the least and the largest time from left to right row")
    outputs = {_MATCHED: matched, LEFT: unmatched_left, RIGHT: unmatched_right}
    given = {name: output for name, output in outputs.items() if output is not None}
    outer = tuple(side for side in SIDES if side in given)
    join = _Join(keys, (f"{table}.{LEFT}", f"{table}.{RIGHT}"), outer, low, high)
    write = stateful(
        join.tables,
        key=keys,
        fn=join,
        store=store,
        outputs=given,
        event_time=TIME,
        delay=delay,
        writer=writer,
        partitions=partitions,
    )
    return StreamJoin(join, write, event_time, store)


class StreamJoin:
    """What `stream_join` returns: `union` makes the stream, and a call processes one of its micro-batches."""

    def __init__(self, join: "_Join", write: Any, event_time: tuple[str, str], store: str | StateStore) -> None:
        self._join = join
        self._event_time = event_time
        self._store = store
        self.write = write
        """The function of `stateful` that does the work, for tables that exist."""

    def union(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Rows of both sides as one stream: the columns `on`, a time, and a `left` and a `right`, one of which is set.

        Rows without a key or without a time match nothing and are left out. Raises `SchemaMismatch` if a column is
        missing, if the types of the columns `on` differ, if a time is not a timestamp, or if both sides have a column
        of the same name that is not in `on`.
        """
        on = self._join.on
        for side, rows, time in zip(SIDES, (left, right), self._event_time, strict=True):
            missing = [name for name in (*on, time) if name not in rows.columns]
            if missing:
                raise SchemaMismatch(f"the {side} side has no columns {missing}; it has {rows.columns}")
            kind = rows.schema[time].dataType
            if not isinstance(kind, TimestampType | TimestampNTZType | DateType):
                raise SchemaMismatch(
                    f"the {side} side's event_time {time!r} is {kind.simpleString()}; expected a timestamp, so cast it"
                )
        for name in self._join.on:
            kinds = [rows.schema[name].dataType for rows in (left, right)]
            if not same_kind(*(to_arrow_type(kind, timezone="UTC") for kind in kinds)):
                raise SchemaMismatch(
                    f"column {name!r} is {kinds[0].simpleString()} on the left side and {kinds[1].simpleString()} on "
                    "the right one: as one type, different keys could become the same; cast one of them"
                )
        twice = sorted(set(left.columns) & set(right.columns) - set(on))
        if twice:
            raise SchemaMismatch(f"both sides have columns {twice}; rename those of one side, or join on them")
        parts = [
            rows.where(self._complete(time)).select(
                *map(column_named, on),
                column_named(time).cast("timestamp").alias(TIME),
                f.struct(*(column_named(name) for name in rows.columns if name not in on)).alias(side),
            )
            for side, rows, time in zip(SIDES, (left, right), self._event_time, strict=True)
        ]
        return parts[0].unionByName(parts[1], allowMissingColumns=True)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Process one micro-batch; does nothing if it is in the store already."""
        self.make_tables(opened_store(self._store), arrow_target(rows.schema))
        self.write(rows, batch_id)

    def make_tables(self, store: StateStore, rows: pa.Schema) -> None:
        """Create the tables of the sides for rows of `union`, unless they exist."""
        on = self._join.on
        for name, side in zip(self._join.tables, SIDES, strict=True):
            kept = pa.struct([("row", rows.field(side).type), ("time", MICROS), ("matched", pa.bool_())])
            fields = [*(pa.field(key, rows.field(key).type) for key in on), pa.field("rows", pa.list_(kept))]
            table_or_new(store, name, schema=pa.schema(fields), primary_key=list(on))

    def _complete(self, time: str) -> Any:
        whole = column_named(time).isNotNull()
        for name in self._join.on:
            whole = whole & column_named(name).isNotNull()
        return whole


class _Join:
    """The state function: pure, on frames of Polars."""

    each_timer = False
    """The watermark decides what is over."""

    def __init__(
        self, on: tuple[str, ...], tables: tuple[str, str], outer: tuple[str, ...], low: int, high: int
    ) -> None:
        self.on = on
        self.tables = tables
        self.outer = outer
        self.low, self.high = low, high

    def __call__(self, batch: KeyedBatch) -> Update:
        """Join, emit, and forget."""
        rows = _frame(batch.rows)
        # A left row can match until its time plus `high`, a right one until its time minus `low`.
        sides = {
            LEFT: self._side(rows, batch.states, LEFT, self.high),
            RIGHT: self._side(rows, batch.states, RIGHT, -self.low),
        }
        pairs = sides[LEFT].join(sides[RIGHT], on=self.on, how="inner", suffix="_2")
        apart = (pl.col("time_2") - pl.col("time")).dt.total_microseconds()
        pairs = pairs.filter((pl.col("fresh") | pl.col("fresh_2")) & apart.is_between(self.low, self.high))
        outputs = {_MATCHED: pairs.select(*self.on, "row", "row_2").unnest("row", "row_2")}
        state, timers, deletes = {}, [], {}
        for name, side, number in zip(self.tables, SIDES, ("n", "n_2"), strict=True):
            both = sides[side].with_columns(pl.col("matched") | pl.col("n").is_in(pairs[number].implode()))
            over = pl.col("until") <= watermark_micros(batch.watermark)
            if side in self.outer:
                outputs[side] = both.filter(over & ~pl.col("matched")).select(*self.on, "row").unnest("row")
            kept = both.filter(~over)
            state[name] = kept.group_by(self.on, maintain_order=True).agg(rows=pl.struct("row", "time", "matched"))
            found = _frame(batch.keys).filter(pl.Series(batch.states[name].found))
            deletes[name] = found.join(state[name], on=self.on, how="anti")
            timers.append(kept.select(*self.on, "until"))
        # Each key here has new rows or a timer that fired, so it gets a new timer: when its first row is over.
        first = pl.concat(timers).group_by(self.on).agg(pl.col("until").min().cast(pl.Datetime("us", "UTC")).alias(AT))
        return Update(state=state, deletes=deletes, outputs=outputs, timers=first)

    def _side(self, rows: pl.DataFrame, states: Mapping[str, Any], side: str, reach: int) -> pl.DataFrame:
        """All rows of a side with one of the batch's keys: on, row, time, matched, fresh, n, until (microseconds)."""
        new = rows.filter(pl.col(side).is_not_null()).select(
            *self.on, row=side, time=TIME, matched=pl.lit(False), fresh=pl.lit(True)
        )
        table = self.tables[SIDES.index(side)]
        state: pa.RecordBatch = states[table].rows
        _check_times(new.get_column("time"), side)
        kept = _frame(state).select(*self.on, "rows").explode("rows").filter(pl.col("rows").is_not_null())
        old = kept.unnest("rows").with_columns(fresh=pl.lit(False))
        fields = [
            *(state.schema.field(key) for key in self.on),
            state.schema.field("rows").type.value_type.field("row"),
        ]
        fitting = [pl.Series(one.name, in_type(_plain(new.get_column(one.name)), one, table)) for one in fields]
        # The remaining columns have types that this function made itself.
        both = pl.concat([old, new.with_columns(fitting).cast(old.schema)]).with_row_index("n")
        return both.with_columns(until=pl.col("time").dt.epoch("us") + reach)


def _check_times(times: pl.Series, side: str) -> None:
    """Raise `InvalidBatch` for times so extreme that their difference, or the end of their match, would overflow."""
    if not times.dt.epoch("us").is_between(-TIME_MICROS_MAX, TIME_MICROS_MAX).all():
        raise InvalidBatch(
            f"event time of the {side} rows: one is further than {TIME_MICROS_MAX} microseconds from 1970, with which "
            "times cannot be compared any more; nothing of the batch was stored, leave such rows out of the query"
        )


def _plain(values: pl.Series) -> pa.Array:
    """The values in Arrow's forms of strings and bytes that Spark and the tables use."""
    return values.to_arrow(compat_level=pl.CompatLevel.oldest())


def _frame(rows: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
