"""Blocks: every type comes back unchanged, and no damaged byte is ever taken for data."""

import random
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.statestore.errors import CorruptSst, SchemaMismatch
from tussock.statestore.format.block import CODECS, TRAILER_BYTES, decode_block, encode_block
from tussock.statestore.format.columns import storage_type
from tussock.statestore.rows.rows import Rows

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "int16": (pa.int16(), [-(1 << 15), 0, (1 << 15) - 1]),
    "int32": (pa.int32(), [-(1 << 31), 0, (1 << 31) - 1]),
    "int64": (pa.int64(), [-(1 << 63), 0, (1 << 63) - 1]),
    "uint8": (pa.uint8(), [0, 1, 255]),
    "uint64": (pa.uint64(), [0, 1, (1 << 64) - 1]),
    "float16": (pa.float16(), [0.5, -2.0, float("inf")]),
    "float32": (pa.float32(), [0.5, -0.0, float("-inf")]),
    "float64": (pa.float64(), [0.1, 5e-324, 1.7e308]),
    "bool": (pa.bool_(), [True, False, True]),
    "decimal32": (pa.decimal32(7, 2), [Decimal("1.25"), Decimal("-99999.99"), Decimal(0)]),
    "decimal64": (pa.decimal64(15, 2), [Decimal("1.25"), Decimal("-99999.99"), Decimal(0)]),
    "decimal128": (pa.decimal128(38, 3), [Decimal("1.250"), Decimal("-" + "9" * 35 + ".999"), Decimal(0)]),
    "decimal256": (pa.decimal256(60, 1), [Decimal("1.2"), Decimal("-" + "9" * 59 + ".9"), Decimal(0)]),
    "string": (pa.string(), ["", "äöü \U0001f600", "x" * 300]),
    "binary": (pa.binary(), [b"", bytes(range(256)), b"\0\xff"]),
    "fixed_size_binary": (pa.binary(5), [b"12345", b"\0" * 5, b"\xff" * 5]),
    "no_bytes": (pa.binary(0), [b"", b"", b""]),
    "date32": (pa.date32(), [date(1, 1, 1), date(2013, 6, 30), date(9999, 12, 31)]),
    "date64": (pa.date64(), [date(1970, 1, 1), date(2013, 6, 30), date(1900, 1, 1)]),
    "time32": (pa.time32("s"), [time(0), time(23, 59, 59), time(1, 2, 3)]),
    "time64": (pa.time64("us"), [time(0), time(23, 59, 59, 999999), time(1, 2, 3)]),
    "timestamp": (pa.timestamp("us"), [datetime(1, 1, 1), datetime(2013, 6, 30, 1), datetime(9999, 12, 31)]),
    "timestamp_tz": (pa.timestamp("us", "UTC"), [datetime(2013, 6, n, tzinfo=UTC) for n in (1, 2, 3)]),
    "duration": (pa.duration("us"), [timedelta(0), timedelta(days=-1), timedelta(microseconds=1)]),
    "interval": (pa.month_day_nano_interval(), [(1, 2, 3), (-1, 0, 0), (0, 0, 1)]),
    "null": (pa.null(), [None, None, None]),
    "list": (pa.list_(pa.int64()), [[], [1, None, 3], [4]]),
    "list_of_strings": (pa.list_(pa.string()), [["a", ""], [], ["bc"]]),
    "struct": (pa.struct([("a", pa.int8()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": None, "b": ""}, None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], [], [("a", None), ("b", 2)]]),
}


def keys(count: int, *, fixed: bool) -> pa.BinaryArray:
    return pa.array([b"%06d" % n if fixed else b"%06d" % n + b"x" * (n % 7) for n in range(count)], pa.binary())


def round_trip(rows: Rows, codec: str = "lz4", columns: list[int] | None = None, epoch: int = 9) -> Rows:
    data, _, crc = encode_block(rows, CODECS[codec])
    return decode_block(memoryview(data), crc, epoch, [column.type for column in rows.columns], columns, "here")


def assert_same(found: Rows, expected: Rows, epoch: int = 9) -> None:
    assert found.keys.to_pylist() == expected.keys.to_pylist()
    row_epochs = not isinstance(expected.epochs, int)
    assert found.epoch_array().tolist() == (expected.epoch_array().tolist() if row_epochs else [epoch] * len(expected))
    assert found.delete_array().tolist() == expected.delete_array().tolist()
    assert len(found.columns) == len(expected.columns)
    for column, like in zip(found.columns, expected.columns, strict=True):
        column.validate(full=True)
        assert column.type == like.type
        assert column.equals(like)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", VALUES)
def test_every_type_comes_back(name: str, codec: str) -> None:
    """Values, nulls and slices at every bit offset of a byte come back in each type and codec."""
    kind, values = VALUES[name]
    array = pa.array([values[n % 3] if n % 4 else None for n in range(41)], kind)
    for offset in range(10):
        for length in (1, 8, 17):
            part = array.slice(offset, length)
            rows = Rows(keys(41, fixed=True).slice(offset, length), 1, None, (part,))
            assert_same(round_trip(rows, codec), rows)


@pytest.mark.parametrize("name", VALUES)
def test_columns_without_and_only_of_nulls(name: str) -> None:
    """A column without nulls has no validity buffer and one of nulls alone has no values; both come back."""
    kind, values = VALUES[name]
    rows = Rows(keys(3, fixed=False), 1, None, (pa.array(values, kind), pa.nulls(3, kind)))
    assert_same(round_trip(rows), rows)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    ],
)
def test_variants_are_stored_as_their_plain_type(kind: pa.DataType, stored: pa.DataType) -> None:
    """Large, view and dictionary columns have one layout on disk."""
    assert storage_type(kind, "c") == stored


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.int8()),
        pa.list_(pa.int8(), 2),
        pa.list_view(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.int8()),
    ],
)
def test_a_type_that_cannot_be_stored_is_refused(kind: pa.DataType) -> None:
    """The error names the column and the type."""
    with pytest.raises(SchemaMismatch, match=f"column 'speed' has type {kind}".replace("[", r"\[").replace("]", r"\]")):
        storage_type(kind, "speed")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("row_epochs", [False, True])
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_keys_epochs_and_deletes_come_back(fixed: bool, deletes: bool, row_epochs: bool, codec: str) -> None:
    """Each combination of key layout, row epochs and delete marks, from slices too."""
    count = 37
    rows = Rows(
        keys(count, fixed=fixed),
        np.arange(count, dtype=np.uint64) * np.uint64(1 << 57) if row_epochs else 5,
        np.arange(count) % 3 == 0 if deletes else None,
        (pa.array([b"v" * (n % 5) for n in range(count)], pa.binary()),),
    )
    for start, stop in ((0, count), (3, 20), (36, 37), (1, 2)):
        part = rows.slice(start, stop)
        assert_same(round_trip(part, codec), part)


@pytest.mark.parametrize(
    "names",
    [
        [b""],
        [b"", b"\0", b"\0\0"],
        [bytes([n]) for n in range(256)],
        [bytes([n, 255 - n]) for n in range(256)],
        [b"a", b"a\0", b"a\0b", b"ab"],
        [b"k" * 70_000],
        # Both ends would fit a stride of two bytes, the key between does not.
        [b"aa", b"b", b"bbb", b"cc"],
    ],
)
def test_unusual_keys_come_back(names: list[bytes]) -> None:
    """Empty keys, every byte value, and widths that only look fixed."""
    rows = Rows(pa.array(names, pa.binary()), 1, None, (pa.array([b""] * len(names), pa.binary()),))
    assert_same(round_trip(rows), rows)


def test_a_large_value_and_rows_without_values_come_back() -> None:
    """A value of 1 MiB, an empty one, and rows with only a key."""
    rows = Rows(keys(3, fixed=True), 1, None, (pa.array([b"", random.Random(1).randbytes(1 << 20), b"x"]),))
    assert_same(round_trip(rows), rows)
    bare = Rows(keys(3, fixed=True), 1, None, ())
    assert_same(round_trip(bare), bare)


def test_a_block_may_have_more_rows_than_the_shared_offsets() -> None:
    """Blocks beyond the offsets that are kept per key width make their own."""
    rows = Rows(keys(20_000, fixed=True), 1, None, (pa.array(range(20_000), pa.int32()),))
    assert_same(round_trip(rows), rows)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_incompressible_bytes_are_stored_as_they_are(codec: str) -> None:
    """If a codec would only add bytes, the trailer says `none`."""
    noise = random.Random(2).randbytes(4000)
    rows = Rows(pa.array([b"k"], pa.binary()), 1, None, (pa.array([noise], pa.binary()),))
    data, raw_length, _ = encode_block(rows, CODECS[codec])
    assert data[-TRAILER_BYTES] == CODECS["none"]
    assert len(data) == raw_length + TRAILER_BYTES
    assert_same(round_trip(rows, codec), rows)


def test_compressible_bytes_shrink() -> None:
    """The trailer names the codec that was asked for."""
    rows = Rows(pa.array([b"k"], pa.binary()), 1, None, (pa.array([b"a" * 4000], pa.binary()),))
    for name, code in CODECS.items():
        data, raw_length, _ = encode_block(rows, code)
        assert data[-TRAILER_BYTES] == code
        assert (len(data) < raw_length // 4) == (name != "none")


def test_columns_are_picked_in_the_given_order() -> None:
    """Any subset, in any order, as a read from the cache gives it."""
    columns = (pa.array([1, 2], pa.int8()), pa.array(["a", None]), pa.array([[1], []]), pa.array([b"x", b"y"]))
    rows = Rows(keys(2, fixed=True), 1, None, columns)
    for picked in ([], [0], [3, 1], [2, 0, 1], [1, 1]):
        assert_same(round_trip(rows, columns=picked), rows.with_columns(picked))


def test_blocks_decode_at_any_alignment() -> None:
    """An uncompressed block is used in place in a larger read, so its buffers may stand at odd addresses."""
    rows = Rows(
        keys(40, fixed=False),
        np.arange(40, dtype=np.uint64),
        None,
        (pa.array([Decimal(n) for n in range(40)], pa.decimal128(30)), pa.array([f"s{n}" for n in range(40)])),
    )
    data, _, crc = encode_block(rows, CODECS["none"])
    for offset in range(9):
        whole = bytes(offset) + data
        types = [column.type for column in rows.columns]
        found = decode_block(memoryview(whole)[offset:], crc, 0, types, None, "here")
        assert_same(found, rows)
        # Polars sorts keys of several widths, and must not mind either.
        doubled = Rows.merge([found, found])
        assert doubled.keys.to_pylist() == sorted(rows.keys.to_pylist() * 2)
        assert doubled.columns[0].to_pylist() == [Decimal(n // 2) for n in range(80)]


@st.composite
def any_rows(draw: st.DrawFn) -> Rows:
    names = sorted(draw(st.sets(st.binary(max_size=6), min_size=1, max_size=40)))
    count = len(names)
    picked = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=4))
    skip = draw(st.integers(0, count - 1))
    columns = []
    for name in picked:
        kind, values = VALUES[name]
        chosen = draw(st.lists(st.sampled_from([*values, None]), min_size=count, max_size=count))
        columns.append(pa.array(chosen, kind))
    epochs = draw(st.one_of(st.just(9), st.lists(st.integers(0, (1 << 64) - 1), min_size=count, max_size=count)))
    deletes = draw(st.one_of(st.none(), st.lists(st.booleans(), min_size=count, max_size=count)))
    rows = Rows(
        pa.array(names, pa.binary()),
        epochs if isinstance(epochs, int) else np.array(epochs, np.uint64),
        None if deletes is None else np.array(deletes),
        tuple(columns),
    )
    return rows.slice(skip, count)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_rows(), st.sampled_from(sorted(CODECS)))
def test_any_rows_come_back_from_a_block(rows: Rows, codec: str) -> None:
    """For any rows decoding undoes encoding, and the same rows are always the same bytes.

    A copy of the rows may be other bytes: under a null of a nested column Arrow leaves whatever the memory held.
    """
    assert_same(round_trip(rows, codec), rows)
    assert_same(round_trip(rows.take(np.arange(len(rows))), codec), rows)
    assert encode_block(rows, CODECS[codec]) == encode_block(rows, CODECS[codec])


def small_block(codec: str) -> tuple[bytes, int, list[pa.DataType]]:
    rows = Rows(
        keys(6, fixed=codec != "lz4"),
        np.arange(6, dtype=np.uint64),
        np.arange(6) == 2,
        (pa.array([b"value" * 3] * 6), pa.array([1, None, 3, 4, 5, 6]), pa.array([["a"]] * 6)),
    )
    data, _, crc = encode_block(rows, CODECS[codec])
    assert data[-TRAILER_BYTES] == CODECS[codec]
    return data, crc, [column.type for column in rows.columns]


@pytest.mark.parametrize("codec", CODECS)
def test_every_changed_byte_is_found(codec: str) -> None:
    """Any change of any byte raises `CorruptSst` with the place."""
    data, crc, types = small_block(codec)
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            with pytest.raises(CorruptSst, match=r"sst/7\.data block 3.*checksum mismatch"):
                decode_block(memoryview(damaged), crc, 0, types, None, "sst/7.data block 3")


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_found(codec: str) -> None:
    """Every shorter length, from the front or the back, the empty block included."""
    data, crc, types = small_block(codec)
    for length in range(len(data)):
        for part in (data[:length], data[len(data) - length :]):
            with pytest.raises(CorruptSst, match="here"):
                decode_block(memoryview(part), crc, 0, types, None, "here")


def test_a_block_of_another_sst_is_found() -> None:
    """Its checksum is right, but not the one in the block index."""
    _, crc, types = small_block("lz4")
    other, other_crc, _ = small_block("none")
    assert crc != other_crc
    with pytest.raises(CorruptSst, match="checksum mismatch"):
        decode_block(memoryview(other), crc, 0, types, None, "here")


def reseal(data: bytes) -> tuple[memoryview, int]:
    """The bytes with a matching checksum, as a defective or a newer writer would write them."""
    crc = crc32c(data[:-4])
    return memoryview(data[:-4] + struct.pack("<I", crc)), crc


@pytest.mark.parametrize(
    ("offset", "value", "why"),
    [
        (0, struct.pack("<I", 0), "0 rows"),
        (0, struct.pack("<I", 7), "buffer|bytes"),
        (0, struct.pack("<I", 1 << 31), "buffer|bytes"),
        (4, struct.pack("<H", 0x8 | 0x7), "flags 0xf"),
        (6, struct.pack("<H", 2), "2 value columns, the SST's schema has 3"),
        (8, struct.pack("<I", 5), "bytes of keys"),
        (12, struct.pack("<I", 1), "."),
        (12, struct.pack("<I", 1 << 30), "."),
        (16, struct.pack("<I", 1 << 31), "buffer 0 ends at"),
        (20, struct.pack("<I", 1 << 31), "buffer 0 ends at"),
        (-TRAILER_BYTES, b"\x09", "9"),
        (-TRAILER_BYTES, b"\x01", "."),
    ],
)
def test_a_block_of_another_format_is_refused(offset: int, value: bytes, why: str) -> None:
    """The checksum is right, the layout is not: never a crash, and never rows."""
    data, _, types = small_block("none")
    offset %= len(data)
    changed, crc = reseal(data[:offset] + value + data[offset + len(value) :])
    with pytest.raises(CorruptSst, match=f"here: not a block of this format: .*({why})"):
        decode_block(changed, crc, 0, types, None, "here")


def test_buffers_too_short_for_their_rows_are_refused() -> None:
    """Arrow trusts the buffers that it is given, so their sizes are compared with the rows before."""
    data, _, types = small_block("none")
    # Keys, epochs, delete marks; offsets and bytes of the strings; the integers (an empty validity means no nulls).
    for index in (0, 1, 2, 4, 5, 7, 8):
        size_at = 16 + 8 * index + 4
        changed, crc = reseal(data[:size_at] + struct.pack("<I", 0) + data[size_at + 4 :])
        with pytest.raises(CorruptSst, match="not a block of this format"):
            decode_block(changed, crc, 0, types, None, "here")
