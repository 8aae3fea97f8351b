"""What callers and functions do wrongly: each is named, and nothing of it is stored."""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.functions.accounts import accounts, cells, run_together
from tussock.compute import functions as fn
from tussock.compute import procedures as ps
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def typed(ctx: Any, amount: int, note: str = "") -> None:
    """With classes that are checked."""


def free(ctx: Any, value: Any) -> None:
    """With what there is."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def probe() -> fn.Operator:
    """`do(what)` runs one of `MISTAKES`."""
    operator = fn.Operator("probe")

    @operator.register
    async def do(ctx: fn.FunctionContext, what: str) -> Any:
        ctx.put({"touched": True})
        found = MISTAKES[what][0](ctx)
        return await found if inspect.iscoroutine(found) else found

    operator.register(typed)
    operator.register(free)
    return operator


async def awaits_else(ctx: fn.FunctionContext) -> None:
    await asyncio.sleep(0)


async def awaits_nothing(ctx: fn.FunctionContext) -> None:
    ctx.call("probe", "x", "do", "nothing")


def loops(ctx: fn.FunctionContext) -> None:
    while True:
        pass


def calls_for_ever(ctx: fn.FunctionContext) -> None:
    ctx.call_async("probe", ctx.key, "do", "calls for ever")


def raises(error: BaseException) -> Any:
    def fails(ctx: fn.FunctionContext) -> None:
        raise error

    return fails


MISTAKES: dict[str, tuple[Any, str]] = {
    "nothing": (lambda ctx: None, ""),
    "operator": (lambda ctx: ctx.call_async("prob", "x", "do"), "no operator 'prob'"),
    "function": (lambda ctx: ctx.call_async("probe", "x", "don"), "no function 'don'"),
    "key": (lambda ctx: ctx.call_async("probe", 5, "do", "nothing"), "5 is no key"),
    "half a key": (lambda ctx: ctx.call_async("probe", "caf\udce9", "do", "nothing"), "is no key"),
    "too few": (lambda ctx: ctx.call_async("probe", "x", "typed"), "takes 1 to 2 arguments"),
    "class": (lambda ctx: ctx.call_async("probe", "x", "typed", "1"), "amount is '1'; expected int"),
    "argument": (lambda ctx: ctx.call_async("probe", "x", "free", {1, 2}), "an argument of function probe.free"),
    "state": (lambda ctx: ctx.put([1]), "expected a dict"),
    "no state": (lambda ctx: ctx.put(None), r"is None; expected a dict; ctx\.delete\(\)"),
    "state of bytes": (lambda ctx: ctx.put({"a": b"1"}), "JSON"),
    "state of nan": (lambda ctx: ctx.put({"a": float("nan")}), "JSON"),
    "state of keys": (lambda ctx: ctx.put({1: 2}), "keys that are no strings"),
    "large state": (lambda ctx: ctx.put({"a": "x" * (2 << 20)}), "at most 1 MiB"),
    "reply": (lambda ctx: object(), "what function probe.do returned"),
    "large reply": (lambda ctx: b"x" * (2 << 20), "at most 1 MiB"),
    "large integer": (lambda ctx: 1 << 80, "what function probe.do returned has an integer beyond 64 bits"),
    "large by one": (lambda ctx: [1 << 63], "what function probe.do returned has an integer beyond 64 bits"),
    "generator": (lambda ctx: (one for one in (1, 2)), "what function probe.do returned"),
    "awaits else": (awaits_else, "awaited NoneType; it can await what ctx.call"),
    "awaits a loop": (lambda ctx: asyncio.sleep(1), "no running event loop: function probe.do can await what ctx.call"),
    "awaits nothing": (awaits_nothing, "has to be awaited"),
    "loops": (loops, "function probe.do did not return in time"),
    "calls for ever": (calls_for_ever, "at most 10,000 calls"),
    "exits": (raises(SystemExit("gone")), "gone"),
    "cancelled": (raises(asyncio.CancelledError()), "CancelledError"),
    "half a text": (raises(ValueError("caf\udce9")), r"caf\\udce9"),
    "no text": (raises(Unspeakable()), "Unspeakable"),
    "its own error": (raises(fn.NotDeterministic("mine")), "mine"),
}


@pytest.mark.parametrize("what", [name for name in MISTAKES if name != "nothing"])
def test_what_functions_do_wrongly_ends_their_transaction_only(store: StateStore, what: str) -> None:
    """X6: with the text, and the entity and the function; the next transaction runs."""
    with fn.Runtime(store, "p", [probe()], timeout=1.0 if what == "loops" else 60.0) as runtime:
        future = runtime.send("probe", "x", "do", what)
        with pytest.raises(fn.TransactionAborted, match=MISTAKES[what][1]) as caught:
            future.result(SECONDS)
        assert (caught.value.operator, caught.value.key, caught.value.function) == ("probe", "x", "do")
        assert runtime.query("probe", "x") is None
        runtime.send("probe", "x", "do", "nothing").result(SECONDS)
        assert runtime.query("probe", "x") == {"touched": True}


def test_what_functions_asked_of_their_own_program_is_refused(store: StateStore) -> None:
    """It would wait for itself."""
    operator = fn.Operator("inner")
    runtime = fn.Runtime(store, "p", [operator])

    @operator.register
    async def ask(ctx: fn.FunctionContext, what: str) -> Any:
        return runtime.query("inner", "x") if what == "query" else runtime.send("inner", "x", "ask", "send").result()

    with runtime:
        for what in ("query", "send"):
            with pytest.raises(fn.TransactionAborted, match="would wait for itself"):
                runtime.send("inner", "x", "ask", what).result(SECONDS)


def test_a_context_ends_with_its_function(store: StateStore) -> None:
    kept: list[fn.FunctionContext] = []
    operator = fn.Operator("kept")

    @operator.register
    async def keep(ctx: fn.FunctionContext) -> None:
        kept.append(ctx)

    with fn.Runtime(store, "p", [operator]) as runtime:
        runtime.send("kept", "x", "keep").result(SECONDS)
        for use in (kept[0].get, kept[0].delete, kept[0].now, lambda: kept[0].put({})):
            with pytest.raises(fn.FunctionFault, match="has returned"):
                use()


def test_states_and_arguments_are_copies(store: StateStore) -> None:
    """What a function changes without putting it is not stored, and nobody else sees it."""
    operator = fn.Operator("copies")
    seen: list[Any] = []

    @operator.register
    async def change(ctx: fn.FunctionContext, given: list[int]) -> list[int]:
        state = ctx.get()
        if state is None:
            state = {"list": [1]}
            ctx.put(state)
        state["list"].append(2)
        ctx.call_async("copies", "y", "look", given)
        given.append(9)
        return given

    @operator.register
    async def look(ctx: fn.FunctionContext, given: list[int]) -> None:
        seen.append(given)

    mine = [5]
    with fn.Runtime(store, "p", [operator]) as runtime:
        future = runtime.send("copies", "x", "change", mine)
        mine.append(6)
        assert future.result(SECONDS) == [5, 9]
        assert seen == [[5]]
        assert runtime.query("copies", "x") == {"list": [1]}


WRONG_OPTIONS: dict[str, dict[str, Any]] = {
    "epoch_ms": {"epoch_ms": -1},
    "epoch_max": {"epoch_max": 0},
    "conflicts": {"conflicts": "none"},
    "checkpoint": {"checkpoint": "1"},
    "timeout": {"timeout": 1e-9},
    "lock_phase": {"lock_phase": "no"},
    "cache_bytes": {"cache_bytes": 5},
    "input": {"input": 5},
    "group_commit": {"group_commit": -1},
    "keep_replies": {"keep_replies": None},
}


@pytest.mark.parametrize("option", WRONG_OPTIONS)
def test_wrong_options_are_named(store: StateStore, option: str) -> None:
    with pytest.raises(InvalidOption, match=f"program 'p': {option}"):
        fn.Runtime(store, "p", [cells()], **WRONG_OPTIONS[option])


def test_wrong_declarations_are_named(store: StateStore) -> None:
    with pytest.raises(InvalidOption, match="is no name"):
        fn.Runtime(store, "a b", [cells()])
    with pytest.raises(InvalidOption, match="expected a list of operators"):
        fn.Runtime(store, "p", [cells(), cells()])
    with pytest.raises(InvalidOption, match="expected a list of operators"):
        fn.Runtime(store, "p", [])
    with pytest.raises(InvalidOption, match="its scheme is unknown"):
        fn.Runtime(store, "p", [cells()], input="nope://x")
    with pytest.raises(InvalidOption, match="partitions=0"):
        fn.Operator("a", partitions=0)
    with pytest.raises(InvalidOption, match="without one named 'key'"):
        fn.Operator("a", schema=pa.schema([("key", pa.string())]))
    with pytest.raises(InvalidOption, match=r"expected pa\.string"):
        fn.Operator("a", key=pa.float64())
    operator = fn.Operator("a")
    operator.register(typed)
    with pytest.raises(InvalidOption, match="already"):
        operator.register(typed)
    with pytest.raises(InvalidOption, match="no function, or a generator"):
        operator.register(5)  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match="takes its context first"):
        operator.register(lambda: None)


def test_what_callers_ask_wrongly_is_refused_at_once(store: StateStore) -> None:
    runtime = fn.Runtime(store, "bank", [accounts()])
    with pytest.raises(fn.ApplicationStopped):
        runtime.send("account", "A", "begin", 1)
    with runtime:
        for sent, told in (
            (("acount", "A", "begin", 1), "no operator"),
            (("account", "A", "open", 1), "no function"),
            (("account", 7, "begin", 1), "is no key"),
            (("account", "A", "begin"), "takes 1 argument behind"),
            (("account", "A", "begin", 1, 2), "takes 1 argument behind"),
            (("account", "A", "begin", "1"), "expected int"),
        ):
            with pytest.raises(fn.FunctionFault, match=told):
                runtime.send(*sent)
        for request_id in ("", 5, "x" * 201):
            with pytest.raises(InvalidOption, match="request_id"):
                runtime.send("account", "A", "begin", 1, request_id=request_id)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="runs"):
            runtime.load("account", [{"key": "A", "balance": 1}])
        with pytest.raises(InvalidOption, match="runs already"):
            runtime.start()
        with pytest.raises(InvalidOption, match="or the number"):
            runtime.call_graph()
        assert runtime.call_graph("unknown") is None


def test_one_id_runs_once_however_often_it_is_sent(store: StateStore) -> None:
    """X7, X33: at the same time, later, and after a restart; an abort stays an abort."""
    with fn.Runtime(store, "bank", [accounts()]) as runtime:
        run_together(runtime, ("account", "A", "begin", 100))
        sent = [runtime.send("account", "A", "transfer", "B", 10, request_id="r") for _ in range(5)]
        assert [one.result(SECONDS) for one in sent] == [90] * 5
        assert runtime.send("account", "A", "transfer", "B", 10, request_id="r").result(SECONDS) == 90
        first = runtime.send("account", "A", "transfer", "B", 1000, request_id="much").exception(SECONDS)
        run_together(runtime, ("account", "A", "begin", 5000))
    with fn.Runtime(store, "bank", [accounts()]) as runtime:
        again = runtime.send("account", "A", "transfer", "B", 1000, request_id="much").exception(SECONDS)
        assert (type(again), str(again), again.args) == (type(first), str(first), first.args if first else ())
        assert runtime.send("account", "A", "transfer", "B", 10, request_id="r").result(SECONDS) == 90
        assert runtime.query("account", "B") == {"balance": 10}


def test_replies_go_when_they_are_too_old(store: StateStore) -> None:
    """The table does not grow for ever; a reply that is gone lets the request run again."""
    with fn.Runtime(store, "p", [cells()], keep_replies=0, checkpoint=0) as runtime:
        for at in range(20):
            runtime.send("cell", "a", "add", 1, request_id=f"r{at}").result(SECONDS)
        assert sum(batch.num_rows for batch in store.table("p.replies").read()) <= 3
        assert runtime.send("cell", "a", "add", 1, request_id="r0").result(SECONDS) == 21


@pytest.mark.parametrize("junk", [b"junk", b"", b"\x93\xc0\x01\x02", b"\x01"])
def test_a_reply_that_somebody_else_has_damaged(store: StateStore, junk: bytes) -> None:
    """Story: msgspec's error ended the program. The request is told, and does not run again; others run."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        runtime.send("cell", "a", "add", 1, request_id="one").result(SECONDS)
    row = store.table("p.replies").get("one")
    with store.transaction() as tx:
        tx.table("p.replies").upsert([{**row, "reply": junk}])
    with fn.Runtime(store, "p", [cells()]) as runtime:
        told = runtime.send("cell", "a", "add", 1, request_id="one").exception(SECONDS)
        assert isinstance(told, fn.TransactionAborted)
        assert told.kind == "DamagedReply"
        assert "request 'one' has run before, and its reply in table 'p.replies' cannot be read" in str(told)
        assert runtime.send("cell", "a", "add", 1, request_id="two").result(SECONDS) == 2


def test_a_name_belongs_to_one_layer(store: StateStore) -> None:
    with fn.Runtime(store, "same", [cells()]) as runtime:
        run_together(runtime, ("cell", "a", "add", 1))
    app = ps.App(store, "same")
    app.procedure("p", border=True)(lambda tx, batch: None)
    with pytest.raises(InvalidOption, match="none of procedures"):
        app.start()
    other = ps.App(store, "other")
    other.procedure("p", border=True)(lambda tx, batch: None)
    with other:
        other.submit("p", [{"x": 1}]).result(SECONDS)
    with pytest.raises((InvalidOption, SchemaMismatch)):
        fn.Runtime(store, "other", [cells()]).start()


def test_tables_with_other_columns_are_refused(store: StateStore) -> None:
    store.create_table("cell", pa.schema([("id", pa.int64())]), primary_key=["id"])
    with pytest.raises(SchemaMismatch, match="table 'cell' has other columns"):
        fn.Runtime(store, "p", [cells()]).start()
    runtime = fn.Runtime(store, "q", [fn.Operator("typed", schema=pa.schema([("v", pa.int64())]))])
    for rows in ([{"key": "a", "w": 1}], [{"v": 1}], [{"key": "a", "v": "x"}]):
        with pytest.raises(SchemaMismatch):
            runtime.load("typed", rows)


def test_a_state_that_does_not_fit_is_named_once(store: StateStore) -> None:
    """Story: the message took the state for a table's name, too."""
    operator = fn.Operator("typed", schema=pa.schema([("v", pa.int64())]))

    @operator.register
    async def write(ctx: fn.FunctionContext, value: Any) -> None:
        ctx.put({"v": value})

    with fn.Runtime(store, "p", [operator]) as runtime:
        told = str(runtime.send("typed", "x", "write", "one").exception(SECONDS))
    assert told.startswith("the state of typed 'x' does not fit its schema: table 'typed': column 'v'")
    assert told.count("the state of") == 1


def test_a_second_runtime_shuts_the_first_one_out(store: StateStore, tmp_path: Path) -> None:
    """X30: and nothing that was replied is lost."""
    first = fn.Runtime(store, "p", [cells()], checkpoint=3600)
    first.start()
    assert first.send("cell", "a", "add", 1).result(SECONDS) == 1
    with (
        connect((tmp_path / "store").as_uri(), compaction=False) as other,
        fn.Runtime(other, "p", [cells()]) as second,
    ):
        assert second.send("cell", "a", "add", 1).result(SECONDS) == 2
        with pytest.raises(fn.ApplicationFenced):
            first.send("cell", "a", "add", 1).result(SECONDS)
        with pytest.raises(fn.ApplicationFenced):
            first.stop()
        assert second.send("cell", "a", "add", 1).result(SECONDS) == 3


def test_state_larger_than_the_cache_is_read_as_it_is_needed(store: StateStore) -> None:
    """X30: nothing is loaded at the start."""
    count = 20_000
    runtime = fn.Runtime(store, "bank", [accounts()], cache_bytes=1 << 20)
    runtime.load("account", [{"key": f"a{at}", "balance": 10} for at in range(count)])
    with runtime:
        assert runtime.stats()["store_reads"] == 0
        futures = [
            runtime.send("account", f"a{at}", "transfer", f"a{(at * 7919) % count}", 1) for at in range(1, count, 10)
        ]
        for future in futures:
            future.result(SECONDS)
    total = 0
    for batch in store.table("account").read():
        total += sum(int(state.removeprefix('{"balance":').rstrip("}")) for state in batch["state"].to_pylist())
    assert total == count * 10


def test_many_threads_and_a_stop(store: StateStore) -> None:
    """A stop answers all that was sent before it, and refuses what comes."""
    runtime = fn.Runtime(store, "p", [cells()])
    runtime.start()
    answers: list[int] = []
    refused: list[Exception] = []

    def send() -> None:
        try:
            while True:
                answers.append(runtime.send("cell", "a", "add", 1).result(SECONDS))
        except fn.ApplicationStopped as error:
            refused.append(error)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(answers) < 50:
        threading.Event().wait(0.01)
    runtime.stop()
    for thread in threads:
        thread.join(SECONDS)
    assert len(refused) == 8
    assert sorted(answers) == list(range(1, len(answers) + 1))
    assert store.table("cell").get("a") == {"key": "a", "state": f'{{"value":{len(answers)}}}'}


def test_functions_are_shown_what_is_theirs() -> None:
    """Story: help() of a context had `end`, `calls` and `unawaited`, and that of a batch `apply` and `errors`."""
    shown = {name for name in dir(fn.FunctionContext) if not name.startswith("_")}
    assert shown == {
        *("call", "call_async", "call_external", "delete", "get", "key", "now", "put", "random", "uuid"),
    }
    shown = {name for name in dir(fn.FunctionBatch) if not name.startswith("_")}
    assert shown == {"abort", "delete", "exists", "keys", "num_rows", "put", "state"}
    assert "`functions.Client`" in (fn.Client.__doc__ or "")
