"""Small transactions that end while a commit is on its way commit together; nothing else changes by that.

Each story holds the first commit of a store up in its bucket until all other threads wait at their own ends.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from support.buckets.faulty_bucket import Call, Fate, FaultyBucket
from support.store.stores import open_on, pairs
from support.waiting import eventually
from tussock.statestore import Conflict, ObjectStoreUnavailable, StateStore, TableNotFound
from tussock.statestore.base.system import RealSystem
from tussock.statestore.buckets import open_bucket
from tussock.statestore.tables import raw_table
from tussock.statestore.tables.raw_input import encode_few

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])

Work = Callable[[Any], None]


@pytest.fixture
def bucket() -> FaultyBucket:
    return FaultyBucket(open_bucket("memory://"))


@pytest.fixture
def store(bucket: FaultyBucket) -> Iterator[StateStore]:
    with open_on(bucket, RealSystem()) as opened:
        opened.create_table("numbers", SCHEMA, primary_key=["k"])
        opened.create_table("others", SCHEMA, primary_key=["k"])
        with opened.transaction() as tx:
            tx.table("numbers").upsert([{"k": k, "v": 0} for k in range(20)])
        yield opened


def is_log(call: Call) -> bool:
    return call.operation == "create" and call.path.startswith("log/")


def end_at_once(
    store: StateStore, bucket: FaultyBucket, works: list[Work], meanwhile: Callable[[], None] = lambda: None
) -> list[Any]:
    """Run each of `works` in a transaction, each in another thread; all but the first end while that commits.

    Returns for each its epoch, or its error.
    """
    ended: list[Any] = [None] * len(works)
    held, begun = threading.Event(), threading.Barrier(len(works))

    def run(at: int) -> None:
        try:
            with store.transaction() as tx:
                begun.wait(60)
                works[at](tx)
                if at:
                    assert held.wait(60)
            ended[at] = tx.epoch
        except Exception as error:
            ended[at] = error

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(works))]

    def hold() -> None:
        held.set()
        eventually(lambda: all(is_waiting(thread) for thread in threads[1:]))
        meanwhile()

    bucket.stall(is_log, hold)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return ended


def is_waiting(thread: threading.Thread) -> bool:
    if not thread.is_alive():
        return True
    frame = sys._current_frames().get(thread.ident or 0)
    names = []
    while frame is not None and len(names) < 3:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    # At its end, and not for `held`, which is an event, nor at the barrier, which waits in `_wait`.
    return names[:2] == ["wait", "wait_for"] and names[2:] != ["_wait"]


def set_row(k: int, v: int, table: str = "numbers") -> Work:
    return lambda tx: tx.table(table).upsert([{"k": k, "v": v}])


def add(k: int) -> Work:
    def work(tx: Any) -> None:
        table = tx.table("numbers")
        table.upsert([{"k": k, "v": table.get(k)["v"] + 1}])

    return work


def values(store: StateStore, table: str = "numbers") -> dict[int, int]:
    return {row["k"]: row["v"] for batch in store.table(table).read() for row in batch.to_pylist() if row["v"]}


def test_those_that_wait_share_an_epoch_and_an_object(store: StateStore, bucket: FaultyBucket) -> None:
    """Of rows in two tables; the bucket has one create for the first, and one for all others."""
    before = len(bucket.calls)
    works = [add(0), *(add(k) for k in range(1, 8)), set_row(3, 5, "others")]
    ended = end_at_once(store, bucket, works)
    assert len(set(ended)) == 2, ended
    assert ended[1:] == [ended[1]] * 8
    assert sum(call.operation in ("create", "put") for call in bucket.calls[before:]) == 2
    assert values(store) == dict.fromkeys(range(8), 1)
    assert values(store, "others") == {3: 5}


def test_those_that_share_are_encoded_once(
    store: StateStore, bucket: FaultyBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not each as a run, to be merged with all the others."""
    store.create_table("raw")
    encoded: list[int] = []

    def counted(keys: Sequence[bytes], rows: Any) -> Any:
        encoded.append(len(keys))
        return encode_few(keys, rows)

    monkeypatch.setattr(raw_table, "encode_few", counted)
    works: list[Work] = [lambda tx, key=key: tx.table("raw").ingest_batch([(key, key)]) for key in (b"0", b"1", b"2")]
    end_at_once(store, bucket, [*works, works[-1]])
    assert encoded == [1, 2]
    assert [key for key, _ in pairs(store.table("raw").scan())] == [b"0", b"1", b"2"]


def test_snapshot_isolation_finds_what_both_wrote_alone(store: StateStore) -> None:
    """Of rows that never were in a buffer, as of all others."""
    with pytest.raises(Conflict, match=r"wrote key \(k=3\)"), store.transaction(isolation="snapshot") as tx:  # noqa: PT012
        set_row(3, 1)(tx)
        with store.transaction() as faster:
            set_row(3, 7)(faster)
    assert values(store) == {3: 7}


def test_those_that_touch_each_other_do_not_share(store: StateStore, bucket: FaultyBucket) -> None:
    """Each adds one to the same row: one of the group holds, the others conflict with its epoch, which they name."""
    ended = end_at_once(store, bucket, [set_row(19, 1), *[add(5)] * 6])
    held = [one for one in ended[1:] if isinstance(one, int)]
    refused = [one for one in ended[1:] if isinstance(one, Conflict)]
    assert (len(held), len(refused)) == (1, 5)
    for error in refused:
        assert error.args[1:] == ("numbers", error.args[2], held[0])
        assert "key (k=5)" in str(error)
    assert values(store) == {5: 1, 19: 1}


def test_a_range_that_was_read_conflicts_within_the_group(store: StateStore, bucket: FaultyBucket) -> None:
    """A phantom of a transaction that ended just before."""

    def count(tx: Any) -> None:
        rows = sum(batch.num_rows for batch in tx.table("numbers").read(between=((10,), (40,))))
        tx.table("others").upsert([{"k": 0, "v": rows}])

    ended = end_at_once(store, bucket, [set_row(0, 1), set_row(30, 1), count, count])
    # Whichever of the counts came before the new row may hold, and then the row is after it.
    seen = values(store, "others").get(0)
    assert values(store)[30] == 1
    if any(isinstance(one, int) for one in ended[2:]):
        assert seen == 10
    else:
        assert seen is None
        assert all(isinstance(one, Conflict) for one in ended[2:])


def test_blind_writes_to_one_row_hold_in_the_order_of_their_ends(store: StateStore, bucket: FaultyBucket) -> None:
    """They depend on nothing; the row is that of one of them, and all have the same epoch."""
    ended = end_at_once(store, bucket, [set_row(0, 1), *(set_row(1, v) for v in range(10, 16))])
    assert ended[1:] == [ended[1]] * 6
    assert values(store)[1] in range(10, 16)


def test_a_commit_of_another_process_refuses_only_whom_it_touches(store: StateStore, bucket: FaultyBucket) -> None:
    """The group is made again without it."""
    with open_on(bucket.inner, RealSystem()) as other:

        def meanwhile() -> None:
            with other.transaction() as tx:
                tx.table("numbers").upsert([{"k": 2, "v": 100}])

        ended = end_at_once(store, bucket, [set_row(0, 1), add(1), add(2), add(3)], meanwhile)
    assert isinstance(ended[2], Conflict)
    assert all(isinstance(ended[at], int) for at in (0, 1, 3))
    store.wait_epoch(max(ended[at] for at in (0, 1, 3)))
    assert values(store) == {0: 1, 1: 1, 2: 100, 3: 1}


def test_a_table_that_was_dropped_refuses_only_who_wrote_to_it(store: StateStore, bucket: FaultyBucket) -> None:
    """By name."""
    works = [set_row(0, 1), set_row(1, 1, "others"), add(2), add(3)]
    with open_on(bucket.inner, RealSystem()) as other:
        ended = end_at_once(store, bucket, works, lambda: other.drop_table("others"))
    assert isinstance(ended[1], TableNotFound)
    assert "'others'" in str(ended[1])
    assert all(isinstance(ended[at], int) for at in (0, 2, 3))
    assert values(store) == {0: 1, 2: 1, 3: 1}


def test_a_bucket_that_fails_is_told_to_all(store: StateStore, bucket: FaultyBucket) -> None:
    """Each raises another error object, and nothing of them is visible."""
    creates = 0

    def fail_second(call: Call) -> Fate:
        nonlocal creates
        creates += is_log(call)
        return Fate.LOSE_REQUEST if is_log(call) and creates >= 2 else Fate.PASS

    bucket.script = fail_second
    ended = end_at_once(store, bucket, [set_row(0, 1), add(1), add(2), add(3)])
    assert isinstance(ended[0], int)
    assert all(isinstance(one, ObjectStoreUnavailable) for one in ended[1:])
    assert len({id(one) for one in ended[1:]}) == 3
    bucket.script = None
    assert values(store) == {0: 1}
    with store.transaction() as tx:
        add(1)(tx)
    assert values(store) == {0: 1, 1: 1}


def test_named_and_large_ones_commit_alone(store: StateStore, bucket: FaultyBucket) -> None:
    """A batch of a writer has to be found again, and much data is not copied."""
    with store.transaction(writer="w", batch_id=1) as tx:
        add(1)(tx)
    with store.transaction(writer="w", batch_id=1) as again:
        add(1)(again)
    assert again.epoch == tx.epoch
    large = [{"k": k, "v": 1} for k in range(100, 5000)]
    ended = end_at_once(store, bucket, [set_row(0, 1), lambda tx: tx.table("numbers").upsert(large), add(2)])
    assert len(set(ended)) == 3
    assert len(values(store)) == 3 + len(large)


def test_a_conflict_with_a_recent_commit_reads_nothing(store: StateStore, bucket: FaultyBucket) -> None:
    """The keys of what this store has just committed are known."""
    with pytest.raises(Conflict), store.transaction() as tx:  # noqa: PT012
        add(3)(tx)
        with store.transaction() as faster:
            set_row(3, 7)(faster)
        before = len(bucket.calls)
    read = [
        call for call in bucket.calls[before:] if call.operation in ("get", "get_range") and "log/" not in call.path
    ]
    assert not read
    assert values(store) == {3: 7}
