"""Session windows as a state function: rows of a key that follow each other within a gap belong together.

Open sessions of a key are in its state as a list, since with a delay there may be several that later rows can still
join into one. Each row is a session from its time to the gap after it; sessions that touch are merged, which is Spark's
rule for `session_window`. A session closes once the watermark has reached its end, and goes to an output.
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.compute.spark.state.checks import check_length, micros_of
from tussock.compute.spark.state.event_time import MICROS, later, micros, watermark_micros
from tussock.compute.spark.state.merges import Running, in_type, value_of
from tussock.compute.spark.state.plan import AT
from tussock.compute.spark.state.records import KeyedBatch, Update
from tussock.compute.spark.writes.combined_rows import combine_rows
from tussock.statestore.errors import InvalidOption

__all__ = ["sessions"]

START, END = "start", "end"
_GROUP, _SESSION = "\0group", "\0session"


def sessions(
    gap: timedelta | float, *, event_time: str, output: str = "closed", **columns: str | tuple[Any, ...]
) -> Callable[[KeyedBatch], Update]:
    """A function for `stateful` that writes sessions to `output` when they close.

    Rows at most `gap` (a timedelta or seconds) apart, by their `event_time`, are one session. `columns` are values of
    a session, as in `merges`, but without `collect`: in order of event time. The state table has the key and `open`, a
    list of structs with `start` and `end` (timestamps in UTC, the end is the last row's time plus the gap) and the
    `columns`; the output's table has the same columns beside the key. A row is late once the watermark has reached its
    time plus the gap; rows without a time belong to no session. Raises `InvalidOption`.
    """
    check_length(gap, "gap", least=1)
    running = {name: value_of(name, how) for name, how in columns.items()}
    for name, how in running.items():
        if how.function == "collect" or name in (START, END):
            raise InvalidOption(f"sessions: column {name!r} is {columns[name]!r}; expected another name and no collect")
    return _Sessions(micros_of(gap), event_time, output, running)


def _session_fields(schema: pa.Schema) -> dict[str, pa.DataType]:
    """The fields of a stored session; empty if the table has no column for sessions."""
    kind = schema.field("open").type if "open" in schema.names else pa.null()
    is_sessions = pt.is_list(kind) and pt.is_struct(kind.value_type)
    return {field.name: field.type for field in kind.value_type} if is_sessions else {}


class _Sessions:
    """The function that `sessions` returns."""

    each_timer = False
    """The watermark decides what is over."""

    def __init__(self, gap: int, event_time: str, output: str, columns: Mapping[str, Running]) -> None:
        self.gap = gap
        self.reach_micros = gap
        self.event_time = event_time
        self.output = output
        self.columns = columns

    def check(self, rows: pa.Schema, states: Mapping[str, pa.Schema], key: tuple[str, ...]) -> None:
        """Raise `InvalidOption` if the columns of rows and state table are not suitable."""
        table, schema = next(iter(states.items()))
        reserved = [name for name in key if name in (START, END, *self.columns)]
        if reserved:
            raise InvalidOption(
                f"table {table!r}: the key has the columns {reserved}, which sessions uses for values of a session; "
                "rename them in the rows and in the table"
            )
        sources = [how.source for how in self.columns.values() if how.source is not None]
        missing = sorted({self.event_time, *sources} - set(rows.names))
        if missing:
            raise InvalidOption(f"sessions reads the columns {missing}, which the rows lack; they have {rows.names}")
        fields = _session_fields(schema)
        if set(fields) != {START, END, *self.columns} or not fields[START] == fields[END] == MICROS:
            raise InvalidOption(
                f"table {table!r}: expected a column 'open', a list of structs with {START} and {END} of {MICROS} and "
                f"{list(self.columns)}; found {[f'{field.name}: {field.type}' for field in schema]}"
            )

    def __call__(self, batch: KeyedBatch) -> Update:
        """Merge rows into the open sessions of their keys, and close what is over."""
        stored = batch.state.column("open")
        kind = stored.type.value_type
        old, old_group = stored.flatten(), _repeat(np.arange(len(stored)), stored)
        # First, so that a session does not depend on how many batches lie between its end and the next row. Rows that
        # are not late end behind the watermark, so no session that they are part of is over.
        over = micros(pc.struct_field(old, END)).to_numpy() <= watermark_micros(batch.watermark)
        closed = old.filter(pa.array(over))
        keys = batch.keys.take(pa.array(old_group[over]))
        names = [*keys.schema.names, *(field.name for field in kind)]
        outputs = {self.output: pa.table([*keys.columns, *closed.flatten()], names=names)}
        merged = self._merge(batch, old.filter(pa.array(~over)), old_group[~over], kind)
        group = merged.column(_GROUP).to_numpy()
        rows = merged.drop_columns([_GROUP])
        return self._update(batch, rows, group, micros(rows.column(END)).to_numpy(), outputs)

    def _merge(self, batch: KeyedBatch, old: Any, old_group: npt.NDArray[np.int64], kind: pa.StructType) -> Any:
        """All sessions of the batch's keys: their key's position, start, end and values, by key, then start."""
        timed = batch.rows.column(self.event_time).is_valid()
        rows = batch.rows.filter(timed)
        group = batch.groups[timed.to_numpy(zero_copy_only=False)]
        start = micros(rows.column(self.event_time))
        table = next(iter(batch.states))
        values = {name: in_type(_value(rows, how), kind.field(name), table) for name, how in self.columns.items()}
        fresh = {START: start.view(MICROS), END: later(start, self.gap, self.event_time).view(MICROS), **values}
        known = dict(zip((field.name for field in kind), old.flatten(), strict=True))
        both = {name: pa.concat_arrays([known[name], fresh[name]]) for name in fresh}
        table = pa.table({_GROUP: np.concatenate([old_group, group]), **both})
        # Stable: of equal starts the stored session comes first, and rows keep their order.
        table = table.take(pc.sort_indices(table, [(_GROUP, "ascending"), (START, "ascending")]))
        table = table.append_column(_SESSION, pa.array(_session_numbers(table)))
        functions = {name: "sum" if how.function == "count" else how.function for name, how in self.columns.items()}
        functions |= {_GROUP: "first", START: "min", END: "max"}
        return combine_rows(table, [_SESSION], functions).drop_columns([_SESSION]).combine_chunks()

    def _update(
        self,
        batch: KeyedBatch,
        rows: pa.Table,
        group: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        outputs: dict[str, pa.Table],
    ) -> Update:
        """State of the keys with open sessions, deletes of the others, and when to look at them again."""
        stored = batch.state.column("open")
        count = batch.keys.num_rows
        lengths = np.bincount(group, minlength=count)
        has = np.flatnonzero(lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[has])]).astype(np.int32)
        kind = stored.type.value_type
        structs = pa.StructArray.from_arrays(
            [in_type(rows.column(field.name).combine_chunks(), field, next(iter(batch.states))) for field in kind],
            fields=list(kind),
        )
        lists = pa.ListArray.from_arrays(pa.array(offsets), structs, type=stored.type)
        keys = batch.keys.take(pa.array(has))
        state = keys.append_column("open", lists)
        gone = batch.keys.filter(pa.array(batch.found & (lengths == 0)))
        # At least one timer is at or before the first end of each key; ends that move back need no new one.
        first = _first_end(ends, group, count)
        before = _first_end(
            micros(pc.struct_field(stored.flatten(), END)).to_numpy(), _repeat(np.arange(count), stored), count
        )
        fired = np.zeros(count, np.bool_) if batch.fired is None else ~np.isnat(batch.fired)
        arm = np.flatnonzero((lengths > 0) & (fired | (first < before)))
        timers = batch.keys.take(pa.array(arm)).append_column(AT, pa.array(first[arm]).view(MICROS))
        return Update(state=state, deletes=gone, outputs=outputs, timers=timers)


def _value(rows: pa.RecordBatch, how: Running) -> Any:
    """The value that one row adds to a session."""
    if how.function != "count":
        return rows.column(how.source)
    ones = pa.repeat(True, rows.num_rows) if how.source is None else rows.column(how.source).is_valid()
    return ones.cast(pa.int8())


def _session_numbers(table: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row, sorted by key and start, that is the same for rows of one session."""
    frame = pl.DataFrame(
        {
            "group": table.column(_GROUP).to_numpy(),
            **{name: micros(table.column(name)).to_numpy() for name in (START, END)},
        }
    )
    reach = frame.select(pl.col(END).cum_max().over("group"))[END].to_numpy()
    group, start = frame["group"].to_numpy(), frame[START].to_numpy()
    apart = np.ones(len(frame), np.bool_)
    apart[1:] = (group[1:] != group[:-1]) | (start[1:] > reach[:-1])
    return np.cumsum(apart)


def _repeat(values: npt.NDArray[np.int64], lists: Any) -> npt.NDArray[np.int64]:
    """Each value as often as its list has elements."""
    return np.repeat(values, lists.value_lengths().fill_null(0).to_numpy())


def _first_end(ends: npt.NDArray[np.int64], group: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The least end of each group; the largest integer if it has none."""
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, group, ends)
    return first
