"""Bounds of keys, and of how many functions there are."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore, connect

SECONDS = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


async def touch(ctx: fn.FunctionContext) -> None:
    ctx.put({"touched": True})


@pytest.mark.parametrize(
    ("kind", "largest", "wrong", "told"),
    [
        (pa.string(), "ä" * 1024, ["ä" * 1025, b"a", 1], "a string of at most 1,024 characters"),
        (pa.binary(), b"x" * 4096, [b"x" * 4097, "a"], "at most 4,096 bytes"),
        (pa.int64(), 2**63 - 1, [2**63, -(2**63) - 1, True, "1"], "an integer of 64 bits"),
    ],
)
def test_keys_have_a_bound(store: StateStore, kind: pa.DataType, largest: Any, wrong: list[Any], told: str) -> None:
    """The largest one is kept; from callers and in `query`, others are named."""
    operator = fn.Operator("bounded", key=kind)
    operator.register(touch)
    with fn.Runtime(store, "p", [operator]) as runtime:
        runtime.send("bounded", largest, "touch").result(SECONDS)
        for key in wrong:
            with pytest.raises(fn.FunctionFault, match=told):
                runtime.send("bounded", key, "touch")
            with pytest.raises(fn.FunctionFault, match=told):
                runtime.query("bounded", key)
    assert store.table("bounded").get(largest) == {"key": largest, "state": '{"touched":true}'}


def test_an_operator_has_a_thousand_functions_at_most() -> None:
    operator = fn.Operator("many")
    for at in range(1000):

        def code(ctx: Any) -> None: ...

        code.__name__ = f"f{at}"
        operator.register(code)
    with pytest.raises(InvalidOption, match="1,000 functions, and may not have more"):
        operator.register(touch)


@pytest.mark.parametrize("name", ["v1.touch", "", "tou\nch"])
def test_a_function_may_have_any_name(store: StateStore, name: str) -> None:
    """Story: with a dot in the name of a batch function no start succeeded after a crash."""
    operator = fn.Operator("named", schema=pa.schema([("n", pa.int64())]))

    def code(batch: fn.FunctionBatch) -> None:
        batch.put({"n": batch["n"]})

    code.__name__ = name
    operator.register_batch(code)
    first = fn.Runtime(store, "p", [operator], checkpoint=3600)
    first.start()
    first.send_many("named", name, ["a"], {"n": [5]})
    with fn.Runtime(store, "p", [operator]) as successor:
        assert successor.query("named", "a") == {"n": 5}
    with pytest.raises(fn.ApplicationFenced):
        first.stop()


def test_a_name_that_no_record_can_have_is_refused() -> None:
    """Story: the first request for it ended the program."""

    def code(ctx: Any) -> None: ...

    code.__name__ = "tou\ud800ch"
    with pytest.raises(InvalidOption, match="expected text"):
        fn.Operator("named").register(code)


class Words(str):
    """As NumPy's strings are, of which `msgspec` keeps none."""

    __slots__ = ()


@pytest.mark.parametrize("workers", [0, 2])
def test_ids_and_names_of_other_classes_of_text_are_text(store: StateStore, workers: int) -> None:
    """Story: such an id ended the program for all its callers, and the name of an error all its workers."""

    async def fails(ctx: fn.FunctionContext) -> None:
        raise type(Words("Odd"), (Exception,), {})("no")

    operator = fn.Operator("named", 4)
    operator.register(touch)
    operator.register(fails)
    with fn.Runtime(store, "p", [operator], workers=workers) as runtime:
        for request_id in (Words("one"), np.str_("one"), "one"):
            runtime.send("named", "k", "touch", request_id=request_id).result(SECONDS)
        assert runtime.stats()["lock_free"] == 1
        with pytest.raises(fn.TransactionAborted) as aborted:
            runtime.send("named", "k", "fails").result(SECONDS)
        assert (aborted.value.kind, type(aborted.value.kind)) == ("Odd", str)


def test_a_feed_is_named_by_any_class_of_text(store: StateStore) -> None:
    """Story: the start ended with what `msgspec` cannot keep, when the former program was shut out already."""
    schema = pa.schema([pa.field("key", pa.string(), nullable=False)])
    store.create_table("rows", schema, primary_key=["key"])
    with store.transaction() as tx:
        tx.table("rows").upsert([{"key": "k"}])
    operator = fn.Operator("fed")
    operator.register(touch)
    runtime = fn.Runtime(store, "p", [operator])
    runtime.feed("fed", "touch", fn.TableFeed("rows"), arguments=[], name=Words("f"))
    with runtime:
        runtime.drain(SECONDS)
        assert runtime.query("fed", "k") == {"touched": True}


def test_names_may_be_members_of_an_enumeration(store: StateStore) -> None:
    """Of operators, functions and the program; what keeps them has plain text."""
    names = StrEnum("names", {"OPERATOR": "cell", "FUNCTION": "touch", "PROGRAM": "p"})
    operator = fn.Operator(names.OPERATOR)
    operator.register(touch)

    @operator.register
    async def through(ctx: fn.FunctionContext) -> None:
        await ctx.call(names.OPERATOR, "b", names.FUNCTION)

    program = fn.Runtime(store, names.PROGRAM, [operator])
    assert type(operator.name) is type(program.name) is str
    program.load(names.OPERATOR, [{"key": "c", "touched": False}])
    with program:
        program.send(names.OPERATOR, "a", names.FUNCTION, request_id=names.PROGRAM).result(SECONDS)
        program.send("cell", "a", "through").result(SECONDS)
        assert [program.query(names.OPERATOR, key) for key in "abc"] == [{"touched": True}] * 2 + [{"touched": False}]
