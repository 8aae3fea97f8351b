"""Concurrency inside one process: threads that commit, read, spill and compact on one store."""

import threading
from collections.abc import Callable

import pytest

from support import inside
from support.store.stores import changes_of, pairs
from tussock.meta.version.invariants import problems
from tussock.statestore import StateStore, connect

ACCOUNTS = 20
TOTAL = 1000 * ACCOUNTS


def together(*works: Callable[[], None]) -> None:
    """Run all in threads; an error of any thread fails the test."""
    errors: list[BaseException] = []

    def guard(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def key(at: int) -> bytes:
    return b"account %03d" % at


def test_a_bank_is_never_seen_out_of_balance(bucket_url: str) -> None:
    """Transfers commit as epochs, while readers, a compactor and a vacuum work: the sum is constant."""
    with connect(bucket_url, gc_grace=0, cache_bytes=20_000) as store:
        bank = store.create_table("bank", block_bytes=512)
        bank.ingest_batch([(key(at), b"1000") for at in range(ACCOUNTS)], 1)
        store.commit_epoch(1)
        done = threading.Event()
        epochs: list[int] = [1]

        def transfer() -> None:
            try:
                for step in range(60):
                    source, target = step * 7 % ACCOUNTS, (step * 11 + 3) % ACCOUNTS
                    if source == target:
                        continue
                    rows = {at: int(bank.get(key(at))) for at in (source, target)}
                    rows[source] -= step
                    rows[target] += step
                    epoch = store.new_epoch()
                    bank.ingest_batch(sorted((key(at), b"%d" % value) for at, value in rows.items()), epoch)
                    epochs.append(store.commit_epoch(epoch))
            finally:
                done.set()

        def audit() -> None:
            rounds = 0
            while not done.is_set() or rounds < 5:
                rounds += 1
                with store.pin_snapshot() as snapshot:
                    table = snapshot.table("bank")
                    assert sum(int(value) for _, value in pairs(table.scan())) == TOTAL
                    assert sum(map(int, table.multi_get([key(at) for at in range(ACCOUNTS)]).to_pylist())) == TOTAL
                old = epochs[rounds % len(epochs)]
                assert sum(int(value) for _, value in pairs(bank.scan(epoch=old, reverse=True))) == TOTAL

        def upkeep() -> None:
            rounds = 0
            while not done.is_set() or rounds < 2:
                rounds += 1
                store.compact("bank")
                store.vacuum()

        together(transfer, audit, audit, upkeep)
        assert len(set(epochs)) == len(epochs)
        for epoch in epochs:
            assert sum(int(value) for _, value in pairs(bank.scan(epoch=epoch))) == TOTAL
        assert problems(store.version()) == []  # type: ignore[arg-type]


def test_threads_that_write_their_own_tables_spill_and_commit_concurrently(bucket_url: str) -> None:
    """With a tiny buffer all of them spill at once: no row is lost, doubled or in another's epoch."""
    writers, batches = 4, 12
    with connect(bucket_url, buffer_bytes=500, gc_grace=0) as store:
        for number in range(writers):
            store.create_table(f"t{number}")

        def write(number: int) -> None:
            table = store.table(f"t{number}")
            for batch in range(batches):
                epoch = store.new_epoch()
                for part in range(3):
                    rows = [(b"%d %02d %d %d" % (number, batch, part, at), b"v" * 40) for at in range(4)]
                    table.ingest_batch(rows, epoch)
                assert len(pairs(table.scan(prefix=b"%d %02d" % (number, batch)))) == 12
                store.commit_epoch(epoch)

        together(*(lambda number=number: write(number) for number in range(writers)))  # type: ignore[misc]
        for number in range(writers):
            table = store.table(f"t{number}")
            changes = changes_of(table)
            assert len(changes) == batches * 12
            per_epoch: dict[int, set[bytes]] = {}
            for row in changes:
                per_epoch.setdefault(row["epoch"], set()).add(row["key"][:4])
            assert sorted(map(len, per_epoch.values())) == [1] * batches
        assert problems(store.version()) == []  # type: ignore[arg-type]


def test_a_reader_never_misses_a_row_while_it_moves_from_buffer_to_sst(store: StateStore) -> None:
    """A key that was written once is in every later read, before, during and after its commit."""
    kv = store.create_table("kv")
    kv.ingest_batch([(b"k", b"0")], store.new_epoch())
    done = threading.Event()

    def write() -> None:
        try:
            for at in range(1, 80):
                epoch = store.new_epoch()
                kv.ingest_batch([(b"k", b"%d" % at)], epoch)
                if at == 1:
                    # The first epoch, still open, is in the way of the others.
                    store.commit_epoch(min(inside.writes_at(store)))
                store.commit_epoch(epoch)
        finally:
            done.set()

    def read() -> None:
        newest = 0
        while not done.is_set():
            for value in (kv.get(b"k"), kv.multi_get([b"k"])[0].as_py(), dict(pairs(kv.scan()))[b"k"]):
                assert value is not None
                assert int(value) >= newest, "reads of one client go forward"
                newest = int(value)

    together(write, read, read)
    assert kv.get(b"k") == b"79"


@pytest.mark.parametrize("commits", [1, 20])
def test_closing_while_the_background_compacts_ends_cleanly(bucket_url: str, commits: int) -> None:
    """The thread stops at the next opportunity; nothing is lost, and no claim stays behind."""
    with connect(bucket_url) as store:
        kv = store.create_table("kv")
        for at in range(commits):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"%02d" % at, b"v")], epoch)
            store.commit_epoch(epoch)
        url = store.url
    if not url.startswith("memory"):
        with connect(url, compaction=False) as store:
            assert len(pairs(store.table("kv").scan())) == commits
            assert store.version().tasks == {}  # type: ignore[attr-defined]
