"""An operator that is declared otherwise does not go on with the rows of the former one."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, StateStore, connect

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.int64(), nullable=False), pa.field("v", pa.int64())]
)
NAMES = pa.schema([pa.field("g", pa.int64(), nullable=False), pa.field("name", pa.string())])
ROWS = [{"k": k, "g": k % 3, "v": k * 7 % 8} for k in range(1, 13)]
V = pc.field("v")
numbers = itertools.count()

Declare = Callable[[cl.Stream, cl.Stream, cl.Stream], cl.Stream]


def steps(low: int) -> dict[str, Any]:
    return {"p": low < V, "q": low > V}


def matched(within: int, low: int, contiguity: Any = "any") -> Declare:
    return lambda a, b, c: cl.pattern("x", a, ["g"], "k", steps(low), within, contiguity=contiguity)


CHANGES: dict[str, tuple[Declare, Declare, str]] = {
    "filter": (
        lambda a, b, c: cl.filter("x", a, V > 3),
        lambda a, b, c: cl.filter("x", a, V > 5),
        r"condition was \(v > 3\), and is \(v > 5\)",
    ),
    "long filter": (
        lambda a, b, c: cl.filter("x", a, V.isin([*range(100)])),
        lambda a, b, c: cl.filter("x", a, V.isin([*range(50), -1, *range(51, 100)])),
        "condition was",
    ),
    "project": (
        lambda a, b, c: cl.project("x", a, {"k": "k", "w": V + 1}),
        lambda a, b, c: cl.project("x", a, {"k": "k", "w": V + 2}),
        "values was",
    ),
    "least": (
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("min", "v")}),
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("max", "v")}),
        r"values was \{s: \[min, v\]\}, and is \{s: \[max, v\]\}",
    ),
    "sum": (
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("sum", "v")}),
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("sum", "k")}),
        "values was",
    ),
    "top": (
        lambda a, b, c: cl.top("x", a, 2, [("v", "desc")]),
        lambda a, b, c: cl.top("x", a, 2, "v"),
        r"order_by was \[\[v, desc\]\], and is \[\[v, asc\]\]",
    ),
    "first rows": (
        lambda a, b, c: cl.top("x", a, 2, "v"),
        lambda a, b, c: cl.top("x", a, 4, "v"),
        "n was 2, and is 4",
    ),
    "join": (
        lambda a, b, c: cl.join("x", a, b, "g", columns=["v", "name"]),
        lambda a, b, c: cl.join("x", a, b, "g", "left", columns=["v", "name"]),
        "how was inner, and is left",
    ),
    "within": (matched(2, 3), matched(9, 3), "within was 2, and is 9"),
    "steps": (matched(9, 3), matched(9, 4), "steps was"),
    "contiguity": (matched(9, 3), matched(9, 3, "next"), "contiguity was any, and is next"),
    "union": (
        lambda a, b, c: cl.union("x", a, c),
        lambda a, b, c: cl.union("x", c, a),
        "reads was a, c, and is c, a",
    ),
    "kind": (
        lambda a, b, c: cl.filter("x", a, V > 3),
        lambda a, b, c: cl.Stream(a.store, "x", schema=a.schema, key=a.key, inputs=[a]),
        "it was 'filter' and is 'a stream of records",
    ),
    "no operator": (
        lambda a, b, c: cl.Stream(a.store, "x", schema=a.schema, key=a.key, inputs=[a]),
        lambda a, b, c: cl.filter("x", a, V > 3),
        "it was 'a stream of records as they come, or of a function' and is 'filter'",
    ),
}


def passed(*places: int) -> Declare:
    """A stream of what some of the three give, as they come; of these, all have the columns of the first."""
    return lambda *all_of: cl.Stream(
        all_of[0].store, "x", schema=SCHEMA, key="k", inputs=[all_of[place] for place in places]
    )


CHANGES["other source"] = passed(0), passed(2), "reads was a, and is c"
CHANGES["fewer sources"] = passed(0, 2), passed(0), "reads was a, c, and is a"
CHANGES["no source"] = passed(0), passed(), "reads was a, and is none"
CHANGES["a source at all"] = passed(), passed(0), "reads was none, and is a"
CHANGES["operator behind"] = (
    lambda a, b, c: cl.aggregate("x", a, "g", {"n": ("count",)}),
    lambda a, b, c: cl.aggregate("x", c, "g", {"n": ("count",)}),
    "reads was a, and is c",
)


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect(f"memory://changed-operators-{next(numbers)}", compaction=False) as opened:
        yield opened


def flow_of(store: StateStore, declare: Declare) -> cl.Flow:
    a, b, c = (
        cl.Stream(store, name, schema=schema, key=key)
        for name, schema, key in (("a", SCHEMA, "k"), ("b", NAMES, "g"), ("c", SCHEMA, "k"))
    )
    return cl.Flow(store, [a, b, c, declare(a, b, c)], name="f")


@pytest.mark.parametrize("change", CHANGES)
def test_an_operator_that_is_another_one_is_refused(store: StateStore, change: str) -> None:
    """Whatever of it has changed, with what it was and what it is; and nothing of the flow is touched."""
    old, new, words = CHANGES[change]
    with flow_of(store, old) as flow:
        flow.drain(10)
    with pytest.raises(cl.StreamChanged, match=f"stream 'x' is declared otherwise than when it ran: {words}") as caught:
        flow_of(store, new).start()
    assert caught.value.args[1] == "x"
    with flow_of(store, old) as flow:
        flow.drain(10)


def test_a_function_may_be_another_one(store: StateStore) -> None:
    """Of code nothing is kept; the rows that it has made stay as they are."""
    for _ in range(2):
        with flow_of(store, lambda a, b, c: cl.filter("x", a, lambda row: row["v"] > 3)) as flow:
            flow.drain(10)


def test_a_function_may_read_more(store: StateStore) -> None:
    """It begins with the rows that the new input has."""
    with flow_of(store, passed(0)) as flow:
        flow.streams["c"].push([cl.insert(ROWS[0])]).result(10)
        flow.drain(10)
    with flow_of(store, passed(2, 0)) as flow:
        flow.drain(10)
        assert flow.streams["x"].get(1) == ROWS[0]


def test_what_a_flow_kept_before_operators_were_described(store: StateStore) -> None:
    """It is read as it was, and the operators are described from then on."""
    old, new, _ = CHANGES["filter"]
    with flow_of(store, old) as flow:
        flow.drain(10)
    row = store.table("_applications").get("f")
    state = msgspec.msgpack.decode(row["state"])
    assert state.pop("version") == 3
    for one in state["streams"].values():
        assert one.pop("definition")
    with store.transaction() as tx:
        tx.table("_applications").upsert([{**row, "state": msgspec.msgpack.encode(state)}])
    with flow_of(store, new) as flow:
        flow.streams["a"].push([cl.insert(ROWS[0])]).result(10)
    with pytest.raises(cl.StreamChanged, match="stream 'x'"):
        flow_of(store, old).start()


def test_a_later_version_is_not_read(store: StateStore) -> None:
    """What it means is not known here."""
    old, _, _ = CHANGES["filter"]
    with flow_of(store, old) as flow:
        flow.drain(10)
    row = store.table("_applications").get("f")
    state = {**msgspec.msgpack.decode(row["state"]), "version": 4}
    with store.transaction() as tx:
        tx.table("_applications").upsert([{**row, "state": msgspec.msgpack.encode(state)}])
    with pytest.raises(InvalidOption, match="version 4; this one knows versions up to 3"):
        flow_of(store, old).start()
