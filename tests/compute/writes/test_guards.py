"""Tables that can be compared by a version, and the tables of their deletes: what is refused, and left as it is."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tussock.compute.spark.writes.guard import guard_of
from tussock.statestore import connect
from tussock.statestore.client import StateStore
from tussock.statestore.errors import InvalidOption

KEYED = pa.schema([("k", pa.int64()), ("v", pa.string()), ("lsn", pa.int64())])


@pytest.fixture
def store() -> Iterator[StateStore]:
    """An empty store."""
    with connect("memory://", compaction=False) as opened:
        yield opened


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "found a raw table"),
        ({"schema": KEYED, "primary_key": ["k"], "ttl": 60.0}, r"found \['k: int64', 'v: string', 'lsn: int64'\]"),
        (
            {"schema": pa.schema([("k", pa.int64()), ("lsn", pa.int64())]), "primary_key": ["k", "lsn"], "ttl": 60.0},
            r"with the key \['k', 'lsn'\]",
        ),
        ({"schema": pa.schema([("k", pa.int64()), ("lsn", pa.string())]), "primary_key": ["k"], "ttl": 60.0}, "string"),
        ({"schema": pa.schema([("k", pa.int64()), ("lsn", pa.int64())]), "primary_key": ["k"]}, "and a time to live"),
        (
            {"schema": pa.schema([("k", pa.int64()), ("lsn", pa.int64())]), "primary_key": ["k"], "ttl": 61.0},
            r"keep_deletes is 60.0, and table 't.tombstones' was made with 61.0 seconds, which cannot be changed",
        ),
    ],
)
def test_another_table_of_that_name_is_not_taken_over(store: StateStore, found: dict[str, Any], message: str) -> None:
    """Its rows belong to somebody; the error says what is there, and what to do."""
    table = store.create_table("t", KEYED, ["k"])
    before = store.create_table("t.tombstones", **found).spec
    with pytest.raises(InvalidOption, match=message):
        guard_of(store, table.spec, "lsn", 60.0)
    assert store.table("t.tombstones").spec == before


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("nope", r"'nope', a column of table 't', which it does not have; expected .* one of \['n', 's'\]"),
        ("k", r"a column of table 't' in its key, of type int64"),
        ("x", r"a column of table 't', of type double"),
        ("b", r"of type bool"),
        ("l", r"of type list"),
        ("y", r"of type dictionary"),
    ],
)
def test_columns_without_an_order_are_refused(store: StateStore, column: str, message: str) -> None:
    """A double may be NaN, which is neither newer nor older."""
    kinds = {"k": pa.int64(), "n": pa.int32(), "s": pa.string(), "x": pa.float64(), "b": pa.bool_()}
    fields = [*kinds.items(), ("l", pa.list_(pa.int8())), ("y", pa.dictionary(pa.int32(), pa.string()))]
    table = store.create_table("t", pa.schema(fields), ["k"])
    with pytest.raises(InvalidOption, match=message):
        guard_of(store, table.spec, column, None)


def test_tables_that_cannot_be_guarded_are_refused(store: StateStore) -> None:
    """A raw table has no versions; a name may be too long for another one beside it."""
    with pytest.raises(InvalidOption, match="table 'raw' is raw: it has no column of versions"):
        guard_of(store, store.create_table("raw").spec, "lsn", None)
    long = store.create_table("t" * 245, KEYED, ["k"])
    with pytest.raises(InvalidOption, match="names have at most 255 characters; leave keep_deletes out"):
        guard_of(store, long.spec, "lsn", 60.0)
    assert guard_of(store, store.create_table("t" * 244, KEYED, ["k"]).spec, "lsn", 60.0).tombstones is not None
