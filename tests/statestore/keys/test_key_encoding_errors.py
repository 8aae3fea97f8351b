"""Key encoding refuses values that do not fit, with an error that names column, expectation and finding."""

import decimal
import re
from typing import Any

import pyarrow as pa
import pytest

from support import inside
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch
from tussock.statestore.keys.encoding import KeyEncoder

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string())), ("d", pa.decimal128(4, 1))]
)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), SchemaMismatch, "primary key []"),
        ((["id", "id"],), SchemaMismatch, "none twice"),
        ((["nope"],), SchemaMismatch, "'nope': expected it once, found it 0 times"),
        ((["tags"],), SchemaMismatch, "key column 'tags' has type list<item: string>; expected a boolean"),
        ((["id"], ["name"], 16), SchemaMismatch, "distribution key: found ['name'], expected columns"),
        ((["id"], [], 16), SchemaMismatch, "no distribution key for 16 vnodes"),
        ((["id"], [], 0, ["name"]), SchemaMismatch, "nullable columns: found ['name']"),
        ((["id"], ["id"], 100), InvalidOption, "100 vnodes"),
    ],
)
def test_an_impossible_key_is_refused(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    """The constructor names the column and what is possible."""
    with pytest.raises(error, match=re.escape(message)):
        KeyEncoder(SCHEMA, *arguments)


def batch_of(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (batch_of(id=pa.array([1])), "key column 'name': expected it once, found it 0 times in ['id']"),
        (batch_of(id=pa.array([1], pa.int32()), name=pa.array(["a"])), "key column 'id': expected int64, found int32"),
        (batch_of(id=pa.array([1]), name=pa.array([b"a"])), "key column 'name': expected string, found binary"),
        (
            batch_of(id=pa.array([1, 2, None]), name=pa.array(["a", "b", "c"])),
            "'id': expected int64, found null in row 2",
        ),
        (
            batch_of(id=pa.array([1]), name=pa.array([None], pa.string())),
            "'name': expected string, found null in row 0",
        ),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(batch: pa.RecordBatch, message: str) -> None:
    """The error names the column, what was expected and what was found, and the row of a null."""
    with pytest.raises(SchemaMismatch, match=re.escape(message)):
        KeyEncoder(SCHEMA, ["id", "name"], ["id"], 256).encode(batch)


def test_a_decimal_beyond_its_precision_is_refused() -> None:
    """Arrow accepts such a number; cut to its width it would be another key."""
    raw = pa.array([decimal.Decimal(10**12)], pa.decimal128(38, 0))
    beyond = pa.Array.from_buffers(pa.decimal128(4, 1), 1, raw.buffers())
    with pytest.raises(SchemaMismatch, match=re.escape("more digits than its type decimal128(4, 1) allows")):
        KeyEncoder(SCHEMA, ["d"]).encode(batch_of(d=beyond))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [128, -129, 1.5, "1", None, b"1"]),
        (pa.uint64(), [-1, 2**64, 0.0]),
        (pa.bool_(), [1, None, "true"]),
        (pa.float32(), ["1", None, 1e300]),
        (pa.string(), [b"a", 1, None, "\ud800"]),
        (pa.binary(), ["a", 1, None]),
        (pa.binary(2), [b"a", b"abc", None]),
        (pa.date32(), ["2013-01-01", 1.5, True, None]),
        (pa.decimal128(4, 1), [decimal.Decimal("1234.5"), decimal.Decimal("0.05"), "x", None]),
    ],
    ids=str,
)
def test_a_value_that_its_column_cannot_hold_is_refused(kind: pa.DataType, values: list[Any]) -> None:
    """The error names the column, its type and the value, also if an earlier column fits."""
    encoder = KeyEncoder(pa.schema([("first", pa.int32()), ("k", kind)]), ["first", "k"], ["k"], 256)
    for value in values:
        with pytest.raises(SchemaMismatch, match=re.escape(f"key column 'k': expected {kind}, found {value!r}")):
            encoder.encode_row((1, value))
        with pytest.raises(SchemaMismatch, match="key column 'k'"):
            encoder.encode_prefix((1, value))


def test_a_row_with_too_few_or_too_many_values_is_refused() -> None:
    """The error says how many columns the key has."""
    encoder = KeyEncoder(SCHEMA, ["id", "name"])
    for values in ((), (1,), (1, "a", 2)):
        with pytest.raises(SchemaMismatch, match=f"of {len(values)} values"):
            encoder.encode_row(values)
    with pytest.raises(SchemaMismatch, match="3 values"):
        encoder.encode_prefix((1, "a", 2))


@pytest.mark.parametrize("columns", [["id"], ["name"], ["name", "id"], ["id", "name"]])
@pytest.mark.parametrize("count", [0, 256])
def test_bytes_that_encode_no_key_are_refused(columns: list[str], count: int) -> None:
    """Too short, unterminated, too long or not UTF-8: a ValueError, one by one and in a batch, never a wrong row."""
    encoder = KeyEncoder(SCHEMA, columns, columns[:1], count)
    start = b"\0\7" if count else b""
    bad = [b"\0", start + b"\0" * 7] if columns != ["name"] else [start + b"\xff"]
    if columns[-1] == "id":
        bad += [start + b"a\0\1" + b"\0" * 9 if "name" in columns else start + b"\0" * 9]
    if columns[-1] == "name" and count:
        bad += [b"", b"\0"]
    for key in bad:
        with pytest.raises(ValueError):
            encoder.decode_row(key)
        for keys in ([key], [key, key], [key, key + b"a"]):
            with pytest.raises(ValueError):
                encoder.decode(pa.array(keys, pa.binary()))


def test_keys_that_take_more_than_an_arrow_array_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says to split the batch; here the limit is lowered, as 2 GiB of keys take too long."""
    inside.shrink_arrow_arrays(monkeypatch, 100)
    encoder = KeyEncoder(SCHEMA, ["name", "id"])
    numbers = pa.array(range(9), pa.int64())
    for name in ("abcd", "a\0" * 30):
        with pytest.raises(InvalidBatch, match="at most 100 fit: split the batch"):
            encoder.encode(batch_of(name=pa.array([name] * 8 + ["-"]), id=numbers))
