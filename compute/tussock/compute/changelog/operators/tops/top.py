"""`top`: the first rows of each group of a stream, in an order of columns, kept right as rows come, change and go.

All rows are kept in their order. That alone would cost a scan for each change; so of each group the places of its first
rows, a few more than are shown, are kept as one value, the front. A row that goes leaves a gap that the front fills,
and only when it has become shorter than what is shown the rows behind it are read again.

| table | key | value |
|---|---|---|
| rows | group, place | the row |
| fronts | group | its first places, and whether there are rows behind them |

A group is the sort key of the `by` columns, a place that of the `order_by` columns and then the key of the row.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.operators.operator_base import StreamOperator, check_source, derive, known_columns
from tussock.compute.changelog.operators.sort_keys import SortKeys
from tussock.compute.changelog.operators.tops.packed_lists import pack, unpack
from tussock.compute.changelog.operators.tops.top_columns import TopPlan, TopTables, top_by_columns
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["top"]

N_MAX = 10_000
SPARE = 32
"""Places that a front may have beyond twice what is shown: this many more may go before rows are read again."""

Row = Mapping[str, Any]


def top(name: str, source: Stream, n: int, order_by: Any, by: Sequence[str] = (), *, rank: str | None = None) -> Stream:
    """A stream of the first `n` rows, 1 to 10,000, of each group of `source`, with the same columns and key.

    `order_by`: names of columns, or pairs (name, "asc" or "desc"), "asc" by default; nulls come last, NaN is greater
    than any number, and rows that are equal in these columns are in the order of their keys. `by`: the columns that
    make a group, null being a value; none: all rows are one. `rank`: the name of a column to add, with the place of the
    row in its group, from 1; then each row that moves is published. Raises `InvalidOption`.
    """
    what = f"top {name!r}"
    check_source(what, source)
    if type(n) is not int or not 1 <= n <= N_MAX:
        raise InvalidOption(f"{what}: n={n!r:.100}; expected 1 to {N_MAX:,}")
    groups = known_columns(what, "by", by, source.schema)
    order = _order(what, order_by, source.schema)
    schema = source.schema
    if rank is not None:
        if not isinstance(rank, str) or not rank or rank in schema.names:
            raise InvalidOption(f"{what}: rank={rank!r:.100}; expected a name that is none of {schema.names}, or None")
        schema = schema.append(pa.field(rank, pa.int64(), nullable=False))
    kind = {field.name: field.type for field in source.schema}
    plan = TopPlan(
        n,
        2 * n + SPARE,
        groups,
        tuple(dict.fromkeys([*(one for one, _ in order), *source.key])),
        SortKeys(what, [(one, kind[one], False) for one in groups]),
        SortKeys(what, [*((one, kind[one], down) for one, down in order), *_ascending(source.key, order, kind)]),
        rank,
        source.schema,
        source.key,
    )
    return derive(
        "top",
        name,
        [source],
        schema,
        source.key,
        lambda shape: _Top(shape, plan),
        n=n,
        order_by=[[one, "desc" if down else "asc"] for one, down in order],
        by=groups,
        rank=rank,
    )


def _ascending(key: Sequence[str], order: Sequence[tuple[str, bool]], kind: Mapping[str, Any]) -> Iterator[Any]:
    """The key's columns that do not order the rows already."""
    ordered = [one for one, _ in order]
    return ((one, kind[one], False) for one in key if one not in ordered)


def _order(what: str, order_by: Any, schema: pa.Schema) -> list[tuple[str, bool]]:
    given = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(given, list | tuple) or not given:
        raise InvalidOption(f"{what}: order_by={order_by!r:.100}; expected names, or pairs such as ('price', 'desc')")
    if len(given) == 2 and given[1] in ("asc", "desc") and given[1] not in schema.names:
        given = [given]
    found = []
    for one in given:
        pair = (one, "asc") if isinstance(one, str) else tuple(one) if isinstance(one, list | tuple) else ()
        if len(pair) != 2 or not isinstance(pair[0], str) or pair[1] not in ("asc", "desc"):
            raise InvalidOption(f"{what}: order_by has {one!r:.100}; expected a name, or (name, 'asc' or 'desc')")
        found.append((pair[0], pair[1] == "desc"))
    known_columns(what, "order_by", [one for one, _ in found], schema)
    return found


class _Top(StreamOperator):
    def __init__(self, shape: StreamShape, plan: TopPlan) -> None:
        super().__init__(shape)
        self._plan = plan
        self._names = [f"row_{one}" for one in plan.schema.names]

    def tables(self) -> Mapping[str, StateTable]:
        """The rows in their order, and the fronts."""
        group = pa.field("group", pa.binary(), nullable=False)
        place = pa.field("place", pa.binary(), nullable=False)
        values = [pa.field(f"row_{one.name}", one.type) for one in self._plan.schema]
        front = [pa.field("places", pa.binary(), nullable=False), pa.field("has_more", pa.bool_(), nullable=False)]
        return {
            "rows": StateTable(pa.schema([group, place, *values]), ["group", "place"], ["group"]),
            "fronts": StateTable(pa.schema([group, *front]), ["group"]),
        }

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._rows, self._fronts = tables["rows"], tables["fronts"]

    def by_columns(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """Many records."""
        return top_by_columns(self.shape, self._plan, TopTables(self._rows, self._fronts), changes)

    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:  # noqa: ARG002 - as the base class has it
        """Few records."""
        found: list[ChangeRecord] = []
        for record in changes.records:
            fresh = None if record.op is Op.DELETE else record.values_by_column
            old = record.old if record.op is Op.UPDATE_BLOCK else record if record.op is Op.DELETE else None
            deletes, upserts = self._changed(old, fresh)
            come = {self.shape.key_of(row) for row in upserts}
            gone = [row for row in deletes if self.shape.key_of(row) not in come]
            found += [ChangeRecord(Op.SAFEDELETE, row, None, changes.time) for row in gone]
            found += [ChangeRecord(Op.UPSERT, row, None, changes.time) for row in upserts]
        return found

    def _changed(self, old: Row | None, fresh: Row | None) -> tuple[list[Row], list[Row]]:
        """The rows that the top loses, and those that it gets or that change in it."""
        before, after = self._spot(old), self._spot(fresh)
        if before is not None and before != after:
            self._rows.delete([before])
        if after is not None and fresh is not None:
            values = {name: fresh[name[4:]] for name in self._names}
            self._rows.upsert([{"group": after[0], "place": after[1], **values}])
        deletes: list[Row] = []
        upserts: list[Row] = []
        for group in dict.fromkeys(one[0] for one in (before, after) if one is not None):
            gone = before[1] if before is not None and before[0] == group else None
            come = after[1] if after is not None and after[0] == group else None
            lost, got = self._moved(group, gone, come)
            deletes += [old if one == gone and old is not None else self._row((group, one)) for one in lost]
            for rank, one in got:
                row = fresh if one == come and fresh is not None else self._row((group, one))
                upserts.append(row if self._plan.rank is None else {**row, self._plan.rank: rank})
        return deletes, upserts

    def _moved(self, group: bytes, gone: bytes | None, come: bytes | None) -> tuple[list[bytes], list[Any]]:
        """The places that leave the top of a group, and those to publish, with their ranks."""
        n, most = self._plan.n, self._plan.front
        stored = self._fronts.get((group,))
        places = [] if stored is None else unpack(stored["places"])
        has_more = stored is not None and stored["has_more"]
        before = places[:n]
        last = places[-1] if places else b""
        if gone is not None and (at := bisect_left(places, gone)) < len(places) and places[at] == gone:
            del places[at]
        if come is not None and (not has_more or come <= last):
            insort(places, come)
        if len(places) > most:
            del places[most:]
            has_more = True
        if has_more and len(places) < n:
            places, has_more = self._first_places(group)
        if not places:
            self._fronts.delete([(group,)])
        elif stored is None or gone is not None or come is not None:
            packed = pack(places)
            if stored is None or stored["places"] != packed or stored["has_more"] != has_more:
                self._fronts.upsert([{"group": group, "places": packed, "has_more": has_more}])
        after = places[:n]
        was = {one: rank for rank, one in enumerate(before)}
        now = set(after)
        has_rank = self._plan.rank is not None
        got = [
            (rank + 1, one)
            for rank, one in enumerate(after)
            if one == come or one not in was or (has_rank and was[one] != rank)
        ]
        return [one for one in before if one not in now], got

    def _first_places(self, group: bytes) -> tuple[list[bytes], bool]:
        most = self._plan.front
        found = TopTables(self._rows, self._fronts).first_places(group, most + 1).to_pylist()
        return found[:most], len(found) > most

    def _spot(self, row: Row | None) -> tuple[bytes, bytes] | None:
        """Group and place."""
        if row is None:
            return None
        plan = self._plan
        return plan.groups.of_row([row[one] for one in plan.by]), plan.places.of_row([row[one] for one in plan.order])

    def _row(self, spot: tuple[bytes, bytes]) -> Row:
        found = self._rows.get(spot)
        return {name[4:]: found[name] for name in self._names}
