"""The rows of each key combined into one, by Polars."""

from collections.abc import Iterable, Mapping

import polars as pl
import pyarrow as pa
import pyarrow.types as pt

from tussock.compute.spark.writes.merges import calculable, overflow

__all__ = ["combine_rows"]

_AT = "\0at"
_FIRST, _LAST = "\0first", "\0last"


def combine_rows(rows: pa.Table, primary_key: Iterable[str], functions: Mapping[str, str]) -> pa.Table:
    """Rows combined so that each key occurs once, with the same columns and types; keys in order of first occurrence.

    Integers are summed with 128 bits; `InvalidBatch` if a sum does not fit its column.
    """
    keys = list(primary_key)
    computed = {name: functions[name] for name in rows.column_names if functions.get(name) in ("sum", "min", "max")}
    frame = pl.DataFrame(pl.from_arrow(rows.select([*keys, *computed]))).with_row_index(_AT)
    picked = [pl.col(_AT).first().alias(_FIRST), pl.col(_AT).last().alias(_LAST)]
    grouped = frame.group_by(keys, maintain_order=True).agg(
        *picked, *(_aggregate(name, function, frame.schema[name]) for name, function in computed.items())
    )
    if len(grouped) == rows.num_rows:
        return rows
    first, last = (pa.array(grouped[name].to_numpy()) for name in (_FIRST, _LAST))
    columns = []
    for field in rows.schema:
        if field.name in computed:
            columns.append(_to_arrow(grouped[field.name], field, computed[field.name]))
        else:
            at = first if functions.get(field.name) == "first" else last
            picked = calculable(rows.column(field.name)).take(at)
            # Cast only if necessary: Arrow would look at the fields of null structs.
            columns.append(picked if picked.type == field.type else picked.cast(field.type))
    return pa.table(columns, schema=rows.schema)


def _aggregate(name: str, function: str, kind: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if function == "min":
        return column.min()
    if function == "max":
        return column.max()
    total = column.cast(pl.Int128).sum() if kind.is_integer() else column.sum()
    # Without a value Polars returns 0, but the rule is null.
    return pl.when(column.count() > 0).then(total)


def _to_arrow(series: pl.Series, field: pa.Field, function: str) -> pa.Array:
    try:
        if series.dtype == pl.Int128:
            # Arrow has no integers of 128 bits.
            series = series.cast(pl.UInt64 if pt.is_uint64(field.type) else pl.Int64, strict=True)
        return series.to_arrow().cast(field.type)
    except (pl.exceptions.PolarsError, pa.ArrowInvalid) as error:
        raise overflow(field, function) from error
