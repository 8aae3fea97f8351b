"""A row that is written alone is taken, refused and read back as one that goes through Arrow."""

import datetime as dt
import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tussock.statestore import SchemaMismatch, StateStore, connect

TYPES = [
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.uint16(),
    pa.uint64(),
    pa.bool_(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.binary(3),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ms"),
    pa.timestamp("us", "UTC"),
    pa.decimal128(10, 2),
    pa.list_(pa.int64()),
]


class Text(str):
    """A subclass."""

    __slots__ = ()


class Number(int):
    """A subclass."""


VALUES: list[Any] = [
    None,
    0,
    1,
    -1,
    127,
    128,
    2**31,
    -(2**63),
    2**63 - 1,
    2**63,
    2**64,
    True,
    False,
    0.0,
    -0.0,
    0.1,
    1.0,
    math.inf,
    math.nan,
    "",
    "text",
    "grün",
    "\ud800",
    "a\0b",
    Text("sub"),
    Number(7),
    b"",
    b"abc",
    b"\xff",
    bytearray(b"abc"),
    memoryview(b"abc"),
    dt.date(2020, 2, 29),
    dt.datetime(2020, 2, 29, 1, 2, 3, 4),
    dt.datetime(2020, 2, 29, 1, 2, 3, 4, fold=1),
    dt.datetime(2020, 2, 29, 1, 2, 3, tzinfo=dt.UTC),
    dt.datetime(2020, 2, 29, 1, 2, 3, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.datetime.max,
    Decimal("1.50"),
    Decimal("1.5"),
    Decimal("1.505"),
    np.int64(5),
    np.float64(0.5),
    np.bool_(True),
    pa.scalar(5, pa.int64()),
    [1, 2],
    {"a": 1},
    object(),
]


@pytest.fixture(scope="module")
def store() -> Iterator[StateStore]:
    with connect("memory://rows-alone", compaction=False) as opened:
        for number, kind in enumerate(TYPES):
            schema = pa.schema([("k", pa.int64()), ("v", kind)])
            opened.create_table(f"value{number}", schema, primary_key=["k"])
            if not pa.types.is_nested(kind):
                key_schema = pa.schema([("k", kind), ("v", pa.int64())])
                opened.create_table(f"key{number}", key_schema, primary_key=["k"])
        yield opened


def comparable(found: Any) -> Any:
    """Two that are the same compare equal, and nothing else: classes count, and so do signs of zero."""
    if isinstance(found, dict):
        return {name: comparable(value) for name, value in found.items()}
    return type(found), repr(found), getattr(found, "fold", 0)


class Listed(list[dict[str, Any]]):
    """A list that is not taken for a few rows."""


def at_an_epoch(store: StateStore, name: str, rows: list[dict[str, Any]], key: Any) -> Any:
    epoch = store.new_epoch()
    table = store.table(name)
    try:
        table.upsert(rows, epoch)
        found = comparable(table.get(key))
        (batch,) = table.read()
        assert comparable(table.get(key)) == found
        assert batch.num_rows == 1
    except SchemaMismatch as error:
        return str(error)
    finally:
        store.abort_epoch(epoch)
    return found


def is_alike(store: StateStore, name: str, row: dict[str, Any], key: Any) -> bool:
    """Whether a row is the same alone in a transaction, alone at an epoch, and through Arrow."""
    through_arrow = at_an_epoch(store, name, Listed([row]), key)
    return bool(alone(store, name, row, key) == at_an_epoch(store, name, [row], key) == through_arrow)


def alone(store: StateStore, name: str, row: dict[str, Any], key: Any) -> Any:
    class Undone(Exception):
        pass

    found: Any = None
    try:
        with store.transaction() as tx:
            table = tx.table(name)
            try:
                table.upsert([row])
                found = comparable(table.get(key))
                # The way of all other reads has the same.
                (batch,) = table.read()
                assert comparable(table.get(key)) == found
                assert batch.num_rows == 1
            except SchemaMismatch as error:
                found = str(error)
            raise Undone
    except Undone:
        return found


@pytest.mark.parametrize("number", range(len(TYPES)), ids=str)
def test_values_are_the_same(store: StateStore, number: int) -> None:
    """Every value for every type: stored and read back the same, or refused with the same words."""
    for value in VALUES:
        row = {"k": 1, "v": value}
        name = f"value{number}"
        assert is_alike(store, name, row, 1), (TYPES[number], value)


@pytest.mark.parametrize("number", [at for at, kind in enumerate(TYPES) if not pa.types.is_nested(kind)], ids=str)
def test_keys_are_the_same(store: StateStore, number: int) -> None:
    """And of two values that Python calls equal, such as 1 and True, each is the key that it is, or none."""
    name = f"key{number}"
    for value in VALUES:
        row = {"k": value, "v": 1}
        assert is_alike(store, name, row, value), (TYPES[number], value)
    for written, asked in itertools.permutations([0, 1, 0.0, 1.0, True, False, Number(1), np.int64(1)], 2):
        row = {"k": written, "v": 1}
        assert is_alike(store, name, row, asked), (written, asked)


def test_rows_lack_columns_or_have_unknown_ones(store: StateStore) -> None:
    """With the same words."""
    for row in ({"k": 1}, {"v": 1}, {"k": 1, "v": 1, "w": 2}, {1: 2}, {}, {"k": 1, "v": 1, 5: 6}):
        assert is_alike(store, "value2", row, 1), row
