"""Tests of columns that a row has to pass, and which keys can: all keys, intervals of them, or no statement.

Pure. The store takes the tests from the filter of a read (`expressions`), Spark's reads from an option or from the
filters that Spark pushes down. What is said of keys here leaves out no row that passes, and may let others in, on which
the tests are applied. No test holds for null, so a row passes only if it has a value in each tested column.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tussock.statestore.keys.encoding import upper_bound
from tussock.statestore.keys.intervals import Interval

__all__ = ["COMPARISONS", "Conditions", "Test", "after_prefix"]

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
}
"""The tests of a column by a bound; the others are `in`, one of some values, and `prefix`."""


@dataclass(frozen=True)
class Test:
    """One test of one column, with the value in the column's type; for `in` a tuple of different values.

    Values are Python's, none of them null or NaN, and times with a zone are in UTC: so they are ordered as the
    column's are.
    """

    __test__ = False

    column: str
    operator: str
    value: Any

    def holds(self, value: Any) -> bool:
        """Whether a value of the column passes."""
        if self.operator == "in":
            return value in self.value
        if self.operator == "prefix":
            return bool(value[: len(self.value)] == self.value)
        return COMPARISONS[self.operator](value, self.value)


@dataclass(frozen=True)
class Conditions:
    """Tests that a row has to pass, all of them; without tests every row is wanted."""

    tests: tuple[Test, ...] = ()

    @property
    def columns(self) -> set[str]:
        """The columns that decide, which have to be read."""
        return {test.column for test in self.tests}

    def keys(self, primary_key: Sequence[str], most: int) -> list[tuple[Any, ...]] | None:
        """All keys that can pass, if the tests fix every key column to a few values; `None` if there are more."""
        choices = [self._choices(name) for name in primary_key]
        count = 1
        for values in choices:
            if values is None:
                return None
            count *= len(values)
        if count > most:
            return None
        return list(itertools.product(*(values for values in choices if values is not None)))

    def intervals(self, primary_key: Sequence[str], most: int = 1) -> list[Interval] | None:
        """Intervals that hold all keys that can pass, `most` at most, all ends inclusive; `None`: tests give no end.

        One for each combination of the values that leading columns are fixed to, and then the bounds of the next
        column. Where these are more than `most`, the bounds of the first such column that has too many.
        """
        fixed: list[tuple[Any, ...]] = [()]
        low: list[Any] = []
        high: list[Any] = []
        for name in primary_key:
            values = self._choices(name)
            if values is None or len(fixed) * len(values) > most:
                low, high = self._ends(name, values)
                break
            fixed = [(*before, value) for before in fixed for value in values]
        if fixed == [()] and not low and not high:
            return None
        return [((*before, *low), (*before, *high)) for before in fixed]

    def fixed_columns(self, primary_key: Sequence[str]) -> int:
        """How many leading key columns the tests fix to some values."""
        named = {test.column for test in self.tests if test.operator == "in"}
        return len(list(itertools.takewhile(named.__contains__, primary_key)))

    def _choices(self, column: str) -> list[Any] | None:
        """The values that the column may have, if the tests list them."""
        tests = [test for test in self.tests if test.column == column]
        lists = [test.value for test in tests if test.operator == "in"]
        if not lists:
            return None
        others = [test for test in tests if test.operator != "in"]
        common = set(lists[0]).intersection(*lists[1:])
        return [value for value in lists[0] if value in common and all(test.holds(value) for test in others)]

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
                end = after_prefix(test.value)
                highs += [] if end is None else [end]
        return [max(lows)] if lows else [], [min(highs)] if highs else []


def after_prefix(prefix: str | bytes) -> str | bytes | None:
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
