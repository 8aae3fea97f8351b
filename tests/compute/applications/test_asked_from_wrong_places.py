"""Where nobody can wait for a program: in its functions, callbacks of its replies, and processes that were forked."""

import multiprocessing
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.functions.accounts import cells
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.request_queue import AskedWithin, Nesting
from tussock.statestore import InvalidOption, StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


WAITS: dict[str, Callable[[fn.Runtime], Any]] = {
    "query": lambda runtime: runtime.query("cell", "a"),
    "send_many": lambda runtime: runtime.send_many("cell", "value", ["a"]),
    "drain": lambda runtime: runtime.drain(),
    "scale": lambda runtime: runtime.scale(2),
    "stop": lambda runtime: runtime.stop(),
    "result": lambda runtime: runtime.send("cell", "b", "write", 5).result(),
    "result by id": lambda runtime: runtime.send("cell", "b", "write", 5, request_id="r").result(5),
    "exception": lambda runtime: runtime.query_async("cell", "b").exception(),
    "table": lambda runtime: runtime.send_many_async("cell", "value", ["b"]).result(),
}
APP_WAITS: dict[str, Callable[[ps.App], Any]] = {
    "call": lambda app: app.call("total"),
    "trace": lambda app: app.trace(),
    "window_rows": lambda app: app.window_rows("recent"),
    "drain": lambda app: app.drain(),
    "stop": lambda app: app.stop(),
    "result": lambda app: app.call_async("total").result(),
    "exception": lambda app: app.submit("add", [{"amount": 5}]).exception(),
}
ANSWERS: dict[str, Callable[[fn.Runtime], Any]] = {
    "send": lambda runtime: runtime.send("cell", "b", "write", 5),
    "query_async": lambda runtime: runtime.query_async("cell", "b"),
    "send_many_async": lambda runtime: runtime.send_many_async("cell", "value", ["b"]),
}


def sums(store: StateStore, **options: Any) -> ps.App:
    """`add` replies with the sum of all amounts so far, `total` is that sum."""
    app = ps.App(store, "sums", **options)
    schema = pa.schema([("amount", pa.int64())])
    app.table("sum", pa.schema([("key", pa.int64()), ("amount", pa.int64())]), primary_key=["key"])
    added = app.stream("added", schema)
    app.window("recent", on=added, rows=2, slide=1)

    def total(tx: Any) -> int:
        row = tx.table("sum").get(0)
        return 0 if row is None else int(row["amount"])

    @app.procedure("add", border=True, emits=added, schema=schema)
    def add(tx: Any, batch: pa.Table) -> pa.Table:
        amount = total(tx) + sum(batch["amount"].to_pylist())
        tx.table("sum").upsert([{"key": 0, "amount": amount}])
        tx.reply(amount)
        return batch

    app.call_procedure("total")(total)
    return app


def attempt(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return error


@pytest.mark.parametrize("checkpoint", [0, 1])
@pytest.mark.parametrize("what", WAITS)
def test_what_waits_is_refused_in_a_callback_of_a_reply(store: StateStore, what: str, checkpoint: float) -> None:
    """Story: the program stood still for ever; with a commit for each request it is another thread."""
    with fn.Runtime(store, "p", [cells()], checkpoint=checkpoint) as runtime:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        runtime.send("cell", "a", "write", 1).add_done_callback(
            lambda _: found.put(attempt(lambda: WAITS[what](runtime)))
        )
        refused = found.get(timeout=SECONDS)
        assert isinstance(refused, fn.FunctionFault)
        assert "a callback of a reply" in str(refused)
        assert runtime.send("cell", "a", "add", 1).result(SECONDS) == 2


@pytest.mark.parametrize("checkpoint", [0, 1])
@pytest.mark.parametrize("what", APP_WAITS)
def test_what_waits_for_procedures_is_refused_in_a_callback(store: StateStore, what: str, checkpoint: float) -> None:
    """Story: only functions were told, and an application of procedures stood still for ever."""
    with sums(store, checkpoint=checkpoint) as app:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        app.submit("add", [{"amount": 1}]).add_done_callback(lambda _: found.put(attempt(lambda: APP_WAITS[what](app))))
        refused = found.get(timeout=SECONDS)
        assert isinstance(refused, InvalidOption)
        assert "a callback of a reply" in str(refused)
        assert app.call("total", timeout=SECONDS) in (1, 6)


def test_a_callback_of_a_batch_may_ask_for_more(store: StateStore) -> None:
    with sums(store) as app:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def ask(first: Future[Any]) -> None:
            found.put(first.result())
            app.submit("add", [{"amount": 2}]).add_done_callback(lambda one: found.put(one.result()))
            app.call_async("total").add_done_callback(lambda one: found.put(one.result()))

        app.submit("add", [{"amount": 1}]).add_done_callback(ask)
        assert [found.get(timeout=SECONDS) for _ in range(3)] == [1, 3, 3]


def test_a_callback_does_not_wait_for_room(store: StateStore) -> None:
    """Story: it waited for room in the queue, which comes when the callback has returned."""
    with sums(store, checkpoint=0, limits=ApplicationLimits(queue_requests=2)) as app:
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        app.submit("add", [{"amount": 1}]).add_done_callback(
            lambda _: found.put([attempt(lambda: app.submit("add", [{"amount": 1}])) for _ in range(5)])
        )
        asked = found.get(timeout=SECONDS)
        assert {type(one) for one in asked[-3:]} == {ps.Full}
        assert app.call("total") == 1 + sum(isinstance(one, Future) for one in asked)


def test_a_thread_may_wait_when_it_gives_replies_no_more() -> None:
    """Python gives the numbers of threads that have ended to others."""
    nesting = Nesting("p", "memory://p", AskedWithin(InvalidOption, "application", "a procedure", "submit()"))
    with nesting.giving(), pytest.raises(InvalidOption, match="a callback of a reply"):
        nesting.check(waits=True)
    nesting.check(waits=True)


@pytest.mark.parametrize("what", ANSWERS)
def test_what_does_not_wait_may_be_asked_in_a_callback(store: StateStore, what: str) -> None:
    """Its future has a callback in turn; and another program may be waited for."""
    with (
        fn.Runtime(store, "p", [cells()]) as runtime,
        connect("memory://asked-by-a-callback") as other,
        fn.Runtime(other, "p", [cells()]) as second,
    ):
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def ask(_: Future[Any]) -> None:
            found.put(attempt(lambda: second.query("cell", "a")))
            ANSWERS[what](runtime).add_done_callback(found.put)

        runtime.send("cell", "a", "write", 1).add_done_callback(ask)
        assert found.get(timeout=SECONDS) is None
        assert found.get(timeout=SECONDS).exception() is None


def test_a_function_cannot_stop_its_program(store: StateStore) -> None:
    """Story: it took no more requests, and waited for itself."""
    operator = fn.Operator("inner")
    runtime = fn.Runtime(store, "p", [operator])

    @operator.register
    async def end(ctx: fn.FunctionContext) -> None:
        runtime.stop()

    @operator.register
    async def wait(ctx: fn.FunctionContext) -> None:
        own.result()

    @operator.register
    async def answer(ctx: fn.FunctionContext) -> int:
        return 5

    with runtime:
        runtime.pause()
        own = runtime.send("inner", "x", "wait")
        runtime.resume()
        with pytest.raises(fn.TransactionAborted, match="would wait for itself"):
            own.result(SECONDS)
        with pytest.raises(fn.TransactionAborted, match="would wait for itself") as caught:
            runtime.send("inner", "x", "end").result(SECONDS)
        assert caught.value.kind == "FunctionFault"
        assert runtime.send("inner", "x", "answer").result(SECONDS) == 5


def answers_of_a_fork(asked: Sequence[Callable[[], Any]]) -> list[str]:
    """What each comes to, as text, in a process that is forked off here; none may hang."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    child = context.Process(target=lambda: [told.put(str(attempt(one))) for one in asked])
    child.start()
    child.join(SECONDS)
    hung = child.is_alive()
    child.kill()
    assert not hung
    return [told.get() for _ in asked]


def test_a_forked_process_is_told_that_the_program_runs_elsewhere(store: StateStore) -> None:
    """Story: `send` and `stop` waited for threads that stay with the parent. There the program goes on."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        asked = (*ANSWERS.values(), WAITS["query"], lambda _: runtime.stats(), lambda _: runtime.status())
        answers = answers_of_a_fork([*(lambda one=one: one(runtime) for one in asked), runtime.stop])
        assert len(answers) == 7
        assert all("was opened before this process was forked off" in one for one in answers[:6]), answers
        assert answers[6] == "None"
        assert runtime.send("cell", "a", "add", 1).result(SECONDS) == 1


def test_a_forked_process_is_told_that_an_application_runs_elsewhere(store: StateStore) -> None:
    """As for functions; its `stop` does nothing."""
    with sums(store) as app:
        assert app.submit("add", [{"amount": 1}]).result(SECONDS) == 1
        asked = [APP_WAITS[what] for what in ("call", "trace", "drain", "result", "exception")]
        answers = answers_of_a_fork([*(lambda one=one: one(app) for one in asked), app.stop])
        assert all("was opened before this process was forked off" in one for one in answers[:5]), answers
        assert answers[5] == "None"
        assert app.submit("add", [{"amount": 1}]).result(SECONDS) == 2
