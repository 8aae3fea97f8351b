"""Values that a call may be given by mistake: of every kind that Python, NumPy, Arrow, pandas and Polars have.

Each is made when it is asked for, since a generator is used up by one call. None of them breaks the language's own
contracts: a `repr` that raises is its author's to mend.
"""

import datetime
import decimal
import enum
import fractions
import math
import pathlib
import random
import uuid
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Planted", "any_array", "any_batch", "any_type", "any_value", "not_utf8"]


class Planted(Exception):
    """What the code of a user raises; it comes out as it is."""


class Foreign:
    """An object of a foreign library."""

    def __repr__(self) -> str:
        return "<foreign>"


class Colour(enum.Enum):
    """A member is no string, whatever its value."""

    RED = "t"


class Text(str):
    """A subclass, as NumPy has one."""

    __slots__ = ()


class Number(int):
    """A subclass, as `bool` is one."""


class Bytes(bytes):
    """A subclass, as NumPy has one."""


def _raising() -> Iterator[Any]:
    yield {"k": 1}
    raise Planted


def _nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


def not_utf8(kind: Any = None) -> Any:
    """A string array, two values, the first of which is no UTF-8."""
    kind = kind or pa.string()
    offsets = np.array([0, 2, 3], np.int64 if pa.types.is_large_string(kind) else np.int32)
    return pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"\xff\xfea")])


NUMBERS: list[Any] = [0, -1, 1, 5, 255, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, 1 << 70, -(1 << 63) - 1, 10**400]
NUMBERS += [Number(5), 0.0, -0.0, 1.5, 1e20, 1e300, math.nan, math.inf, -math.inf, 1j, fractions.Fraction(1, 3)]
NUMBERS += [decimal.Decimal(text) for text in ("1", "0.10", "NaN", "sNaN", "Infinity", "1E+500", "-0")]
NUMBERS += [kind(5) for kind in (np.int8, np.int64, np.uint64, np.float16, np.float32, np.float64, np.longdouble)]
NUMBERS += [np.uint64(2**64 - 1), np.float64("nan"), np.float32("inf"), np.bool_(True), np.complex64(1)]
TEXTS: list[Any] = ["", "t", "raw", "k", "a", "\0", "\ud800", "a\udfff", "é", "x" * 300, "x" * 70_000, Text("t")]
TEXTS += [Colour.RED, np.str_("t"), np.str_("\ud800"), b"", b"ab", b"\xff\xfe", Bytes(b"a"), np.bytes_(b"a")]
TEXTS += [bytearray(b"a"), memoryview(b"a"), pathlib.Path("t"), uuid.UUID(int=5), "memory://x", "file://relative"]
_UTC = datetime.UTC
TIMES: list[Any] = [
    datetime.datetime.min,
    datetime.datetime.max,
    datetime.datetime(2020, 1, 1, tzinfo=_UTC),
    datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-23))),
    datetime.date.min,
    datetime.date.max,
    datetime.time.max,
    datetime.time(1, tzinfo=_UTC),
    datetime.timedelta.max,
    datetime.timedelta.min,
    np.datetime64("NaT"),
    np.datetime64("2020"),
    np.datetime64("2020-01-01T00:00:00.123456789"),
    np.datetime64(2**62, "D"),
    np.timedelta64(1, "M"),
    np.timedelta64("NaT"),
    pd.Timestamp("2020-01-01", tz="UTC"),
    pd.Timestamp.max,
    pd.NaT,
    pd.NA,
    pd.Timedelta.max,
    pd.Period("2020"),
]
OTHERS: list[Callable[[], Any]] = [
    lambda: None,
    lambda: True,
    lambda: False,
    lambda: ...,
    lambda: NotImplemented,
    lambda: object,
    lambda: len,
    lambda: math,
    Foreign,
    lambda: lambda *_, **__: 1,
    lambda: Foreign.__repr__,
    lambda: iter([1]),
    lambda: (row for row in [{"k": 1, "s": "a"}]),
    lambda: map(str, [1]),
    _raising,
    lambda: range(3),
    lambda: range(1 << 70),
    lambda: slice(1),
    set,
    lambda: {1, "a"},
    lambda: frozenset({b"a"}),
    dict,
    lambda: {"k": 1, "s": "a"},
    lambda: {1: 2},
    lambda: {None: None},
    lambda: {"t": 5, "raw": 1},
    lambda: {"t": []},
    lambda: {"t": [Foreign()]},
    lambda: {"new": pa.int8()},
    lambda: {"k": pa.int8()},
    lambda: {"\ud800": pa.int8()},
    lambda: {b"a": pa.int8()},
    lambda: OrderedDict(k=1),
    lambda: UserDict(k=1),
    lambda: ChainMap({"t": 1}),
    tuple,
    lambda: (1, "a"),
    lambda: ("a", 1),
    lambda: (None, None),
    lambda: (1, "\ud800"),
    lambda: ((1,), (2,)),
    lambda: ((1,), (None,)),
    lambda: ((), ()),
    lambda: ((math.nan,), (1,)),
    lambda: (0, 300),
    lambda: (np.int64(0), np.int64(2)),
    lambda: (True, 2),
    list,
    lambda: [None],
    lambda: [[]],
    lambda: [()],
    lambda: ["k"],
    lambda: ["k", "k"],
    lambda: ["zz"],
    lambda: ["\ud800"],
    lambda: [b"a"],
    lambda: [b"a", None],
    lambda: [b"a", "a"],
    lambda: [1, "a"],
    lambda: [(1, "a")],
    lambda: [(1, "a"), (1,)],
    lambda: [(1, "a"), {"k": 1, "s": "a"}],
    lambda: [{"k": 1, "s": "a"}],
    lambda: [{"k": 1, "s": "a"}, None],
    lambda: [{"k": 10**30, "s": "a"}],
    lambda: [{"k": 1, "s": "\ud800"}],
    lambda: [{1: 1}],
    lambda: [{"k": 1, "s": "a", "l": _nested(300)}],
    lambda: [{"k": 1, "s": "a", "v": decimal.Decimal("sNaN")}],
    lambda: [(b"a", b"1")],
    lambda: [(b"a", b"1"), (b"a", b"2")],
    lambda: [(b"b", b"1"), (b"a", None)],
    lambda: [(b"a", b"1", b"2")],
    lambda: [b"ab"],
    lambda: ["ab"],
    lambda: _nested(2000),
    lambda: deque([1]),
    lambda: UserList([1]),
    lambda: np.array([]),
    lambda: np.array([1, 2]),
    lambda: np.array([b"a"]),
    lambda: np.array(["a", None], object),
    lambda: np.array([[1, 2], [3, 4]]),
    lambda: np.array(5),
    lambda: np.rec.array([(1, "a")], names=["k", "s"]),
    lambda: np.ma.array([1, 2], mask=[True, False]),
    lambda: pd.DataFrame({"k": [1], "s": ["a"]}),
    lambda: pd.DataFrame({"key": [b"a"], "value": [b"1"]}),
    lambda: pd.Series([1, 2]),
    lambda: pd.Index(["a"]),
    lambda: pl.DataFrame({"k": [1], "s": ["a"]}),
    lambda: pl.Series([1, 2]),
    lambda: pl.LazyFrame({"k": [1]}),
    lambda: pl.col("k") > 0,
    lambda: pc.field("k") > 0,
    lambda: pc.field("zz") > 0,
    lambda: pc.field("k") > "a",
    lambda: pc.field(("k", "zz")) == 1,
    lambda: pc.divide(pc.field("k"), 0) > 0,
    lambda: pc.field("k"),
    lambda: pc.scalar(True),
    lambda: pc.scalar(None),
    lambda: pc.scalar(1),
    lambda: pc.field("s").cast(pa.int64()) > 0,
    lambda: pc.match_substring_regex(pc.field("s"), "("),
    lambda: pa.scalar(1),
    lambda: pa.scalar(None),
    lambda: pa.scalar(None, pa.int64()),
    lambda: pa.scalar("a"),
    lambda: pa.scalar(b"a"),
    lambda: pa.scalar(2**63 - 1, pa.timestamp("ns")),
    lambda: pa.scalar(2**63 - 1, pa.timestamp("s")),
    lambda: pa.scalar("a").cast(pa.dictionary(pa.int8(), pa.string())),
    lambda: not_utf8()[0],
    lambda: pa.int8(),
    lambda: pa.field("a", pa.int8()),
    lambda: pa.schema([]),
    lambda: pa.schema([("k", pa.int64()), ("s", pa.string())]),
    lambda: pa.schema([("a", pa.int8()), ("a", pa.int8())]),
    lambda: pa.schema([("", pa.int8())]),
    lambda: pa.schema([("k", pa.null())]),
    lambda: pa.schema([("k", pa.int64())], metadata={b"\xff": b"\xff"}),
    lambda: pa.table({}),
    lambda: pa.py_buffer(b"abc"),
    lambda: pa.memory_map,
]


def any_value(chance: random.Random) -> Any:
    """Any of them."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice(NUMBERS)
    if kind == 1:
        return chance.choice(TEXTS)
    if kind == 2:
        return chance.choice(TIMES)
    if kind == 3:
        array = any_array(chance, chance.randrange(4))
        return array if chance.random() < 0.7 or not len(array) else array[0]
    if kind == 4:
        return any_batch(chance, any_schema(chance))
    return chance.choice(OTHERS)()


# --- Arrow -----------------------------------------------------------------------------------------------------------

_FLAT: list[Any] = [
    pa.null(),
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    *(pa.binary(0), pa.binary(3)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("us", "Mars/Base"), pa.timestamp("us", "+99:99")),
    *(pa.duration("s"), pa.duration("ns"), pa.month_day_nano_interval()),
    *(pa.decimal32(5, 2), pa.decimal64(9, -3), pa.decimal128(38, 0), pa.decimal128(5, 2), pa.decimal256(76, 30)),
    *(pa.uuid(), pa.json_(), pa.bool8(), pa.opaque(pa.binary(), "a", "b")),
]


def any_type(chance: random.Random, depth: int = 2) -> Any:
    """A type of Arrow's, nested at most `depth` times."""
    if not depth or chance.random() < 0.7:
        return chance.choice(_FLAT)
    inner = any_type(chance, depth - 1)
    flat = chance.choice([pa.string(), pa.int64(), pa.binary(), pa.float64(), pa.date32()])
    return chance.choice(
        [
            lambda: pa.list_(inner),
            lambda: pa.list_(inner, 2),
            lambda: pa.list_(pa.field("item", inner, nullable=pa.types.is_null(inner))),
            lambda: pa.large_list(inner),
            lambda: pa.list_view(inner),
            lambda: pa.struct([("a", inner), ("b", flat)]),
            lambda: pa.struct([("a", inner), ("a", flat)]),
            lambda: pa.struct([]),
            lambda: pa.map_(flat, inner),
            lambda: pa.dictionary(pa.int8(), flat),
            lambda: pa.dictionary(pa.uint64(), flat, ordered=True),
            lambda: pa.run_end_encoded(pa.int32(), flat),
            lambda: pa.dense_union([pa.field("a", inner), pa.field("b", flat)]),
            lambda: pa.sparse_union([pa.field("a", inner)]),
        ]
    )()


def any_array(chance: random.Random, count: int, kind: Any = None) -> Any:
    """`count` values of a type, often at an offset, with nulls, at the ends of its range, or in several chunks."""
    kind = any_type(chance) if kind is None else kind
    try:
        made = _array(chance, count + 2, kind)
    except pa.ArrowException:
        # Arrow itself does not take it.
        made = pa.nulls(count + 2)
    where = chance.random()
    if where < 0.4:
        return made.slice(1, count)
    if where < 0.6 and not pa.types.is_union(made.type):
        return pa.chunked_array([made.slice(0, count // 2), made.slice(2, count - count // 2)], made.type)
    return made.slice(0, count)


def _array(chance: random.Random, count: int, kind: Any) -> Any:
    """Nulls where nothing else can be made of it, which is said by Arrow in many ways."""
    if kind == pa.string() and chance.random() < 0.2:
        return pa.concat_arrays([not_utf8()] * (count // 2 + 1)).slice(0, count)
    if pa.types.is_dictionary(kind) and chance.random() < 0.5:
        values = pa.array([None, None], kind.value_type)
        return pa.DictionaryArray.from_arrays(
            pa.array([chance.randrange(2) for _ in range(count)], kind.index_type), values
        )
    if pa.types.is_run_end_encoded(kind):
        return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), _array(chance, 1, kind.value_type))
    if (width := _width(kind)) and chance.random() < 0.6:
        data = pa.py_buffer(chance.choice([chance.randbytes, lambda size: b"\xff" * size, bytes])(width * count))
        mask = pa.py_buffer(chance.randbytes(count // 8 + 1)) if chance.random() < 0.4 else None
        return pa.Array.from_buffers(kind, count, [mask, data])
    sample: Any = chance.choice([None, 0, 1, "a", "2020-01-01", b"abc", [], [1], {"a": None}, [("a", None)], 1.5])
    for value in (sample, "a", b"abc", 0, [], {}, None):
        try:
            return pa.array([value if chance.random() < 0.7 else None for _ in range(count)], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError, AttributeError):
            continue
    try:
        return pa.nulls(count, kind)
    except pa.ArrowException:
        return pa.nulls(count)


def _width(kind: Any) -> int:
    if kind.num_fields or isinstance(kind, pa.ExtensionType | pa.DictionaryType) or pa.types.is_boolean(kind):
        return 0
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return 0


def any_schema(chance: random.Random) -> Any:
    """A few columns, whose names are often those of the tables that are tried."""
    names = chance.choice(
        [["k", "s"], ["k", "s", "v", "l"], ["key", "value"], ["key", "value", "op"], ["a", "a"], [""]]
    )
    kinds = [any_type(chance) for _ in names]
    nullable = [pa.types.is_null(kind) or chance.random() < 0.8 for kind in kinds]
    return pa.schema([pa.field(*field) for field in zip(names, kinds, nullable, strict=True)])


def any_batch(chance: random.Random, schema: Any) -> Any:
    """Rows of about this schema, as a table, a batch or a reader: columns of other types, missing or double."""
    count = chance.randrange(4)
    names, arrays = [], []
    for field in schema:
        fate = chance.random()
        if fate < 0.05:
            continue
        names.append(field.name if fate < 0.95 else chance.choice([*schema.names, "zz"]))
        arrays.append(any_array(chance, count, field.type if chance.random() < 0.6 else None))
    chunked = [one if isinstance(one, pa.ChunkedArray) else pa.chunked_array([one]) for one in arrays]
    fate = chance.random()
    try:
        table = pa.Table.from_arrays(chunked, names=names)
        if fate < 0.5 or not names:
            return table
        return table.combine_chunks().to_batches()[0] if fate < 0.9 and count else table.to_reader()
    except pa.ArrowException:
        # Arrow itself cannot hold or join some of its types.
        return pa.table({})
