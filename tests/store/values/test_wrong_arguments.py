"""For any arguments a public call does what it says, or raises a `TussockError` and stores nothing."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.service.platforms import Platform
from tussock.statestore import (
    InvalidOption,
    RawTable,
    Snapshot,
    StateStore,
    TussockError,
    TypedTable,
    clone,
    connect,
    restore,
)

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.float64()), ("l", pa.list_(pa.int8()))])
ROW = {"k": 1, "s": "a", "v": 1.5, "l": [1]}


class Foreign:
    """An object of a foreign library."""

    def __repr__(self) -> str:
        return "<foreign>"


JUNK: list[Any] = [
    None,
    True,
    0,
    -1,
    5,
    1 << 63,
    1 << 64,
    1 << 70,
    10**400,
    1.5,
    1e20,
    1e300,
    float("nan"),
    float("inf"),
    "",
    "t",
    "raw",
    "k",
    "\ud800",
    "x" * 300,
    b"",
    b"ab",
    (),
    (1,),
    (1, "a"),
    ("a", 1),
    ((1,), (2,)),
    ((1,),),
    ((), ()),
    (0, 300),
    ("0", "1"),
    [],
    [None],
    [1, "a"],
    ["k"],
    ["k", "k"],
    ["\ud800"],
    ["zz"],
    [(1, "a")],
    [(b"a", b"1")],
    [("a", 1)],
    [{}],
    [ROW],
    [{**ROW, "k": "1"}],
    [{**ROW, "l": [1.5]}],
    {},
    {"k": 1},
    {"t": 5},
    {"t": "x"},
    {"raw": [1]},
    {"new": pa.int8()},
    {"new": "int8"},
    {"k": pa.int8()},
    {1: pa.int8()},
    {1, 2},
    iter([1]),
    range(3),
    Foreign(),
    object,
    len,
    np.int64(5),
    np.array([1, 2]),
    np.array([b"a"]),
    np.datetime64("2020"),
    pa.scalar(1),
    pa.scalar(None),
    pa.array([1]),
    pa.array([b"a"]),
    pa.array(["a", None]),
    pa.chunked_array([["a"]]),
    pa.int8(),
    pa.field("a", pa.int8()),
    SCHEMA,
    pa.schema([]),
    pa.schema([("a", pa.int8()), ("a", pa.int8())]),
    pa.schema([("a", pa.list_(pa.string_view()))]),
    pa.table({}),
    pa.table({"k": [1], "s": ["a"]}),
    pa.table({"k": ["1"], "s": ["a"]}),
    pa.table([[1], [2]], names=["k", "k"]),
    pa.table({"key": [b"a"], "value": [b"1"]}),
    pa.table({"key": [b"a"], "value": [b"1"], "op": ["zap"]}),
    pa.table({"key": [None], "value": [b"1"]}),
    pa.record_batch({"key": pa.array([b"b", b"a"]), "value": pa.array([b"1", None])}),
    pc.field("k") > 0,
    pc.field("zz") > 0,
    pc.field("k") > "a",
    pc.divide(pc.field("k"), 0) > 0,
    pc.field("k"),
]

CALLS: dict[type, tuple[str, ...]] = {
    StateStore: (
        "create_table",
        "table",
        "alter_table",
        "drop_table",
        "commit_epoch",
        "commit_uploaded",
        "open_writer",
        "abort_epoch",
        "committed_batch",
        "wait_epoch",
        "join_checkpoint",
        "pin_snapshot",
        "compact",
        "backup",
        "delete_backup",
    ),
    TypedTable: (
        "upsert",
        "ingest_batch",
        "delete",
        "upload",
        "get",
        "multi_get",
        "read",
        "changes",
        "change_feed",
        "change_epochs",
    ),
    RawTable: (
        "ingest_batch",
        "upsert",
        "upload",
        "get",
        "multi_get",
        "scan",
        "changes",
        "change_feed",
        "change_epochs",
    ),
    Snapshot: ("table",),
}
WRITES = ("upsert", "ingest_batch", "delete")


@pytest.fixture(scope="module")
def objects() -> Iterator[dict[type, Any]]:
    with connect("memory://", compaction=False) as store:
        typed = store.create_table("t", SCHEMA, ["k", "s"], vnodes=4)
        raw = store.create_table("raw")
        typed.upsert([ROW], 1)
        raw.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        with store.pin_snapshot() as snapshot:
            yield {StateStore: store, TypedTable: typed, RawTable: raw, Snapshot: snapshot}


def rows(objects: dict[type, Any]) -> tuple[Any, ...]:
    """The rows of both tables, own rows too."""
    typed = [batch.to_pylist() for batch in objects[TypedTable].read()]
    return typed, [batch.to_pylist() for batch in objects[RawTable].scan()]


def run(call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """The call, and all its results in turn."""
    answer = call(**arguments)
    if isinstance(answer, Iterator):
        for _ in answer:
            pass


def test_a_store_is_opened_or_the_option_is_named() -> None:
    """`connect`, `restore` and `clone` with each value for each of their arguments, but for the clocks."""
    good = {"url": "memory://", "source": "memory://a", "target": "memory://b", "backup": "b"}
    for call in (connect, restore, clone):
        parameters = [p for p in named_parameters(call) if p.name not in ("system", "on_bytes", "source_options")]
        needed = {p.name: good[p.name] for p in parameters if p.default is inspect.Parameter.empty}
        for parameter in parameters:
            for value in JUNK:
                try:
                    opened = call(**{**needed, parameter.name: value})
                except TussockError:
                    continue
                is_flag = parameter.name in ("compaction", "create")
                assert is_flag or not isinstance(value, bool), f"{parameter.name}={value}"
                if opened is not None:
                    works(opened)


def works(store: StateStore) -> None:
    """An accepted option must not be found wrong by later calls."""
    with store:
        table = store.create_table("a")
        table.ingest_batch([(b"a", b"1")], 1)
        store.commit_epoch(1)
        store.vacuum()
        assert table.get(b"a") == b"1"


def named_parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return [parameter for parameter in inspect.signature(method).parameters.values() if parameter.name != "self"]


@settings(max_examples=400, deadline=None)
@given(data=st.data(), kind=st.sampled_from(list(CALLS)))
def test_wrong_arguments_raise_a_named_error_and_store_nothing(
    objects: dict[type, Any], data: st.DataObject, kind: type
) -> None:
    """Each argument is left out, right, or any object."""
    name = data.draw(st.sampled_from(CALLS[kind]))
    method = getattr(objects[kind], name)
    arguments: dict[str, Any] = {}
    for parameter in named_parameters(method):
        needed = parameter.default is inspect.Parameter.empty
        if parameter.name == "epoch" and name in WRITES:
            arguments["epoch"] = objects[StateStore].new_epoch() if data.draw(st.booleans()) else JUNK[data.draw(at)]
        elif needed or data.draw(st.integers(0, 3)) == 0:
            arguments[parameter.name] = JUNK[data.draw(at)]
    if name == "wait_epoch":
        arguments["timeout"] = 0
    check(objects, kind, name, arguments)


at = st.integers(0, len(JUNK) - 1)


def check(objects: dict[type, Any], kind: type, name: str, arguments: dict[str, Any]) -> None:
    store = objects[StateStore]
    if name == "drop_table" and isinstance(arguments["name"], str) and arguments["name"] in store.tables():
        return
    if name == "create_table":
        for table in {"t2"} & set(store.tables()):
            store.drop_table(table)
    before = rows(objects)
    try:
        run(getattr(objects[kind], name), arguments)
    except TussockError as error:
        str(error)
        assert rows(objects) == before, "something was stored, though the call failed"
    else:
        if name in WRITES:
            store.abort_epoch(arguments["epoch"])


@pytest.mark.parametrize("kind", list(CALLS))
def test_each_argument_alone_is_accepted_or_named(objects: dict[type, Any], kind: type) -> None:
    """Each value for each of them, with the others right."""
    store = objects[StateStore]
    good: dict[str, Any] = {
        "name": "t2",
        "schema": None,
        "keys": [(1, "a")] if kind is TypedTable else [b"a"],
        "key": (1, "a") if kind is TypedTable else b"a",
        "rows": [ROW] if kind is TypedTable else pa.table({"key": [b"z"], "value": [b"1"]}),
        "from_epoch": 1,
        "uploads": {},
        "job": "job",
        "writer": "w",
        "batch_id": 0,
        "table": "t",
    }
    for name in CALLS[kind]:
        parameters = named_parameters(getattr(objects[kind], name))
        for parameter in parameters:
            for value in JUNK:
                arguments = {
                    other.name: good.get(other.name, store.new_epoch())
                    for other in parameters
                    if other.default is inspect.Parameter.empty
                }
                if name in ("table", "alter_table"):
                    arguments["name"] = "t"
                if name == "create_table" and parameter.name != "schema":
                    arguments |= {"schema": SCHEMA, "primary_key": ["k"]}
                arguments[parameter.name] = value
                if name == "upload" and parameter.name != "rows":
                    arguments["rows"] = [pa.RecordBatch.from_pylist([{**ROW, "gone": True}])]
                if name == "wait_epoch" and parameter.name == "epoch":
                    arguments["timeout"] = 0
                elif name == "wait_epoch":
                    arguments["epoch"] = 1
                check(objects, kind, name, arguments)


def test_a_job_is_joined_or_the_argument_is_named(tmp_path: Path) -> None:
    """`join_checkpoint` with a meta service; an embedded store refuses it for any arguments."""
    with Platform(tmp_path.as_uri()) as platform:
        store = platform.connect()
        for parameter in named_parameters(store.join_checkpoint):
            if parameter.name.startswith("on_b") or parameter.name in ("on_committed", "on_restore", "participants"):
                continue
            for at, value in enumerate(JUNK):
                job = {"job": f"{parameter.name} {at}", parameter.name: value}
                try:
                    joined = store.join_checkpoint(**job)
                except TussockError:
                    continue
                assert not isinstance(value, bool)
                joined.abandon("it was to be joined only")
        joined = store.join_checkpoint("leaving", interval=0.01)
        for value in JUNK:
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0 or value == 10**400:
                with pytest.raises(TussockError):
                    joined.leave(value)
        joined.leave(float("inf"))


@pytest.mark.parametrize("option", ["add", "widen"])
def test_a_column_is_not_altered_twice_in_one_call(store: StateStore, option: str) -> None:
    """Of two types the second would win, and of two columns one would be missing."""
    table = store.create_table("t", pa.schema([("k", pa.int64()), ("q", pa.int8())]), ["k"])
    for types in ((pa.int64(), pa.int64()), (pa.int32(), pa.int64())):
        columns = pa.schema([("new" if option == "add" else "q", kind) for kind in types])
        with pytest.raises(InvalidOption, match=rf"{option} has the columns .* twice"):
            store.alter_table("t", **{option: columns})
    assert table.schema.names == ["k", "q"]
