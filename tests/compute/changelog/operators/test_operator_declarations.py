"""What operators refuse when they are declared, and which transactions are bad for them."""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.changelog.view_checks import table_rows
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("g", pa.string(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("m", pa.decimal128(38, 0)),
        pa.field("f", pa.float64()),
        pa.field("u", pa.uint64()),
        pa.field("items", pa.list_(pa.int64())),
    ]
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect(f"memory://{tmp_path.name}", compaction=False) as opened:
        yield opened


@pytest.fixture
def s(store: StateStore) -> cl.Stream:
    return cl.Stream(store, "s", schema=SCHEMA, key=["k"])


def run(*streams: cl.Stream) -> cl.Flow:
    flow = cl.Flow(streams[0].store, streams)
    flow.start()
    return flow


def push(flow: cl.Flow, to: cl.Stream, *records: cl.ChangeRecord) -> None:
    to.push(records).result(10)
    flow.drain(10)


WRONG: dict[str, tuple[Callable[[cl.Stream], Any], str]] = {
    "a source that is none": (lambda s: cl.filter("x", "s", pc.field("v") > 1), "source='s'; expected a stream"),
    "a condition that is none": (lambda s: cl.filter("x", s, 7), "condition=7; expected a pyarrow.compute.Expression"),
    "a condition of no column": (lambda s: cl.filter("x", s, pc.field("w") > 1), "No match for FieldRef.Name.w."),
    "a condition that is no boolean": (lambda s: cl.filter("x", s, pc.field("v")), "has type int64; expected bool"),
    "a condition of a wrong type": (lambda s: cl.filter("x", s, pc.field("g") > 1), "cannot be evaluated"),
    "a name that is none": (lambda s: cl.filter("1 x", s, pc.field("v") > 1), "a stream is named '1 x'"),
    "columns that are none": (lambda s: cl.project("x", s, ["k"]), "expected a dict of new names"),
    "no columns": (lambda s: cl.project("x", s, {}), "expected a dict of new names"),
    "an unknown column": (lambda s: cl.project("x", s, {"k": "w"}), "is 'w', which is no column of stream 's'"),
    "an unknown expression": (lambda s: cl.project("x", s, {"k": "k", "y": pc.field("w")}), "column 'y'"),
    "a function without a type": (lambda s: cl.project("x", s, {"k": "k", "y": len}), "column 'y' is <built-in"),
    "a key that was left out": (lambda s: cl.project("x", s, {"v": "v"}), "no column is 'k', of the key"),
    "a key that is no column": (lambda s: cl.project("x", s, {"k": "k"}, key="w"), "key has ['w']"),
    "a required column that is none": (lambda s: cl.project("x", s, {"k": "k"}, required=["w"]), "required has ['w']"),
    "a column of batches": (lambda s: cl.project("x", s, {"k": "k", "_op": "g"}), "are what batches add"),
    "an unknown group": (lambda s: cl.aggregate("x", s, "w", {"n": ("count",)}), "by has ['w']"),
    "a group twice": (lambda s: cl.aggregate("x", s, ["g", "g"], {"n": ("count",)}), "names a column twice"),
    "a group with nulls": (lambda s: cl.aggregate("x", s, "v", {"n": ("count",)}), "'v', which may be null"),
    "groups that are none": (lambda s: cl.aggregate("x", s, 5, {"n": ("count",)}), "by=5; expected names of columns"),
    "no values": (lambda s: cl.aggregate("x", s, "g", {}), "expected a dict of 1 to 100"),
    "an unknown word": (lambda s: cl.aggregate("x", s, "g", {"n": ("median", "v")}), "is ('median', 'v'); expected"),
    "a word without a column": (lambda s: cl.aggregate("x", s, "g", {"n": ("sum",)}), "is ('sum',); expected"),
    "a word alone": (lambda s: cl.aggregate("x", s, "g", {"n": "count"}), "is 'count'; expected"),
    "a value of no column": (lambda s: cl.aggregate("x", s, "g", {"n": ("sum", "w")}), "is of 'w', which is no column"),
    "a sum of texts": (lambda s: cl.aggregate("x", s, "g", {"n": ("sum", "g")}), "of 'g', of type string; expected"),
    "the least list": (lambda s: cl.aggregate("x", s, "g", {"n": ("min", "items")}), "has no order"),
    "a value called as a group": (lambda s: cl.aggregate("x", s, "g", {"g": ("count",)}), "'g' is the name of a value"),
    "a value called as the key of all": (
        lambda s: cl.aggregate("x", s, [], {"_all": ("count",)}),
        "'_all' is the name",
    ),
    "combinations with nulls": (lambda s: cl.distinct("x", s, ["g", "v"]), "'v', which may be null"),
    "combinations of nothing": (lambda s: cl.distinct("x", s, []), "columns=[]; expected one at least"),
    "a union of one": (lambda s: cl.union("x", s), "expected 2 to 100 streams"),
    "a union with itself": (lambda s: cl.union("x", s, s), "expected 2 to 100 streams, each once"),
    "a union of other columns": (
        lambda s: cl.union("x", s, cl.distinct("d", s, "g")),
        "make them the same by project()",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_declared_wrongly_is_refused(s: cl.Stream, name: str) -> None:
    """The message says what was wrong with which operator."""
    declare, message = WRONG[name]
    with pytest.raises(InvalidOption) as refused:
        declare(s)
    assert message in str(refused.value).replace("(w)", ".w.")


def test_an_operator_takes_no_function(s: cl.Stream) -> None:
    """It has its computation."""
    with pytest.raises(InvalidOption, match="has a function already"):
        cl.filter("x", s, pc.field("v") > 1).compute(lambda row: row)


def test_streams_of_two_stores_have_no_union(s: cl.Stream, tmp_path: Path) -> None:
    """A flow runs on one."""
    with connect(f"memory://{tmp_path.name}-other") as other:
        there = cl.Stream(other, "there", schema=SCHEMA, key=["k"])
        with pytest.raises(InvalidOption, match="'s' and 'there' are of two stores"):
            cl.union("x", s, there)


INTEGERS: dict[str, tuple[str, Any, Any]] = {
    "the largest int64": ("v", (1 << 63) - 1, 1),
    "the smallest int64": ("v", -(1 << 63), -1),
    "the largest uint64": ("u", (1 << 64) - 1, 1),
    "the largest decimal": ("m", Decimal(10**38 - 1), Decimal(1)),
    "the smallest decimal": ("m", Decimal(1 - 10**38), Decimal(-1)),
}


@pytest.mark.parametrize("count", [1, 100], ids=["few", "many"])
@pytest.mark.parametrize("name", INTEGERS)
def test_a_sum_beyond_its_type_makes_the_transaction_bad(
    store: StateStore, s: cl.Stream, name: str, count: int
) -> None:
    """The one that reaches the end of the type is good; what goes beyond is held back, with its record and group."""
    column, most, step = INTEGERS[name]
    total = cl.aggregate("total", s, "g", {"sum": ("sum", column)})
    flow = run(s, total)
    push(flow, s, cl.insert({"k": 0, "g": "a", column: most}))
    others = [cl.insert({"k": 9 + at, "g": "b"}) for at in range(count)]
    push(flow, s, *others, cl.insert({"k": 1, "g": "a", column: step}))
    (bad,) = total.bad_rows()
    assert (bad.row, bad.location) == (count, cl.Location.COMPUTE)
    assert "the sum 'sum' is beyond" in bad.error
    assert "of the group ('a',)" in bad.error
    assert table_rows(store, "total") == [{"g": "a", "sum": most}]
    push(flow, s, cl.delete(k=0))
    assert total.bad_rows() == []
    assert {row["g"]: row["sum"] for row in table_rows(store, "total")} == {"a": step, "b": None}
    flow.stop()


def test_a_transaction_may_go_beyond_on_its_way(store: StateStore, s: cl.Stream) -> None:
    """What it comes to as a whole counts."""
    total = cl.aggregate("total", s, [], {"sum": ("sum", "v")})
    flow = run(s, total)
    most = (1 << 63) - 1
    push(flow, s, cl.insert(k=0, g="a", v=most), cl.insert(k=1, g="a", v=most), cl.insert(k=2, g="a", v=-most))
    assert table_rows(store, "total") == [{"_all": True, "sum": most}]
    flow.stop()


def test_what_is_taken_away_leaves_no_rounding_behind(store: StateStore, s: cl.Stream) -> None:
    """1e308 and 1e-308 have no common float; infinities go as they came."""
    total = cl.aggregate("total", s, "g", {"sum": ("sum", "f"), "mean": ("avg", "f")})
    flow = run(s, total)
    push(flow, s, *(cl.insert(k=at, g="a", f=value) for at, value in enumerate((1e-308, 1e308, 1e308, 1e308, 0.1))))
    assert table_rows(store, "total") == [{"g": "a", "sum": math.inf, "mean": math.inf}]
    push(flow, s, *(cl.delete(k=at) for at in (1, 2, 3, 4)), cl.insert(k=5, g="a", f=math.inf))
    assert table_rows(store, "total")[0]["sum"] == math.inf
    push(flow, s, cl.update(k=5, g="a", f=-math.inf), cl.insert(k=6, g="a", f=math.inf))
    assert math.isnan(table_rows(store, "total")[0]["sum"])
    push(flow, s, cl.delete(k=5), cl.delete(k=6))
    assert table_rows(store, "total") == [{"g": "a", "sum": 1e-308, "mean": 1e-308}]
    flow.stop()


def test_nulls_alone_have_no_sum(store: StateStore, s: cl.Stream) -> None:
    """As in SQL, sum, average, least and first are null; the counts tell the rows."""
    values = {"n": ("count",), "with": ("count", "v"), "sum": ("sum", "v"), "avg": ("avg", "v"), "min": ("min", "v")}
    group = cl.aggregate("group", s, "g", {**values, "first": ("first", "k", "v")})
    flow = run(s, group)
    push(flow, s, cl.insert(k=1, g="a"), cl.insert(k=2, g="a"))
    expected = {"g": "a", "n": 2, "with": 0, "sum": None, "avg": None, "min": None, "first": None}
    assert table_rows(store, "group") == [expected]
    flow.stop()


@pytest.mark.parametrize("count", [0, 100], ids=["few", "many"])
def test_an_expression_that_fails_names_its_record(store: StateStore, s: cl.Stream, count: int) -> None:
    """Of a filter and of a projection."""
    kept = cl.filter("kept", s, pc.scalar(100) / pc.field("v") > 10)
    made = cl.project("made", s, {"k": "k", "y": pc.scalar(100) / pc.field("v")})
    called = cl.project("called", s, {"k": "k", "y": (lambda row: 100 / row["v"], pa.float64())})
    asked = cl.filter("asked", s, lambda row: 100 / row["v"] > 10)
    flow = run(s, kept, made, called, asked)
    fine = [cl.insert(k=at, g="a", v=5) for at in range(count)]
    push(flow, s, *fine, cl.insert(k=1000, g="a", v=1), cl.insert(k=1001, g="a", v=0), cl.insert(k=1002, g="a", v=0))
    for one in (kept, made, called, asked):
        (bad,) = one.bad_rows()
        assert (bad.row, bad.location) == (count + 1, cl.Location.COMPUTE)
        assert "divi" in bad.error
        assert table_rows(store, one.name) == []
    push(flow, s, cl.delete(k=1001), cl.update(k=1002, g="a", v=2))
    assert [one.bad_rows() for one in (kept, made, called, asked)] == [[]] * 4
    for one in (made, called):
        assert {row["k"]: row["y"] for row in table_rows(store, one.name)} == {
            **dict.fromkeys(range(count), 20),
            1000: 100,
            1002: 50,
        }
    for one in (kept, asked):
        assert {row["k"] for row in table_rows(store, one.name)} == {*range(count), 1000, 1002}
    flow.stop()


def test_a_null_where_none_may_be_makes_the_transaction_bad(store: StateStore, s: cl.Stream) -> None:
    """In a required column, and in a key; what was held back comes when it has a value."""
    strict = cl.project("strict", s, {"k": "k", "v": "v"}, required=["v"])
    moved = cl.project("moved", s, {"k": "k", "v": "v"}, key=["v", "k"])
    other = cl.project("other", s, {"k": "k", "v": "v"}, key="v")
    flow = run(s, strict, moved, other)
    push(flow, s, cl.insert(k=1, g="a", v=1), cl.insert(k=2, g="a"))
    for one in (strict, moved, other):
        assert [(bad.row, bad.error) for bad in one.bad_rows()] == [(1, "column 'v' is null, which it must not be")]
    push(flow, s, cl.update(k=2, g="a", v=7))
    for one in (strict, moved, other):
        assert sorted(row["v"] for row in table_rows(store, one.name)) == [1, 7]
    flow.stop()


def test_a_function_that_returns_something_else_makes_the_transaction_bad(store: StateStore, s: cl.Stream) -> None:
    """What it returned, and the type that was declared."""
    made = cl.project("made", s, {"k": "k", "y": (lambda row: row["g"], pa.int64())})
    flow = run(s, made)
    push(flow, s, cl.insert(k=1, g="a"))
    (bad,) = made.bad_rows()
    assert "column 'y': 'a' is no int64" in bad.error
    flow.stop()


@pytest.mark.parametrize("count", [0, 100], ids=["few", "many"])
def test_two_rows_with_one_key_make_the_transaction_bad(store: StateStore, s: cl.Stream, count: int) -> None:
    """Rows may exchange their keys, or take one that becomes free in the same transaction; else all is held back."""
    by_value = cl.project("by_value", s, {"v": "v", "k": "k"}, key="v")
    flow = run(s, by_value)

    def shown() -> dict[int, int]:
        return {row["v"]: row["k"] for row in table_rows(store, "by_value") if row["v"] < 1000}

    many = [[cl.upsert(k=1000 + at, g=word, v=1000 + at) for at in range(count)] for word in "abcdef"]
    push(flow, s, *many[0], cl.insert(k=1, g="a", v=1), cl.insert(k=2, g="a", v=2), cl.insert(k=3, g="a", v=3))
    push(flow, s, *many[1], cl.update(k=1, g="a", v=2), cl.update(k=2, g="a", v=1))
    assert shown() == {1: 2, 2: 1, 3: 3}
    push(flow, s, *many[2], cl.insert(k=4, g="a", v=3), cl.delete(k=3))
    assert shown() == {1: 2, 2: 1, 3: 4}
    assert by_value.bad_rows() == []
    push(flow, s, *many[3], cl.insert(k=5, g="a", v=9), cl.insert(k=6, g="a", v=3))
    (bad,) = by_value.bad_rows()
    assert (bad.row, bad.error) == (count + 1, "another row of stream 's' has the key 3 already")
    # A row that never got a key gives none away.
    push(flow, s, *many[4], cl.insert(k=7, g="a", v=8), cl.insert(k=8, g="a", v=8), cl.delete(k=6))
    (again,) = by_value.bad_rows()
    assert (again.number, again.seq) == (bad.number, bad.seq)
    assert again.error == "another row of stream 's' has the key 8 already"
    assert shown() == {1: 2, 2: 1, 3: 4}
    push(flow, s, *many[5], cl.delete(k=8))
    assert by_value.bad_rows() == []
    assert shown() == {1: 2, 2: 1, 3: 4, 8: 7, 9: 5}
    flow.stop()
