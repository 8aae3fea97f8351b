"""Whether a stream is what it should be: its table, what it publishes, and what it keeps."""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from tussock.compute import changelog as cl
from tussock.statestore import StateStore

__all__ = ["applied", "apply", "comparable", "exact_sum", "table_rows"]

Rows = list[tuple[Any, ...]]


def comparable(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> Rows:
    """Rows as sorted tuples in which NaN is itself, and both zeros are one."""
    names = list(columns)
    return sorted((tuple(_plain(row[name]) for name in names) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def table_rows(store: StateStore, name: str) -> list[dict[str, Any]]:
    """What the table of that name has."""
    return [row for batch in store.table(name).read() for row in batch.to_pylist()]


def apply(rows: dict[Any, dict[str, Any]], transaction: Iterable[cl.ChangeRecord], one: cl.Stream) -> None:
    """Change rows, by key, as a stream has published; each change is held to what was there."""
    for record in transaction:
        key = tuple(_plain(record[name]) for name in one.key)
        assert (key in rows) == (record.op is not cl.Op.INSERT), f"{record} does not fit to what was before"
        if record.op is cl.Op.DELETE:
            gone = rows.pop(key)
            assert comparable([gone], one.schema.names) == comparable([record], one.schema.names)
        else:
            rows[key] = dict(record)


def applied(one: cl.Stream, transactions: int) -> list[dict[str, Any]]:
    """What an empty table becomes by the first transactions that a stream has published, that many."""
    rows: dict[Any, dict[str, Any]] = {}
    with one.subscribe(from_seq=1, timeout=10) as found:
        for _ in range(transactions):
            apply(rows, next(found), one)
    return list(rows.values())


def exact_sum(values: Iterable[float | None]) -> float | None:
    """The float next to the sum of all that are not null; `None` if there are none."""
    present = [value for value in values if value is not None]
    finite = [value for value in present if math.isfinite(value)]
    if len(finite) < len(present):
        return sum(value for value in present if not math.isfinite(value))
    if not present:
        return None
    total = sum(map(Fraction, finite), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf
