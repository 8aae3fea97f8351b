"""Tables as input and output of streams: a store epoch is a transaction, and each published one is there once."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from support.changelog.fed_files import rows_in_order
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, WaitTimeout

ORDER = pa.schema([pa.field("id", pa.int64(), nullable=False), ("item", pa.string()), ("n", pa.int64())])
BY_ITEM = pa.schema([pa.field("item", pa.string(), nullable=False), ("n", pa.int64())])


@pytest.fixture
def orders(store: StateStore) -> StateStore:
    store.create_table("orders", ORDER, primary_key=["id"])
    return store


def write(store: StateStore, rows: list[tuple[int, str, int]], gone: tuple[int, ...] = ()) -> int:
    """One epoch."""
    table, epoch = store.table("orders"), store.new_epoch()
    if rows:
        table.upsert([dict(zip(ORDER.names, row, strict=True)) for row in rows], epoch)
    if gone:
        table.delete(list(gone), epoch)
    return store.commit_epoch(epoch)


def flow_of(store: StateStore, feed: Any, *, schema: pa.Schema = ORDER, key: str = "id", **options: Any) -> Any:
    stream = cl.Stream(store, "live", schema=schema, key=[key], queue=options.pop("queue", 1024))
    flow = cl.Flow(store, [stream], **options)
    flow.feed(stream, feed)
    return stream, flow


def shown(transaction: Any) -> list[Any]:
    return [(str(one.op), one["id"], None if one.old is None else one.old["n"]) for one in transaction]


@pytest.mark.parametrize("images", [True, False])
def test_each_epoch_is_a_transaction(orders: StateStore, images: bool) -> None:
    """With images updates are blocks, and deletions have their row; a stream that lacks the row takes them, too."""
    write(orders, [(1, "nail", 5), (2, "saw", 1)])
    stream, flow = flow_of(orders, cl.TableFeed("orders", images=images))
    with flow:
        flow.drain(60)
        write(orders, [(1, "nail", 6), (3, "axe", 2)], gone=(2,))
        write(orders, [(1, "nail", 7)])
        write(orders, [], gone=(1, 17))
        flow.drain(60)
        seen = [shown(one) for one in stream.in_history()]
        out = [shown(one) for one in stream.out_history()]
    first = [("UPSERT", 1, None), ("UPSERT", 2, None)]
    if images:
        second = [("UPDATE_BLOCK", 1, 5), ("SAFEDELETE", 2, None), ("UPSERT", 3, None)]
        expected = [first, second, [("UPDATE_BLOCK", 1, 6)], [("SAFEDELETE", 1, None)]]
    else:
        second = [("SAFEDELETE", 2, None), ("UPSERT", 1, None), ("UPSERT", 3, None)]
        expected = [first, second, [("UPSERT", 1, None)], [("SAFEDELETE", 1, None)]]
    assert [sorted(one) for one in seen] == [sorted(one) for one in expected]
    assert out[2:] == [[("UPDATE_BLOCK", 1, 6)], [("DELETE", 1, None)]]
    assert rows_in_order(orders, "live") == [{"id": 3, "item": "axe", "n": 2}]


def test_with_images_a_row_moves_with_another_key(store: StateStore) -> None:
    """The stream's key need not be the table's."""
    schema = pa.schema([ORDER.field("id"), BY_ITEM.field("item"), ORDER.field("n")])
    store.create_table("orders", schema, primary_key=["id"])
    write(store, [(1, "nail", 5), (2, "saw", 1)])
    _, flow = flow_of(store, cl.TableFeed("orders", images=True), schema=BY_ITEM, key="item")
    with flow:
        flow.drain(60)
        write(store, [(1, "screw", 5)], gone=(2,))
        flow.drain(60)
    assert rows_in_order(store, "live") == [{"item": "screw", "n": 5}]
    other = cl.Stream(store, "other", schema=BY_ITEM, key=["item"])
    without = cl.Flow(store, [other])
    without.feed(other, cl.TableFeed("orders"))
    with pytest.raises(InvalidOption, match=r"tells \['id'\] only: declare TableFeed\(…, images=True\)"):
        without.start()


def test_latest_takes_updates_of_rows_that_it_never_saw(orders: StateStore) -> None:
    write(orders, [(1, "nail", 5), (2, "saw", 1)])
    _, flow = flow_of(orders, cl.TableFeed("orders", start="latest", images=True))
    with flow:
        write(orders, [(1, "nail", 6)], gone=(2,))
        flow.drain(60)
    assert rows_in_order(orders, "live") == [{"id": 1, "item": "nail", "n": 6}]


def test_a_replay_reads_the_same_epochs(orders: StateStore) -> None:
    """What the log has and no commit, and what waits in the queue of a stream that is held."""
    stream, flow = flow_of(orders, cl.TableFeed("orders", images=True), checkpoint=3600)
    flow.start()
    write(orders, [(1, "nail", 5)])
    flow.drain(60)
    stream.hold()
    for number in range(6, 10):
        write(orders, [(1, "nail", number)])
    eventually(lambda: stream.queued == 4)
    second, successor = flow_of(orders, cl.TableFeed("orders", images=True))
    with successor:
        successor.drain(60)
        assert [shown(one) for one in second.out_history()][1:] == [[("UPDATE_BLOCK", 1, n)] for n in range(5, 9)]
    with pytest.raises(cl.ApplicationFenced):
        flow.stop()
    assert rows_in_order(orders, "live") == [{"id": 1, "item": "nail", "n": 9}]


def test_what_waits_in_a_queue_is_there_after_a_stop(orders: StateStore) -> None:
    """The position is behind it already."""
    stream, flow = flow_of(orders, cl.TableFeed("orders"))
    with flow:
        stream.hold()
        for number in range(4):
            write(orders, [(1, "nail", number)])
        eventually(lambda: stream.queued == 4)
    with flow:
        flow.drain(60)
        assert flow.stats()["feeds"]["live"]["batches"] == 0
        assert [[one["n"] for one in each] for each in stream.out_history()] == [[0], [1], [2], [3]]


def test_a_feed_waits_while_the_queue_is_full(orders: StateStore) -> None:
    """And goes on once there is room; nothing is dropped. A stop does not wait for it."""
    stream, flow = flow_of(orders, cl.TableFeed("orders"), queue=2)
    with flow:
        stream.hold()
        for number in range(30):
            write(orders, [(number, "nail", number)])
        with pytest.raises(WaitTimeout):
            flow.drain(1)
        assert stream.queued == 2
        stream.release()
        flow.drain(60)
        assert len(rows_in_order(orders, "live")) == 30
        stream.hold()
        for number in range(30, 60):
            write(orders, [(number, "nail", number)])
        eventually(lambda: stream.queued == 2)
    with flow:
        flow.drain(60)
    assert [row["id"] for row in rows_in_order(orders, "live")] == list(range(60))


def test_epochs_that_come_all_the_time_are_taken_once(orders: StateStore) -> None:
    """While the flow stops and starts."""
    is_over = threading.Event()

    def produce() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            write(orders, [(number % 10, "nail", number)], gone=((number * 7) % 10,) if number % 3 == 0 else ())

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for _ in range(5):
            _, flow = flow_of(orders, cl.TableFeed("orders", images=True), checkpoint=0.05)
            with flow:
                goal = flow.stats()["feeds"]["live"]["batches"] + 10
                eventually(lambda flow=flow, goal=goal: flow.stats()["feeds"]["live"]["batches"] >= goal)  # type: ignore[misc]
    finally:
        is_over.set()
        producer.join()
    with flow:
        flow.drain(60)
    assert rows_in_order(orders, "live") == rows_in_order(orders, "orders")


# --- Declarations ----------------------------------------------------------------------------------------------------


def test_a_stream_that_is_fed_takes_no_pushes(orders: StateStore) -> None:
    stream, flow = flow_of(orders, cl.TableFeed("orders"))
    with flow, pytest.raises(InvalidOption, match="has a feed, and takes nothing from others"):
        stream.push([cl.upsert(id=1)])


def test_what_cannot_be_fed_is_refused(orders: StateStore) -> None:
    stream = cl.Stream(orders, "s", schema=ORDER, key=["id"])
    behind = cl.Stream(orders, "b", schema=ORDER, key=["id"], inputs=[stream])
    flow = cl.Flow(orders, [stream, behind])
    for target, feed, why in (
        (behind, cl.TableFeed("orders"), "reads other streams"),
        (stream, "orders", "expected a TableFeed, KafkaChanges or FileFeed"),
        ("x", cl.TableFeed("orders"), "has no stream 'x'"),
    ):
        with pytest.raises(InvalidOption, match=why):
            flow.feed(target, feed)  # type: ignore[arg-type]
    flow.feed(stream, cl.TableFeed("orders"))
    with pytest.raises(InvalidOption, match="has a feed already"):
        flow.feed(stream, cl.TableFeed("orders"))
    with flow, pytest.raises(InvalidOption, match="runs: stop it first"):
        flow.output(behind, "out")


@pytest.mark.parametrize("table", ["s", "out"])
def test_a_flow_that_would_feed_itself_is_refused(store: StateStore, table: str) -> None:
    stream = cl.Stream(store, "s", schema=ORDER, key=["id"])
    flow = cl.Flow(store, [stream])
    flow.output(stream, "out")
    flow.feed(stream, cl.TableFeed(table))
    with pytest.raises(InvalidOption, match="it would never end"):
        flow.start()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([ORDER.field("id"), ("n", pa.int32())]), "has it as int64"),
        (pa.schema([ORDER.field("id"), ("x", pa.int32())]), "lacks it"),
        (pa.schema([ORDER.field("id"), pa.field("n", pa.int64(), nullable=False)]), "has it as int64"),
    ],
)
def test_a_table_of_other_columns_is_refused(orders: StateStore, schema: pa.Schema, why: str) -> None:
    _, flow = flow_of(orders, cl.TableFeed("orders"), schema=schema)
    with pytest.raises(SchemaMismatch, match=why):
        flow.start()


# --- Outputs ---------------------------------------------------------------------------------------------------------


def outputs_of(store: StateStore, **options: Any) -> tuple[cl.Stream, cl.Flow]:
    stream = cl.Stream(store, "s", schema=ORDER, key=["id"])
    flow = cl.Flow(store, [stream], checkpoint=0.05)
    flow.output(stream, "out", **options)
    return stream, flow


def push(stream: cl.Stream, *records: cl.ChangeRecord) -> None:
    stream.push(records).result(30)


def put_out(store: StateStore) -> list[Any]:
    return [
        tuple(row[name] for name in ("_sequence", "_position", "_op", "id", "n")) for row in rows_in_order(store, "out")
    ]


@pytest.mark.parametrize("blocks", [True, False])
def test_a_table_has_each_record_that_was_published(store: StateStore, blocks: bool) -> None:
    """By transaction and place; what is bad, or changes nothing, is not there; a start adds nothing."""
    stream, flow = outputs_of(store, blocks=blocks)
    with flow:
        push(stream, cl.insert(id=1, n=1), cl.insert(id=2, n=2))
        push(stream, cl.insert(id=1, n=9), cl.insert(id=3, n=3))
        push(stream, cl.upsert(id=2, n=2))
        push(stream, cl.update(id=1, n=5), cl.delete(id=2))
        flow.drain(60)
    with flow:
        flow.drain(60)
    pair = [(3, 0, "UPDATE_BLOCK", 1, 5), (3, 1, "DELETE", 1, 1), (3, 2, "DELETE", 2, 2)]
    plain = [(3, 0, "UPDATE", 1, 5), (3, 1, "DELETE", 2, 2)]
    assert put_out(store) == [(1, 0, "INSERT", 1, 1), (1, 1, "INSERT", 2, 2), *(pair if blocks else plain)]


def test_a_table_keeps_its_newest_rows(store: StateStore) -> None:
    stream, flow = outputs_of(store, keep_rows=3)
    with flow:
        for number in range(10):
            push(stream, cl.upsert(id=1, n=number))
        flow.drain(60)
    assert [row[4] for row in put_out(store)] == [7, 8, 9]


def test_a_large_transaction_is_put_out_by_columns(store: StateStore) -> None:
    stream, flow = outputs_of(store)
    rows = pa.table({"id": range(2000), "item": ["x"] * 2000, "n": range(2000), "_op": ["UPSERT"] * 2000})
    with flow:
        stream.push(rows).result(30)
        stream.push(rows.set_column(2, "n", pa.array([1] * 2000))).result(30)
        flow.drain(60)
    found = put_out(store)
    assert [(row[2], row[3], row[4]) for row in found[:2000]] == [("INSERT", n, n) for n in range(2000)]
    assert [(row[2], row[3], row[4]) for row in found[2000:]] == [("UPDATE", n, 1) for n in range(2000) if n != 1]


def test_outputs_that_cannot_be_are_refused(store: StateStore) -> None:
    stream, flow = outputs_of(store)
    with pytest.raises(InvalidOption, match="has an output 's' already; give this one another name="):
        flow.output(stream, "other")
    with pytest.raises(InvalidOption, match="expected a table's name"):
        flow.output(stream, 7, name="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="keep_rows= is for tables"):
        flow.output(stream, cl.ParquetFiles("memory://"), keep_rows=1, name="x")
    flow.output(stream, "s", name="x")
    with pytest.raises(InvalidOption, match="goes to table 's', which a stream or another output writes"):
        flow.start()
    odd = cl.Stream(store, "odd", schema=pa.schema([ORDER.field("id"), ("_time", pa.int64())]), key=["id"])
    with pytest.raises(SchemaMismatch, match=r"columns \['_time'\] are what outputs add"):
        cl.Flow(store, [odd]).output(odd, "odd_out")
