"""Streams that are made anew or forgotten, and what is held back, begins, or was pushed with an id."""

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.compute import changelog as cl
from tussock.statestore import StateStore, connect

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.int64(), nullable=False), ("v", pa.int64())]
)
WHOLE = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.int64(), nullable=False)])
TEXTS = pa.schema([*SCHEMA, ("t", pa.string())])
MOST = (1 << 63) - 1
LARGE = 3 << 20
numbers = itertools.count()


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect(f"memory://rebuilt-beside-{next(numbers)}", compaction=False) as opened:
        yield opened


def sums_of(store: StateStore) -> cl.Flow:
    source = cl.Stream(store, "a", SCHEMA, "k")
    return cl.Flow(store, [source, cl.aggregate("x", source, "g", {"s": ("sum", "v")})], name="f")


def held_back(flow: cl.Flow) -> int:
    [found] = [one["held_back"] for one in flow.status()["streams"] if one["name"] == "x"]
    return int(found)


def sums(flow: cl.Flow) -> dict[int, Any]:
    return {row["g"]: row["s"] for row in flow.stream("x").snapshot()[0]}


def test_what_was_held_back_is_among_the_rows(store: StateStore) -> None:
    """The rest of it is in the stream then; what cannot be computed alone is held back, until it can be."""
    with sums_of(store) as flow:
        for record in (cl.insert(k=1, g=1, v=MOST), cl.insert(k=2, g=1, v=1), cl.insert(k=3, g=2, v=5)):
            flow.stream("a").push(record).result(10)
        flow.drain(10)
        assert (sums(flow), held_back(flow)) == ({1: MOST}, 2)
    flow.rebuild("x")
    for _ in range(2):
        with sums_of(store) as flow:
            flow.drain(10)
            # Which of both rows is held back, the order of the table says.
            assert (sums(flow)[1] in (1, MOST), sums(flow)[2], held_back(flow)) == (True, 5, 1)
            [bad] = flow.stream("x").bad_rows()
            assert (bad.source, bad.row, bad.seq) == ("a", 0, 3)
    with sums_of(store) as flow:
        flow.stream("a").push(cl.update(k=2, g=1, v=-1)).result(10)
        flow.drain(10)
        assert (sums(flow), held_back(flow)) == ({1: MOST - 1, 2: 5}, 0)
        assert flow.stream("x").bad_rows() == []


def test_a_rebuild_of_an_operator_that_computes_nothing_holds_all_of_it_back(store: StateStore) -> None:
    """As one bad transaction; and all of it comes once the function is mended."""

    def declared(*, is_broken: bool) -> cl.Flow:
        def is_wanted(row: cl.ChangeRecord) -> bool:
            if is_broken:
                raise ValueError("nothing can be computed")
            return bool(row["v"] > 1)

        source = cl.Stream(store, "a", SCHEMA, "k")
        return cl.Flow(store, [source, cl.filter("x", source, is_wanted)], name="f")

    with declared(is_broken=False) as flow:
        flow.stream("a").push([cl.insert(k=k, g=0, v=k) for k in range(2000)]).result(10)
        flow.drain(10)
    flow = declared(is_broken=True)
    flow.rebuild("x")
    with flow:
        assert (flow.stream("x").snapshot()[0], held_back(flow)) == ([], 2000)
        [bad] = flow.stream("x").bad_rows()
        assert bad.error == "ValueError: nothing can be computed"
    with declared(is_broken=False) as flow:
        flow.replay_bad(bad.number)
        flow.drain(10)
        assert (len(flow.stream("x").snapshot()[0]), held_back(flow)) == (1998, 0)


# --- Streams that begin with the rows of one that is made anew --------------------------------------------------------


def copies_of(store: StateStore, most: int, *, is_counted: bool) -> cl.Flow:
    source = cl.Stream(store, "a", TEXTS, "k")
    copy = cl.filter("x", source, pc.field("k") < most)
    counts = [cl.aggregate("counts", copy, "g", {"n": ("count",), "last": ("max", "k")})] if is_counted else []
    return cl.Flow(store, [source, copy, *counts], name="f")


def counted(flow: cl.Flow) -> dict[int, tuple[int, int]]:
    return {row["g"]: (row["n"], row["last"]) for row in flow.stream("counts").snapshot()[0]}


def large_rows(store: StateStore) -> None:
    with copies_of(store, 100, is_counted=False) as flow:
        flow.stream("a").push([cl.insert(k=k, g=k % 2, v=0, t=f"{k}" * LARGE) for k in range(7)]).result(60)
        flow.drain(60)


def begun(store: StateStore) -> None:
    """The stream that counts has taken a part of the rows, and not all."""
    flow = copies_of(store, 100, is_counted=True)
    first = flow.stream("counts").break_on("input")
    flow.start()
    flow.wait_paused(10)
    first.remove()
    flow.step("trans", "counts")
    for _ in ("PUT", "OUTPUT"):
        flow.step("location", "counts")
    assert sum(n for n, _ in counted(flow).values()) in range(1, 7)
    flow.stop()


def check_counts(flow: cl.Flow) -> None:
    """Each of the five rows is counted once, and what comes behind them is right, too."""
    flow.drain(60)
    assert counted(flow) == {0: (3, 4), 1: (2, 3)}
    flow.stream("a").push(cl.upsert(k=0, g=1, v=0, t="")).result(60)
    flow.drain(60)
    assert counted(flow) == {0: (2, 4), 1: (3, 3)}


def test_a_stream_that_is_added_while_its_input_is_made_anew(store: StateStore) -> None:
    """It takes the rows as they are then, and each of them once."""
    large_rows(store)
    flow = copies_of(store, 5, is_counted=True)
    flow.rebuild("x")
    with flow:
        check_counts(flow)


@pytest.mark.parametrize("how", ["rebuild", "forget"])
def test_an_input_that_is_made_anew_in_the_midst_of_a_beginning(store: StateStore, how: str) -> None:
    """What has taken some of its rows takes all of them anew."""
    large_rows(store)
    begun(store)
    flow = copies_of(store, 5, is_counted=True)
    getattr(flow, how)("x")
    with flow:
        check_counts(flow)


def test_a_stream_that_has_begun_only_can_be_made_anew(store: StateStore) -> None:
    large_rows(store)
    begun(store)
    flow = copies_of(store, 100, is_counted=True)
    flow.rebuild("counts")
    with flow:
        flow.drain(60)
        assert counted(flow) == {0: (4, 6), 1: (3, 5)}


# --- Ids of pushes ---------------------------------------------------------------------------------------------------


def test_ids_of_a_stream_that_is_forgotten_go(store: StateStore) -> None:
    """What is pushed with one comes again; those of other streams stay."""

    def declared() -> cl.Flow:
        return cl.Flow(store, [cl.Stream(store, name, SCHEMA, "k") for name in ("a", "b")], name="f")

    one = cl.upsert(k=1, g=0, v=1)
    with declared() as flow:
        assert [flow.stream(name).push(one, request_id=f"id-{name}").result(10) for name in ("a", "b")] == [1, 1]
        assert flow.stream("a").push(one, request_id="id-a").result(10) == 1
    flow.forget("a")
    with declared() as flow:
        assert [flow.stream(name).push(one, request_id=f"id-{name}").result(10) for name in ("a", "b")] == [2, 1]
        flow.drain(10)
        assert flow.stream("a").get(1) == {"k": 1, "g": 0, "v": 1}


def test_a_stream_without_rows_that_was_made_anew_can_be_forgotten(store: StateStore) -> None:
    """With the table in which it was made, to which nothing was ever written; then it begins with another key."""

    def flow_of(store: StateStore, key: str | None) -> cl.Flow:
        source = cl.Stream(store, "source", WHOLE, ["k"])
        if key is None:
            return cl.Flow(store, [source], name="f")
        if key == "k":
            return cl.Flow(store, [source, cl.filter("few", source, pc.field("v") > 10)], name="f")
        return cl.Flow(store, [source, cl.project("few", source, {"v": "v", "k": "k"}, key="v")], name="f")

    for key in ("k", None, "k"):
        with flow_of(store, key) as flow:
            flow.streams["source"].push([cl.upsert(k=1, v=1)]).result(10)
            flow.drain(10)
    assert "f.few.anew" in store.tables()
    flow = flow_of(store, "v")
    assert flow.forget("few") == ["f.few.anew", "few"]
    with flow:
        flow.drain(10)
        assert flow.streams["few"].snapshot()[0] == [{"v": 1, "k": 1}]


def test_an_operator_behind_a_forgotten_stream_follows_its_new_key(store: StateStore) -> None:
    """Its tables were made by the former key."""

    def flow_of(key: str) -> cl.Flow:
        source = cl.Stream(store, "a", SCHEMA, "k")
        views = {
            "k": lambda: cl.filter("view", source, pc.field("v") >= 0),
            "g": lambda: cl.project("view", source, {"g": "g", "v": "v"}, key="g"),
        }
        view = views[key]()
        return cl.Flow(store, [source, view, cl.aggregate("least", view, [], {"v": ("min", "v")})], name="f")

    with flow_of("k") as flow:
        flow.stream("a").push([cl.insert(k=1, g=1, v=5), cl.insert(k=2, g=2, v=3)]).result(10)
        flow.drain(10)
    flow = flow_of("g")
    assert flow.forget("view") == ["f.least.groups", "f.least.index_0", "view"]
    with flow:
        flow.stream("a").push([cl.delete(k=2), cl.insert(k=3, g=3, v=4)]).result(10)
        flow.drain(10)
        assert [row["v"] for row in flow.stream("least").snapshot()[0]] == [4]


def test_streams_that_have_half_begun_with_each_other_are_made_anew_together(store: StateStore) -> None:
    """One knows the rows of the next by their places, and there are others after a rebuild. A part has five rows."""

    def flow_of(least: int, names: str) -> cl.Flow:
        source = cl.Stream(store, "source", TEXTS, "k")
        first = cl.filter("first", source, pc.field("v") >= least)
        second = cl.filter("second", first, pc.field("v") >= -1)
        third = cl.filter("third", second, pc.field("v") >= -2)
        there = {"source": source, "first": first, "second": second, "third": third}
        return cl.Flow(store, [there[name] for name in names.split()], name="f")

    def stopped_half_way(names: str, at: int) -> None:
        flow = flow_of(0, names)
        flow.streams[names.split()[-1]].break_on("input", lambda _: True, every=at)
        flow.start()
        flow.wait_paused(30)
        flow.stop()

    with flow_of(0, "source first") as flow:
        for k in range(24):
            flow.streams["source"].push([cl.upsert(k=k, g=0, v=k, t="x" * LARGE)]).result(30)
        flow.drain(30)
    stopped_half_way("source first second", 17)
    stopped_half_way("source first second third", 7)
    flow = flow_of(20, "source first second third")
    flow.rebuild("first")
    with flow:
        flow.drain(30)
        for name in ("first", "second", "third"):
            assert sorted(row["k"] for row in flow.streams[name].snapshot()[0]) == [20, 21, 22, 23], name
