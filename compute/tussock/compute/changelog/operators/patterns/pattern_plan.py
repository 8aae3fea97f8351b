"""What a pattern is, checked at the declaration: its groups, its time, its steps, and the stream of its matches."""

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from tussock.compute.changelog.operators.operator_base import known_columns
from tussock.compute.changelog.operators.patterns.matches import Contiguity
from tussock.compute.changelog.operators.row_expressions import kinds_of
from tussock.compute.changelog.operators.sort_keys import SortKeys
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["Moments", "PatternPlan", "plan_pattern"]

STEPS_MAX = 32
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_UNITS = {"s": 10**6, "ms": 10**3, "us": 1}
"""In microseconds."""

Condition: TypeAlias = Any
"""A `pyarrow.compute.Expression`, or a function of a row."""


class Moments(NamedTuple):
    """Values of the time column as numbers of its unit, and back."""

    kind: Any

    def numbers(self, column: pa.Array) -> pa.Array:
        """Of a column."""
        return column.cast(pa.int32() if pt.is_date32(self.kind) else pa.int64()).cast(pa.int64())

    def column(self, numbers: pa.Array) -> pa.Array:
        """The column again."""
        return numbers.cast(pa.int32()).cast(self.kind) if pt.is_date32(self.kind) else numbers.cast(self.kind)

    def number(self, value: Any) -> int | None:
        """Of one value."""
        if value is None or type(value) is int:
            return value
        found: int = self.numbers(pa.array([value], self.kind))[0].as_py()
        return found

    def value(self, number: int) -> Any:
        """The value again."""
        return number if pt.is_integer(self.kind) else self.column(pa.array([number], pa.int64()))[0].as_py()


class PatternPlan(NamedTuple):
    """A checked pattern."""

    by: tuple[str, ...]
    groups: SortKeys
    key: tuple[str, ...]
    """Of the source."""
    order: SortKeys
    """Of the key's columns: of rows of one time."""
    time: str
    moments: Moments
    steps: Mapping[str, Condition]
    within: int
    """In units of the time column."""
    contiguity: Contiguity
    schema: pa.Schema
    """Of the matches."""
    source: pa.Schema

    @property
    def key_of_match(self) -> list[str]:
        """The key of the row that begins it."""
        first = next(iter(self.steps))
        return [f"{first}_{name}" for name in self.key]

    @property
    def width(self) -> int:
        """Of a range of time whose rows lie together."""
        return max(self.within, 1)

    def reads(self, mask: int) -> bool:
        """Whether a row that fulfils these steps counts."""
        return mask != 0 or self.contiguity == "next"


def plan_pattern(
    what: str, source: Stream, by: Any, time: Any, steps: Any, within: Any, contiguity: Any
) -> PatternPlan:
    """`InvalidOption` says what is wrong."""
    groups = known_columns(what, "by", by, source.schema)
    (time_column,) = known_columns(what, "time", [time], source.schema)
    kind = source.schema.field(time_column).type
    if contiguity not in ("any", "next"):
        raise InvalidOption(f"{what}: contiguity={contiguity!r:.100}; expected 'any' or 'next'")
    conditions = _steps(what, steps, source.schema)
    kinds = {field.name: field.type for field in source.schema}
    fields = [pa.field(name, kinds[name], source.schema.field(name).nullable) for name in groups]
    for step in conditions:
        fields += [pa.field(f"{step}_{name}", kinds[name], nullable=False) for name in source.key]
        if time_column not in source.key:
            fields.append(pa.field(f"{step}_{time_column}", kind, nullable=False))
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidOption(f"{what}: two columns of a match would be called {twice[0]!r}: name the steps otherwise")
    return PatternPlan(
        groups,
        SortKeys(what, [(name, kinds[name], False) for name in groups]),
        source.key,
        SortKeys(what, [(name, kinds[name], False) for name in source.key]),
        time_column,
        Moments(kind),
        conditions,
        _within(what, within, time_column, kind),
        contiguity,
        pa.schema(fields),
        source.schema,
    )


def _steps(what: str, steps: Any, schema: pa.Schema) -> dict[str, Condition]:
    given = list(steps.items()) if isinstance(steps, Mapping) else steps
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= STEPS_MAX:
        raise InvalidOption(
            f"{what}: steps={steps!r:.100}; expected 2 to {STEPS_MAX} names with a condition each, in their order"
        )
    found: dict[str, Condition] = {}
    for one in given:
        if not isinstance(one, list | tuple) or len(one) != 2:
            raise InvalidOption(f"{what}: steps has {one!r:.100}; expected (name, condition)")
        name, condition = one
        if not isinstance(name, str) or not _STEP.fullmatch(name) or name in found:
            raise InvalidOption(
                f"{what}: a step is called {name!r:.100}; expected at most 40 letters, digits and '_', no name twice"
            )
        if isinstance(condition, pc.Expression):
            (kind,) = kinds_of(what, schema, {f"step {name!r}": condition})
            if not pa.types.is_boolean(kind):
                raise InvalidOption(f"{what}: the condition of step {name!r} has type {kind}; expected bool")
        elif not callable(condition):
            raise InvalidOption(
                f"{what}: the condition of step {name!r} is {condition!r:.100}; expected a pyarrow.compute.Expression, "
                "or a function of a row"
            )
        found[name] = condition
    return found


def _within(what: str, within: Any, time: str, kind: Any) -> int:
    """As a number of units of the time column."""
    if pt.is_integer(kind) and not pt.is_uint64(kind):
        if type(within) is not int or not 0 <= within < 1 << 63:
            raise InvalidOption(f"{what}: within={within!r:.100}; column {time!r} has {kind}: expected 0 and up")
        return within
    unit = 86_400_000_000 if pt.is_date32(kind) else 1000 if pt.is_date64(kind) else _UNITS.get(_unit(kind), 0)
    if not unit:
        raise InvalidOption(
            f"{what}: time={time!r} has type {kind}; expected an integer of at most 63 bits, a date, or a timestamp "
            "in s, ms or us"
        )
    if not isinstance(within, dt.timedelta) or within < dt.timedelta(0):
        raise InvalidOption(
            f"{what}: within={within!r:.100}; column {time!r} has {kind}: expected a datetime.timedelta"
        )
    number, rest = divmod(within // dt.timedelta(microseconds=1), unit)
    if rest:
        raise InvalidOption(f"{what}: within={within!r}; column {time!r} has {kind}: expected whole units of that")
    return number


def _unit(kind: Any) -> str:
    return str(kind.unit) if pt.is_timestamp(kind) else ""
