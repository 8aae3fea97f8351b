"""What a join is: which columns are compared, what it shows, and what the key of a row is; checked at the declaration.

A key has to tell the rows of the join apart, whatever comes, and to be never null:

| what is known | key |
|---|---|
| the right side's key is among its join columns: a left row has one match at most; inner, left | the left key |
| the same of the left side, inner | the right key |
| neither, inner | the left key and the right key |
| full, and both keys are just the join columns, of the same names | these |
| else left, full | `_pair`: the sort keys of both keys, of which one may be that of nulls |
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tussock.compute.changelog.operators.operator_base import known_columns
from tussock.compute.changelog.operators.sort_keys import SortKeys
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["PAIR", "How", "JoinPlan", "OutColumn", "Side", "plan_join"]

How = Literal["inner", "left", "full"]
PAIR = "_pair"


class Side(NamedTuple):
    """One of the two streams."""

    name: str
    """Of the stream."""
    key: tuple[str, ...]
    on: tuple[str, ...]
    """Its join columns."""
    is_unique: bool
    """Whether it has at most one row for each value of them."""
    is_kept: bool
    """Whether its rows without a match are shown."""
    row: pa.Schema
    """The columns of it that are shown, or part of the key."""


class OutColumn(NamedTuple):
    """A column of the join; of a join column that has one name on both sides both names are set."""

    field: pa.Field
    left: str | None
    right: str | None


class JoinPlan(NamedTuple):
    """A checked join."""

    left: Side
    right: Side
    columns: list[OutColumn]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """Of the stream."""
        return pa.schema([one.field for one in self.columns])


def plan_join(
    what: str, left: Stream, right: Stream, on: Any, how: Any, columns: Any, right_prefix: str | None
) -> JoinPlan:
    """`InvalidOption` says what cannot be joined."""
    if how not in ("inner", "left", "full"):
        raise InvalidOption(f"{what}: how={how!r:.100}; expected 'inner', 'left' or 'full'")
    if left is right or left.name == right.name:
        raise InvalidOption(
            f"{what}: both sides are stream {left.name!r}; give one of them through another stream, such as "
            f"cl.Stream(store, name, schema=..., key=..., inputs=[{left.name}])"
        )
    pairs = _pairs(what, left, right, on)
    left_on, right_on = tuple(one for one, _ in pairs), tuple(other for _, other in pairs)
    shared = {one for one, other in pairs if one == other}
    is_left_unique, is_right_unique = set(left.key) <= set(left_on), set(right.key) <= set(right_on)
    shown = _out_columns(
        what, left, right, shared, how, right_prefix, columns, is_left_key=how != "full" and is_right_unique
    )
    if how == "full" and len(shared) == len(pairs) and set(left.key) == set(right.key) == shared:
        key = left.key
    else:
        key = _key(left, right, shown, (is_left_unique, is_right_unique), how)
    if key == (PAIR,):
        if any(one.field.name == PAIR for one in shown):
            raise InvalidOption(f"{what}: a column is called {PAIR!r}, as the key of the join is: rename it")
        shown.insert(0, OutColumn(pa.field(PAIR, pa.binary(), nullable=False), None, None))
    if columns is not None:
        wanted = known_columns(what, "columns", columns, pa.schema([one.field for one in shown]))
        shown = [one for one in shown if one.field.name in wanted or one.field.name in key]
    sides = []
    for stream, its_on, is_unique, is_kept, at in (
        (left, left_on, is_left_unique, how != "inner", 1),
        (right, right_on, is_right_unique, how == "full", 2),
    ):
        needed = {one[at] for one in shown} | set(stream.key)
        row = pa.schema([field for field in stream.schema if field.name in needed])
        sides.append(Side(stream.name, stream.key, its_on, is_unique, is_kept, row))
    return JoinPlan(sides[0], sides[1], shown, key)


def _pairs(what: str, left: Stream, right: Stream, on: Any) -> list[tuple[str, str]]:
    given = [on] if isinstance(on, str) else on
    if not isinstance(given, list | tuple) or not given:
        raise InvalidOption(f"{what}: on={on!r:.100}; expected names of columns, or pairs of them, such as ('a', 'b')")
    pairs = []
    for one in given:
        pair = (one, one) if isinstance(one, str) else tuple(one) if isinstance(one, list | tuple) else ()
        if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise InvalidOption(f"{what}: on has {one!r:.100}; expected a name, or a pair (left column, right column)")
        pairs.append((pair[0], pair[1]))
    for side, stream, names in (
        ("left", left, [one for one, _ in pairs]),
        ("right", right, [other for _, other in pairs]),
    ):
        known_columns(what, f"on, {side}", names, stream.schema)
        SortKeys(what, [(name, stream.schema.field(name).type, False) for name in names])
    for one, other in pairs:
        kinds = left.schema.field(one).type, right.schema.field(other).type
        if kinds[0] != kinds[1]:
            raise InvalidOption(
                f"{what}: column {one!r} of {left.name!r} has type {kinds[0]}, {other!r} of {right.name!r} has "
                f"{kinds[1]}; cast one of them, such as by cl.project"
            )
    return pairs


def _out_columns(
    what: str,
    left: Stream,
    right: Stream,
    shared: set[str],
    how: How,
    right_prefix: str | None,
    columns: Any,
    *,
    is_left_key: bool,
) -> list[OutColumn]:
    if right_prefix is not None and (not isinstance(right_prefix, str) or not right_prefix):
        raise InvalidOption(f"{what}: right_prefix={right_prefix!r:.100}; expected text, or None")
    is_left_open, is_right_open = how == "full", how != "inner"
    found = []
    for field in left.schema:
        # Where a shared column is null on one side only, that side has no match.
        other = field.name if field.name in shared else None
        null = field.nullable or (is_left_open and (other is None or right.schema.field(other).nullable))
        found.append(OutColumn(pa.field(field.name, field.type, null), field.name, other))
    taken = set(left.schema.names)
    clashing = [one for one in right.schema.names if one not in shared and one in taken]
    hidden: list[str] = []
    if right_prefix is None and isinstance(columns, list | tuple):
        # Nobody asks for them by a name that both have. A column of the join's key is there without being asked for.
        hidden = [one for one in clashing if one not in columns and (is_left_key or one not in right.key)]
        clashing = [one for one in clashing if one not in hidden]
    if clashing and right_prefix is None:
        raise InvalidOption(
            f"{what}: both sides have the columns {clashing}; give right_prefix=, which goes before those of the right "
            "side, or rename them by cl.project"
        )
    for field in right.schema:
        if field.name in shared or field.name in hidden:
            continue
        name = f"{right_prefix}{field.name}" if field.name in clashing else field.name
        if name in taken:
            raise InvalidOption(f"{what}: with right_prefix={right_prefix!r:.100} two columns are called {name!r:.100}")
        taken.add(name)
        found.append(OutColumn(pa.field(name, field.type, field.nullable or is_right_open), None, field.name))
    return found


def _key(
    left: Stream, right: Stream, shown: Sequence[OutColumn], is_unique: tuple[bool, bool], how: How
) -> tuple[str, ...]:
    by_left = {one.left: one.field.name for one in shown if one.left is not None}
    by_right = {one.right: one.field.name for one in shown if one.right is not None}
    left_key = [by_left[one] for one in left.key]
    if how != "full" and is_unique[1]:
        return tuple(left_key)
    if how == "inner":
        right_key = [by_right[one] for one in right.key]
        return tuple(right_key) if is_unique[0] else tuple(dict.fromkeys([*left_key, *right_key]))
    return (PAIR,)
