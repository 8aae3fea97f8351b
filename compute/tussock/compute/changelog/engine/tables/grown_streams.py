"""Streams that have got columns, or wider ones: their tables follow, and so does all that is kept of their records.

Transactions in histories, queues, what is held back, and bad ones have values in the order in which the stream declared
its columns. So they are written anew, in the epoch that says so; a start that dies before it does all of it once more.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from tussock.compute.applications.errors import StreamChanged
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.changes.transaction import changes_bytes, kept_changes
from tussock.compute.changelog.definitions import Definition
from tussock.compute.changelog.engine.anew.stream_repairs import repair
from tussock.compute.changelog.engine.tables.columns import Growth
from tussock.compute.changelog.progress import FlowProgress
from tussock.statestore import StateStore
from tussock.statestore.rows.wider_types import as_type
from tussock.statestore.transactions.delta import Delta

__all__ = ["GrownStream", "grow_streams"]

ROWS = 64
"""Transactions that are written anew together."""


class GrownStream(NamedTuple):
    """One whose columns are others than those that it had."""

    shape: StreamShape
    definition: Definition
    found: Sequence[str]
    """The columns of its table, in the order that it has them."""
    growth: Growth
    """What the table lacks; nothing, if somebody has altered it already, or an earlier start."""


def grow_streams(store: StateStore, flow: str, grown: Mapping[str, GrownStream], *, place: str | None) -> None:
    """Alter tables, and write anew what is kept. Shuts out a runner of the flow.

    Raises `StreamChanged` where the input log has what no commit holds: that is of the streams as they were.
    """

    def change(delta: Delta, known: FlowProgress) -> list[str]:
        for name, one in grown.items():
            if one.growth:
                store.alter_table(name, add=one.growth.add, widen=one.growth.widen)
        layouts = {name: known.streams[name].columns or [*one.found] for name, one in grown.items()}
        for table, stream_of in (("histories", _source), ("bad_rows", _stream_of_bad)):
            _write_anew(delta.table(f"{flow}.{table}", shared=True), stream_of, grown, layouts)
        for name, one in grown.items():
            names = [*one.found, *one.growth.add]
            columns = [] if names == one.shape.names else one.shape.names
            known.streams[name] = replace(known.streams[name], definition=dict(one.definition), columns=columns)
        return []

    def in_flight(_: str) -> StreamChanged:
        name, one = next(iter(grown.items()))
        way_out = f"give that up, with `tussock repair application {flow} --give-up`; then start it with these columns"
        if one.growth:
            way_out = f"Start it as it was declared, and stop it; or {way_out}"
        else:
            way_out = f"As the table has these columns already, all that is left is to {way_out}"
        return StreamChanged(
            f"flow {flow!r}: stream {name!r} is declared with other columns than when it ran, now {one.shape.names}, "
            "and the flow was not stopped in order: its input log has what no commit holds, of the columns that it "
            f"had. {way_out}",
            name,
        )

    repair(store, flow, place, change, [], in_flight)


def _source(row: Mapping[str, Any]) -> str:
    return str(row["source"])


def _stream_of_bad(row: Mapping[str, Any]) -> str:
    # Empty: it was pushed.
    return str(row["source"] or row["stream"])


def _write_anew(
    table: Any,
    stream_of: Callable[[Mapping[str, Any]], str],
    grown: Mapping[str, GrownStream],
    layouts: Mapping[str, Sequence[str]],
) -> None:
    fresh: list[dict[str, Any]] = []
    for batch in table.read():
        for row in batch.to_pylist():
            name = stream_of(row)
            if name not in grown or not row["data"]:
                continue
            kept = kept_changes(row["data"], layouts[name], f"table {table.name!r}, stream {name!r}")
            data = changes_bytes(_converted(*kept, grown[name].shape))
            fresh.append({**row, "data": data, **({"bytes": len(data)} if "bytes" in row else {})})
            if len(fresh) >= ROWS:
                table.upsert(pa.Table.from_pylist(fresh, schema=table.schema))
                fresh = []
    if fresh:
        table.upsert(pa.Table.from_pylist(fresh, schema=table.schema))


def _converted(time: int, codes: Any, olds: Any, columns: Mapping[str, Any], shape: StreamShape) -> Changes:
    """Columns by name, as rows of the stream as it is now; those that it has got are null."""
    count = len(codes)
    arrays = []
    for field in shape.schema:
        kept = columns.get(field.name)
        if kept is None:
            arrays.append(pa.nulls(count, field.type))
        elif isinstance(kept, pa.Array):
            arrays.append(as_type(kept, field.type))
        else:
            arrays.append(_array(kept, field.type))
    schema = pa.schema([pa.field(field.name, field.type) for field in shape.schema])
    return Changes(shape, None, (pa.record_batch(arrays, schema=schema), codes, olds), time)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python's values of a narrower type, such as whole numbers of what is a decimal now."""
    if pa.types.is_decimal(kind):
        values = [None if value is None else Decimal(value) for value in values]
    elif pa.types.is_floating(kind):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)
