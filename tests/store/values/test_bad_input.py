"""Bad input gets a clear error, and nothing is lost: the rows of the error table for arguments of calls."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.store.stores import pairs
from tussock.statestore import (
    InvalidBatch,
    InvalidOption,
    SchemaMismatch,
    StateStore,
    StoreClosed,
    TableExists,
    TableNotFound,
    connect,
)

ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.string()),
        pa.field("amount", pa.float64()),
    ]
)


def test_odd_but_legal_input_works(store: StateStore) -> None:
    """Empty batch, empty key, empty value, a 1 MiB value, a key with every byte value; before and after everything."""
    kv = store.create_table("kv")
    rows = [(b"", b"empty key"), (bytes(range(256)), b"all bytes"), (b"big", b"\xff" * (1 << 20)), (b"empty", b"")]
    rows += [(bytes([byte]), bytes([byte])) for byte in range(1, 256)]
    rows.sort()
    kv.ingest_batch([], 1)
    kv.ingest_batch(rows, 1)
    kv.ingest_batch(pa.table({"key": pa.array([], pa.binary()), "value": pa.array([], pa.binary())}), 1)
    for step in (lambda: None, lambda: store.commit_epoch(1), lambda: store.compact("kv")):
        step()
        assert pairs(kv.scan()) == rows
        assert pairs(kv.scan(reverse=True)) == rows[::-1]
        assert kv.multi_get([key for key, _ in rows]).to_pylist() == [value for _, value in rows]
        assert [kv.get(key) for key, _ in rows] == [value for _, value in rows]
        assert pairs(kv.scan(prefix=b"\xff")) == [(b"\xff", b"\xff")]
    with connect(store.url) as again:
        if not store.url.startswith("memory"):
            assert pairs(again.table("kv").scan()) == rows


def test_an_empty_epoch_commits(store: StateStore) -> None:
    """It advances the newest committed epoch, as idle batches of a stream do."""
    kv = store.create_table("kv")
    kv.ingest_batch([], 5)
    assert store.commit_epoch(5) == 5
    assert store.commit_epoch(6, writer="w", batch_id=0) == 6
    assert store.committed_epoch == 6
    assert kv.multi_get([]).to_pylist() == []
    assert pairs(kv.scan()) == []


@pytest.mark.parametrize("epoch", [0, -1, 1 << 63, True, 1.0, "1", None])
def test_a_wrong_epoch_is_refused(epoch: Any) -> None:
    """Writes and commits refuse it, with the legal range; so do reads, of which 0 is before all commits."""
    with connect("memory://") as store:
        kv = store.create_table("kv")
        calls: list[Callable[[], object]] = [
            lambda: kv.ingest_batch([(b"a", b"1")], epoch),
            lambda: store.commit_epoch(epoch),
            lambda: store.abort_epoch(epoch),
        ]
        if epoch != 0:
            calls.append(lambda: store.wait_epoch(epoch))
        for call in calls:
            with pytest.raises(InvalidBatch, match=r"1 to 2\*\*63-1"):
                call()
        reads: list[Callable[[], object]] = [lambda: kv.get(b"a", epoch=epoch), lambda: store.pin_snapshot(epoch)]
        for read in reads if epoch is not None and (epoch or type(epoch) is not int) else []:
            with pytest.raises(InvalidOption, match=r"0 to 2\*\*63-1; read at one such as store.committed_epoch"):
                read()
        assert pairs(kv.scan()) == []


def test_the_newest_epoch_of_an_empty_store_can_be_read(store: StateStore) -> None:
    """It is 0; what reads there, and then commits only if nothing came between, works from the first time on."""
    kv = store.create_table("kv")
    at = store.committed_epoch
    assert (at, kv.get(b"a", epoch=at), pairs(kv.scan(epoch=at)), list(kv.changes(at, at))) == (0, None, [], [])
    assert kv.multi_get([b"a"], epoch=at).to_pylist() == [None]
    with store.pin_snapshot(at) as snapshot:
        epoch = store.new_epoch()
        kv.ingest_batch([(b"a", b"1")], epoch)
        assert kv.get(b"a", epoch=at) is None
        store.commit_epoch(epoch, expect={"kv": at})
        assert (snapshot.epoch, snapshot.table("kv").get(b"a")) == (0, None)
        assert snapshot.table("kv").get(b"a", epoch=at) is None
    assert (kv.get(b"a", epoch=at), kv.get(b"a")) == (None, b"1")


BAD_ROWS = {
    "a column of another type": (
        pa.table({"id": [1], "customer": [3], "amount": [1.0]}),
        r"customer.*(string.*int64|int64.*string)",
    ),
    "a missing key column": (pa.table({"customer": ["a"], "amount": [1.0]}), "'id'"),
    "an unknown column": (pa.table({"id": [1], "customer": ["a"], "amount": [1.0], "price": [1.0]}), "price"),
    "a null in a key column": (
        pa.table({"id": pa.array([1, None], pa.int64()), "customer": ["a", "b"], "amount": [1.0, 2.0]}),
        "id.*null|null.*id",
    ),
    "not rows at all": (17, "orders.*int is not rows; expected a pyarrow Table or RecordBatch"),
    "a stream of batches": (pa.RecordBatchReader.from_batches(ORDERS, []), r"reader.read_all\(\)"),
    "a list of batches": ([pa.RecordBatch.from_pylist([], ORDERS)], r"position 0.*pa.Table.from_batches"),
}


@pytest.mark.parametrize(("rows", "words"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_do_not_fit_a_typed_table_are_refused_by_column(rows: Any, words: str) -> None:
    """`SchemaMismatch` has column, expected and found; none of the rows is stored."""
    with connect("memory://") as store:
        orders = store.create_table("orders", schema=ORDERS, primary_key=["id"])
        orders.upsert(pa.table({"id": [9], "customer": ["z"], "amount": [9.0]}), 1)
        with pytest.raises(SchemaMismatch, match=words):
            orders.upsert(rows, 1)
        store.commit_epoch(1)
        assert [row["id"] for batch in orders.read() for row in batch.to_pylist()] == [9]


@pytest.mark.parametrize("keys", [[(None,)], [("a",)], [(1, 2)], pa.table({"customer": ["a"]})])
def test_keys_that_do_not_fit_are_refused(keys: Any) -> None:
    """Deletes and reads refuse them alike."""
    with connect("memory://") as store:
        orders = store.create_table("orders", schema=ORDERS, primary_key=["id"])
        orders.upsert(pa.table({"id": [1], "customer": ["z"], "amount": [9.0]}), 1)
        for call in (lambda: orders.delete(keys, 1), lambda: orders.multi_get(keys)):
            with pytest.raises(SchemaMismatch):
                call()
        assert orders.get(1) == {"id": 1, "customer": "z", "amount": 9.0}


def test_keys_of_a_raw_table_are_bytes(store: StateStore) -> None:
    """Reads with other values are refused, with position and type."""
    kv = store.create_table("kv")
    calls: list[Callable[[], object]] = [
        lambda: kv.get("a"),
        lambda: kv.multi_get([b"a", "b"]),
        lambda: kv.multi_get(pa.array([b"a", None])),
        lambda: kv.multi_get(pa.array(["a"])),
        lambda: kv.scan(start="a"),
        lambda: kv.scan(end=3),
    ]
    for call in calls:
        with pytest.raises(SchemaMismatch, match="kv"):
            call()


def test_tables_are_found_created_and_dropped_by_name(store: StateStore, other: StateStore) -> None:
    """`TableExists` and `TableNotFound` name the table; another client sees a table as soon as it is created."""
    kv = store.create_table("kv")
    assert other.table("kv").get(b"a") is None
    with pytest.raises(TableExists, match="kv"):
        other.create_table("kv")
    with pytest.raises(TableNotFound, match=r"'nothing'.*its tables: 'kv'$"):
        store.table("nothing")
    with pytest.raises(TableNotFound, match="nothing"):
        store.drop_table("nothing")
    with pytest.raises(TableNotFound, match="nothing"):
        store.compact("nothing")
    kv.ingest_batch([(b"a", b"1")], 1)
    store.commit_epoch(1)
    other.drop_table("kv")
    assert store.tables() == []
    with pytest.raises(TableNotFound, match="dropped"):
        kv.get(b"a")
    assert pairs(store.create_table("kv").scan()) == [], "a new table of the name has none of the old rows"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "255"),
        ({"name": 3}, "name"),
        ({"name": "t", "compression": "snappy"}, "snappy"),
        ({"name": "t", "block_bytes": 10}, "256"),
        ({"name": "t", "primary_key": ["id"]}, "schema"),
        ({"name": "t", "schema": ORDERS}, "primary key"),
        ({"name": "t", "schema": ORDERS, "primary_key": ["nope"]}, "nope"),
        ({"name": "t", "schema": ORDERS, "primary_key": ["id"], "vnodes": 3}, "power of two"),
        ({"name": "t", "schema": ORDERS, "primary_key": ["id"], "distribution_key": ["amount"]}, "amount"),
    ],
)
def test_an_impossible_table_is_refused(arguments: dict[str, Any], words: str) -> None:
    """The error says what was given and what is possible; no table is created."""
    with connect("memory://") as store:
        with pytest.raises((InvalidOption, SchemaMismatch), match=words):
            store.create_table(**arguments)
        assert store.tables() == []


def test_a_table_that_is_not_there_is_told_with_some_that_are() -> None:
    """Not with all: a store may have a hundred thousand."""
    with connect("memory://") as store:
        for number in range(25):
            store.create_table(f"t{number:02}")
        with pytest.raises(TableNotFound, match=r"no table 'nope' .*: 't00', 't01', .*'t19' and 5 more$"):
            store.table("nope")
        with pytest.raises(TableNotFound, match="'t19' and 5 more"):
            store.compact("nope")


@pytest.mark.parametrize(
    "options",
    [{"retention": -1}, {"gc_grace": "1"}, {"deadline": 0}, {"cache_bytes": -1}, {"buffer_bytes": 1.5}],
)
def test_an_impossible_option_is_refused_by_name(options: dict[str, Any]) -> None:
    """The refusal comes before anything is opened."""
    with pytest.raises(InvalidOption, match=next(iter(options))):
        connect("memory://", **options)


@pytest.mark.parametrize("url", ["", "state", "/data/state", "http://x/y", "file://host/state", "s3://", "tussock:"])
def test_a_url_that_cannot_be_opened_is_refused(url: str) -> None:
    """`InvalidOption` names it."""
    with pytest.raises(InvalidOption):
        connect(url)


def test_a_scan_takes_a_prefix_or_bounds_and_no_negative_limit(store: StateStore) -> None:
    """`start` = `end` is empty, as is a limit of 0."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1"), (b"b", b"2")], 1)
    with pytest.raises(InvalidOption, match="prefix"):
        kv.scan(prefix=b"a", start=b"a")
    with pytest.raises(InvalidOption, match="-1"):
        kv.scan(limit=-1)
    assert pairs(kv.scan(start=b"a", end=b"a")) == pairs(kv.scan(limit=0)) == pairs(kv.scan(start=b"b", end=b"a")) == []
    with pytest.raises(InvalidOption, match="changes from 5 to 3"):
        kv.changes(5, 3)


def test_a_filter_with_any_bytes_that_cannot_be_evaluated_is_told(store: StateStore) -> None:
    """Arrow makes no text of an expression with a view of bytes that are no UTF-8."""
    orders = store.create_table("orders", schema=ORDERS, primary_key=["id"])
    for name in ("id", "amount"):
        with pytest.raises(InvalidOption, match=r"the filter \(with bytes that are no text\) cannot be evaluated"):
            orders.read(filter=pc.field(name) == pa.scalar(b"\xff", pa.binary_view()))
    with pytest.raises(InvalidOption, match=r"the filter \(amount == .*\) cannot be evaluated"):
        orders.read(filter=pc.field("amount") == pc.scalar(b"text"))


def test_a_value_of_two_gib_is_refused_alone_too(store: StateStore) -> None:
    """As are several that have as much together; it is shown by its beginning, not by a copy of all of it."""
    kv = store.create_table("kv")
    orders = store.create_table("orders", schema=ORDERS, primary_key=["id"])
    large = bytes(1 << 31)  # pages that nobody writes to take no memory
    for pair in ((b"k", large), (large, b"v")):
        with pytest.raises(InvalidBatch, match=r"2147483648 bytes in one batch, and at most 2 GiB fit"):
            kv.ingest_batch([pair], 1)
    tracemalloc.start()
    try:
        for wrong in (large, [large], {"a": (large,)}):
            with pytest.raises(SchemaMismatch, match=r"column 'customer'.* at position 0"):
                orders.upsert([{"id": 1, "customer": wrong}], 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert pairs(kv.scan()) == []


def test_a_closed_store_says_so(bucket_url: str) -> None:
    """Every call raises `StoreClosed`; closing again is no error."""
    store = connect(bucket_url)
    kv = store.create_table("kv")
    kv.ingest_batch([(b"a", b"1")], 1)
    store.commit_epoch(1)
    snapshot = store.pin_snapshot()
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.table("kv"),
        lambda: store.create_table("x"),
        lambda: store.drop_table("kv"),
        store.tables,
        lambda: store.committed_epoch,
        lambda: store.commit_epoch(2),
        lambda: store.pin_snapshot(),
        lambda: store.compact("kv"),
        store.vacuum,
        store.version,
        store.pins,
        lambda: kv.ingest_batch([(b"b", b"1")], 2),
        lambda: kv.multi_get([b"a"]),
        lambda: pairs(kv.scan()),
        lambda: pairs(snapshot.table("kv").scan()),
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()
