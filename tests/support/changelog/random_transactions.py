"""Random transactions for a stream of all kinds of values, and what its rows are after each."""

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tussock.compute import changelog as cl

__all__ = ["SOURCE_SCHEMA", "RandomTransactions", "as_arrow"]

SOURCE_SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        pa.field("g", pa.int32(), nullable=False),
        pa.field("word", pa.string(), nullable=False),
        pa.field("at", pa.timestamp("us")),
        pa.field("v", pa.float64()),
        pa.field("small", pa.int64()),
        pa.field("wide", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("money", pa.decimal128(20, 4)),
        pa.field("flag", pa.bool_()),
        pa.field("narrow", pa.float32()),
    ]
)
"""The key is `k` and `part`."""

_FLOATS = (
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    1.7976931348623157e308,
    -1.7976931348623157e308,
    0.1,
)
_WIDE = ((1 << 63) - 1, -(1 << 63), 0, 1, -1)
_TEXTS = ("", "a", "a\0b", "a\0", "é", "𝄞", "zz", "\U0010ffff")


class RandomTransactions:
    """Of one seed. Each transaction is right for the rows that the ones before it have left."""

    def __init__(self, seed: int, keys: int = 40) -> None:
        """`keys`: how many numbers there are for the key; there are twice as many keys."""
        self._random = random.Random(seed)
        self._keys = keys
        self.rows: dict[tuple[int, str], dict[str, Any]] = {}
        """By key, what the stream has."""

    def next(self, records: int) -> list[cl.ChangeRecord]:
        """That many records; a key may come several times."""
        return [self._record() for _ in range(records)]

    def chance(self, of: float) -> bool:
        """Whether something happens that does so with a probability."""
        return self._random.random() < of

    def size(self, most: int) -> int:
        """1 and up, small ones more often."""
        return min(most, 1 + int(most ** self._random.random() * self._random.choice((0.1, 1.0))))

    def _record(self) -> cl.ChangeRecord:
        draw = self._random
        key = (draw.randrange(self._keys), draw.choice(("x", "y\0")))
        row = {"k": key[0], "part": key[1]}
        is_there = key in self.rows
        word = draw.choice(
            ("update", "upsert", "delete", "safedelete") if is_there else ("insert", "upsert", "safedelete")
        )
        if draw.random() < 0.5 and not is_there:
            word = "insert"
        if word in ("delete", "safedelete"):
            self.rows.pop(key, None)
            return getattr(cl, word)(row)
        if word == "update" and draw.random() < 0.3:
            # Some columns only, as most changes are.
            values = {**self.rows[key], draw.choice(("v", "small", "flag")): None}
        else:
            values = {**row, **self._values()}
        self.rows[key] = values
        return getattr(cl, word)(values)

    def _values(self) -> dict[str, Any]:
        draw = self._random

        def null_or(value: Any) -> Any:
            return None if draw.random() < 0.15 else value

        wide = draw.choice(_WIDE) if draw.random() < 0.5 else draw.randint(-(1 << 63), (1 << 63) - 1)
        special = draw.random() < 0.3
        return {
            "g": draw.randrange(5) if draw.random() < 0.8 else draw.randrange(-(1 << 31), 1 << 31),
            "word": draw.choice(_TEXTS),
            "at": null_or(dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=draw.randrange(6))),
            "v": null_or(draw.choice(_FLOATS) if special else round(draw.uniform(-1e3, 1e3), 2)),
            "small": null_or(draw.randrange(-5, 5)),
            "wide": null_or(wide),
            "text": null_or(draw.choice(_TEXTS)),
            "money": null_or(
                Decimal(draw.choice((10**20 - 1, 1 - 10**20, draw.randrange(-(10**6), 10**6)))).scaleb(-4)
            ),
            "flag": null_or(draw.random() < 0.5),
            "narrow": null_or(draw.choice((0.5, -0.25, 3.0, math.inf, math.nan))),
        }


def as_arrow(records: list[cl.ChangeRecord]) -> pa.RecordBatch:
    """The same transaction as columns."""
    schema = pa.schema([field.with_nullable(True) for field in SOURCE_SCHEMA]).append(pa.field("_op", pa.string()))
    return pa.RecordBatch.from_pylist([{**record, "_op": str(record.op)} for record in records], schema=schema)
