"""A store in a process that was forked after it was opened, and one that such a process opens."""

import copy
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from support.store.stores import pairs
from tussock.statestore import InvalidOption, StateStore, TussockError, connect

SECONDS_MAX = 60
_SCHEMA = pa.schema([pa.field("name", pa.string(), nullable=False), pa.field("at", pa.int64())])


def in_a_child(work: Callable[[], object]) -> str:
    """The result of `work`, or its error, in a forked process; "hangs" if it does not end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(work())
        except BaseException as error:  # the child has to end here, whatever happens
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + SECONDS_MAX
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hangs"
        time.sleep(0.01)
    with os.fdopen(reader) as answers:
        return answers.read()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """A store with a table, in a process in which Polars has worked."""
    pl.Series(range(10)).sort()
    with connect(tmp_path.as_uri()) as opened:
        table = opened.create_table("kv")
        table.ingest_batch([(b"a", b"1"), (b"bb", b"2")], 1)
        opened.commit_epoch(1)
        yield opened


def test_a_forked_child_gets_an_error_to_connect_again(store: StateStore) -> None:
    """Threads and leases stay with the parent, which goes on; the child gets a clear error instead of a hang."""
    table = store.table("kv")
    with store.pin_snapshot() as snapshot:
        pinned, begun = snapshot.table("kv"), table.scan()
        uses: list[Callable[[], object]] = [
            lambda: list(table.scan()),
            lambda: table.get(b"a"),
            lambda: table.multi_get([b"a"]),
            lambda: pinned.get(b"a"),
            lambda: snapshot.table("kv"),
            lambda: table.ingest_batch([(b"c", b"3")], 2),
            lambda: store.commit_epoch(2),
            lambda: store.abort_epoch(2),
            store.new_epoch,
            store.pin_snapshot,
            store.pins,
            store.tables,
            store.vacuum,
            store.version,
            lambda: store.compact("kv"),
            lambda: store.backup("b"),
            lambda: store.wait_epoch(9),
        ]
        for use in uses:
            assert "before this process was forked" in in_a_child(use)
        next(begun)
        # What the parent had read may be given, never more.
        assert "before this process was forked" in in_a_child(lambda: list(begun))
        assert in_a_child(snapshot.close) == in_a_child(store.close) == "None"
        assert [pin.epoch for pin in store.pins()] == [1], "the child has let go of the parent's pin"
        assert pinned.get(b"a") == b"1"
    assert pairs(table.scan()) == [(b"a", b"1"), (b"bb", b"2")]


@pytest.mark.parametrize("warm", [False, True], ids=["nothing read before", "threads of reads in the parent"])
def test_an_iterator_that_was_made_before_a_fork_is_refused_after_it(tmp_path: Path, warm: bool) -> None:
    """Also if no row was taken from it yet, and with cached metas; each kind of iterator."""
    with connect(tmp_path.as_uri()) as store:
        raw = store.create_table("raw")
        typed = store.create_table("typed", schema=_SCHEMA, primary_key=["name"])
        raw.ingest_batch([(b"%03d" % number, b"v") for number in range(50)], 1)
        typed.upsert([{"name": str(number), "at": number} for number in range(50)], 1)
        store.commit_epoch(1)
        with store.pin_snapshot() as snapshot:
            makers: list[Callable[[], Iterator[pa.RecordBatch]]] = [
                raw.scan,
                lambda: raw.scan(reverse=True),
                lambda: raw.scan(limit=1),
                typed.read,
                lambda: typed.read(vnodes=(0, 128)),
                snapshot.table("typed").read,
                lambda: raw.change_feed(0),
                lambda: typed.change_feed(0),
            ]
            for make in makers:
                if warm:
                    assert sum(batch.num_rows for batch in make())
                inherited = make()
                assert "before this process was forked" in in_a_child(partial(list, inherited))
                assert sum(batch.num_rows for batch in inherited)


def test_a_child_may_open_the_store_anew(store: StateStore, tmp_path: Path) -> None:
    """It writes, commits, compacts and reads keys of several widths, though Polars had worked before the fork."""

    def work() -> object:
        with connect(tmp_path.as_uri(), retention=0) as mine:
            kv = mine.table("kv")
            typed = mine.create_table("typed", schema=_SCHEMA, primary_key=["name"])
            for at in range(3):
                epoch = mine.new_epoch()
                rows = {b"%d" % (number * 7919 % 1000): b"%d" % at for number in range(1000)}
                kv.ingest_batch(sorted(rows.items()), epoch)
                typed.upsert([{"name": str(number * 7919 % 1000), "at": at} for number in range(1000)], epoch)
                assert kv.multi_get([b"5", b"77", b"none"]).to_pylist() == [b"%d" % at, b"%d" % at, None]
                mine.commit_epoch(epoch)
                assert typed.multi_get(["5", "77", "none"]).field("at").to_pylist() == [at, at, None]
            mine.compact("typed")
            assert typed.get("999")["at"] == 2
            return len(pairs(kv.scan()))

    assert in_a_child(lambda: in_a_child(work)) == "1002", "and so does a child of a child"
    with connect(tmp_path.as_uri()) as again:
        assert again.table("typed").get("5") == {"name": "5", "at": 2}
        assert again.table("kv").get(b"a") == b"1"


def test_a_remote_bucket_is_refused_in_a_process_without_its_threads() -> None:
    """Before any request, with what to do; a process that used none before its fork may open one."""

    def work() -> object:
        connect("s3://bucket/prefix", deadline=0.1)

    answer = in_a_child(lambda: (in_a_child(work), in_a_child(lambda: (_quietly(work), in_a_child(work)))))
    first, second = answer[1:-1].split(", ", 1)
    assert "ObjectStoreUnavailable" in first or "InvalidOption" in first
    assert "forked from one that had used memory:// or remote buckets" in second
    assert "spawn" in second


def test_a_remote_bucket_is_refused_after_a_fork_of_a_process_that_used_memory() -> None:
    """Both share the library's threads; memory itself still works in the child."""

    def use_memory() -> object:
        with connect("memory://", compaction=False) as store:
            store.create_table("kv").ingest_batch([(b"a", b"1")], 1)
            store.commit_epoch(1)
            return store.table("kv").get(b"a")

    assert use_memory() == b"1"
    assert in_a_child(use_memory) == "b'1'"
    assert "forked from one that had used memory://" in in_a_child(lambda: connect("s3://bucket/prefix", deadline=0.1))


def _quietly(work: Callable[[], object]) -> None:
    with suppress(TussockError):
        work()


@pytest.mark.parametrize("carry", [pickle.dumps, copy.deepcopy])
def test_a_store_cannot_be_carried_to_another_process(carry: Callable[[Any], object]) -> None:
    """Nor its tables and snapshots; the error says what to pass on instead."""
    with connect("memory://") as store, store.pin_snapshot() as snapshot:
        raw = store.create_table("raw")
        typed = store.create_table("typed", pa.schema([("k", pa.int64())]), ["k"])
        for one in (store, raw, typed, snapshot):
            with pytest.raises(InvalidOption, match="pass the URL on and connect there"):
                carry(one)
