"""Functions of many requests at a time: the results of one after the other, however they share keys."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Dead, Fuse, QuickSystem
from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.compute.functions.batches.rounds import rounds
from tussock.statestore import InvalidOption, StateStore, connect
from tussock.statestore.buckets import open_bucket

BALANCE = pa.schema([pa.field("balance", pa.int64(), nullable=False), ("owner", pa.string())])


def account() -> fn.Operator:
    """Transfers by columns and by coroutines, which mean the same."""
    account = fn.Operator("account", partitions=4, schema=BALANCE)

    @account.register_batch(touches={"to": "account"})
    def transfers(batch: fn.FunctionBatch) -> Any:
        amount, mine = batch["amount"], batch.state("balance")
        batch.abort(pc.or_(pc.less(mine, amount), pc.equal(batch.keys, batch["to"])), "not enough credit")
        batch.abort(pc.invert(pc.and_(batch.exists(), batch.exists(of="to"))), "no account")
        batch.put({"balance": pc.subtract(mine, amount)})
        batch.put({"balance": pc.add(batch.state("balance", of="to"), amount)}, of="to")
        return pc.subtract(mine, amount)

    @account.register
    async def transfer(ctx: fn.FunctionContext, to: str, amount: int) -> int:
        state = ctx.get()
        assert state is not None
        if state["balance"] < amount or to == ctx.key:
            raise ValueError("not enough credit")
        ctx.put({**state, "balance": state["balance"] - amount})
        ctx.call_async("account", to, "credit", amount)
        return int(state["balance"] - amount)

    @account.register
    async def credit(ctx: fn.FunctionContext, amount: int) -> None:
        state = ctx.get()
        assert state is not None
        ctx.put({**state, "balance": state["balance"] + amount})

    @account.register_batch
    def fail(batch: fn.FunctionBatch) -> None:
        batch.put({"balance": pa.array([7] * batch.num_rows)})
        raise ValueError("no caf\udce9")

    @account.register_batch
    def mistake(batch: fn.FunctionBatch) -> Any:
        return MISTAKES[batch["which"][0].as_py()][0](batch)

    @account.register_batch
    def close(batch: fn.FunctionBatch) -> None:
        batch.delete()

    return account


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with connect((tmp_path / "store").as_uri(), compaction=False) as opened:
        yield opened


def loaded(store: StateStore, accounts: int, balance: int = 50, **options: Any) -> fn.Runtime:
    runtime = fn.Runtime(store, "bank", [account()], **options)
    rows = [{"key": f"a{at}", "balance": balance, "owner": f"o{at}"} for at in range(accounts)]
    runtime.load("account", pa.Table.from_pylist(rows))
    return runtime


def drawn(seed: int, accounts: int, requests: int) -> tuple[list[str], dict[str, Any]]:
    chance = random.Random(seed)
    keys = [f"a{chance.randrange(accounts)}" for _ in range(requests)]
    others = [f"a{chance.randrange(accounts)}" for _ in range(requests)]
    return keys, {"to": others, "amount": [chance.randint(1, 20) for _ in range(requests)]}


@pytest.mark.parametrize("accounts", [3, 40, 1000])
def test_columns_do_what_coroutines_do_one_after_the_other(store: StateStore, accounts: int) -> None:
    """Few accounts: long chains of requests; many: none."""
    keys, columns = drawn(accounts, accounts, 400)
    balances = {f"a{at}": 50 for at in range(accounts)}
    replies = []
    for key, to, amount in zip(keys, columns["to"], columns["amount"], strict=True):
        if balances[key] < amount or key == to:
            replies.append((None, "not enough credit"))
        else:
            balances[key] -= amount
            balances[to] += amount
            replies.append((balances[key], None))
    with loaded(store, accounts) as runtime:
        table = runtime.send_many("account", "transfers", pa.array(keys), pa.table(columns))
        assert list(zip(table["reply"].to_pylist(), table["error"].to_pylist(), strict=True)) == replies
        assert table.schema.field("reply").type == pa.int64()
        assert {key: (runtime.query("account", key) or {})["balance"] for key in balances} == balances
        assert runtime.query("account", "a0") == {"balance": balances["a0"], "owner": "o0"}
    rows = {row["key"]: row["balance"] for batch in store.table("account").read() for row in batch.to_pylist()}
    assert rows == balances


def test_other_functions_take_many_requests_too(store: StateStore) -> None:
    """One transaction a row, with the row's values as its arguments; the sum stays."""
    keys, columns = drawn(1, 40, 400)
    with loaded(store, 40) as runtime:
        table = runtime.send_many("account", "transfer", keys, columns)
        assert table.num_rows == 400
        assert set(table["error"].to_pylist()) <= {None, "not enough credit"}
        total = sum((runtime.query("account", f"a{at}") or {})["balance"] for at in range(40))
        assert total == 40 * 50


def test_columns_are_named_after_parameters(store: StateStore) -> None:
    """Story: columns in another order than the parameters were stored under each other's names, without a word."""
    operator = fn.Operator("basket")

    @operator.register
    async def two(ctx: fn.FunctionContext, sku: str, n: int = 1, note: str = "") -> str:
        return f"{sku} {n} {note}"

    @operator.register
    def several(ctx: fn.FunctionContext, *values: Any) -> list[Any]:
        return list(values)

    @operator.register
    def none(ctx: fn.FunctionContext) -> str:
        return str(ctx.key)

    with fn.Runtime(store, "shop", [operator]) as runtime:

        def replies(function: str, columns: Any) -> list[Any]:
            found: list[Any] = runtime.send_many("basket", function, ["a", "b"], columns)["reply"].to_pylist()
            return found

        assert replies("two", {"n": [1, 2], "sku": ["x", "y"]}) == ["x 1 ", "y 2 "]
        assert replies("several", {"n": [1, 2], "m": [3, 4]}) == [[1, 3], [2, 4]]
        assert replies("none", None) == replies("none", {}) == ["a", "b"]
        for columns, told in (
            ({"sku": ["x", "y"], "qty": [1, 2]}, r"no parameters \['qty'\].*\['sku', 'n', 'note'\]"),
            ({"sku": ["x", "y"], "note": ["", ""]}, r"a column for \['n'\] is missing"),
            ({"n": [1, 2]}, r"a column for \['sku'\] is missing"),
            ({}, r"a column for \['sku'\] is missing"),
        ):
            with pytest.raises(fn.FunctionFault, match=told):
                replies("two", columns)


def test_touched_operators_are_there(store: StateStore) -> None:
    """Story: a name that is wrong was found by the first request."""
    payer = fn.Operator("payer", schema=BALANCE)
    payer.register_batch(touches={"to": "purse"})(lambda batch: None)
    with pytest.raises(InvalidOption, match=r"touches=.'to': 'purse'.*one of \['payer', 'free'\]"):
        fn.Runtime(store, "p", [payer, fn.Operator("free")])


@pytest.mark.parametrize("workers", [0, 2])
def test_states_without_a_schema_have_columns_too(store: StateStore, workers: int) -> None:
    """By the names in their dicts, of which others stay; what JSON cannot hold is named, and nothing is stored."""
    account = fn.Operator("account", partitions=4)

    @account.register_batch(touches={"to": "account"})
    def transfer(batch: fn.FunctionBatch) -> Any:
        amount, mine = batch["amount"], batch.state("balance")
        batch.abort(pc.fill_null(pc.less(mine, amount), True), "not enough credit")
        batch.put({"balance": pc.subtract(mine, amount)})
        theirs = pc.fill_null(batch.state("balance", of="to").cast(pa.int64()), 0)
        batch.put({"balance": pc.add(theirs, amount)}, of="to")
        return pc.subtract(mine, amount)

    @account.register_batch
    def name(batch: fn.FunctionBatch) -> Any:
        batch.put({"name": batch["name"]})
        return batch.exists()

    @account.register_batch
    def names(batch: fn.FunctionBatch) -> Any:
        return batch.state("name")

    runtime = fn.Runtime(store, "bank", [account], workers=workers)
    runtime.load("account", [{"key": "ann", "balance": 50, "note": "first"}])
    with runtime:
        asked = {"to": ["bob", "eve", "ann", "ann"], "amount": [30, 30, 10, 5]}
        replies = runtime.send_many("account", "transfer", ["ann", "ann", "bob", "none"], asked)
        refused = "not enough credit"
        assert replies.to_pydict() == {"reply": [20, None, 20, None], "error": [None, refused, None, refused]}
        assert runtime.query("account", "ann") == {"balance": 30, "note": "first"}
        assert (runtime.query("account", "bob"), runtime.query("account", "eve")) == ({"balance": 20}, None)
        named = runtime.send_many("account", "name", ["bob", "eve"], {"name": ["Bob", None]})
        assert named["reply"].to_pylist() == [True, False]
        with pytest.raises(fn.TransactionAborted, match="JSON"):
            runtime.send_many("account", "name", ["bob"], {"name": [b"bytes"]})
        runtime.send_many("account", "name", ["ann"], {"name": [5]})
        with pytest.raises(fn.TransactionAborted, match=r"'name' of operator 'account' is .*; expected an array"):
            runtime.send_many("account", "names", ["ann", "bob"])
    assert store.table("account").get("bob") == {"key": "bob", "state": '{"balance":20,"name":"Bob"}'}
    assert store.table("account").get("eve") == {"key": "eve", "state": '{"name":null}'}


@pytest.mark.parametrize("seed", range(20))
def test_requests_of_a_round_share_no_key_and_keep_their_order(seed: int) -> None:
    chance = np.random.default_rng(seed)
    codes = chance.integers(0, 12, (60, 2))
    seen: list[int] = []
    for rows in rounds(codes, 12):
        touched = [set(codes[row]) for row in rows]
        assert sum(map(len, touched)) == len(set().union(*touched))
        seen += rows.tolist()
    assert sorted(seen) == list(range(60))
    for key in range(12):
        order = [row for row in seen if key in codes[row]]
        assert order == sorted(order)


def test_a_function_that_raises_leaves_nothing(store: StateStore) -> None:
    with loaded(store, 3) as runtime:
        with pytest.raises(fn.TransactionAborted, match=r"no caf\\udce9") as caught:
            runtime.send_many("account", "fail", ["a0", "a1"])
        assert (caught.value.kind, caught.value.function) == ("ValueError", "fail")
        assert (runtime.query("account", "a0") or {})["balance"] == 50
        runtime.send_many("account", "close", ["a0", "absent"])
        assert runtime.query("account", "a0") is None


MISTAKES: dict[str, tuple[Any, str]] = {
    "column": (lambda batch: batch["amonut"], "no column 'amonut'"),
    "state": (lambda batch: batch.state("blance"), "no column 'blance'"),
    "of": (lambda batch: batch.exists(of="to"), "of='to'"),
    "length": (lambda batch: batch.put({"balance": pa.array([1, 2, 3])}), "3 values for 1 rows"),
    "type": (lambda batch: batch.put({"balance": pa.array(["x"])}), "balance"),
    "null": (lambda batch: batch.put({"balance": pa.nulls(1, pa.int64())}), "balance"),
    "new": (lambda batch: batch.put({"owner": pa.array(["x"])}), "a new entity has no column 'balance'"),
    "scalar": (lambda batch: batch.put({"balance": 5}), "column 'balance' is 5; expected an array"),
    "text": (lambda batch: batch.put({"owner": "a"}), "column 'owner' is 'a'; expected an array"),
    "dict": (lambda batch: batch.put({"owner": {"a": 1}}), "column 'owner' is .*; expected an array"),
    "scalar mask": (lambda batch: batch.abort(True, "no"), "is True; expected an array"),
    "scalar reply": (lambda batch: 5, "account.mistake returned is 5; expected an array"),
    "mask": (lambda batch: batch.abort(pa.array([1]), "no"), "abort takes 1 booleans"),
    "replies": (lambda batch: pa.array([1, 2]), "returned 2 replies for 1 requests"),
}


@pytest.mark.parametrize("which", MISTAKES)
def test_mistakes_of_batch_functions_are_named(store: StateStore, which: str) -> None:
    with loaded(store, 1) as runtime:
        key = "absent" if which == "new" else "a0"
        with pytest.raises(fn.TransactionAborted, match=MISTAKES[which][1]):
            runtime.send_many("account", "mistake", [key], {"which": [which]})
        assert (runtime.query("account", "a0") or {})["balance"] == 50


@pytest.mark.parametrize(
    ("keys", "columns", "told"),
    [
        (["a0"], pa.table([["a1"], ["a1"], [1]], names=["to", "to", "amount"]), "one name twice"),
        (["a0"], pa.table([["a1"], [1], [1]], names=["to", "amount", "amount"]), "one name twice"),
        (["a0"] * 1_000_001, None, "1,000,001 requests"),
        (["a0"], {"to": ["a1"], "amount": [1], "note": ["x" * (65 << 20)]}, "at most 1,000,000 of 64 MiB fit"),
        (["a0"], {"amount": [1]}, "column 'to'"),
        (["a0"], {"to": ["a1", "a2"], "amount": [1, 2]}, "1 keys, and columns of 2 rows"),
        ([b"\xff"], {"to": ["a1"], "amount": [1]}, "is no key of operator"),
        (["a0"], {"to": [None], "amount": [1]}, "None is no key"),
        (["a0"], 5, "no table"),
        (["a0"], {"to": pa.array(["a1"]).dictionary_encode(), "amount": [1]}, "nested or dictionary"),
    ],
)
def test_what_callers_give_wrongly_is_refused(store: StateStore, keys: Any, columns: Any, told: str) -> None:
    with loaded(store, 3) as runtime, pytest.raises(fn.FunctionFault, match=told):
        runtime.send_many("account", "transfers", keys, columns)


@pytest.mark.parametrize("function", ["transfers", "transfer"])
def test_values_that_python_does_not_have_are_refused(store: StateStore, function: str) -> None:
    """Story: a day after its last year was an `OverflowError`, and over `Ask` no error of the protocol."""
    day = pa.array([2**31 - 1], pa.int32()).cast(pa.date32())
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with loaded(store, 3) as runtime:
        for wrong in (day, text):
            for keys, to in ((wrong, pa.array(["a1"])), (pa.array(["a1"]), wrong)):
                with pytest.raises(fn.FunctionFault):
                    runtime.send_many("account", function, keys, pa.table({"to": to, "amount": [1]}))


@pytest.mark.parametrize("keys", [[], pa.array([]), pa.array([], pa.string())])
@pytest.mark.parametrize("function", ["transfers", "transfer"])
def test_of_no_keys_there_are_no_replies(store: StateStore, keys: Any, function: str) -> None:
    """An empty table, as a filter leaves one, is nothing wrong."""
    with loaded(store, 3) as runtime:
        found = runtime.send_many("account", function, keys, {"to": [], "amount": []})
        assert (found.num_rows, found.column_names) == (0, ["reply", "error"])
        assert runtime.stats()["records"] == 0


def test_declarations_that_cannot_be_are_refused() -> None:
    typed = fn.Operator("typed", schema=BALANCE)

    async def slow(batch: Any) -> None: ...

    with pytest.raises(InvalidOption, match="no coroutine function"):
        typed.register_batch(slow)


def test_batches_are_replayed_from_the_log() -> None:
    """X30 to X32: a death between the log and the store's commit loses none, and doubles none."""
    bucket = open_bucket("memory://")
    fuse = Fuse(10**9, is_done=False, hiccups={})
    store = open_on(FaultyBucket(bucket, fuse), QuickSystem())
    runtime = loaded(store, 40, checkpoint=3600)
    runtime.start()
    keys, columns = drawn(3, 40, 300)
    first = runtime.send_many("account", "transfers", keys, columns)
    other = [runtime.send("account", "a1", "transfer", "a2", 1) for _ in range(3)]
    outcomes = [one.exception(30) for one in other]
    before = {f"a{at}": runtime.query("account", f"a{at}") for at in range(40)}
    fuse.blow()
    with pytest.raises(Dead):
        runtime.stop()
    with open_on(bucket, QuickSystem()) as again, fn.Runtime(again, "bank", [account()]) as successor:
        assert {key: successor.query("account", key) for key in before} == before
        assert successor.stats()["batched"] == first["error"].null_count
        assert len(outcomes) == 3


def test_keys_may_come_as_parts_of_a_dictionary(store: StateStore) -> None:
    """Story: as a column of Polars or pandas does, and the answer was an `AttributeError`."""
    parts = [pa.array(keys).dictionary_encode() for keys in (["a0"], ["a2", "a0"])]
    with loaded(store, 3) as runtime:
        before = runtime.query("account", "a1")
        assert before is not None
        found = runtime.send_many(
            "account", "transfers", pa.chunked_array(parts), {"to": ["a1"] * 3, "amount": [1, 2, 3]}
        )
        assert found["error"].null_count == 3
        assert runtime.query("account", "a1") == {**before, "balance": before["balance"] + 6}


def test_a_batch_that_takes_too_long_says_how_far_it_was(store: StateStore) -> None:
    """Requests of one entity take a round each, which callers may not know."""
    operator = fn.Operator("slow")

    @operator.register_batch
    def wait(batch: fn.FunctionBatch) -> None:
        if batch["number"][0].as_py() == 3:
            while True:
                pass

    told = r"did not return in time: it had run 4 of 8 requests, in 3 rounds; requests of one entity are in separate"
    with fn.Runtime(store, "slow", [operator], timeout=0.5) as program:
        with pytest.raises(fn.TransactionAborted, match=told):
            program.send_many("slow", "wait", ["b", *["a"] * 7], {"number": [0, 0, 1, 2, 3, 4, 5, 6]})
        with pytest.raises(fn.TransactionAborted, match=r"did not return in time$"):
            program.send_many("slow", "wait", ["a"], {"number": [3]})
