"""Transactions on stores of all kinds: reads at one snapshot with own writes on top, and one commit."""
# ruff: noqa: PT012 - it is the end of a transaction's block that raises

import contextlib
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.store.versions import FakeSystem
from tussock.statestore import (
    Conflict,
    Fenced,
    InvalidOption,
    StateStore,
    StoreClosed,
    TableNotFound,
    Transaction,
    connect,
)
from tussock.statestore.transactions.attempts import transact
from tussock.statestore.transactions.transaction import Isolation

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("region", pa.string()), ("amount", pa.int64())])


def rows(*ids: int, amount: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "region": "north", "amount": amount} for number in ids]


@pytest.fixture
def orders(store: StateStore) -> StateStore:
    """A store with a typed table `orders`, which has rows 0 to 9, and a raw one `kv`."""
    store.create_table("orders", schema=SCHEMA, primary_key=["id"])
    store.create_table("kv")
    with store.transaction() as tx:
        tx.table("orders").upsert(rows(*range(10)))
        tx.table("kv").ingest_batch([(b"a", b"1"), (b"b", b"2")])
    return store


def test_one_epoch_holds_the_writes_to_all_tables(orders: StateStore, other: StateStore) -> None:
    """A reader sees none of them before the block has ended, and all of them after."""
    before = orders.committed_epoch
    with orders.transaction() as tx:
        tx.table("orders").upsert(rows(3, amount=7))
        tx.table("orders").delete([4])
        tx.table("kv").ingest_batch([(b"a", None), (b"c", b"3")])
        assert orders.table("orders").get(3)["amount"] == 0
        assert orders.table("kv").get(b"c") is None
    assert tx.snapshot_epoch == before < tx.epoch
    other.wait_epoch(tx.epoch)
    assert other.table("orders").get(3, tx.epoch)["amount"] == 7
    assert other.table("orders").get(4) is None
    assert other.table("orders").get(4, before)["amount"] == 0
    assert [pair["key"] for batch in other.table("kv").scan() for pair in batch.to_pylist()] == [b"b", b"c"]


def test_reads_see_own_writes_and_nothing_that_came_later(orders: StateStore, other: StateStore) -> None:
    """By get, multi_get, read with its options, and scan in both directions; as it has read all, it conflicts."""
    with pytest.raises(Conflict), orders.transaction() as tx:
        mine = tx.table("orders")
        mine.upsert(rows(5, 20, amount=50))
        mine.delete([6])
        with other.transaction() as theirs:
            theirs.table("orders").upsert(rows(1, 30, amount=99))
        orders.wait_epoch(theirs.epoch)
        assert mine.get(5) == {"id": 5, "region": "north", "amount": 50}
        assert mine.get(6) is None
        assert mine.get(1)["amount"] == 0
        assert mine.get(30) is None
        found = mine.multi_get([1, 5, 6, 20, 30], columns=["amount"]).to_pylist()
        assert found == [{"amount": 0}, {"amount": 50}, None, {"amount": 50}, None]
        assert sorted(row["id"] for batch in mine.read() for row in batch.to_pylist()) == [
            0,
            1,
            2,
            3,
            4,
            5,
            7,
            8,
            9,
            20,
        ]
        large = [row["id"] for batch in mine.read(["id"], pc.field("amount") > 10) for row in batch.to_pylist()]
        assert sorted(large) == [5, 20]
        kv = tx.table("kv")
        kv.ingest_batch([(b"aa", b"own"), (b"b", None)])
        found = [(row["key"], row["value"]) for batch in kv.scan() for row in batch.to_pylist()]
        assert found == [(b"a", b"1"), (b"aa", b"own")]
        assert [row["key"] for batch in kv.scan(reverse=True) for row in batch.to_pylist()] == [b"aa", b"a"]
    assert orders.table("orders").get(5)["amount"] == 0


def test_an_exception_gives_everything_up(orders: StateStore) -> None:
    """The store is as before, and the transaction is over."""
    before = orders.committed_epoch
    with pytest.raises(ZeroDivisionError), orders.transaction() as tx:
        tx.table("orders").upsert(rows(1, amount=1))
        raise ZeroDivisionError
    assert orders.committed_epoch == before
    assert orders.table("orders").get(1)["amount"] == 0
    with pytest.raises(InvalidOption, match="has not committed"):
        assert tx.epoch
    with pytest.raises(StoreClosed, match="the transaction is over"):
        tx.table("orders")


def test_a_transaction_that_only_reads_commits_nothing(orders: StateStore, other: StateStore) -> None:
    """Whatever others commit meanwhile; its epoch is the one that it read."""
    before = orders.committed_epoch
    with orders.transaction() as tx:
        assert tx.table("orders").get(1)["amount"] == 0
        with other.transaction() as theirs:
            theirs.table("orders").upsert(rows(1, amount=1))
        orders.wait_epoch(theirs.epoch)
        assert tx.table("orders").get(1)["amount"] == 0
    assert tx.epoch == tx.snapshot_epoch == before
    assert orders.committed_epoch == theirs.epoch


READS: dict[str, Callable[[Any], object]] = {
    "get": lambda table: table.get(5),
    "get of an absent key": lambda table: table.get(77),
    "multi_get": lambda table: table.multi_get([1, 5, 77]),
    "read": lambda table: list(table.read()),
    "read with a filter": lambda table: list(table.read(["id"], pc.field("amount") > 1000)),
    "read by prefix": lambda table: [list(table.read(prefix=(number,))) for number in (5, 77)],
    "read by filter": lambda table: list(table.read(filter=pc.field("id").isin([1, 5, 77]) & (pc.field("amount") > 0))),
    "read by bounds": lambda table: list(table.read(filter=(pc.field("id") >= 5) & (pc.field("id") < 78))),
}
NEWS = {
    "get": 5,
    "get of an absent key": 77,
    "multi_get": 77,
    "read": 78,
    "read with a filter": 78,
    "read by prefix": 77,
    "read by filter": 77,
    "read by bounds": 77,
}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("compacted", [False, True], ids=["as written", "compacted"])
def test_what_was_read_and_written_since_conflicts(
    how: str, compacted: bool, orders: StateStore, other: StateStore
) -> None:
    """The error names table, key and both epochs; phantoms count, and so does what compaction has merged since."""
    with pytest.raises(Conflict) as raised, orders.transaction() as tx:
        READS[how](tx.table("orders"))
        with other.transaction() as theirs:
            theirs.table("orders").upsert(rows(NEWS[how], amount=1))
        if compacted:
            other.compact("orders")
        tx.table("kv").ingest_batch([(b"z", b"26")])
    assert raised.value.args[1:] == ("orders", tx.snapshot_epoch, theirs.epoch)
    assert f"key (id={NEWS[how]}) as of epoch {tx.snapshot_epoch}, and epoch {theirs.epoch}" in str(raised.value)
    assert orders.table("kv").get(b"z") is None


@pytest.mark.parametrize("how", ["get", "multi_get", "read by prefix", "read by filter", "read by bounds"])
def test_other_keys_of_the_same_table_conflict_with_nothing(how: str, orders: StateStore, other: StateStore) -> None:
    """Detection is by key: the table has moved on, and what was read has not."""
    with orders.transaction() as tx:
        READS[how](tx.table("orders"))
        for number in (2, 3, 4):
            with other.transaction() as theirs:
                theirs.table("orders").upsert(rows(number, amount=1))
        tx.table("orders").upsert(rows(8, amount=8))
    assert tx.epoch > theirs.epoch
    assert orders.table("orders").get(8)["amount"] == 8
    assert orders.table("orders").get(3)["amount"] == 1


def test_a_scan_that_was_not_read_to_its_end_depends_on_what_was_read(orders: StateStore, other: StateStore) -> None:
    """By a limit, forward and in reverse: what comes behind it is no conflict, what comes before it is one."""
    cases: list[tuple[dict[str, Any], bytes, bool]] = [
        ({"limit": 1}, b"a0", False),
        ({"limit": 1}, b"Z", True),
        ({"limit": 1, "reverse": True}, b"a1", False),
        ({"limit": 1, "reverse": True}, b"c", True),
        ({"start": b"aa", "end": b"ab"}, b"aab", True),
        ({"start": b"aa", "end": b"ab"}, b"abc", False),
    ]
    for keys, news, conflicts in cases:
        try:
            with orders.transaction() as tx:
                assert all(tx.table("kv").scan(**keys))
                with other.transaction() as theirs:
                    theirs.table("kv").ingest_batch([(news, b"new")])
                tx.table("orders").upsert(rows(8, amount=8))
        except Conflict:
            assert conflicts, (keys, news)
        else:
            assert not conflicts, (keys, news)
        with orders.transaction() as tidy:
            tidy.table("kv").ingest_batch([(news, None)])


def test_a_delete_that_others_committed_conflicts(orders: StateStore, other: StateStore) -> None:
    with pytest.raises(Conflict, match=r"key \(id=5\)"), orders.transaction() as tx:
        tx.table("orders").get(5)
        with other.transaction() as theirs:
            theirs.table("orders").delete([5])
        tx.table("orders").upsert(rows(8))


@pytest.mark.parametrize(("isolation", "commits"), [("serializable", 1), ("snapshot", 2)])
def test_write_skew_is_refused_by_serializable_isolation_only(
    isolation: Isolation, commits: int, orders: StateStore, other: StateStore
) -> None:
    """Each reads what the other writes: no serial order gives that result."""
    done = 0
    with contextlib.suppress(Conflict):
        with orders.transaction(isolation=isolation) as one:
            one.table("orders").get(1)
            one.table("orders").upsert(rows(2, amount=2))
            with other.transaction(isolation=isolation) as two:
                two.table("orders").get(2)
                two.table("orders").upsert(rows(1, amount=1))
            done += 1
        done += 1
    assert done == commits


def test_two_that_write_one_key_conflict_under_snapshot_isolation(orders: StateStore, other: StateStore) -> None:
    """No update is lost; under serializable isolation a write that rests on no read comes after the other."""
    with pytest.raises(Conflict, match=r"wrote key \(id=1\)"), orders.transaction(isolation="snapshot") as tx:
        tx.table("orders").upsert(rows(1, amount=1))
        with other.transaction() as theirs:
            theirs.table("orders").upsert(rows(1, amount=2))
    with orders.transaction() as tx:
        tx.table("orders").upsert(rows(1, amount=1))
        with other.transaction() as theirs:
            theirs.table("orders").upsert(rows(1, amount=2))
    assert orders.table("orders").get(1)["amount"] == 1


def test_a_repeated_batch_commits_once(orders: StateStore, other: StateStore) -> None:
    """The second one returns the first one's epoch, whatever it has read and whatever has been committed since."""
    epochs = []
    for store, amount in ((orders, 1), (other, 2)):
        with store.transaction(writer="job", batch_id=7) as tx:
            tx.table("orders").get(1)
            tx.table("orders").upsert(rows(1, amount=amount))
        epochs.append(tx.epoch)
    assert epochs[0] == epochs[1]
    other.wait_epoch(epochs[0])
    assert other.table("orders").get(1)["amount"] == 1


def test_transact_runs_a_batch_of_a_writer_once(orders: StateStore, other: StateStore) -> None:
    """A program that does not know whether its call held repeats it, and nothing is added twice."""

    def add(tx: Transaction) -> int:
        amount = int(tx.table("orders").get(1)["amount"]) + 1
        tx.table("orders").upsert(rows(1, amount=amount))
        return amount

    assert orders.transact(add, writer="job", batch_id=0) == 1
    other.wait_epoch(orders.committed_epoch)
    assert other.transact(add, writer="job", batch_id=0) == 2
    assert orders.table("orders").get(1)["amount"] == 1
    assert orders.transact(add, writer="job", batch_id=1) == 2
    older, generation = orders.open_writer("job"), other.open_writer("job")
    other.wait_epoch(orders.committed_epoch)
    with pytest.raises(Fenced):
        orders.transact(add, writer="job", batch_id=2, generation=older)
    assert other.transact(add, writer="job", batch_id=2, generation=generation) == 3


def test_transact_repeats_until_nothing_is_in_the_way(orders: StateStore, other: StateStore) -> None:
    """It returns what the function returned in the run that committed."""
    seen: list[int] = []

    def add(tx: Transaction) -> int:
        amount = int(tx.table("orders").get(1)["amount"])
        seen.append(amount)
        if len(seen) < 3:
            with other.transaction() as theirs:
                theirs.table("orders").upsert(rows(1, amount=10 * len(seen)))
        tx.table("orders").upsert(rows(1, amount=amount + 1))
        return amount + 1

    assert orders.transact(add) == 21
    assert seen == [0, 10, 20]
    seen.clear()
    with pytest.raises(Conflict):
        orders.transact(add, attempts=2)


class PausingSystem(FakeSystem):
    """Notes each pause, and draws what the test says."""

    def __init__(self, drawn: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.bytes = bytes([drawn])

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def random_bytes(self, count: int) -> bytes:
        return self.bytes * count


@pytest.mark.parametrize(("drawn", "share"), [(0, 0.5), (128, 1.0 + 128 / 65536), (255, 1.5 - 1 / 65536)])
def test_pauses_between_attempts_double_up_to_a_second(drawn: int, share: float) -> None:
    """Each times 0.5 to 1.5, by chance, and none after the last attempt or before one that commits."""
    with connect("memory://backing-off") as store:
        system = PausingSystem(drawn)

        def refuse(_: Transaction) -> None:
            raise Conflict("somebody was faster")

        with pytest.raises(Conflict, match="somebody was faster"):
            transact(store.transaction, refuse, 12, system)
        doubled = [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0]
        assert system.pauses == pytest.approx([seconds * share for seconds in doubled])
        system.pauses.clear()
        assert transact(store.transaction, lambda _: 7, 12, system) == 7
        assert system.pauses == []


def test_a_table_that_was_dropped_meanwhile_conflicts(orders: StateStore, other: StateStore) -> None:
    with pytest.raises(Conflict, match="'kv' was dropped after epoch"), orders.transaction() as tx:
        tx.table("kv").get(b"a")
        other.drop_table("kv")
        tx.table("orders").upsert(rows(1))


def test_the_first_transaction_of_an_empty_store(store: StateStore, other: StateStore) -> None:
    """It reads nothing, and a phantom counts for it as well."""
    store.create_table("kv")
    with pytest.raises(Conflict), store.transaction() as tx:
        assert list(tx.table("kv").scan()) == []
        with other.transaction() as theirs:
            theirs.table("kv").ingest_batch([(b"a", b"1")])
        tx.table("kv").ingest_batch([(b"b", b"2")])
    with store.transaction() as tx:
        assert tx.table("kv").get(b"a") == b"1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"isolation": "dirty"}, "expected 'serializable' or 'snapshot'"),
        ({"isolation": None}, "expected 'serializable' or 'snapshot'"),
        ({"writer": "job"}, "batch_id"),
        ({"batch_id": 3}, "writer"),
    ],
)
def test_an_impossible_transaction_is_refused(arguments: dict[str, Any], words: str) -> None:
    with connect("memory://") as store, pytest.raises(InvalidOption, match=words):
        store.transaction(**arguments)


@pytest.mark.parametrize("attempts", [0, -1, 1001, "3", None, True])
def test_an_impossible_number_of_attempts_is_refused(attempts: Any) -> None:
    with connect("memory://") as store, pytest.raises(InvalidOption, match="attempts is"):
        store.transact(lambda tx: None, attempts=attempts)


def test_transactions_that_are_never_begun_keep_nothing() -> None:
    """A thousand objects that were made and dropped leave no buffers behind.

    Other threads of the process may keep something now and then; what transactions kept would grow each time.
    """

    def kept() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    with connect("memory://") as store:
        store.create_table("kv")
        tracemalloc.start()
        try:
            grown = []
            for number in (50, 1000, 1000, 1000):
                before = kept()
                for _ in range(number):
                    store.transaction()
                grown.append(kept() - before)
        finally:
            tracemalloc.stop()
        assert min(grown[1:]) < 200_000, grown


def test_what_a_transaction_cannot_do_is_refused(orders: StateStore) -> None:
    """Other epochs, changes, uploads, unknown tables; the transaction goes on."""
    with orders.transaction() as tx:
        table = tx.table("orders")
        with pytest.raises(InvalidOption, match="takes no epoch"):
            table.upsert(rows(1), orders.new_epoch())
        with pytest.raises(InvalidOption, match="reads at its snapshot"):
            table.get(1, tx.snapshot_epoch - 1)
        with pytest.raises(InvalidOption, match="changes are not part of a transaction"):
            table.changes(0)
        with pytest.raises(InvalidOption, match="changes are not part of a transaction"):
            list(table.change_feed(0))
        with pytest.raises(InvalidOption, match=r"upload\(\) is not part of a transaction"):
            table.upload([])
        with pytest.raises(TableNotFound, match=r"'nothing'.*create tables before it begins"):
            tx.table("nothing")
        table.upsert(rows(1, amount=1))
    assert orders.table("orders").get(1)["amount"] == 1
    with pytest.raises(StoreClosed, match="the transaction is over"):
        table.upsert(rows(2))


async def later(tx: Transaction) -> None:
    """Nothing of it runs when it is called."""
    tx.table("orders").upsert(rows(77))


def steps(tx: Transaction) -> Iterator[None]:
    """Nothing of it runs when it is called, either."""
    tx.table("orders").upsert(rows(77))
    yield


@pytest.mark.parametrize("fn", [5, None, later, steps, lambda tx: later(tx)])
def test_what_does_not_run_when_it_is_called_is_no_transaction(orders: StateStore, fn: Any) -> None:
    """It did nothing, and an empty transaction was reported as committed."""
    before = orders.committed_epoch
    with pytest.raises(InvalidOption, match="the function of a transaction"):
        orders.transact(fn)
    assert orders.committed_epoch == before


def test_rows_that_a_transaction_returns_may_be_read_later(orders: StateStore) -> None:
    """Reads are generators, and no transactions."""
    assert sum(batch.num_rows for batch in orders.transact(lambda tx: tx.table("orders").read())) == 10
