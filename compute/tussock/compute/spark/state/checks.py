"""The arguments of `stateful`, and their requirements on tables and rows. Pure; every refusal names what to change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from tussock.compute.spark.state.plan import AT, HELPERS, LATE, Expiry
from tussock.statestore.base.names import repeated, shown
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.vnode import VNODES_MAX
from tussock.statestore.tables.typed_input import conform

__all__ = [
    "Ttl",
    "check_helper",
    "check_length",
    "check_options",
    "check_rows",
    "check_tables",
    "micros_of",
    "names_of",
]


@dataclass(frozen=True)
class Ttl:
    """Time to live of state: a row is forgotten `after` its time, which is in a column of the state table.

    `by="processing"`: the column gets the time of the batch whenever the row is written. `by="event"`: the function
    sets it, and the watermark is the clock; a row with null there stays.
    """

    column: str
    after: timedelta | float
    """A timedelta or seconds."""
    by: str = "processing"


def names_of(value: str | Sequence[str], argument: str) -> tuple[str, ...]:
    """One or several names as a tuple; `InvalidOption` if there is none, or one twice."""
    names = (value,) if isinstance(value, str) else tuple(value)
    if not names or len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise InvalidOption(f"{argument} is {value!r}; expected a name, or several different ones")
    return names


def micros_of(length: timedelta | float) -> int:
    """A length of time in microseconds."""
    seconds = length if isinstance(length, timedelta) else timedelta(seconds=length)
    return seconds // timedelta(microseconds=1)


def check_options(
    fn: Any,
    outputs: Mapping[str, str] | None,
    event_time: str | None,
    delay: timedelta | float | None,
    ttl: Ttl | None,
    partitions: int | None,
    chunk_bytes: int,
) -> None:
    """Raise `InvalidOption` for an argument that cannot work with any tables."""
    if not callable(fn):
        raise InvalidOption(f"fn is {fn!r}; expected a function of a KeyedBatch that returns an Update")
    if outputs is not None and not isinstance(outputs, Mapping):
        raise InvalidOption(f"outputs is {outputs!r}; expected names and tables, such as {{'rejects': 'bank.rejects'}}")
    if (event_time is None) != (delay is None):
        raise InvalidOption("event_time and delay go together: a column, and how late its rows may be; give both")
    if delay is not None:
        check_length(delay, "delay", least=0)
    if ttl is not None:
        _check_ttl(ttl, event_time)
    if partitions is not None and (isinstance(partitions, bool) or partitions not in range(1, VNODES_MAX + 1)):
        raise InvalidOption(f"partitions is {partitions!r}; expected a number of tasks from 1 to {VNODES_MAX}")
    if not isinstance(chunk_bytes, int) or chunk_bytes < 1:
        raise InvalidOption(f"chunk_bytes is {chunk_bytes!r}; expected bytes of rows that a task may hold, 1 or more")


def _check_ttl(ttl: Ttl, event_time: str | None) -> None:
    if not isinstance(ttl, Ttl) or ttl.by not in ("event", "processing"):
        raise InvalidOption(f"ttl is {ttl!r}; expected a Ttl by 'event' or 'processing' time")
    check_length(ttl.after, "ttl.after", least=1)
    if ttl.by == "event" and event_time is None:
        raise InvalidOption("ttl is by event time, whose clock is the watermark; give event_time and delay, too")


def check_length(length: Any, argument: str, least: int) -> None:
    """Raise `InvalidOption` unless it is a length of time of `least` microseconds or more."""
    try:
        micros = -1 if isinstance(length, bool) else micros_of(length)
    except (TypeError, ValueError, OverflowError):
        micros = -1
    if micros < least:
        bounds = "above 0" if least else "0 or more"
        raise InvalidOption(f"{argument} is {length!r:.100}; expected a timedelta or seconds, {bounds}")


def check_tables(
    key: Sequence[str],
    states: Sequence[TableSpec],
    outputs: Mapping[str, TableSpec],
    expiry: Expiry | None,
    event_time: str | None,
) -> None:
    """Raise `InvalidOption` if the tables do not fit the key, each other, timers or the time to live."""
    if event_time is not None and AT in key:
        raise InvalidOption(
            f"key has the column {AT!r}, and stateful keeps the times of timers under that name beside the key; "
            f"rename the column in the rows and in table {states[0].name!r}, or leave out event_time"
        )
    for spec in states:
        if spec.primary_key != tuple(key):
            raise InvalidOption(
                f"state table {spec.name!r} has the primary key {list(spec.primary_key)}, and key is {list(key)}; "
                "expected them to be the same, in the same order"
            )
        if _placement(spec) != _placement(states[0]):
            raise InvalidOption(
                f"state tables {states[0].name!r} and {spec.name!r} differ in the types of the key or in their "
                "distribution key, so their rows lie apart; create them alike"
            )
        schema = spec.arrow_schema()
        if expiry is not None and not (
            expiry.column in schema.names
            and expiry.column not in key
            and pt.is_timestamp(schema.field(expiry.column).type)
        ):
            raise InvalidOption(
                f"ttl names column {expiry.column!r}; expected a timestamp of table {spec.name!r}, beside its key, of "
                f"{[f'{field.name}: {field.type}' for field in schema]}"
            )
    own = {spec.name for spec in states} | ({f"{states[0].name}{end}" for end in HELPERS} if event_time else set())
    for name, spec in outputs.items():
        if spec.schema is None:
            raise InvalidOption(f"output {name!r}: table {spec.name!r} is raw; expected one with columns")
        if spec.name in own:
            raise InvalidOption(
                f"output {name!r}: table {spec.name!r} is one in which this stateful keeps its state, timers or "
                "watermark; expected another table: state is written by Update(state=...)"
            )


def check_rows(
    key: Sequence[str],
    state: TableSpec,
    outputs: Mapping[str, TableSpec],
    rows: pa.Schema,
    order_by: Sequence[str],
    event_time: str | None,
) -> pa.Schema:
    """The columns of a micro-batch with its key in the types of the state table.

    Raises `SchemaMismatch` or `InvalidOption` if a column is missing or has an unsuitable type.
    """
    if twice := repeated(rows.names):
        raise SchemaMismatch(
            f"table {state.name!r}: the rows have several columns of the names {shown(twice)}; rename or drop all but "
            "one each"
        )
    for name in (*key, *order_by, *([] if event_time is None else [event_time])):
        if name not in rows.names:
            raise SchemaMismatch(
                f"table {state.name!r}: the rows have no column {name!r}; they have {shown(rows.names)}"
            )
    for name in order_by:
        try:
            pc.sort_indices(pa.table({name: pa.nulls(1, rows.field(name).type)}), [(name, "ascending")])
        except (pa.ArrowException, TypeError) as error:
            raise InvalidOption(
                f"order_by names column {name!r} of {rows.field(name).type}, which has no order; expected a number, a "
                "string, a time or a column like these"
            ) from error
    if event_time is not None and not pt.is_timestamp(rows.field(event_time).type):
        raise InvalidOption(f"event_time {event_time!r} is {rows.field(event_time).type}; expected a timestamp")
    if event_time is not None and LATE in outputs:
        _check_late(rows, outputs[LATE])
    for name in key:
        field = state.arrow_schema().field(name)
        found = rows.field(name).type
        if found != field.type:
            _check_key(field, found, state.name)
            rows = rows.set(rows.get_field_index(name), pa.field(name, field.type))
    return rows


def _check_late(rows: pa.Schema, late: TableSpec) -> None:
    try:
        conform(rows.empty_table(), late.arrow_schema(), late.primary_key, late.name)
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"output {LATE!r} takes the rows that come too late, with all their columns, and they do not fit: {error}; "
            f"expected a table with all columns of the rows: {[f'{field.name}: {field.type}' for field in rows]}"
        ) from error


def check_helper(found: TableSpec, expected: pa.Schema, state: TableSpec) -> None:
    """Raise `InvalidOption` if a table beside the state is not the one that this state needs."""
    schema = None if found.schema is None else found.arrow_schema()
    if schema is None or [(field.name, field.type) for field in schema] != [
        (field.name, field.type) for field in expected
    ]:
        raise InvalidOption(
            f"table {found.name!r} is not of state table {state.name!r}: expected the columns "
            f"{[f'{field.name}: {field.type}' for field in expected]}, found "
            f"{'a raw table' if schema is None else [f'{field.name}: {field.type}' for field in schema]}; if it "
            "remains from an earlier table of that name, drop it"
        )


def _check_key(field: pa.Field, found: pa.DataType, table: str) -> None:
    """Raise `SchemaMismatch` if Spark cannot make a key column of this type from the type of the rows."""
    conform(pa.table({field.name: pa.array([], found)}), pa.schema([field]), [], table)
    try:
        exact = to_arrow_type(from_arrow_type(field.type, prefer_timestamp_ntz=True), timezone="UTC") == field.type
    except PySparkTypeError:
        exact = False
    if not exact:
        raise SchemaMismatch(
            f"table {table!r}: key column {field.name!r} is {field.type}, which Spark lacks, so it cannot place rows "
            f"of {found} by it; create the table with another type"
        )


def _placement(spec: TableSpec) -> tuple[Any, ...]:
    schema = spec.arrow_schema()
    return spec.distribution_key, [schema.field(name).type for name in spec.primary_key]
