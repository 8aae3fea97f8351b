"""What joins, tops and patterns refuse when they are declared, and the keys that joins have."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

ORDERS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("at", pa.timestamp("us")),
        ("total", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
CUSTOMERS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("seen", pa.timestamp("ns")), ("big", pa.uint64())])


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect("memory://", compaction=False) as opened:
        yield opened


@pytest.fixture
def orders(store: StateStore) -> cl.Stream:
    return cl.Stream(store, "orders", schema=ORDERS, key=["id"])


@pytest.fixture
def customers(store: StateStore) -> cl.Stream:
    return cl.Stream(store, "customers", schema=CUSTOMERS, key=["id"])


Make = Callable[[cl.Stream, cl.Stream], Any]
UP = pc.field("total") > 1
STEPS = {"one": UP, "two": UP}
SECOND = dt.timedelta(seconds=1)

WRONG: dict[str, tuple[Make, str]] = {
    "a left side that is none": (lambda o, c: cl.join("x", "o", c, "id"), "source='o'; expected a stream"),
    "a right side that is none": (lambda o, c: cl.join("x", o, None, "id"), "source=None; expected a stream"),
    "two sides that are one": (lambda o, c: cl.join("x", o, o, "id"), "both sides are stream 'orders'"),
    "how it cannot be joined": (
        lambda o, c: cl.join("x", o, c, "id", "outer"),
        "how='outer'; expected 'inner', 'left'",
    ),
    "nothing to join on": (lambda o, c: cl.join("x", o, c, []), r"on=\[\]; expected names of columns"),
    "a pair of three": (lambda o, c: cl.join("x", o, c, [("id", "id", "id")]), "expected a name, or a pair"),
    "a left column that is none": (lambda o, c: cl.join("x", o, c, [("w", "id")]), r"on, left has \['w'\]"),
    "a right column that is none": (lambda o, c: cl.join("x", o, c, [("id", "w")]), r"on, right has \['w'\]"),
    "columns of two types": (
        lambda o, c: cl.join("x", o, c, [("total", "id")]),
        "has type double, 'id' of 'customers' has",
    ),
    "a list to join on": (
        lambda o, c: cl.join("x", o, c, [("tags", "name")]),
        "column 'tags' of type list",
    ),
    "columns of one name": (
        lambda o, c: cl.join("x", o, c, [("customer", "id")]),
        r"both sides have the columns \['id'\]",
    ),
    "a prefix that does not help": (
        lambda o, c: cl.join(
            "x", cl.project("p", o, {"id": "id", "c_id": "customer"}), c, [("c_id", "id")], right_prefix="c_"
        ),
        "two columns are called 'c_id'",
    ),
    "a prefix that is no text": (
        lambda o, c: cl.join("x", o, c, "id", right_prefix=1),
        "right_prefix=1; expected text",
    ),
    "unknown columns": (lambda o, c: cl.join("x", o, c, "id", columns=["w"]), r"columns has \['w'\]"),
    "no rows": (lambda o, c: cl.top("x", o, 0, "total"), "n=0; expected 1 to 10,000"),
    "too many rows": (lambda o, c: cl.top("x", o, 10_001, "total"), "n=10001; expected 1 to 10,000"),
    "rows that are no number": (lambda o, c: cl.top("x", o, True, "total"), "n=True; expected"),
    "no order": (lambda o, c: cl.top("x", o, 1, []), "expected names, or pairs such as"),
    "an order of no column": (lambda o, c: cl.top("x", o, 1, ("w", "desc")), r"order_by has \['w'\]"),
    "no direction": (
        lambda o, c: cl.top("x", o, 1, [("total", "up")]),
        r"expected a name, or \(name, 'asc' or 'desc'\)",
    ),
    "an order twice": (lambda o, c: cl.top("x", o, 1, ["total", "total"]), "names a column twice"),
    "a column without order": (lambda o, c: cl.top("x", o, 1, "tags"), "column 'tags' of type list.* has no order"),
    "groups of no column": (lambda o, c: cl.top("x", o, 1, "total", ["w"]), r"by has \['w'\]"),
    "a rank that is a column": (
        lambda o, c: cl.top("x", o, 1, "total", rank="id"),
        "rank='id'; expected a name that is none",
    ),
    "one step": (lambda o, c: cl.pattern("x", o, [], "at", {"one": UP}, SECOND), "expected 2 to 32 names"),
    "a step that is no pair": (lambda o, c: cl.pattern("x", o, [], "at", ["ab", 3], SECOND), "expected a|steps has"),
    "a step without a name": (
        lambda o, c: cl.pattern("x", o, [], "at", {"1": UP, "2": UP}, SECOND),
        "a step is called '1'",
    ),
    "a step twice": (lambda o, c: cl.pattern("x", o, [], "at", [("a", UP), ("a", UP)], SECOND), "a step is called 'a'"),
    "a step of no boolean": (
        lambda o, c: cl.pattern("x", o, [], "at", {"a": UP, "b": pc.field("id")}, SECOND),
        "the condition of step 'b' has type int64; expected bool",
    ),
    "a step that is no condition": (
        lambda o, c: cl.pattern("x", o, [], "at", {"a": UP, "b": 1}, SECOND),
        "step 'b' is 1",
    ),
    "a time that is none": (
        lambda o, c: cl.pattern("x", o, [], "total", STEPS, SECOND),
        "expected an integer of at most",
    ),
    "a time in nanoseconds": (lambda o, c: cl.pattern("x", c, [], "seen", STEPS2, SECOND), "in s, ms or us"),
    "a time of 64 bits": (
        lambda o, c: cl.pattern("x", c, [], "big", STEPS2, 1),
        "expected an integer of at most 63 bits",
    ),
    "a time that is unknown": (lambda o, c: cl.pattern("x", o, [], "w", STEPS, SECOND), r"time has \['w'\]"),
    "a duration that is a number": (
        lambda o, c: cl.pattern("x", o, [], "at", STEPS, 5),
        "expected a datetime.timedelta",
    ),
    "a number that is a duration": (lambda o, c: cl.pattern("x", o, [], "id", STEPS, SECOND), "expected 0 and up"),
    "a duration below zero": (lambda o, c: cl.pattern("x", o, [], "id", STEPS, -1), "within=-1"),
    "what may be between": (
        lambda o, c: cl.pattern("x", o, [], "at", STEPS, SECOND, contiguity="all"),
        "contiguity='all'; expected 'any' or 'next'",
    ),
    "columns of a match of one name": (
        lambda o, c: cl.pattern(
            "x",
            cl.project("p", o, {"one_id": "id", "id": "customer", "at": "at", "total": "total"}, key=["id"]),
            "one_id",
            "at",
            STEPS,
            SECOND,
        ),
        "two columns of a match would be called 'one_id'",
    ),
}
STEPS2 = {"one": pc.field("name") == "a", "two": pc.field("name") == "b"}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_is_refused(orders: cl.Stream, customers: cl.Stream, wrong: str) -> None:
    """With an error that says which operator, what was found, and what is expected."""
    make, message = WRONG[wrong]
    with pytest.raises(InvalidOption, match=message) as found:
        make(orders, customers)
    assert "'x'" in str(found.value)


def test_streams_of_two_stores_cannot_be_joined(orders: cl.Stream) -> None:
    """One flow is of one store."""
    with connect("memory://", compaction=False) as other:
        theirs = cl.Stream(other, "customers", schema=CUSTOMERS, key=["id"])
        with pytest.raises(InvalidOption, match="join 'x': streams 'orders' and 'customers' are of two stores"):
            cl.join("x", orders, theirs, [("customer", "id")], right_prefix="c_")


def test_key_of_a_join_tells_its_rows_apart(orders: cl.Stream, customers: cl.Stream) -> None:
    """The left key, the right key, both, what both have in common, or a pair of both."""
    to_one = {"on": [("customer", "id")], "right_prefix": "c_"}
    many = {"on": [("total", "total")], "right_prefix": "c_"}
    other = cl.project("other", orders, {"id": "id", "total": "total"})
    keys = {
        "to one": cl.join("a", orders, customers, how="inner", **to_one).key,
        "to one, left": cl.join("b", orders, customers, how="left", **to_one).key,
        "to one, full": cl.join("c", orders, customers, how="full", **to_one).key,
        "from one": cl.join("d", customers, orders, [("id", "customer")], right_prefix="o_").key,
        "from one, left": cl.join("e", customers, orders, [("id", "customer")], "left", right_prefix="o_").key,
        "many": cl.join("f", orders, other, how="inner", **many).key,
        "many, left": cl.join("g", orders, other, how="left", **many).key,
        "one to one, full": cl.join("h", orders, customers, "id", "full").key,
        "one to one and more, full": cl.join("i", orders, other, ["id", "total"], "full").key,
    }
    assert keys == {
        "to one": ("id",),
        "to one, left": ("id",),
        "to one, full": ("_pair",),
        "from one": ("o_id",),
        "from one, left": ("_pair",),
        "many": ("id", "c_id"),
        "many, left": ("_pair",),
        "one to one, full": ("id",),
        "one to one and more, full": ("_pair",),
    }


def test_columns_of_a_join_can_be_chosen(orders: cl.Stream, customers: cl.Stream) -> None:
    """The key is there in any case, and what may have no match may be null."""
    joined = cl.join("x", orders, customers, [("customer", "id")], "left", ["name"], right_prefix="c_")
    assert joined.schema.names == ["id", "name"]
    assert [field.nullable for field in joined.schema] == [False, True]


def test_a_name_of_both_sides_that_is_not_shown(store: StateStore) -> None:
    """It needs no prefix; the key of a side is shown whether it is asked for or not."""
    left = cl.Stream(store, "l", pa.schema([("k", pa.int64()), ("g", pa.int64()), ("j", pa.int64())]), "k")
    right = cl.Stream(store, "r", pa.schema([("id", pa.int64()), ("w", pa.int64()), ("j", pa.int64())]), "id")
    with pytest.raises(InvalidOption, match=r"both sides have the columns \['j'\]"):
        cl.join("x", left, right, [("g", "id")], "left")
    assert cl.join("x", left, right, [("g", "id")], "left", ["g", "w"]).schema.names == ["k", "g", "w"]
    with pytest.raises(InvalidOption, match=r"both sides have the columns \['j'\]"):
        cl.join("x", left, right, [("g", "id")], "left", ["g", "j"])
    other = cl.Stream(store, "o", pa.schema([("k", pa.int64()), ("w", pa.int64())]), "k")
    assert cl.join("y", left, other, [("g", "k")], columns=["g", "w"]).schema.names == ["k", "g", "w"]
    with pytest.raises(InvalidOption, match=r"both sides have the columns \['k'\]"):
        cl.join("z", left, other, [("g", "w")], columns=["g"])
