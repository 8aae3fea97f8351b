"""Streams whose columns change between two runs: what can follow does, with all that is kept, and the rest is told."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import changelog as cl
from tussock.statestore import ObjectStoreUnavailable, StateStore, connect
from tussock.statestore.buckets import open_bucket

KEY = pa.field("k", pa.int64(), nullable=False)
V, G, NOTE = pa.field("v", pa.int32()), pa.field("g", pa.string()), pa.field("note", pa.string())
BEFORE = pa.schema([KEY, G, V])
AFTER = pa.schema([KEY, NOTE, G, V.with_type(pa.int64())])
"""One more in the middle, and a wider one."""
SECONDS = 20
numbers = itertools.count()


@pytest.fixture
def store() -> Iterator[StateStore]:
    with connect(f"memory://grown-{next(numbers)}", compaction=False) as opened:
        yield opened


def flow_of(store: StateStore, schema: pa.Schema = BEFORE, **options: Any) -> cl.Flow:
    """`a`; `d`, a function of it by record that refuses 13; `b`, one by batch; `p`, which passes `a` on."""
    a = cl.Stream(store, "a", schema, ["k"])
    d, b, p = (cl.Stream(store, name, schema, ["k"], inputs=[a]) for name in "dbp")

    @d.compute
    def doubled(row: cl.ChangeRecord) -> cl.ChangeRecord:
        if row["v"] == 13:
            raise ValueError("13 is bad luck")
        return cl.safedelete(k=row["k"]) if row.op == "DELETE" else cl.upsert({**row, "v": 2 * row["v"]})

    @b.compute_batch
    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    return cl.Flow(store, [a, d, b, p], name="f", **options)


def strict(schema: pa.Schema) -> pa.Schema:
    """With a column to group by."""
    return schema.set(schema.get_field_index("g"), G.with_nullable(False))


def begun(store: StateStore) -> None:
    """Transactions of a few records and of many; one that is bad, one that waits, updates and deletions."""
    with flow_of(store) as flow:
        a = flow.stream("a")
        a.push([cl.insert(k=k, g="x", v=k) for k in range(4)]).result(SECONDS)
        many = {"k": range(100, 300), "g": ["y"] * 200, "v": pa.array([7] * 200, pa.int32()), "_op": ["INSERT"] * 200}
        a.push(pa.table(many)).result(SECONDS)
        a.push([cl.update(k=1, g="z", v=10), cl.delete(k=0)]).result(SECONDS)
        a.push([cl.update(k=2, g="x", v=13)]).result(SECONDS)
        flow.drain(SECONDS)
        a.hold()
        a.push([cl.update(k=3, g="w", v=30)]).result(SECONDS)


def checked(flow: cl.Flow) -> None:
    """All is as it would be had the columns been there from the beginning on."""
    a = flow.stream("a")
    flow.drain(SECONDS)
    assert a.get(1) == {"k": 1, "note": None, "g": "z", "v": 10}
    assert [*a.get(1)] == AFTER.names
    assert a.get(3)["v"] == 30
    for name, factor in (("a", 1), ("b", 1), ("p", 1), ("d", 2)):
        stream = flow.stream(name)
        rows = {row["k"]: row for row in stream.snapshot()[0]}
        assert len(rows) == 203
        assert {tuple(row) for row in rows.values()} == {tuple(AFTER.names)}
        assert rows[3] == {"k": 3, "note": None, "g": "w", "v": 30 * factor}
        first, second, third = stream.out_history()[:3]
        assert first.records[1] == cl.insert(k=1, note=None, g="x", v=factor)
        assert [*first.records[1]] == AFTER.names
        assert (len(second), second.batch().schema.names) == (200, [*AFTER.names, "_op", "_old"])
        assert second.batch().column("v").to_pylist() == [7 * factor] * 200
        block, gone = third.records
        assert (block["v"], block.old["v"], block.old["g"], gone) == (
            10 * factor,
            factor,
            "x",
            cl.delete(k=0, note=None, g="x", v=0),
        )
        with stream.subscribe(from_seq=1, timeout=SECONDS) as changes:
            folded: dict[int, dict[str, Any]] = {}
            for _ in range(stream.snapshot()[1]):
                for record in next(changes):
                    if record.op == "DELETE":
                        del folded[record["k"]]
                    else:
                        folded[record["k"]] = dict(record)
        assert folded == rows


def test_columns_may_come_anywhere_and_get_wider(store: StateStore) -> None:
    """At the start that declares them: rows, histories, queues, bad transactions and those behind are right."""
    begun(store)
    with flow_of(store, AFTER) as flow:
        checked(flow)
        d = flow.stream("d")
        [bad] = d.bad_rows()
        tried = flow.what_if(bad=bad.number, compute=lambda row: cl.upsert({**row, "note": "mended"}))
        assert tried.published[0] == cl.ChangeRecord(
            cl.Op.UPDATE_BLOCK,
            {"k": 2, "note": "mended", "g": "x", "v": 13},
            cl.delete(k=2, note=None, g="x", v=4),
        )
        flow.stream("a").push([cl.update(k=2, note="large", g="x", v=1 << 40)]).result(SECONDS)
        flow.drain(SECONDS)
        assert d.get(2) == {"k": 2, "note": "large", "g": "x", "v": 1 << 41}
        large = {"k": range(100, 300), "note": ["n"] * 200, "g": ["y"] * 200, "v": [8] * 200, "_op": ["UPDATE"] * 200}
        flow.stream("a").push(pa.table(large)).result(SECONDS)
        flow.drain(SECONDS)
        assert flow.stream("b").get(299) == {"k": 299, "note": "n", "g": "y", "v": 8}
    assert store.table("a").schema.names == ["k", "g", "v", "note"]
    assert store.table("a").get(299) == {"k": 299, "note": "n", "g": "y", "v": 8}
    # And once more, from there on.
    last = pa.schema([pa.field("first", pa.bool_()), *AFTER])
    with flow_of(store, last) as flow:
        found = [one for one in flow.stream("d").out_history() if len(one) == 1]
        assert found[-1].records[0]["note"] == "large"
        assert [*flow.stream("d").get(2)] == last.names
    with flow_of(store, last) as flow:
        assert flow.stream("d").get(2)["v"] == 1 << 41


def test_a_column_alone_may_change_its_place(store: StateStore) -> None:
    """The values of what is kept stay with their names."""
    begun(store)
    order = pa.schema([V, KEY, G])
    with flow_of(store, order) as flow:
        flow.drain(SECONDS)
        assert flow.stream("a").out_history()[0].records[1] == cl.insert(v=1, k=1, g="x")
        assert [*flow.stream("d").get(3).items()] == [("v", 60), ("k", 3), ("g", "w")]
    with flow_of(store) as flow:
        assert [*flow.stream("d").get(3).items()] == [("k", 3), ("g", "w"), ("v", 60)]


WIDER: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    (pa.int8(), pa.int16(), 7, 7),
    (pa.int32(), pa.int64(), -7, -7),
    (pa.uint8(), pa.int16(), 7, 7),
    (pa.uint32(), pa.uint64(), 7, 7),
    (pa.int16(), pa.float32(), 7, 7.0),
    (pa.int32(), pa.float64(), 7, 7.0),
    (pa.int64(), pa.decimal128(21, 2), 7, Decimal("7.00")),
    (pa.float32(), pa.float64(), 0.5, 0.5),
    (pa.decimal128(5, 2), pa.decimal128(10, 3), Decimal("1.25"), Decimal("1.250")),
]


@pytest.mark.parametrize(("old", "new", "value", "shown"), WIDER, ids=lambda one: str(one))
def test_what_a_table_widens_a_stream_does(
    store: StateStore, old: pa.DataType, new: pa.DataType, value: Any, shown: Any
) -> None:
    """Each kind of widening that a table has, in rows and histories, of few records and of many."""

    def one(kind: pa.DataType) -> cl.Flow:
        return cl.Flow(store, [cl.Stream(store, "s", pa.schema([KEY, pa.field("v", kind)]), ["k"])])

    with one(old) as flow:
        flow.stream("s").push([cl.insert(k=1, v=value), cl.insert(k=2, v=None)]).result(SECONDS)
        many = pa.table({"k": range(100, 200), "v": pa.array([value] * 100, old), "_op": ["INSERT"] * 100})
        flow.stream("s").push(many).result(SECONDS)
        flow.drain(SECONDS)
    with one(new) as flow:
        s = flow.stream("s")
        s.push([cl.update(k=1, v=None), cl.update(k=2, v=shown)]).result(SECONDS)
        flow.drain(SECONDS)
        found = [record["v"] for each in s.out_history()[:2] for record in each]
        assert (found[0], found[1], {*found[2:]}) == (shown, None, {shown})
        assert {type(one) for one in found} == {type(shown), type(None)}
        assert s.out_history()[1].batch().schema.field("v").type == new
        assert s.out_history()[2].records[0].old["v"] == shown
        assert (s.get(2)["v"], s.get(150)["v"]) == (shown, shown)


REFUSED: dict[str, tuple[Sequence[pa.Field], str]] = {
    "dropped": ([KEY, G], "column 'v' was int32, and is gone: no column can be dropped"),
    "narrower": ([KEY, G, V.with_type(pa.int16())], "column 'v' was int32, and is int16: a column only takes a type"),
    "other kind": ([KEY, G, V.with_type(pa.string())], "column 'v' was int32, and is string: a column only takes"),
    "not exact": ([KEY, G, V.with_type(pa.float32())], "column 'v' was int32, and is float: a column only takes"),
    "renamed": ([KEY, G, V.with_name("w")], "column 'v' was int32, and is gone"),
    "never null": ([KEY, G, V.with_nullable(False)], "column 'v' was int32, and is int32 not null: whether a column"),
    "new and never null": (
        [KEY, G, V, NOTE.with_nullable(False)],
        "column 'note' was none, and is string not null: a new one is null in the rows that are there",
    ),
    "key": ([KEY.with_type(pa.uint64()), G, V], "column 'k' was int64 not null, and is uint64 not null: a column of"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_follow_is_refused(store: StateStore, what: str) -> None:
    """The error names stream, column, both types and the way out; nothing is touched."""
    fields, words = REFUSED[what]
    begun(store)
    schema = store.table("a").schema
    with pytest.raises(cl.StreamChanged, match=f"stream 'a' is declared otherwise than when it ran: {words}") as caught:
        flow_of(store, pa.schema(fields)).start()
    assert caught.value.args[1] == "a"
    assert "Declare it as it was, or let it begin anew, by forget('a') of the flow" in str(caught.value)
    assert "`tussock repair stream f a --forget`" in str(caught.value)
    assert store.table("a").schema == schema
    with flow_of(store) as flow:
        flow.drain(SECONDS)
        assert flow.stream("d").get(3)["v"] == 60


def test_another_key_is_refused(store: StateStore) -> None:
    """Its way out is to forget the stream."""
    begun(store)
    with pytest.raises(cl.StreamChanged, match=r"stream 'a' .*key was k, and is g.* forget\('a'\)"):
        cl.Flow(store, [cl.Stream(store, "a", BEFORE.set(1, G.with_nullable(False)), ["g"])], name="f").start()


def test_what_one_stream_cannot_leaves_the_others_as_they_are(store: StateStore) -> None:
    """`a` could follow, and the operator behind it has to be rebuilt; until then no table is altered."""

    def with_counts(schema: pa.Schema) -> cl.Flow:
        a = cl.Stream(store, "a", strict(schema), ["k"])
        largest = cl.aggregate("largest", a, "g", {"n": ("count",), "v": ("max", "v")})
        return cl.Flow(store, [a, cl.filter("f", a, lambda row: row["v"] != 2), largest], name="f")

    with with_counts(BEFORE) as flow:
        flow.stream("a").push([cl.insert(k=k, g="xy"[k % 2], v=k) for k in range(9)]).result(SECONDS)
        flow.drain(SECONDS)
    grown = with_counts(AFTER)
    for name in ("f", "largest"):
        with pytest.raises(cl.StreamChanged, match=rf"stream '{name}' .*rebuild\('{name}'\)"):
            grown.start()
        assert store.table("a").schema.names == BEFORE.names
        grown.rebuild(name)
    with grown:
        grown.stream("a").push([cl.upsert(k=20, g="x", v=1 << 33), cl.delete(k=7)]).result(SECONDS)
        grown.drain(SECONDS)
        assert grown.stream("largest").get("x") == {"g": "x", "n": 6, "v": 1 << 33}
        assert grown.stream("largest").get("y") == {"g": "y", "n": 3, "v": 5}
        assert grown.stream("f").get(2) is None
        assert [*grown.stream("f").get(20)] == AFTER.names


def test_an_operator_that_keeps_what_has_got_wider_is_rebuilt(store: StateStore) -> None:
    """Its own columns are the same, and so are those of its tables, which have the order as bytes."""

    def newest(kind: pa.DataType) -> cl.Flow:
        a = cl.Stream(store, "a", strict(pa.schema([KEY, G, pa.field("at", kind), V])), ["k"])
        x = cl.aggregate("x", a, "g", {"v": ("last", "v", "at")})
        return cl.Flow(store, [a, x], name="f")

    with newest(pa.int32()) as flow:
        flow.stream("a").push([cl.insert(k=k, g="x", at=-k, v=k) for k in range(5)]).result(SECONDS)
        flow.drain(SECONDS)
    flow = newest(pa.int64())
    with pytest.raises(cl.StreamChanged, match=r"stream 'x' reads stream 'a', .* at int64; .*rebuild\('x'\)"):
        flow.start()
    flow.rebuild("x")
    with flow:
        flow.stream("a").push([cl.delete(k=0)]).result(SECONDS)
        flow.drain(SECONDS)
        assert flow.stream("x").get("x")["v"] == 1


def test_outputs_follow(store: StateStore, tmp_path: Path) -> None:
    """A table, also with update blocks, and files."""

    def with_outputs(schema: pa.Schema) -> cl.Flow:
        a = cl.Stream(store, "a", schema, ["k"])
        flow = cl.Flow(store, [a])
        flow.output(a, "changes", blocks=True)
        flow.output(a, cl.ParquetFiles(tmp_path.as_uri()), name="files")
        return flow

    with with_outputs(BEFORE) as flow:
        flow.stream("a").push([cl.insert(k=1, g="x", v=1)]).result(SECONDS)
        flow.drain(SECONDS)
    with with_outputs(AFTER) as flow:
        flow.stream("a").push([cl.update(k=1, note="n", g="x", v=1 << 33)]).result(SECONDS)
        flow.drain(SECONDS)
    rows = [row for batch in store.table("changes").read() for row in batch.to_pylist()]
    assert [(row["_op"], row["note"], row["g"], row["v"]) for row in rows] == [
        ("INSERT", None, "x", 1),
        ("UPDATE_BLOCK", "n", "x", 1 << 33),
        ("DELETE", None, "x", 1),
    ]
    files = [pq.read_table(one).to_pylist() for one in sorted(tmp_path.glob("*.parquet"))]
    assert [(row.get("note"), row["g"], row["v"]) for part in files for row in part] == [
        (None, "x", 1),
        ("n", "x", 1 << 33),
    ]


# --- Deaths -----------------------------------------------------------------------------------------------------------


def die(bucket: Any, schema: pa.Schema, work: Callable[[cl.Flow], Any]) -> None:
    """A process that ends after `work`, without a last commit."""
    fuse = Fuse(10**9, is_done=False, hiccups={})
    store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
    flow = flow_of(store, schema, checkpoint=3600)
    flow.start()
    work(flow)
    fuse.blow()
    for one in (flow.stop, store.close):
        with suppress(Dead):
            one()


def test_a_flow_that_died_is_finished_as_it_was_first() -> None:
    """What its log has is of the columns that it had: a start with others says so, and leaves it alone."""
    bucket = open_bucket("memory://")
    with open_on(bucket, QuickSystem()) as store:
        begun(store)
    die(bucket, BEFORE, lambda flow: flow.stream("a").push(cl.insert(k=50, g="late", v=5)).result(SECONDS))
    with open_on(bucket, QuickSystem()) as store:
        with pytest.raises(
            cl.StreamChanged, match=r"was not stopped in order: .*Start it as it was declared, and stop"
        ):
            flow_of(store, AFTER).start()
        assert store.table("a").schema.names == BEFORE.names
        with flow_of(store) as flow:
            assert flow.stream("a").get(50)["g"] == "late"
            flow.stream("a").push(cl.delete(k=50)).result(SECONDS)
            flow.drain(SECONDS)
        with flow_of(store, AFTER) as flow:
            checked(flow)


def test_a_replay_writes_the_same_where_the_table_has_another_order() -> None:
    """What was pushed with the new columns, and by a process that died."""
    bucket = open_bucket("memory://")
    with open_on(bucket, QuickSystem()) as store:
        begun(store)

    def work(flow: cl.Flow) -> None:
        a = flow.stream("a")
        a.push([cl.insert(k=50, note="n", g="late", v=1 << 33), cl.delete(k=1)]).result(SECONDS)
        many = {"k": range(400, 500), "note": ["m"] * 100, "g": ["y"] * 100, "v": [7] * 100, "_op": ["INSERT"] * 100}
        a.push(pa.table(many)).result(SECONDS)

    die(bucket, AFTER, work)
    with open_on(bucket, QuickSystem()) as store, flow_of(store, AFTER) as flow:
        flow.drain(SECONDS)
        for name, factor in (("a", 1), ("d", 2), ("b", 1), ("p", 1)):
            assert flow.stream(name).get(50) == {"k": 50, "note": "n", "g": "late", "v": (1 << 33) * factor}
            assert flow.stream(name).get(1) is None
            assert flow.stream(name).get(499)["note"] == "m"


@pytest.mark.slow
def test_a_crash_at_any_request_of_a_start_with_other_columns() -> None:
    """The next one comes to the same."""
    died = 0
    for requests in range(1, 400, 2):
        bucket = open_bucket("memory://")
        with open_on(bucket, QuickSystem()) as store:
            begun(store)
        is_dead = _start_and_die(bucket, requests)
        died += is_dead
        with open_on(bucket, QuickSystem()) as store, flow_of(store, AFTER) as flow:
            checked(flow)
        if not is_dead:
            break
    assert died > 10
    assert not is_dead


def _start_and_die(bucket: Any, requests: int) -> bool:
    fuse = Fuse(requests, is_done=requests % 4 == 1, hiccups={})
    try:
        store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
        flow = flow_of(store, AFTER)
        flow.start()
    except (Dead, ObjectStoreUnavailable):
        fuse.blow()
        return True
    for one in (flow.stop, store.close):
        with suppress(Dead, ObjectStoreUnavailable):
            one()
    return False
