"""A stream made anew from the rows of its inputs has what it would always have had, and publishes what differs."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.compute.applications.limits import DEFAULT_APPLICATION_LIMITS, ApplicationLimits
from tussock.statestore import InvalidOption, StateStore, TableNotFound, connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

SCHEMA = pa.schema(
    [pa.field("k", pa.int64(), nullable=False), pa.field("g", pa.int64(), nullable=False), pa.field("v", pa.int64())]
)
NAMES = pa.schema([pa.field("g", pa.int64(), nullable=False), pa.field("name", pa.string())])
V = pc.field("v")
numbers = itertools.count()

Declare = Callable[[cl.Stream, cl.Stream, cl.Stream], cl.Stream]
STEPS = {"p": pc.greater(V, 3), "q": pc.less(V, 3)}

PAIRS: dict[str, tuple[Declare, Declare]] = {
    "filter": (lambda a, b, c: cl.filter("x", a, V > 3), lambda a, b, c: cl.filter("x", a, V > 5)),
    "project": (
        lambda a, b, c: cl.project("x", a, {"k": "k", "w": V + 1}),
        lambda a, b, c: cl.project("x", a, {"k": "k", "w": V + 2}),
    ),
    "least": (
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("min", "v")}),
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("max", "v")}),
    ),
    "what it keeps": (
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("sum", "v")}),
        lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("max", "v")}),
    ),
    "top": (
        lambda a, b, c: cl.top("x", a, 2, [("v", "desc")], "g"),
        lambda a, b, c: cl.top("x", a, 3, ["v"], "g"),
    ),
    "join": (
        lambda a, b, c: cl.join("x", a, b, "g", columns=["v", "name"]),
        lambda a, b, c: cl.join("x", a, b, "g", "left", columns=["v", "name"]),
    ),
    "pattern": (
        lambda a, b, c: cl.pattern("x", a, [], "k", STEPS, 2),
        lambda a, b, c: cl.pattern("x", a, [], "k", STEPS, 9),
    ),
    "union": (lambda a, b, c: cl.union("x", a, c), lambda a, b, c: cl.union("x", c, a)),
}


def flow_of(store: StateStore, declare: Declare, **options: Any) -> cl.Flow:
    """`x`, and behind it `y`, which counts its rows."""
    a, b, c = (
        cl.Stream(store, name, schema=schema, key=key)
        for name, schema, key in (("a", SCHEMA, "k"), ("b", NAMES, "g"), ("c", SCHEMA, "k"))
    )
    x = declare(a, b, c)
    return cl.Flow(store, [a, b, c, x, cl.aggregate("y", x, [], {"rows": ("count",)})], name="f", **options)


def all_but(limit: int) -> Declare:
    """A function of `a` that takes any value but that one."""

    def made(a: cl.Stream, b: cl.Stream, c: cl.Stream) -> cl.Stream:
        x = cl.Stream(a.store, "x", schema=SCHEMA, key="k", inputs=[a])

        @x.compute
        def checked(row: cl.ChangeRecord) -> cl.ChangeRecord:
            if row["v"] == limit:
                raise ValueError(f"{limit} is too much")
            return cl.safedelete(k=row["k"]) if row.op == "DELETE" else cl.upsert(row)

        return x

    return made


def pushed(flow: cl.Flow, seed: int, count: int = 30) -> None:
    chance = random.Random(seed)
    for _ in range(count):
        k, g = chance.randrange(40), chance.randrange(5)
        flow.streams["b"].push([cl.upsert(g=chance.randrange(4), name=f"n{chance.randrange(3)}")])
        for name in ("a", "c"):
            gone = chance.random() < 0.2
            flow.streams[name].push([cl.safedelete(k=k) if gone else cl.upsert(k=k, g=g, v=chance.randrange(8))])


def newest_of(store: StateStore, declare: Declare) -> int:
    """After a run, the number of the newest transaction of `x`."""
    with flow_of(store, declare) as flow:
        pushed(flow, 1)
        flow.drain(10)
        return flow.streams["x"].snapshot()[1]


def rows(store: StateStore, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for batch in store.table(name).read() for row in batch.to_pylist()), key=repr)


def folded(flow: cl.Flow, name: str) -> list[tuple[Any, ...]]:
    """What a subscriber comes to, who has taken all from the beginning; numbers ascend by one."""
    stream = flow.streams[name]
    found: dict[Any, Any] = {}
    newest = stream.snapshot()[1]
    with stream.subscribe(from_seq=1, timeout=10) as changes:
        for seq in range(1, newest + 1):
            one = next(changes)
            assert one.seq == seq
            for record in one:
                key = tuple(record[part] for part in stream.key)
                assert (key in found) == (record.op != "INSERT")
                if record.op == "DELETE":
                    del found[key]
                else:
                    found[key] = tuple(record.values())
    return sorted(found.values(), key=repr)


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect(f"memory://rebuilt-{next(numbers)}", compaction=False) as opened:
        yield opened


@pytest.mark.parametrize("pair", PAIRS)
def test_a_changed_operator_that_is_rebuilt(store: StateStore, pair: str) -> None:
    """It has what it would have had from the beginning on; so have its subscribers, and the stream behind it."""
    old, new = PAIRS[pair]
    with flow_of(store, old) as flow:
        pushed(flow, 1)
        flow.drain(10)
    flow = flow_of(store, new, limits=ApplicationLimits(rebuild_rows=4))
    flow.rebuild("x")
    with flow:
        pushed(flow, 2)
        flow.drain(10)
        mine = {name: rows(store, name) for name in ("x", "y")}
        assert {name: folded(flow, name) for name in ("x", "y")} == mine
    with connect(f"memory://rebuilt-{next(numbers)}", compaction=False) as other, flow_of(other, new) as flow:
        pushed(flow, 1)
        pushed(flow, 2)
        flow.drain(10)
        assert {name: rows(other, name) for name in ("x", "y")} == mine


def test_a_rebuild_of_what_is_right_publishes_nothing(store: StateStore) -> None:
    """Its rows are those that it has."""
    old, _ = PAIRS["top"]
    newest = newest_of(store, old)
    flow = flow_of(store, old)
    flow.rebuild("x")
    with flow:
        assert flow.streams["x"].snapshot()[1] == newest
    flow_of(store, old).start()


def test_a_crash_at_any_request_of_a_rebuild() -> None:
    """The next start begins it again, and comes to the same."""
    old, new = PAIRS["least"]
    died = 0
    for requests in range(1, 400, 3):
        bucket = open_bucket("memory://")
        with open_on(bucket, QuickSystem()) as store:
            with flow_of(store, old) as flow:
                pushed(flow, 3, 10)
                flow.drain(10)
            flow_of(store, new).rebuild("x")
        is_dead = _start_and_die(bucket, new, requests)
        died += is_dead
        with open_on(bucket, QuickSystem()) as store, flow_of(store, new) as flow:
            flow.drain(10)
            found = {}
            for row in flow.streams["a"].snapshot()[0]:
                found.setdefault(row["g"], []).append(row["v"])
            assert rows(store, "x") == sorted((g, max(values)) for g, values in found.items())
            assert {name: folded(flow, name) for name in "xy"} == {name: rows(store, name) for name in "xy"}
        if not is_dead:
            break
    assert died > 10
    assert not is_dead


def _start_and_die(bucket: ObjectStore, declare: Declare, requests: int) -> bool:
    fuse = Fuse(requests, is_done=False, hiccups={})
    try:
        store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
        flow = flow_of(store, declare, limits=ApplicationLimits(rebuild_rows=3, rebuild_bytes=2000))
        flow.start()
    except Dead:
        return True
    with suppress(Dead):
        flow.stop()
    with suppress(Dead):
        store.close()
    return False


def test_a_stream_that_was_away_is_rebuilt(store: StateStore) -> None:
    """What the flow took without it is there when it comes back."""
    old, _ = PAIRS["filter"]
    newest = newest_of(store, old)
    a, b, c = (
        cl.Stream(store, name, schema=schema, key=key)
        for name, schema, key in (("a", SCHEMA, "k"), ("b", NAMES, "g"), ("c", SCHEMA, "k"))
    )
    with cl.Flow(store, [a, b, c], name="f") as flow:
        pushed(flow, 2)
        flow.drain(10)
    with flow_of(store, old) as flow:
        flow.drain(10)
        assert [row for row in rows(store, "a") if (row[2] or 0) > 3] == rows(store, "x")
        assert rows(store, "y") == [(True, len(rows(store, "x")))]
        assert flow.streams["x"].snapshot()[1] > newest


def test_records_that_cannot_be_computed_are_bad_and_no_others(store: StateStore) -> None:
    """A record that is to blame does not take those beside it with it; and what was bad before is listed no more."""
    records = [cl.insert(k=k, g=0, v=k) for k in range(20)]
    with flow_of(store, all_but(7)) as flow:
        flow.streams["a"].push(records)
        flow.drain(10)
        assert (len(flow.streams["x"].bad_rows()), rows(store, "x")) == (1, [])
    flow = flow_of(store, all_but(8))
    flow.rebuild("x")
    with flow:
        [bad] = flow.streams["x"].bad_rows()
        assert (bad.error, bad.source, bad.row) == ("ValueError: 8 is too much", "a", 0)
        assert sorted(row[0] for row in rows(store, "x")) == [k for k in range(20) if k != 8]
    flow = flow_of(store, all_but(99))
    flow.rebuild("x")
    with flow:
        assert flow.streams["x"].bad_rows() == []
        assert (len(rows(store, "x")), flow.streams["y"].get(True)["rows"]) == (20, 20)


def test_columns_that_come_later(store: StateStore, tmp_path: Path) -> None:
    """They are null in what is there, in rows, histories, queues and outputs; streams behind get them by a rebuild."""

    def flow_with(*more: pa.Field) -> cl.Flow:
        a = cl.Stream(store, "a", pa.schema([*SCHEMA, *more]), "k")
        x = cl.filter("x", a, V > 3)
        flow = cl.Flow(store, [a, x, cl.top("t", x, 2, "v")], name="f")
        flow.output(x, "x_changes", blocks=True)
        flow.output(a, cl.ParquetFiles(tmp_path.as_uri()))
        return flow

    with flow_with() as flow:
        a = flow.stream("a")
        a.push([cl.insert(k=k, g=0, v=k) for k in range(6)]).result(10)
        a.push(pa.table({"k": range(100, 200), "g": [0] * 100, "v": [9] * 100, "_op": ["INSERT"] * 100})).result(10)
        flow.drain(10)
        a.hold()
        a.push(cl.update(k=5, g=0, v=6)).result(10)
    note = pa.field("note", pa.string())
    grown = flow_with(note)
    with pytest.raises(cl.StreamChanged, match=r"stream 'x' .*columns was .*Make it anew .* rebuild\('x'\)"):
        grown.start()
    for name in ("x", "t"):
        grown.rebuild(name)
    with grown:
        a, x = grown.stream("a"), grown.stream("x")
        a.push(cl.insert(k=7, g=0, v=7, note="late")).result(10)
        grown.drain(10)
        assert x.get(5) == {"k": 5, "g": 0, "v": 6, "note": None}
        assert x.get(7)["note"] == "late"
        assert [len(one) for one in a.out_history()] == [6, 100, 1, 1]
        assert a.out_history()[0].records[1] == cl.insert(k=1, g=0, v=1, note=None)
        assert a.out_history()[1].records[0]["note"] is None
        assert [one.records[0].op for one in x.out_history()] == ["INSERT", "INSERT", "UPDATE_BLOCK", "INSERT"]
        assert sorted(row["k"] for row in grown.stream("t").snapshot()[0]) == [4, 5]
    assert [one["note"] for batch in store.table("x_changes").read() for one in batch.to_pylist()][-1] == "late"
    with pytest.raises(cl.StreamChanged):
        flow_with().start()
    for name in ("a", "x", "t"):
        flow_with(note).rebuild(name)
    with pytest.raises(cl.StreamChanged, match=r"stream 'a' .* column 'note' was string, and is int64"):
        flow_with(pa.field("note", pa.int64())).start()
    with flow_with(note) as flow:
        assert flow.stream("x").get(7)["note"] == "late"


def test_what_waits_is_among_the_rows(store: StateStore) -> None:
    """What a stream had not taken yet, and what it was to be given again, does not come behind the rebuild."""
    with flow_of(store, all_but(7)) as flow:
        a, x = flow.streams["a"], flow.streams["x"]
        a.push(cl.insert(k=1, g=0, v=7)).result(10)
        flow.drain(10)
        x.hold()
        for value in (1, 2):
            a.push(cl.update(k=1, g=0, v=value)).result(10)
        [bad] = x.bad_rows()
        flow.replay_bad(bad.number)
        assert x.queued == 3
    flow = flow_of(store, all_but(99))
    flow.rebuild("x")
    with flow:
        flow.drain(10)
        assert [one.records for one in flow.streams["x"].out_history()] == [[cl.insert(k=1, g=0, v=2)]]


def test_a_function_that_computes_nothing(store: StateStore) -> None:
    """Its bad transactions are single records at first, and then parts, so that there are not too many."""

    def declare(is_broken: bool) -> Declare:
        def made(a: cl.Stream, b: cl.Stream, c: cl.Stream) -> cl.Stream:
            x = cl.Stream(a.store, "x", schema=SCHEMA, key="k", inputs=[a])

            @x.compute_batch
            def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
                if is_broken:
                    raise ValueError("nothing can be computed")
                return batch

            return x

        return made

    count = 4000
    ones = pa.array(range(count), pa.int64())
    with flow_of(store, declare(is_broken=False)) as flow:
        flow.streams["a"].push(pa.table({"k": ones, "g": ones, "v": ones, "_op": ["INSERT"] * count})).result(10)
        flow.drain(10)
    flow = flow_of(store, declare(is_broken=True), limits=ApplicationLimits(rebuild_rows=1000))
    flow.rebuild("x")
    with flow:
        assert len(flow.streams["x"].bad_rows(count)) == 1000 + 3
        assert (rows(store, "x"), rows(store, "y")) == ([], [])


def test_many_rows(store: StateStore) -> None:
    """More than one transaction holds, and a commit in the midst."""
    old, new = PAIRS["filter"]
    count = 35_000
    numbered = pa.array(range(count), pa.int64())
    batch = pa.table({"k": numbered, "g": numbered, "v": pc.bit_wise_and(numbered, 7), "_op": ["INSERT"] * count})
    with flow_of(store, old) as flow:
        flow.streams["a"].push(batch)
        flow.drain(30)
    flow = flow_of(store, new)
    flow.rebuild("x")
    with flow:
        out = flow.streams["x"].out_history()
        assert len(out) > 2
        assert max(len(one) for one in out[1:]) <= DEFAULT_APPLICATION_LIMITS.rebuild_rows
        assert flow.streams["y"].get(True)["rows"] == len(rows(store, "x")) == sum(v % 8 > 5 for v in range(count))


def test_a_stream_that_is_forgotten(store: StateStore) -> None:
    """It begins anew, with its numbers going on; those behind it are made anew."""
    old, _ = PAIRS["filter"]
    with flow_of(store, old) as flow:
        pushed(flow, 1)
        flow.drain(10)
        before, newest = rows(store, "x"), flow.streams["x"].snapshot()[1]
    flow = flow_of(store, old)
    assert flow.forget("x") == ["f.y.groups", "x"]
    assert "x" not in store.tables()
    with flow:
        flow.drain(10)
        assert rows(store, "x") == before
        assert flow.streams["x"].snapshot()[1] == newest + 1
        assert flow.streams["y"].get(True)["rows"] == len(before)
        with pytest.raises(cl.HistoryGone):
            flow.streams["x"].subscribe(from_seq=1)
    flow = flow_of(store, old)
    assert flow.forget("a") == ["a", "f.x.anew", "f.y.anew", "f.y.groups"]
    with flow:
        flow.drain(10)
        assert rows(store, "a") == rows(store, "x") == rows(store, "y") == []
        flow.streams["a"].push([cl.insert(k=1, g=1, v=7)]).result(10)
        flow.drain(10)
        assert rows(store, "x") == [(1, 1, 7)]


def test_a_stream_whose_table_was_dropped(store: StateStore) -> None:
    """The refusal names the way back."""
    old, _ = PAIRS["least"]
    with flow_of(store, old) as flow:
        pushed(flow, 1)
        flow.drain(10)
        before = rows(store, "x")
    store.drop_table("x")
    with pytest.raises(TableNotFound, match="tussock repair stream f x --forget"):
        flow_of(store, old).start()
    flow = flow_of(store, old)
    flow.forget("x")
    with flow:
        flow.drain(10)
        assert rows(store, "x") == before


def test_a_stream_with_other_columns(store: StateStore) -> None:
    """Its table has to go, which the refusal says; its readers come to what it has then."""
    with flow_of(store, lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("sum", "v")})) as flow:
        pushed(flow, 1)
        flow.drain(10)
    flow = flow_of(store, lambda a, b, c: cl.aggregate("x", a, "g", {"s": ("sum", "v"), "n": ("count",)}))
    flow.rebuild("x")
    with pytest.raises(cl.StreamChanged, match="tussock repair stream f x --forget"):
        flow.start()
    flow.forget("x")
    with flow:
        flow.drain(10)
        assert sum(row[2] for row in rows(store, "x")) == len(rows(store, "a"))
        assert flow.streams["y"].get(True)["rows"] == len(rows(store, "x"))


def test_what_cannot_be_asked_for(store: StateStore) -> None:
    """And nothing is changed by it."""
    old, _ = PAIRS["filter"]
    flow = flow_of(store, old)
    with pytest.raises(InvalidOption, match="no flow 'f' that has run"):
        flow.rebuild("x")
    with flow:
        flow.drain(10)
        for ask in (flow.rebuild, flow.forget):
            with pytest.raises(InvalidOption, match="flow 'f' runs; stop it before"):
                ask("x")
    with pytest.raises(InvalidOption, match="has no stream 'z'"):
        flow.rebuild("z")
    with pytest.raises(InvalidOption, match="has no stream 'z'"):
        flow.forget("z")


def test_a_flow_that_died_is_not_changed() -> None:
    """What its log has is of the flow as it was."""
    bucket = open_bucket("memory://")
    old, new = PAIRS["filter"]
    fuse = Fuse(10**9, is_done=False, hiccups={})
    store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
    flow = flow_of(store, old, checkpoint=3600)
    flow.start()
    flow.streams["a"].push([cl.insert(k=1, g=1, v=4)]).result(10)
    fuse.blow()
    for end in (flow.stop, store.close):
        with suppress(Dead):
            end()
    with open_on(bucket, QuickSystem()) as store:
        with pytest.raises(InvalidOption, match="was not stopped in order"):
            flow_of(store, new).rebuild("x")
        with flow_of(store, old) as flow:
            flow.drain(10)
            assert flow.streams["x"].get(1)["v"] == 4
        flow = flow_of(store, new)
        flow.rebuild("x")
        with flow:
            assert flow.streams["x"].get(1) is None
