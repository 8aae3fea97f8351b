"""`pattern`: matches of a sequence of steps among the rows of a group, kept right as rows come late, change and go.

It keeps, of the rows that fulfil a step, the key, the time and which steps: in `RowBags`, one for each group and range
of time as long as a match may be. A change has to do with matches that begin and end no further from it than that, so
it reads three bags.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import ChangeRecord, Op
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.computations import StateTable
from tussock.compute.changelog.operators.operator_base import StreamOperator, check_source, derive
from tussock.compute.changelog.operators.patterns.matches import Contiguity, match_from
from tussock.compute.changelog.operators.patterns.pattern_columns import pattern_by_columns
from tussock.compute.changelog.operators.patterns.pattern_plan import PatternPlan, plan_pattern
from tussock.compute.changelog.operators.patterns.step_masks import masks_of_rows
from tussock.compute.changelog.operators.row_bags import RowBags
from tussock.compute.changelog.stream import Stream

__all__ = ["pattern"]

Row = Mapping[str, Any]


def pattern(
    name: str,
    source: Stream,
    by: Sequence[str],
    time: str,
    steps: Any,
    within: dt.timedelta | int,
    *,
    contiguity: Contiguity = "any",
) -> Stream:
    """A stream of the matches of a sequence of steps among the rows of each group of `source`.

    `by`: the columns that make a group, null being a value; none: all rows are one. Its rows are in the order of the
    column `time`, an integer, a date or a timestamp, and then of their keys; a row whose time is null takes no part.
    `steps`: 2 to 32 names, each with a condition: a `pyarrow.compute.Expression` over columns, or a function of a row.
    Each row that fulfils the first step begins one match at most: each further step is the first row behind which
    fulfils it ("any"), or the very next row has to ("next"). The last row is at most `within` after the first, in units
    of an integer time, else a `datetime.timedelta`. A match has the columns `by` and, for each step, `STEP_COLUMN` for
    the columns of its row's key and the time; its key is that of the row that begins it. Raises `InvalidOption`.
    """
    what = f"pattern {name!r}"
    check_source(what, source)
    plan = plan_pattern(what, source, by, time, steps, within, contiguity)
    return derive(
        "pattern",
        name,
        [source],
        plan.schema,
        plan.key_of_match,
        lambda shape: _Pattern(shape, plan),
        by=plan.by,
        time=time,
        steps=plan.steps,
        within=within,
        contiguity=contiguity,
    )


class _Spot(NamedTuple):
    """Where a row counts."""

    group: bytes
    time: int
    mask: int


class _Pattern(StreamOperator):
    def __init__(self, shape: StreamShape, plan: PatternPlan) -> None:
        super().__init__(shape)
        self._plan = plan
        self.is_users = not all(isinstance(one, pc.Expression) for one in plan.steps.values())
        fields = [pa.field(f"key_{one}", plan.source.field(one).type) for one in plan.key]
        fields += [pa.field(f"by_{one}", plan.source.field(one).type) for one in plan.by]
        fields += [pa.field("time", pa.int64()), pa.field("steps", pa.int64())]
        kinds = [pa.binary(), pa.int64()]
        self._bags = RowBags("window", kinds, pa.schema(fields), [f"key_{one}" for one in plan.key])

    def tables(self) -> Mapping[str, StateTable]:
        """The bags."""
        return self._bags.tables()

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._bags.open(tables)

    def by_columns(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """Many records."""
        return pattern_by_columns(self.shape, self._plan, self._bags, changes)

    def by_record(self, source: str, changes: Changes) -> list[ChangeRecord]:  # noqa: ARG002 - as the base class has it
        """Few records."""
        rows, _, olds = changes.columns
        masks = iter(masks_of_rows(self._plan, rows, olds).tolist())
        found: list[ChangeRecord] = []
        for record in changes.records:
            mask = next(masks)
            old_mask = next(masks) if record.op is Op.UPDATE_BLOCK else mask
            fresh = None if record.op is Op.DELETE else record.values_by_column
            old = record.old if record.op is Op.UPDATE_BLOCK else record if record.op is Op.DELETE else None
            deletes, upserts = self._changed(
                self._spot(old, old_mask), self._spot(fresh, mask), old or fresh or {}, fresh
            )
            come = {self.shape.key_of(row) for row in upserts}
            gone = [row for row in deletes if self.shape.key_of(row) not in come]
            found += [ChangeRecord(Op.SAFEDELETE, row, None, changes.time) for row in gone]
            found += [ChangeRecord(Op.UPSERT, row, None, changes.time) for row in upserts]
        return found

    def _spot(self, row: Row | None, mask: int) -> _Spot | None:
        """`None`: it takes no part."""
        time = None if row is None else self._plan.moments.number(row[self._plan.time])
        if row is None or time is None or not self._plan.reads(mask):
            return None
        return _Spot(self._plan.groups.of_row([row[one] for one in self._plan.by]), time, mask)

    def _changed(
        self, before: _Spot | None, after: _Spot | None, keyed: Row, fresh: Row | None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Keys of matches that go, if they are there, and matches that are there; `keyed` has the key."""
        if before == after:
            return [], []
        plan = self._plan
        row = {f"key_{one}": keyed[one] for one in plan.key}
        if after is not None and fresh is not None:
            row |= {f"by_{one}": fresh[one] for one in plan.by}
            row |= {"time": after.time, "steps": after.mask}
        self._bags.move(self._bag(before), self._bag(after), row)
        deletes = [self._key_of(row)] if before is not None and before.mask & 1 else []
        upserts: list[dict[str, Any]] = []
        spots = [one for one in (before, after) if one is not None]
        for group in dict.fromkeys(one.group for one in spots):
            times = sorted(one.time for one in spots if one.group == group)
            self._match(group, times, deletes, upserts)
        return deletes, upserts

    def _match(
        self, group: bytes, moments: Sequence[int], deletes: list[dict[str, Any]], upserts: list[dict[str, Any]]
    ) -> None:
        """The matches that changes at some moments have to do with."""
        plan = self._plan
        ranges = sorted({time // plan.width + step for time in moments for step in (-1, 0, 1)})
        rows = [row for one in ranges if -(1 << 63) <= one < 1 << 63 for row in self._bags.rows((group, one))]
        order = plan.order
        rows.sort(key=lambda row: (row["time"], order.of_row([row[f"key_{one}"] for one in plan.key])))
        times, masks = [row["time"] for row in rows], [row["steps"] for row in rows]
        for at, row in enumerate(rows):
            if not masks[at] & 1 or not any(0 <= one - times[at] <= plan.within for one in moments):
                continue
            found = match_from(at, times, masks, len(plan.steps), plan.within, plan.contiguity)
            if found is None:
                deletes.append(self._key_of(row))
            else:
                upserts.append(self._match_of([rows[one] for one in found]))

    def _bag(self, spot: _Spot | None) -> tuple[bytes, int] | None:
        return None if spot is None else (spot.group, spot.time // self._plan.width)

    def _key_of(self, row: Row) -> dict[str, Any]:
        names = zip(self._plan.key_of_match, self._plan.key, strict=True)
        return {name: row[f"key_{one}"] for name, one in names}

    def _match_of(self, rows: Sequence[Row]) -> dict[str, Any]:
        plan = self._plan
        found = {one: rows[0][f"by_{one}"] for one in plan.by}
        for step, row in zip(plan.steps, rows, strict=True):
            found |= {f"{step}_{one}": row[f"key_{one}"] for one in plan.key}
            found[f"{step}_{plan.time}"] = plan.moments.value(row["time"])
        return found
