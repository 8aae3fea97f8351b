"""What a function raises is found by its class and line: in the error, call graphs, kept replies and the log."""

import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tussock.compute import functions as fn
from tussock.compute.applications.arguments import class_of
from tussock.compute.functions.program.places import place_of
from tussock.statestore import connect

HERE = Path(__file__).name
SECONDS = 60
SECRET = "4111-1111"


class Unfit(Exception):
    """Raises whatever is asked of it, as a proxy does whose target is gone."""

    @property
    def __class__(self) -> Any:
        raise LookupError("no class")

    def __str__(self) -> str:
        raise LookupError("no text")


def line_of(text: str) -> str:
    """Of this file."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if line.strip() == text]
    return f"{HERE}:{number}"


def shop() -> fn.Operator:
    """Functions that raise here, further in, and in a library."""
    shop = fn.Operator("shop", 4, schema=pa.schema([("n", pa.int64())]))

    def inner(given: dict[str, Any], name: str) -> Any:
        return given[name]

    @shop.register
    async def misses(ctx: fn.FunctionContext, card: str) -> None:
        inner({"card": card}, "nothing")

    @shop.register
    async def asks(ctx: fn.FunctionContext) -> None:
        await ctx.call("shop", "other", "misses", SECRET)

    @shop.register
    async def parses(ctx: fn.FunctionContext) -> Any:
        return json.loads("{")

    @shop.register
    async def is_unfit(ctx: fn.FunctionContext) -> None:
        raise Unfit

    @shop.register
    async def puts(ctx: fn.FunctionContext) -> None:
        ctx.put({"m": 1})

    @shop.register_batch
    def divides(batch: fn.FunctionBatch) -> Any:
        return [1 // 0]

    @shop.register_batch
    def adds(batch: fn.FunctionBatch) -> Any:
        return pc.add(batch.keys, 1)

    return shop


RAISED = {
    "asks": ("KeyError", "return given[name]"),
    "parses": ("JSONDecodeError", 'return json.loads("{")'),
    "is_unfit": ("Unfit", "raise Unfit"),
    "puts": ("FunctionFault", 'ctx.put({"m": 1})'),
}


BATCHES = ["ZeroDivisionError", "ArrowNotImplementedError"]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_abort_says_what_was_raised_and_where(workers: int, tmp_path: Path, caplog: Any) -> None:
    """Story: a bug was the text `'nothing'`, without a class or line anywhere. Here the user's innermost line."""
    caplog.set_level(logging.WARNING)
    with connect(tmp_path.as_uri()) as store, fn.Runtime(store, "p", [shop()], workers=workers) as program:
        for function, (kind, text) in RAISED.items():
            for _ in range(3):
                with pytest.raises(fn.TransactionAborted) as found:
                    program.send("shop", "k", function, request_id=function).result(SECONDS)
                assert (found.value.kind, found.value.at) == (kind, line_of(text)), function
                graph = program.call_graph(function)
                assert graph is not None
                assert (graph["kind"], graph["at"]) == (kind, line_of(text))
        with pytest.raises(fn.TransactionAborted) as batch:
            program.send_many("shop", "divides", ["k"])
        assert batch.value.at == line_of("return [1 // 0]")
        # Arrow's own frames name files of its source, which are in no folder.
        with pytest.raises(fn.TransactionAborted) as arrow:
            program.send_many("shop", "adds", ["k"])
        assert arrow.value.at == line_of("return pc.add(batch.keys, 1)")
        assert program.query("shop", "k") is None
    told = [one.tussock for one in caplog.records if one.tussock["event"] == "a function raised"]
    # Once for each: the repeated ones have the kept reply.
    assert [one["kind"] for one in told] == [*(kind for kind, _ in RAISED.values()), *BATCHES]
    first = told[0]
    assert (first["function"], first["at"]) == ("shop.misses", line_of("return given[name]"))
    assert [line.rpartition(", in ")[2] for line in first["stack"].splitlines()] == ["misses", "inner"]
    assert SECRET not in caplog.text


def test_what_arrow_raises_without_the_users_code_has_no_place() -> None:
    """Such as the conversion of what a function has returned."""
    with pytest.raises(OverflowError) as found:
        pa.array([2**31 - 1], pa.int32()).cast(pa.date32()).to_pylist()
    error = found.value
    assert error.__traceback__ is not None
    assert place_of(error).startswith(HERE)
    assert place_of(error.with_traceback(error.__traceback__.tb_next)) == ""


def test_a_module_may_have_the_name_of_one_of_pythons(tmp_path: Path) -> None:
    """Story: nothing of it was taken for the user's code, and errors had no place."""
    names: dict[str, Any] = {"__name__": "calendar"}
    text = "import json\n\ndef fails(ctx):\n    return json.loads('{')\n"
    exec(compile(text, str(tmp_path / "calendar.py"), "exec"), names)
    shop = fn.Operator("shop")
    shop.register(names["fails"])
    with connect("memory://named-as-pythons") as store, fn.Runtime(store, "p", [shop]) as program:
        error = program.send("shop", "k", "fails").exception(SECONDS)
        assert isinstance(error, fn.TransactionAborted)
        assert (error.kind, error.at) == ("JSONDecodeError", "calendar.py:4")


def test_the_log_tells_each_error_once(caplog: Any) -> None:
    """What functions refuse all day does not fill it."""
    caplog.set_level(logging.WARNING)
    with connect("memory://told-once") as store, fn.Runtime(store, "p", [shop()]) as program:
        asked = [program.send("shop", f"k{at}", "misses", SECRET) for at in range(500)]
        assert {class_of(one.exception(SECONDS) or Unfit()) for one in asked} == {"TransactionAborted"}
    (told,) = [one.tussock for one in caplog.records if one.tussock["event"] == "a function raised"]
    assert (told["kind"], told["times"]) == ("KeyError", 1)


def test_text_that_is_no_plain_value_is_named_once() -> None:
    """Story: it said twice what was wrong, or what the encoder calls it."""
    with connect("memory://named-once") as store, fn.Runtime(store, "p", [values()]) as program:
        for what, told in (
            ("set", "what function value.give returned has {1}, of type set; expected plain values"),
            ("object", "what function value.give returned has Ellipsis, of type ellipsis; expected plain values"),
            ("deep", "what function value.give returned has Ellipsis, of type ellipsis; expected plain values"),
            ("key", "what function value.give returned has a dict with the key 1; expected strings"),
            ("text", r"what function value.give returned has '\udce9', with half of a surrogate pair; expected text"),
        ):
            assert str(program.send("value", "k", "give", what).exception(SECONDS)) == told
        with pytest.raises(fn.FunctionFault, match=r"takes 1 argument behind the context, found 2$"):
            program.send("value", "k", "give", "set", 2)


def values() -> fn.Operator:
    """Of what nobody can keep."""
    value = fn.Operator("value")

    @value.register
    async def give(ctx: fn.FunctionContext, what: str) -> Any:
        return {"set": {1}, "object": ..., "deep": [{"a": (1, ...)}], "key": {1: 2}, "text": "\udce9"}[what]

    return value


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.int64(), pa.string(), pa.map_(pa.string(), pa.int64()), pa.struct([("x", pa.int64())])),
        *(pa.list_(pa.int64()), pa.timestamp("ns"), pa.float16(), pa.duration("us")),
    ],
    ids=str,
)
def test_a_state_without_columns_has_nulls(kind: pa.DataType) -> None:
    """Story: with some types of columns it was an IndexError."""
    cell = fn.Operator("cell", schema=pa.schema([("a", kind), ("b", pa.int64())]))

    @cell.register
    async def empty(ctx: fn.FunctionContext) -> None:
        ctx.put({})

    with connect(f"memory://{abs(hash(str(kind)))}") as store, fn.Runtime(store, "p", [cell]) as program:
        program.send("cell", "k", "empty").result(SECONDS)
        assert program.query("cell", "k") == {"a": None, "b": None}


def test_a_program_fails_though_its_log_does(tmp_path: Path) -> None:
    """Story: with a full disk under the log it was neither failed nor running, and its callers waited for ever."""

    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space left")

    handler = Full()
    with connect(tmp_path.as_uri()) as store:
        store.create_table("orders", pa.schema([("id", pa.int64()), ("key", pa.string())]), primary_key=["id"])
        program = fn.Runtime(store, "p", [shop()])
        program.feed("shop", "puts", fn.TableFeed("orders"), arguments=[])
        program.start()
        logging.getLogger("tussock").addHandler(handler)
        try:
            with store.transaction() as tx:
                tx.table("orders").upsert([{"id": 1, "key": None}])
            with pytest.raises(fn.BadInput):
                program.drain(SECONDS)
            assert (program.status()["state"], type(program.failure)) == ("failed", fn.BadInput)
            with pytest.raises(fn.BadInput):
                program.send("shop", "k", "puts").result(SECONDS)
            with pytest.raises(fn.BadInput):
                program.stop()
        finally:
            logging.getLogger("tussock").removeHandler(handler)
