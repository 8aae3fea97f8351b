"""Comparing what the store answers with what Polars computes from the CSV; any difference ends the demo."""

from collections.abc import Sequence
from typing import Any

import polars as pl

__all__ = ["Difference", "Figures"]


class Difference(Exception):
    """A figure of the store is not that of the CSV."""


class Figures:
    """Compares, and counts how many figures were equal."""

    def __init__(self) -> None:
        self.compared = 0

    def same(self, name: str, found: Any, expected: Any) -> None:
        """Compare one figure; `Difference` names it."""
        if found != expected:
            raise Difference(f"{name}: the store says {found!r}, the CSV {expected!r}")
        self.compared += 1

    def same_frame(self, name: str, found: pl.DataFrame, expected: pl.DataFrame, key: Sequence[str]) -> None:
        """Compare two frames row by row under `key`; `Difference` names the first cell that differs, or the row."""
        missing = expected.join(found, on=list(key), how="anti")
        if len(missing):
            raise Difference(f"{name}: the store lacks the row {missing.row(0, named=True)}")
        surplus = found.join(expected, on=list(key), how="anti")
        if len(surplus):
            raise Difference(f"{name}: the store has a row that the CSV has not: {surplus.row(0, named=True)}")
        self.same(f"{name}: number of rows", len(found), len(expected))
        left, right = found.sort(key), expected.sort(key).select(found.columns)
        for column in found.columns:
            differs = left[column].ne_missing(right[column])
            if differs.any():
                row = left.row(int(differs.arg_true()[0]), named=True)
                where = ", ".join(str(row[part]) for part in key)
                at = int(differs.arg_true()[0])
                self.same(f"{name}[{where}].{column}", left[column][at], right[column][at])
        self.compared += left.width * left.height
