"""A bank of transactional functions for `tussock serve`."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from support.functions.accounts import accounts, cells
from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = [
    "PEOPLE",
    "START",
    "accounts_alone",
    "bank",
    "make",
    "other",
    "slow_commits",
    "with_bytes",
    "with_limit",
    "with_workers",
]

PEOPLE = 20
START = 100
"""What each of the accounts `p0` to `p19` begins with."""


def bank(store: StateStore, **options: Any) -> fn.Runtime:
    """Operators `account`, `cell`, and `purse`, whose keys are integers and whose batch function `give` moves money."""
    purse = fn.Operator("purse", schema=pa.schema([("coins", pa.int64())]), key=pa.int64())

    @purse.register_batch(touches={"to": "purse"})
    def give(batch: fn.FunctionBatch) -> pa.Array:
        coins, mine = batch["coins"], batch.state("coins")
        batch.abort(pc.less(mine, coins), "not enough coins")
        batch.put({"coins": pc.subtract(mine, coins)})
        batch.put({"coins": pc.add(batch.state("coins", of="to"), coins)}, of="to")
        return pc.subtract(mine, coins)

    @purse.register
    async def fill(ctx: fn.FunctionContext, coins: int) -> None:
        ctx.put({"coins": coins})

    @purse.register
    async def count_for_ever(ctx: fn.FunctionContext) -> None:
        while True:
            pass

    runtime = fn.Runtime(store, "bank", [accounts(), cells(), purse], **options)
    if "account" not in store.tables():
        runtime.load("account", [{"key": f"p{at}", "balance": START} for at in range(PEOPLE)])
    return runtime


def make(store: StateStore) -> fn.Runtime:
    """As a program runs by default."""
    return bank(store)


def slow_commits(store: StateStore) -> fn.Runtime:
    """Commits are rare, so that a recovery replays much."""
    return bank(store, checkpoint=5.0)


def with_bytes(store: StateStore) -> fn.Runtime:
    """Operator `seal`, whose keys are bytes; `told` says what it was given."""
    seal = fn.Operator("seal", key=pa.binary())

    @seal.register
    async def press(ctx: fn.FunctionContext) -> None:
        ctx.put({"pressed": True})

    @seal.register
    def told(ctx: fn.FunctionContext, given: Any) -> str:
        return repr(given)

    return fn.Runtime(store, "seals", [seal])


def with_limit(store: StateStore) -> fn.Runtime:
    """What takes a few seconds is stopped."""
    return bank(store, timeout=3.0)


def with_workers(store: StateStore) -> fn.Runtime:
    """The same in two processes beside the node."""
    return bank(store, workers=2)


def other(store: StateStore) -> fn.Runtime:
    """Another program on the same store."""
    return fn.Runtime(store, "other", [accounts()])


def accounts_alone(store: StateStore) -> fn.Runtime:
    """The program of `BankOfWorkers`, for workers that join it."""
    return fn.Runtime(store, "bank", [accounts()])
