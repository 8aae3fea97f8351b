"""What is given has bounds, and each is named: ids, depth, names, types, bytes in memory."""

import datetime as dt
import decimal
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.functions.accounts import cells
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, SchemaMismatch, StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def test_an_id_that_no_table_keeps_is_refused_and_the_program_runs_on(store: StateStore) -> None:
    """Half of a surrogate pair: it ended the program for everybody."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        with pytest.raises(InvalidOption, match="surrogate"):
            runtime.send("cell", "a", "add", 1, request_id="\ud800")
        with pytest.raises(InvalidOption, match="number of a transaction"):
            runtime.call_graph(tid=True)
        with pytest.raises(InvalidOption, match="timeout"):
            runtime.drain("x")  # type: ignore[arg-type]
        assert runtime.send("cell", "a", "add", 1, request_id="ä").result(SECONDS) == 1


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def from_deep(frames: int, then: Callable[[], Any]) -> Any:
    return from_deep(frames - 1, then) if frames else then()


def test_what_nests_too_deep_to_be_read_from_everywhere_is_refused(store: StateStore) -> None:
    """An argument was durable that a start from a deeper stack could not read: a raw error, again and again."""
    operator = fn.Operator("deep")

    @operator.register
    async def keep(ctx: fn.FunctionContext, value: Any) -> None:
        ctx.put({"value": value})

    @operator.register
    async def make(ctx: fn.FunctionContext, depth: int, is_kept: bool) -> Any:
        if is_kept:
            ctx.put({"value": nested(depth)})
            return None
        return nested(depth)

    with fn.Runtime(store, "p", [operator]) as runtime:
        for depth in (150, 960, 100_000):
            with pytest.raises(fn.FunctionFault, match=r"nest more than 100 deep|cannot be kept"):
                runtime.send("deep", "a", "keep", nested(depth))
        for is_kept in (True, False):
            with pytest.raises(fn.TransactionAborted, match="nest more than 100 deep"):
                runtime.send("deep", "a", "make", 150, is_kept).result(SECONDS)
        # The state nests once more than its value.
        runtime.send("deep", "a", "keep", nested(95)).result(SECONDS)
        room = sys.getrecursionlimit() - len(inspect.stack())
        for left in range(60, 130, 5):
            with suppress(fn.FunctionFault):
                from_deep(room - left, lambda: runtime.send("deep", "b", "keep", nested(90)).result(SECONDS))
        assert runtime.query("deep", "a") == {"value": nested(95)}


LONG = "x" * 1_000_000


def wide_cells() -> fn.Operator:
    """Entities with a string and a list; `write(number)`."""
    wide = fn.Operator("wide", schema=pa.schema([("text", pa.string()), ("parts", pa.list_(pa.string()))]))

    @wide.register
    async def write(ctx: fn.FunctionContext, parts: int) -> None:
        ctx.put({"text": LONG, "parts": [f"{LONG}{at}" for at in range(parts)]})

    return wide


def test_strings_of_an_operator_with_a_schema_count(store: StateStore) -> None:
    """They counted 32 bytes each: between two commits a program held all that was written, of whatever size."""
    with fn.Runtime(store, "p", [wide_cells()], checkpoint=3600) as runtime:
        for at in range(40):
            runtime.send("wide", f"k{at}", "write", 9).result(SECONDS)
        assert runtime.stats()["commits"] > 0
        with pytest.raises(fn.TransactionAborted, match="at most 16 MiB"):
            runtime.send("wide", "k", "write", 20).result(SECONDS)


def test_what_is_written_over_something_smaller_counts_in_the_cache(store: StateStore) -> None:
    """A function reads that there is no entity, which is small, and then writes one."""
    operator = fn.Operator("grown")

    @operator.register
    async def grow(ctx: fn.FunctionContext) -> bool:
        is_there = ctx.get() is not None
        ctx.put({"text": "x" * 500_000})
        return is_there

    with fn.Runtime(store, "p", [operator], cache_bytes=1 << 20, checkpoint=0) as runtime:
        for at in range(10):
            assert runtime.send("grown", f"k{at}", "grow").result(SECONDS) is False
        before = runtime.stats()["store_reads"]
        assert all(runtime.send("grown", f"k{at}", "grow").result(SECONDS) for at in range(10))
        assert runtime.stats()["store_reads"] > before


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_are_registered_before_the_start(store: StateStore, workers: int) -> None:
    """Workers have what the program had at its start: a later function was none of theirs, and ended the program."""
    operator = cells()
    with fn.Runtime(store, "p", [operator], workers=workers) as runtime:
        with pytest.raises(InvalidOption, match="has started"):
            operator.register(late)
        with pytest.raises(fn.FunctionFault, match="no function 'late'"):
            runtime.send("cell", "a", "late")
        assert runtime.send("cell", "a", "add", 1).result(SECONDS) == 1


def late(ctx: Any) -> None:
    """Too late."""


def test_types_that_a_state_does_not_keep_are_refused_at_once() -> None:
    """A program with a column of indices started once, and never again."""
    for index in (pa.int8(), pa.int32()):
        with pytest.raises(InvalidOption, match="dictionary type"):
            fn.Operator("d", schema=pa.schema([("v", pa.dictionary(index, pa.string()))]))


KEPT: dict[str, tuple[pa.DataType, Any]] = {
    "large_string": (pa.large_string(), "ä"),
    "string_view": (pa.string_view(), "ä"),
    "binary_view": (pa.binary_view(), b"\xff"),
    "large_binary": (pa.large_binary(), b"\xff"),
    "fixed": (pa.binary(2), b"ab"),
    "decimal": (pa.decimal128(5, 2), decimal.Decimal("1.50")),
    "list": (pa.list_(pa.field("z", pa.int8(), nullable=False)), [1, 2]),
    "struct": (pa.struct([("x", pa.float64())]), {"x": 1.5}),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
    "date64": (pa.date64(), dt.date(2020, 1, 1)),
    "time": (pa.time64("us"), dt.time(1, 2, 3)),
    "duration": (pa.duration("us"), dt.timedelta(seconds=1)),
    "zone": (pa.timestamp("ms", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    "half": (pa.float16(), 1.5),
    "null": (pa.null(), None),
}


@pytest.mark.parametrize("kind", KEPT)
def test_types_that_are_taken_are_kept_over_restarts(store: StateStore, kind: str) -> None:
    """Also with metadata, which no table keeps: either refused at once, or right at each start."""
    schema = pa.schema([pa.field("v", KEPT[kind][0], metadata={"a": "b"})], metadata={"q": "r"})
    operator = fn.Operator("typed", schema=schema)

    @operator.register
    async def write(ctx: fn.FunctionContext) -> None:
        ctx.put({"v": KEPT[kind][1]})

    for _ in range(2):
        with fn.Runtime(store, "p", [operator]) as runtime:
            runtime.send("typed", "a", "write").result(SECONDS)
        with fn.Runtime(store, "p", [operator]) as runtime:
            assert runtime.query("typed", "a") == {"v": KEPT[kind][1]}


def test_names_of_the_systems_tables_are_refused(store: StateStore) -> None:
    """An operator of that name took the table that all programs of the store need."""
    for name in ("_applications", "_mine"):
        with pytest.raises(InvalidOption, match="beginning with a letter"):
            fn.Operator(name)
    runtime = fn.Runtime(store, "p", [cells()])
    for table in ("_applications", "p.replies", "p.dead_letters", "cell"):
        with pytest.raises(InvalidOption, match="the program's own"):
            runtime.feed("cell", "add", fn.TableFeed("somewhere"), request_id="id", replies=table)
    store.create_table("_applications", pa.schema([("key", pa.string())]), primary_key=["key"])
    with pytest.raises(SchemaMismatch, match="no table of applications"):
        runtime.start()
    store.drop_table("_applications")
    with fn.Runtime(store, "p", [cells()]) as again:
        assert again.send("cell", "a", "add", 1).result(SECONDS) == 1


def callers() -> fn.Operator:
    """`fan(calls, bytes)`, `chain(calls, bytes)` and `ask(calls, bytes)` call others with a text of that length."""
    operator = fn.Operator("calls", partitions=4)

    @operator.register
    async def fan(ctx: fn.FunctionContext, calls: int, size: int) -> None:
        for at in range(calls):
            ctx.call_async("calls", f"{at}" + "k" * 1000, "take", "x" * size)

    @operator.register
    async def chain(ctx: fn.FunctionContext, calls: int, size: int, _: str = "") -> None:
        if calls:
            await ctx.call("calls", f"{calls}", "chain", calls - 1, size, "x" * size)

    @operator.register
    async def ask(ctx: fn.FunctionContext, calls: int, size: int) -> None:
        for at in range(calls):
            await ctx.call("calls", f"{at}", "take", "x" * size)

    @operator.register
    async def take(ctx: fn.FunctionContext, text: str) -> None:
        pass

    return operator


@pytest.mark.parametrize("workers", [0, 2])
def test_arguments_of_calls_that_wait_have_a_bound(store: StateStore, workers: int) -> None:
    """One transaction could hold ten thousand times 1 MiB. What has returned does not count, wherever it ran."""
    with fn.Runtime(store, "p", [callers()], workers=workers) as runtime:
        for name in ("fan", "chain"):
            runtime.send("calls", "a", name, 15, 1_000_000).result(SECONDS)
            with pytest.raises(fn.TransactionAborted, match="at most 16 MiB fit"):
                runtime.send("calls", "a", name, 20, 1_000_000).result(SECONDS)
        runtime.send("calls", "a", "ask", 40, 1_000_000).result(SECONDS)


def test_call_graphs_that_are_kept_have_a_bound_in_bytes(store: StateStore) -> None:
    """They were bounded by their number, and each may have a thousand calls of long keys."""
    with fn.Runtime(store, "p", [callers()]) as runtime:
        for at in range(60):
            runtime.send("calls", "a", "fan", 1000, 1, request_id=f"r{at}").result(SECONDS)
        kept = [graph for at in range(60) if (graph := runtime.call_graph(f"r{at}")) is not None]
        assert 10 < len(kept) < 60
        assert len(kept[-1]["calls"]) == 1000
        assert max(len(call["key"]) for call in kept[-1]["calls"]) == 200


def columns() -> fn.Operator:
    """Batch functions that do what their column `what` says."""
    operator = fn.Operator("columns", schema=pa.schema([("v", pa.int64()), ("s", pa.string())]))
    kept: list[fn.FunctionBatch] = []

    @operator.register_batch
    def do(batch: fn.FunctionBatch) -> None:
        what, rows = batch["what"][0].as_py(), batch.num_rows
        if what == "large":
            batch.put({"s": ["x" * (2 << 20)] * rows})
        elif what == "large abort":
            batch.abort([True] * rows, "x" * (1 << 20))
        elif what == "half a text":
            batch.abort([True] + [False] * (rows - 1), "caf\udce9")
            batch.put({"v": [1] * rows})
        elif what == "no text":
            batch.abort([True] * rows, 5)  # type: ignore[arg-type]
        elif what == "keep":
            kept.append(batch)

    @operator.register_batch
    def late(batch: fn.FunctionBatch) -> None:
        old = kept[0]
        uses: tuple[Callable[[], Any], ...] = (
            lambda: old["what"],
            lambda: old.keys,
            lambda: old.num_rows,
            lambda: old.state("v"),
            lambda: old.exists(),
            lambda: old.put({"v": [1, 1]}),
            old.delete,
            lambda: old.abort([True, True], "late"),
        )
        for use in uses:
            with pytest.raises(fn.FunctionFault, match="has returned"):
                use()

    @operator.register
    async def one(ctx: fn.FunctionContext, *values: Any) -> int:
        return len(values)

    return operator


def test_batch_functions_have_the_limits_of_others(store: StateStore) -> None:
    with fn.Runtime(store, "p", [columns()]) as runtime:

        def ask(what: str) -> list[str | None]:
            found: list[str | None] = runtime.send_many("columns", "do", ["a", "b"], {"what": [what] * 2})[
                "error"
            ].to_pylist()
            return found

        with pytest.raises(fn.TransactionAborted, match="at most 1 MiB"):
            ask("large")
        with pytest.raises(fn.TransactionAborted, match="takes a text"):
            ask("no text")
        assert ask("large abort") == ["x" * 10_000] * 2
        assert ask("half a text") == ["caf\\udce9", None]
        assert runtime.query("columns", "a") is None
        assert runtime.query("columns", "b") == {"v": 1, "s": None}
        ask("keep")
        runtime.send_many("columns", "late", ["a"])


def test_wrong_keys_and_columns_of_many_are_named(store: StateStore) -> None:
    """They raised whatever Arrow or Python raised, and numbers became text."""
    wrong: tuple[tuple[Any, Any], ...] = (
        (None, None),
        (5, None),
        ("abc", None),
        ((one for one in "ab"), None),
        (["k", 5], None),
        ([5], None),
        (pa.array([5]), None),
        (pa.array([b"k"]), None),
        (["k", None], None),
        (["\ud800"], None),
        (["k"], 5),
        (["k"], {"what": [1, 2]}),
        (["k", "l"], {"what": "xy"}),
        (["k"], {"what": b"x"}),
        (["k"], {"what": ["\ud800"]}),
        (["k"], {"what": [1 << 80]}),
        (["k"], {5: [1]}),
    )
    with fn.Runtime(store, "p", [columns()]) as runtime:
        for keys, given in wrong:
            for name in ("do", "one"):
                with pytest.raises(fn.FunctionFault):
                    runtime.send_many("columns", name, keys, given)
        pairs = pa.table([pa.array([1, 2]), pa.array([3, 4])], names=["x", "y"])
        for keys in (["a", "b"], ("a", "b"), pa.array(["a", "b"], pa.large_string())):
            assert runtime.send_many("columns", "one", keys, pairs)["reply"].to_pylist() == [2, 2]


@pytest.mark.parametrize(("keys", "amounts"), [(["a", "b", 5], [1, 2, 3]), (["a", "b", "c"], [1, 2, None])])
def test_a_wrong_row_at_the_end_sends_none_of_those_before_it(store: StateStore, keys: Any, amounts: Any) -> None:
    """Story: they ran, and nobody could ask for their replies."""
    with fn.Runtime(store, "p", [cells()]) as runtime:
        with pytest.raises(fn.FunctionFault):
            runtime.send_many("cell", "add", keys, {"amount": amounts})
        assert [runtime.query("cell", one) for one in "ab"] == [None, None]
        assert runtime.stats()["tid"] == 0


def test_wrong_rows_to_load_are_named(store: StateStore) -> None:
    """Also keys that no request could name."""
    runtime = fn.Runtime(store, "p", [cells(), columns()])
    for operator in ("cell", "columns"):
        for rows in (
            "x",
            None,
            5,
            [5],
            {"key": "ab"},
            {"key": ["a"], "s": "x"},
            [{"key": "x" * 2000, "v": 1}],
            [{"key": "\ud800"}],
        ):
            with pytest.raises(SchemaMismatch):
                runtime.load(operator, rows)
    with pytest.raises(SchemaMismatch, match="at most 1,048,576 fit"):
        runtime.load("columns", [{"key": "a", "s": "x" * (2 << 20)}])


def test_each_caller_of_one_id_gets_its_own_reply(store: StateStore) -> None:
    operator = fn.Operator("lists")

    @operator.register
    async def make(ctx: fn.FunctionContext) -> list[int]:
        return [1]

    with fn.Runtime(store, "p", [operator]) as runtime:
        runtime.pause()
        sent = [runtime.send("lists", "a", "make", request_id="r") for _ in range(2)]
        runtime.resume()
        sent[0].result(SECONDS).append(2)
        assert sent[1].result(SECONDS) == sent[0].result(SECONDS) == [1]
        assert runtime.send("lists", "a", "make", request_id="r").result(SECONDS) == [1]
