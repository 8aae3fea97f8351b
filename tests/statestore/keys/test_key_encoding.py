"""Key encoding: the order of the bytes is the order of the values, and each converts to the other exactly."""

import datetime as dt
import decimal
import itertools
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore.keys.encoding import KeyEncoder, upper_bound
from tussock.statestore.keys.vnode import vnodes

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "keys.md"

TEXT = st.text(st.sampled_from("\0\1a\x7fé\u07ff日\uffff😀"), max_size=6)
BYTES = st.binary(max_size=6) | st.lists(st.sampled_from([0, 1, 0xFE, 0xFF]), max_size=6).map(bytes)


def ints(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.sampled_from([low, high, 0, 1, max(low, -1)])


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**precision - 1
    whole = st.integers(-limit, limit) | st.sampled_from([-limit, limit, 0, -1])
    return whole.map(lambda number: decimal.Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


# Times are drawn as the numbers that Arrow stores: Python's own classes cannot hold all of them.
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): ints(8),
    pa.int16(): ints(16),
    pa.int32(): ints(32),
    pa.int64(): ints(64),
    pa.uint8(): ints(8, signed=False),
    pa.uint16(): ints(16, signed=False),
    pa.uint32(): ints(32, signed=False),
    pa.uint64(): ints(64, signed=False),
    pa.float32(): st.floats(width=32) | st.sampled_from([0.0, -0.0]),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0]),
    pa.decimal128(9, 2): decimals(9, 2),
    pa.decimal128(18, 0): decimals(18, 0),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.decimal128(5, -3): decimals(5, -3),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): ints(32),
    pa.date64(): ints(32).map(lambda days: days * 86_400_000),
    pa.timestamp("s"): ints(64),
    pa.timestamp("us", "Europe/Berlin"): ints(64),
    pa.timestamp("ns"): ints(64),
    pa.time32("ms"): st.integers(0, 86_399_999),
    pa.time64("ns"): st.integers(0, 86_399_999_999_999),
    pa.duration("ms"): ints(64),
}


def make(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array(values, kind)


def stored_values(array: pa.Array) -> list[Any]:
    """Python values, times as the numbers that Arrow stores."""
    if pa.types.is_temporal(array.type):
        return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64()).to_pylist()
    return array.to_pylist()


def values_of(array: pa.Array) -> list[Any]:
    """Values as a caller gives them; times are Arrow scalars, because Python's classes cannot hold each."""
    return list(array) if pa.types.is_temporal(array.type) else array.to_pylist()


def rank(value: Any) -> tuple[Any, ...]:
    """The sort key of a value: null first, NaN last, both zeros equal, text by its UTF-8."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value.encode() if isinstance(value, str) else value)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.RecordBatch, list[str], int]:
    """A batch of one to three key columns of any types, the ones with nulls, and how much of it to skip."""
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    names = [f"c{i}" for i in range(len(kinds))]
    nullable = [name for name in names if draw(st.integers(0, 3)) == 0]
    rows = draw(st.integers(0, 12))
    columns = []
    for name, kind in zip(names, kinds, strict=True):
        value = st.none() | KINDS[kind] if name in nullable else KINDS[kind]
        if draw(st.booleans()):  # few different values, so that the later columns decide
            value = st.sampled_from(draw(st.lists(value, min_size=1, max_size=2)))
        columns.append(make(kind, draw(st.lists(value, min_size=rows, max_size=rows))))
    return pa.record_batch(columns, names), nullable, draw(st.integers(0, 3))


@settings(max_examples=400, deadline=None)
@given(tables())
def test_order_of_bytes_is_order_of_values(table: tuple[pa.RecordBatch, list[str], int]) -> None:
    """For any two rows of any schema: key < key exactly if row < row, and equal keys mean equal rows."""
    batch, nullable, _ = table
    encoder = KeyEncoder(batch.schema, batch.schema.names, nullable=nullable)
    keys = encoder.encode(batch).to_pylist()
    ranks = [tuple(map(rank, row)) for row in zip(*(stored_values(column) for column in batch.columns), strict=True)]
    for one, other in itertools.product(range(len(keys)), repeat=2):
        assert (keys[one] < keys[other]) == (ranks[one] < ranks[other])
        assert (keys[one] == keys[other]) == (ranks[one] == ranks[other])


@settings(max_examples=400, deadline=None)
@given(tables(), st.sampled_from([0, 1, 16, 256]))
def test_decode_undoes_encode(table: tuple[pa.RecordBatch, list[str], int], count: int) -> None:
    """Exact and with types, from any slice; but -0.0 becomes 0.0, and all NaN become one."""
    batch, nullable, skip = table
    names = batch.schema.names
    encoder = KeyEncoder(batch.schema, names, names[-1:], count, nullable)
    sliced = batch.slice(skip)
    keys = encoder.encode(sliced)
    assert keys.type == pa.binary()
    keys.validate(full=True)
    for column, decoded in zip(sliced.columns, encoder.decode(keys), strict=True):
        assert decoded.type == column.type
        decoded.validate(full=True)
        assert list(map(rank, stored_values(decoded))) == list(map(rank, stored_values(column)))
    tail = keys.slice(min(2, len(keys)))
    for column, decoded in zip(sliced.slice(2).columns, encoder.decode(tail), strict=True):
        assert list(map(rank, stored_values(decoded))) == list(map(rank, stored_values(column)))


@settings(max_examples=400, deadline=None)
@given(tables(), st.sampled_from([0, 1, 16, 256]))
def test_one_row_and_a_batch_agree_byte_for_byte(table: tuple[pa.RecordBatch, list[str], int], count: int) -> None:
    """`encode_row`, `decode_row` and the prefixes of each row agree with `encode`, vnode included."""
    batch, nullable, _ = table
    names = batch.schema.names
    encoder = KeyEncoder(batch.schema, names, names[:1], count, nullable)
    nodes = vnodes(batch.columns[:1], count).tolist() if count else []
    skip = 2 if count else 0
    for at, key in enumerate(encoder.encode(batch).to_pylist()):
        row = tuple(stored_values(column)[at] for column in batch.columns)
        given = tuple(values_of(column)[at] for column in batch.columns)
        assert encoder.encode_row(given) == key
        for length in range(len(row) + 1):
            assert key[skip:].startswith(encoder.encode_prefix(given[:length]))
        if count:
            assert key[:2] == nodes[at].to_bytes(2, "big")
            assert encoder.prefix_vnode(given[:1]) == nodes[at]
        assert encoder.prefix_vnode(()) is None
        decoded = [
            rank(value)
            for value, kind in zip(encoder_values(encoder, key, batch), batch.schema.types, strict=True)
            if not pa.types.is_temporal(kind)
        ]
        expected = zip(row, batch.schema.types, strict=True)
        assert decoded == [rank(value) for value, kind in expected if not pa.types.is_temporal(kind)]


def encoder_values(encoder: KeyEncoder, key: bytes, batch: pa.RecordBatch) -> tuple[Any, ...]:
    """The values for `decode_row`, or `None` if a time lies beyond Python's own classes."""
    try:
        return encoder.decode_row(key)
    except (OverflowError, ValueError):
        assert any(map(pa.types.is_temporal, batch.schema.types))
        return tuple(
            encoder.decode(pa.array([key], pa.binary()))[i][0].as_py() if not pa.types.is_temporal(kind) else None
            for i, kind in enumerate(batch.schema.types)
        )


@settings(max_examples=300, deadline=None)
@given(tables(), st.data())
def test_a_prefix_finds_the_rows_with_these_values_and_no_others(
    table: tuple[pa.RecordBatch, list[str], int], data: st.DataObject
) -> None:
    """The keys from a prefix of leading values to its upper bound are exactly the rows with these values."""
    batch, nullable, _ = table
    if batch.num_rows == 0 or batch.num_columns < 2:
        return
    encoder = KeyEncoder(batch.schema, batch.schema.names, nullable=nullable)
    rows = list(zip(*(stored_values(column) for column in batch.columns), strict=True))
    at = data.draw(st.integers(0, len(rows) - 1))
    length = data.draw(st.integers(1, batch.num_columns - 1))
    values = rows[at][:length]
    prefix = encoder.encode_prefix([values_of(column)[at] for column in batch.columns[:length]])
    end = upper_bound(prefix)
    for row, key in zip(rows, encoder.encode(batch).to_pylist(), strict=True):
        has_values = list(map(rank, row[: len(values)])) == list(map(rank, values))
        assert (prefix <= key and (end is None or key < end)) == has_values


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.bool_(), True),
        (pa.date32(), dt.date(2013, 6, 30)),
        (pa.date64(), dt.date(1900, 1, 1)),
        (pa.timestamp("us"), dt.datetime(2013, 6, 30, 12, 30, 1, 5)),
        (pa.timestamp("s", "UTC"), dt.datetime(1969, 6, 30, 12, 30, 1, tzinfo=dt.UTC)),
        (pa.time32("s"), dt.time(23, 59, 59)),
        (pa.time64("us"), dt.time(0, 0, 0, 7)),
        (pa.duration("us"), dt.timedelta(days=-3, microseconds=1)),
        (pa.decimal128(20, 3), decimal.Decimal("-12345678901234567.891")),
    ],
    ids=str,
)
def test_rows_take_and_give_pythons_own_values(kind: pa.DataType, value: Any) -> None:
    """Dates, times and decimals go in and come out as the classes of Python's standard library, with the same vnode."""
    encoder = KeyEncoder(pa.schema([("k", kind)]), ["k"], ["k"], 256)
    key = encoder.encode_row((value,))
    assert key == encoder.encode(pa.record_batch({"k": pa.array([value], kind)}))[0].as_py()
    assert encoder.decode_row(key) == (value,)


def test_floats_sort_from_minus_infinity_to_nan() -> None:
    """One total order with one zero and one NaN, for any sign and payload bits."""
    odd_nan, negative_nan = (struct.unpack("<d", bytes.fromhex(h))[0] for h in ("010000000000f07f", "000000000000f8ff"))
    values = [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan, odd_nan, negative_nan]
    for kind in (pa.float32(), pa.float64()):
        encoder = KeyEncoder(pa.schema([("k", kind)]), ["k"])
        keys = encoder.encode(pa.record_batch({"k": pa.array(values, kind)})).to_pylist()
        assert keys == sorted(keys)
        assert keys == [encoder.encode_row((value,)) for value in values]
        assert keys[3] == keys[4] == encoder.encode_row((0,))
        assert len(set(keys[8:])) == 1
        decoded = encoder.decode(pa.array(keys))[0].to_pylist()
        assert [math.copysign(1, value) for value in decoded[3:5]] == [1, 1]
        assert all(math.isnan(value) for value in decoded[8:])


@pytest.mark.parametrize(
    "strings", [["aaaaaa", "bbbbbb"], ["a\0aaaa", "bbbb\0b"], ["", ""], ["a", ""], ["a\0", "\0\0\1"]]
)
def test_texts_of_one_width_encode_like_any_texts(strings: list[str]) -> None:
    """The fast path for texts of one width gives what the general one gives; so does reading them back."""
    encoder = KeyEncoder(pa.schema([("s", pa.string()), ("i", pa.int64())]), ["s", "i"], ["s"], 256)
    batch = pa.record_batch({"s": pa.array([*strings, "of another width"]), "i": pa.array([1, -1, 0])})
    together = encoder.encode(batch).to_pylist()
    alone = [encoder.encode(batch.slice(at, 1)).to_pylist()[0] for at in range(3)]
    pair = encoder.encode(batch.slice(0, 2))
    assert together == alone
    assert pair.to_pylist() == together[:2]
    assert encoder.decode(pair)[0].to_pylist() == strings
    assert encoder.decode(pair)[1].to_pylist() == [1, -1]


def test_a_table_may_have_other_columns() -> None:
    """Key columns are found by name, in several chunks or none, and in the order of the primary key."""
    schema = pa.schema([("v", pa.float64()), ("b", pa.int8()), ("a", pa.string())])
    encoder = KeyEncoder(schema, ["a", "b"])
    table = pa.table({"v": [1.0, 2.0], "b": pa.array([1, 2], pa.int8()), "a": ["x", "y"]})
    keys = encoder.encode(pa.concat_tables([table, table]))
    assert keys.to_pylist() == [b"x\0\1\x81", b"y\0\1\x82"] * 2
    assert encoder.encode(schema.empty_table()).to_pylist() == []
    assert [column.to_pylist() for column in encoder.decode(pa.array([], pa.binary()))] == [[], []]


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"", None), (b"\xff\xff", None), (b"a", b"b"), (b"a\xff", b"b"), (b"a\xfe\xff", b"a\xff"), (b"\0", b"\1")],
)
def test_upper_bound_is_the_first_key_after_a_prefix(prefix: bytes, end: bytes | None) -> None:
    """Trailing ff bytes are dropped, then the last byte is raised by one."""
    assert upper_bound(prefix) == end


def test_a_long_batch_encodes_like_single_rows() -> None:
    """Nothing depends on the number of rows: long batches agree with single rows at both ends."""
    rows = 200_000
    ids = pa.array(np.random.default_rng(7).integers(-(2**63), 2**63 - 1, rows))
    batch = pa.record_batch({"id": ids, "name": pa.array([f"{at}" for at in range(rows)])})
    encoder = KeyEncoder(batch.schema, ["name", "id"], ["id"], 256)
    keys = encoder.encode(batch)
    for at in (0, 1, rows // 2, rows - 1):
        assert keys[at].as_py() == encoder.encode_row((f"{at}", ids[at].as_py()))
    names, numbers = encoder.decode(keys)
    assert names.equals(batch["name"])
    assert numbers.equals(ids)


def test_the_worked_examples_of_the_format_page_hold() -> None:
    """Each example is encoded to the page's bytes and decoded back; as bytes are on disk, this also freezes them."""
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)` \| `([0-9a-f ]+)` \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 15
    names = {"pa": pa, "dt": dt, "Decimal": decimal.Decimal, "inf": math.inf, "nan": math.nan}
    for kinds, values, expected in rows:
        nullable = [f"c{i}" for i, kind in enumerate(kinds.split(", ")) if kind.endswith("?")]
        types = eval("[" + ", ".join(f"pa.{kind.rstrip('?')}" for kind in kinds.split(", ")) + "]", names)
        schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(types)])
        encoder = KeyEncoder(schema, schema.names, schema.names[:1], 256, nullable)
        row = eval(values, names)
        assert encoder.encode_row(row).hex(" ") == expected, (kinds, values)
        assert list(map(rank, encoder.decode_row(bytes.fromhex(expected)))) == list(map(rank, row))
