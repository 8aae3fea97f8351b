"""The option `where`: which rows a read wants, as values per column; and when that makes it a lookup of keys.

Pure. Spark 4.3 could push filters down by itself, but it keeps what it pushed for one query with the DataFrame and
applies it to the next one, too, which then lacks rows. So nothing is pushed down, and who wants less than the table
says so in the option, which belongs to the DataFrame.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.errors import InvalidOption, SchemaMismatch

__all__ = ["LOOKUP_KEYS_MAX", "Conditions", "conditions_of"]

LOOKUP_KEYS_MAX = 10_000
"""More keys than this are not looked up one by one but scanned for."""


@dataclass(frozen=True)
class Conditions:
    """Per column the values that it may have, each once and in the column's type; no column: every row is wanted."""

    choices: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def expression(self, schema: pa.Schema) -> pc.Expression | None:
        """What a row has to meet, for `TypedTable.read`; `None` if nothing."""
        joined: pc.Expression | None = None
        for name, values in self.choices:
            test = pc.field(name).isin(pa.array(values, schema.field(name).type))
            joined = test if joined is None else joined & test
        return joined

    def keys(self, primary_key: Sequence[str]) -> list[tuple[Any, ...]] | None:
        """All keys that can pass, if every key column is fixed to some values and they are few."""
        choices = dict(self.choices)
        if any(name not in choices for name in primary_key):
            return None
        count = 1
        for name in primary_key:
            count *= len(choices[name])
        if count > LOOKUP_KEYS_MAX:
            return None
        return list(itertools.product(*(choices[name] for name in primary_key)))

    def prefix(self, primary_key: Sequence[str], distribution_key: Sequence[str]) -> tuple[Any, ...] | None:
        """Values of the leading key columns, if they are fixed and cover the distribution key: one range has all."""
        single = {name: values[0] for name, values in self.choices if len(values) == 1}
        fixed = list(itertools.takewhile(lambda name: name in single, primary_key))
        if not fixed or any(name not in fixed for name in distribution_key):
            return None
        return tuple(single[name] for name in fixed)


def conditions_of(where: Sequence[tuple[str, Sequence[Any]]], schema: pa.Schema, table: str) -> Conditions:
    """The option's values in the types of the columns; JSON has strings for dates, times and decimals.

    Raises `SchemaMismatch` for a column that is not there, `InvalidOption` for a value that its column cannot have.
    """
    choices = []
    for name, values in where:
        if name not in schema.names:
            raise SchemaMismatch(f"table {table!r} has no column {name!r}, which option where names; {schema.names}")
        kind = schema.field(name).type
        try:
            typed = pa.array(values)
            typed = typed if typed.type == kind else typed.cast(kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidOption(f"option where, column {name!r}: expected {kind}, found {values}: {error}") from error
        choices.append((name, tuple(dict.fromkeys(typed.to_pylist()))))
    return Conditions(tuple(choices))
