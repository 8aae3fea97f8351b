"""The rows that a read wants, as tests of columns; and when that makes it a lookup of keys or a read of an interval.

Pure. The tests come from the option `where`, which belongs to the DataFrame, or from the filters that Spark pushes down
(`pushdown.py`). No test holds for null, so a row passes only if it has a value in each tested column.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.encoding import upper_bound
from tussock.statestore.keys.intervals import Interval

__all__ = ["LOOKUP_KEYS_MAX", "OPERATORS", "Conditions", "Test", "conditions_of", "typed_test"]

LOOKUP_KEYS_MAX = 10_000
"""Above this number of keys, a scan replaces lookups of single keys."""

OPERATORS = ("in", ">", ">=", "<", "<=", "prefix")
"""The tests of a column: one of some values, a bound, or a prefix."""

_COMPARE = {">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}


@dataclass(frozen=True)
class Test:
    """One test of one column, with the value in the column's type; for `in` a tuple of different values."""

    __test__ = False

    column: str
    operator: str
    value: Any


@dataclass(frozen=True)
class Conditions:
    """Tests that a row has to pass, all of them; without tests every row is wanted."""

    tests: tuple[Test, ...] = ()

    @property
    def columns(self) -> set[str]:
        """The columns that decide, which have to be read."""
        return {test.column for test in self.tests}

    def expression(self, schema: pa.Schema) -> pc.Expression | None:
        """The condition that a row has to meet, over columns of `schema`; `None` if there is none."""
        joined: pc.Expression | None = None
        for test in self.tests:
            passed = _passes(test, schema.field(test.column).type)
            joined = passed if joined is None else joined & passed
        return joined

    def keys(self, primary_key: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """All keys that can pass, if the tests fix every key column to a few values."""
        choices = [self._choices(name) for name in primary_key]
        count = 1
        for values in choices:
            if values is None:
                return None
            count *= len(values)
        if count > LOOKUP_KEYS_MAX:
            return None
        return list(itertools.product(*(values for values in choices if values is not None)))

    def interval(self, primary_key: Sequence[str]) -> Interval | None:
        """The interval of all keys that can pass, both ends inclusive; `None` if the tests give no end."""
        fixed: list[Any] = []
        for name in primary_key:
            values = self._choices(name)
            if values is None or len(values) != 1:
                low, high = self._ends(name, values)
                break
            fixed.append(values[0])
        else:
            low = high = []
        if not fixed and not low and not high:
            return None
        return (*fixed, *low), (*fixed, *high)

    def _choices(self, column: str) -> list[Any] | None:
        """The values that the column may have, if the tests list them."""
        named = [test.value for test in self.tests if test.column == column and test.operator == "in"]
        if not named:
            return None
        return [value for value in named[0] if all(value in other for other in named[1:])]

    def _ends(self, column: str, choices: Sequence[Any] | None) -> tuple[list[Any], list[Any]]:
        """The smallest and the largest value that the column may have, each as a list of at most one."""
        if choices:
            return [min(choices)], [max(choices)]
        lows, highs = [], []
        for test in self.tests:
            if test.column == column and test.operator in (">", ">="):
                lows.append(test.value)
            elif test.column == column and test.operator in ("<", "<="):
                highs.append(test.value)
            elif test.column == column and test.operator == "prefix":
                lows.append(test.value)
                end = _after_prefix(test.value)
                highs += [] if end is None else [end]
        return [max(lows)] if lows else [], [min(highs)] if highs else []


def conditions_of(where: Sequence[tuple[str, str, Any]], schema: pa.Schema, table: str) -> Conditions:
    """The option's tests in the types of the columns; JSON has strings for dates, times, decimals and binaries.

    Raises `SchemaMismatch` for a missing column, `InvalidOption` for a value that its column cannot have.
    """
    tests = []
    for name, operator, value in where:
        if name not in schema.names:
            raise SchemaMismatch(f"table {table!r} has no column {name!r}, which option where names; {schema.names}")
        try:
            tests.append(typed_test(name, operator, value, schema.field(name).type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            kind = schema.field(name).type
            raise InvalidOption(f"option where, column {name!r}: expected {kind}, found {value!r}: {error}") from error
    return Conditions(tuple(tests))


def typed_test(column: str, operator: str, value: Any, kind: pa.DataType) -> Test:
    """The test with its value in the column's type; raises an error of Arrow or Python if it has no such value."""
    values = pa.array(value if operator == "in" else [value])
    if pa.types.is_timestamp(kind) and pa.types.is_string(values.type) and kind.unit in ("s", "ms"):
        # Arrow parses no more digits than the unit has, even if they are zeros.
        values = values.cast(pa.timestamp("us", kind.tz))
    typed = (values if values.type == kind else values.cast(kind)).to_pylist()
    if operator == "prefix" and not isinstance(typed[0], str | bytes):
        raise TypeError("only a string or a binary has a prefix")
    return Test(column, operator, tuple(dict.fromkeys(typed)) if operator == "in" else typed[0])


def _passes(test: Test, kind: pa.DataType) -> pc.Expression:
    field = pc.field(test.column)
    if test.operator == "in":
        return field.isin(pa.array(test.value, kind))
    if test.operator == "prefix":
        begun = pc.greater_equal(field, pa.scalar(test.value, kind))
        end = _after_prefix(test.value)
        return begun if end is None else begun & pc.less(field, pa.scalar(end, kind))
    return _COMPARE[test.operator](field, pa.scalar(test.value, kind))


def _after_prefix(prefix: str | bytes) -> str | bytes | None:
    """The smallest value after all that begin with `prefix`, or `None` if there is none."""
    if isinstance(prefix, bytes):
        return upper_bound(prefix)
    # The order of UTF-8's bytes is that of the code points.
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    after = ord(stem[-1]) + 1
    # Between these two lie the surrogates, which no string contains.
    return stem[:-1] + chr(0xE000 if after == 0xD800 else after)
