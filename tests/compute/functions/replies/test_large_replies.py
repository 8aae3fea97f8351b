"""Replies that take much: an epoch ends where they do, and what did not run runs in the next one, in its order."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.functions.accounts import cells
from tussock.compute import functions as fn
from tussock.compute.applications.replies import WithdrawableFuture
from tussock.compute.functions.remote.held_replies import HELD_BYTES_MAX, HeldReplies
from tussock.compute.functions.remote.held_replies import WAIT_SECONDS_MAX as HELD_SECONDS
from tussock.compute.functions.remote.shared_replies import SharedReplies
from tussock.statestore import StateStore, connect
from tussock.statestore.errors import MessageTooLarge

SECONDS = 60
MIB = 1 << 20
LARGE = MIB - 100
COUNT = 150
"""Of these replies 65 are in an epoch: those below 64 MiB, and the one that reaches it."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def pages() -> fn.Operator:
    """`page(size)` replies how many pages the book had before, and as many characters; `fails` with a long text."""
    book = fn.Operator("book", partitions=4)

    @book.register
    async def page(ctx: fn.FunctionContext, size: int) -> list[Any]:
        before = (ctx.get() or {"pages": 0})["pages"]
        ctx.put({"pages": before + 1})
        return [before, "x" * size]

    return book


def program(store: StateStore, **options: Any) -> fn.Runtime:
    return fn.Runtime(store, "library", [pages()], checkpoint=3600.0, **options)


def sent_together(runtime: fn.Runtime, count: int, books: int, size: int = LARGE) -> "list[Future[Any]]":
    """Requests that wait for one epoch, each with an id."""
    runtime.pause()
    futures = [runtime.send("book", f"b{at % books}", "page", size, request_id=f"page {at}") for at in range(count)]
    runtime.resume()
    return futures


def numbers(futures: "list[Future[Any]]") -> list[int]:
    return [future.result(SECONDS)[0] for future in futures]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_ends_where_its_replies_take_much(store: StateStore, workers: int) -> None:
    """Story: a thousand replies of 1 MiB were kept until the record of their epoch was durable."""
    with program(store, workers=workers) as runtime:
        assert numbers(sent_together(runtime, COUNT, COUNT, 10)) == [0] * COUNT
        assert runtime.stats()["epochs"] == 1
        runtime.pause()
        futures = [runtime.send("book", f"b{at}", "page", LARGE) for at in range(COUNT)]
        runtime.resume()
        assert numbers(futures) == [1] * COUNT
        stats = runtime.stats()
        assert stats["epochs"] >= 3
        assert (stats["lock_free"], stats["waiting"]) == (2 * COUNT, 0)
        assert stats["tid"] == 2 * COUNT, "none of those that did not run has kept its number"


@pytest.mark.parametrize("workers", [0, 2])
def test_losers_keep_their_order_where_epochs_end_early(store: StateStore, workers: int) -> None:
    """With two books most requests lose, and run again in the lock phase."""
    with program(store, workers=workers) as runtime:
        futures = sent_together(runtime, COUNT, 2)
        assert numbers(futures) == [at // 2 for at in range(COUNT)]
        assert runtime.stats()["epochs"] >= 3


def test_a_replay_cuts_epochs_as_they_were_cut(store: StateStore) -> None:
    """What ended early is recorded with those that ran; ids that come again get their first replies, in pieces."""
    first = program(store)
    first.start()
    assert numbers(sent_together(first, COUNT, 2)) == [at // 2 for at in range(COUNT)]
    epochs = first.stats()["epoch"]
    with program(store) as second:
        assert second.stats()["epoch"] == epochs
        assert numbers(sent_together(second, COUNT, 2)) == [at // 2 for at in range(COUNT)]
        assert second.stats()["epoch"] == epochs, "nothing has run again"
        assert second.query("book", "b0") == {"pages": COUNT // 2}
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


def test_a_feed_stands_behind_the_rows_that_ran(store: StateStore) -> None:
    """Each row is a request once, though epochs end amid a batch of rows; a restart goes on there."""
    schema = pa.schema([("id", pa.int64()), ("book", pa.string()), ("size", pa.int64())])
    orders = store.create_table("orders", schema, primary_key=["id"])
    assert orders is not None

    def fed() -> fn.Runtime:
        runtime = program(store)
        runtime.feed(
            *("book", "page", fn.TableFeed("orders")),
            key="book",
            arguments=["size"],
            request_id="id",
            replies="answers",
        )
        return runtime

    with fed() as runtime:
        with store.transaction() as tx:
            tx.table("orders").upsert([{"id": at, "book": "b", "size": LARGE} for at in range(COUNT)])
        runtime.drain(timeout=SECONDS)
        assert runtime.stats()["epochs"] >= 3
    with fed() as runtime:
        runtime.drain(timeout=SECONDS)
        assert runtime.query("book", "b") == {"pages": COUNT}
    found = {row["request_id"] for batch in store.table("answers").read(["request_id"]) for row in batch.to_pylist()}
    assert found == {str(at) for at in range(COUNT)}


def test_what_is_put_back_may_be_withdrawn() -> None:
    """A request that did not run waits, and is one that waits; one that has begun is not withdrawn."""
    future = WithdrawableFuture()
    assert future.set_running_or_notify_cancel()
    assert future.running()
    assert not future.cancel()
    future.put_back()
    assert not future.running()
    assert future.set_running_or_notify_cancel()
    future.put_back()
    assert future.cancel()
    assert not future.set_running_or_notify_cancel()


def test_a_caller_withdraws_what_waits_again() -> None:
    """Also after a call of `cancel` while it ran; of two callers, both have to want it."""
    shared, replies = WithdrawableFuture(), SharedReplies()
    one, other = (replies.share(lambda: shared) for _ in range(2))
    assert shared.set_running_or_notify_cancel()
    assert not one.cancel()
    shared.put_back()
    assert not one.cancel()
    assert not other.done()
    assert other.cancel()
    assert one.cancelled()


def test_replies_that_fit_into_no_message_are_not_gathered() -> None:
    """Of a `send_many` over a network: its error says what has happened, and what to do."""
    keys = ["a", "b", "c"]
    with connect("memory://gathered") as store, fn.Runtime(store, "p", [cells()]) as runtime:
        runtime.send_many("cell", "write", keys, {"value": ["x" * 10] * 3})
        told = runtime.send_many_async("cell", "value", keys, bytes_max=25).exception(SECONDS)
        fitting = runtime.send_many_async("cell", "value", keys, bytes_max=30).result(SECONDS)
    assert isinstance(told, MessageTooLarge)
    assert "the replies to 3 requests take 30 bytes, and 25 are kept at most; the requests have run" in str(told)
    assert fitting["reply"].to_pylist() == ["x" * 10] * 3


def test_a_reply_goes_as_soon_as_the_node_has_no_use_for_it() -> None:
    """Story: a caller's reply and the shared one had each other, so replies stayed until Python looked for circles."""
    shared = [WithdrawableFuture()]
    mine = SharedReplies().share(lambda: shared[0])
    held = HeldReplies()
    mine.add_done_callback(held.note)
    shared[0].set_result(["x" * MIB])
    assert len(mine.result(SECONDS)[0]) == MIB
    assert held.nbytes >= MIB
    del mine
    shared.clear()
    assert held.nbytes == 0


def test_an_epoch_waits_for_the_memory_of_replies() -> None:
    """Until the node has made messages of them, which it does whatever its clients do."""
    held, future, waiting = HeldReplies(), WithdrawableFuture(), threading.Event()
    future.set_result(pa.table({"reply": ["x" * HELD_BYTES_MAX]}))
    held.note(future)

    def wait() -> None:
        waiting.set()
        held.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(SECONDS)
    assert thread.is_alive()
    del future
    thread.join(HELD_SECONDS)
    assert not thread.is_alive()
    held.wait()
