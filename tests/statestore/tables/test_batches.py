"""The batches that `ingest_batch` of a raw table takes, and the messages about others."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tussock.statestore.errors import InvalidBatch, SchemaMismatch
from tussock.statestore.tables.raw_input import key_array, raw_rows


def pairs(batch: Any) -> list[tuple[bytes, bytes | None]]:
    """The batch as it will be stored: pairs of key and value, `None` for a delete."""
    rows = raw_rows(batch, "kv")
    values = rows.columns[0].to_pylist()
    assert rows.columns[0].null_count == 0
    return [
        (key, None if deleted else value)
        for key, value, deleted in zip(rows.keys.to_pylist(), values, rows.delete_array().tolist(), strict=True)
    ]


def arrow(keys: list[Any], values: list[Any], operations: list[Any] | None = None, **types: pa.DataType) -> pa.Table:
    columns = {
        "key": pa.array(keys, types.get("key", pa.binary())),
        "value": pa.array(values, types.get("value", pa.binary())),
    }
    if operations is not None:
        columns["op"] = pa.array(operations, types.get("op", pa.string()))
    return pa.table(columns)


GOOD = [(b"", b""), (b"\0", None), (b"a", b"1"), (b"a\0", b"x" * (1 << 20)), (b"\xff", b"\0")]


@pytest.mark.parametrize(
    "shape",
    [
        list,
        tuple,
        iter,
        lambda batch: [list(pair) for pair in batch],
        lambda batch: arrow(*map(list, zip(*batch, strict=True))),
        lambda batch: arrow(*map(list, zip(*batch, strict=True))).combine_chunks().to_batches()[0],
        lambda batch: arrow(*map(list, zip(*batch, strict=True)), key=pa.large_binary(), value=pa.large_binary()),
        lambda batch: pa.concat_tables([arrow([k], [v]) for k, v in batch]),
        lambda batch: arrow(*map(list, zip(*[(b"", b"cut off"), *batch], strict=True))).slice(1),
        lambda batch: arrow(*map(list, zip(*batch, strict=True))).select(["value", "key"]),
    ],
)
def test_every_shape_of_a_batch_gives_the_same_rows(shape: Callable[[Any], Any]) -> None:
    """Pairs, generators, record batches, tables in chunks, slices, other widths and column orders."""
    assert pairs(shape(GOOD)) == GOOD


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_a_column_op_marks_deletes(kind: pa.DataType) -> None:
    """A column `op` says which rows are deletes; what value a deleted row has does not matter."""
    batch = arrow([b"a", b"b", b"c"], [b"1", None, b"2"], ["put", "delete", "delete"], op=kind)
    assert pairs(batch) == [(b"a", b"1"), (b"b", None), (b"c", None)]


@pytest.mark.parametrize("empty", [[], (), arrow([], []), arrow([], [], []), arrow([], []).schema.empty_table()])
def test_an_empty_batch_is_accepted(empty: Any) -> None:
    """A batch without rows is accepted."""
    assert pairs(empty) == []


@pytest.mark.parametrize("value", [pa.null(), pa.binary()])
def test_a_batch_may_have_only_deletes(value: pa.DataType) -> None:
    """Also if the values have no type, because all are null."""
    assert pairs(arrow([b"a", b"b"], [None, None], value=value)) == [(b"a", None), (b"b", None)]


@pytest.mark.parametrize(
    ("batch", "at", "why"),
    [
        ([(b"b", b""), (b"a", b"")], 1, r"position 1: key b'a' comes after b'b'"),
        ([(b"a", b""), (b"a", None)], 1, r"position 1: key b'a' repeats the key before it"),
        ([(b"a", b""), (b"c", b""), (b"c", b""), (b"b", b"")], 2, r"position 2: key b'c' repeats"),
        ([(b"a", b""), (b"c", b""), (b"b", b""), (b"b", b"")], 2, r"position 2: key b'b' comes after b'c'"),
        ([(b"a\0", b""), (b"a", b"")], 1, r"position 1: key b'a' comes after b'a\\x00'"),
        ([(b"ab", b""), (b"b", b""), (b"b\0", b""), (b"aa", b"")], 3, r"position 3: key b'aa' comes after"),
        ([(b"\x80", b""), (b"\x7f", b"")], 1, r"position 1: key b'\\x7f' comes after b'\\x80'"),
        (arrow([b"b", b"a"], [b"", b""]), 1, r"position 1: key b'a' comes after b'b'"),
        ([(b"a", b""), (b"b", 5)], 1, r"position 1, key b'b': 5 is neither a put \(bytes\) nor a delete \(None\)"),
        ([(b"a", b""), (b"b", "text")], 1, r"position 1, key b'b': 'text' is neither"),
        ([(b"a", b""), ("b", b"")], 1, r"the key at position 1 is of type str \('b'\), expected bytes"),
        ([(None, b"")], 0, r"the key at position 0 is of type NoneType"),
        ([(b"a", b""), (b"b",)], 1, r"position 1 holds \(b'b',\), which is neither a put"),
        ([(b"a", b"", b"")], 0, r"position 0 holds"),
        (b"ab", 0, r"position 0 holds 97"),
        ({b"ab": b"c"}, 0, r"position 0 holds b'ab'"),
        (arrow([b"a", b"b"], [b"", b""], ["put", "merge"]), 1, r"position 1, key b'b': operation 'merge' is neither"),
        (arrow([b"a", b"b"], [b"", b""], ["put", None]), 1, r"position 1, key b'b': operation None is neither"),
        (arrow([b"a", b"b"], [b"", b""], [None, None], op=pa.null()), 0, r"position 0, key b'a': operation None"),
        (arrow([b"a", b"b"], [b"", None], ["put", "put"]), 1, r"position 1, key b'b': a put of null"),
    ],
)
def test_the_first_offence_is_named(batch: Any, at: int, why: str) -> None:
    """Table, position and key are in the message, and the position is a fact of the error."""
    with pytest.raises(InvalidBatch, match=rf"table 'kv': .*{why}.*nothing was stored") as caught:
        raw_rows(batch, "kv")
    assert caught.value.args[1] == at


def test_a_long_key_is_shown_shortened() -> None:
    """A message stays readable whatever the key."""
    with pytest.raises(InvalidBatch) as caught:
        raw_rows([(b"b" * 1000, b""), (b"a" * 1000, b"")], "kv")
    assert len(str(caught.value)) < 300
    assert caught.value.args[2] == b"a" * 1000


@pytest.mark.parametrize("batch", [None, 5, object()])
def test_a_value_that_is_no_batch_is_refused(batch: Any) -> None:
    """The message names the type."""
    with pytest.raises(InvalidBatch, match=f"of type {type(batch).__name__} is not a batch"):
        raw_rows(batch, "kv")


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (arrow(["a"], [b""], key=pa.string()), "keys have type string, expected binary"),
        (arrow([b"a"], [b""], key=pa.binary(1)), r"keys have type fixed_size_binary\[1\], expected binary"),
        (arrow([b"a", None], [b"", b""]), "the key at position 1 is null"),
        (arrow([b"a"], ["x"], value=pa.string()), "column 'value' has type string, expected binary"),
        (arrow([b"a"], [b"x"], [1], op=pa.int64()), "column 'op' has type int64, expected string"),
        (arrow([b"a"], [b"x"], [b"put"], op=pa.binary()), "column 'op' has type binary, expected string"),
        (arrow([b"a"], [b"x"]).select(["key"]), r"found columns \['key'\], expected key and value"),
        (arrow([b"a"], [b"x"]).append_column("more", pa.array([1])), "found columns"),
        (arrow([b"a"], [b"x"]).append_column("key", pa.array([b"b"])), "found columns"),
    ],
)
def test_columns_that_do_not_fit_are_named(batch: pa.Table, why: str) -> None:
    """The message has table, column, expected and found."""
    with pytest.raises(SchemaMismatch, match=f"table 'kv': {why}"):
        raw_rows(batch, "kv")


def test_upsert_takes_unordered_batches() -> None:
    """`upsert` sorts them, so order and repeats do not matter."""
    rows = raw_rows(arrow([b"b", b"a", b"b"], [b"1", b"2", b"3"]), "kv", ordered=False)
    assert rows.keys.to_pylist() == [b"b", b"a", b"b"]


def test_keys_to_look_up_may_come_in_any_order() -> None:
    """Lists and Arrow arrays, slices and chunks; repeats allowed."""
    keys = [b"b", b"a", b"b", b""]
    whole = pa.array([b"x", *keys], pa.large_binary())
    for given in (keys, tuple(keys), pa.array(keys), whole.slice(1), pa.chunked_array([keys[:2], keys[2:]])):
        found = key_array(given, "kv")
        assert (found.type, found.to_pylist()) == (pa.binary(), keys)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([b"a", "b"], r"the key at position 1 is of type str \('b'\), expected bytes"),
        ([None], "the key at position 0 is of type NoneType"),
        (pa.array([b"a", None]), "the key at position 1 is null"),
        (pa.array([1]), "keys have type int64, expected binary"),
    ],
)
def test_an_impossible_key_is_refused_by_position(keys: Any, why: str) -> None:
    """The first offending position is in the message."""
    with pytest.raises(SchemaMismatch, match=f"table 'kv': {why}"):
        key_array(keys, "kv")
