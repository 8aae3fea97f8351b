"""Operators of the acceptance scenarios: accounts that pay each other, and cells that hold a number."""

from concurrent.futures import wait
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute import functions as fn

__all__ = ["BALANCE", "NotEnough", "accounts", "cells", "column_accounts", "run_together"]

SECONDS = 30


class NotEnough(Exception):
    """What the debtor's function raises."""


def accounts() -> fn.Operator:
    """`transfer(to, amount)` from the entity; replies what is left. `begin(balance)`."""
    account = fn.Operator("account", partitions=4)

    @account.register
    async def transfer(ctx: fn.FunctionContext, to: str, amount: int) -> int:
        state = ctx.get()
        if state is None or state["balance"] < amount:
            raise NotEnough(f"not enough credit: {ctx.key}")
        ctx.put({**state, "balance": state["balance"] - amount})
        ctx.call_async("account", to, "credit", amount)
        return int(state["balance"] - amount)

    @account.register
    async def credit(ctx: fn.FunctionContext, amount: int) -> None:
        state = ctx.get() or {"balance": 0}
        ctx.put({**state, "balance": state["balance"] + amount})

    @account.register
    async def begin(ctx: fn.FunctionContext, balance: int) -> None:
        ctx.put({"balance": balance})

    return account


def cells() -> fn.Operator:
    """Entities with a value: `write`, `add`, `copy_of(other)`, and more for single scenarios."""
    cell = fn.Operator("cell", partitions=4)

    @cell.register
    async def write(ctx: fn.FunctionContext, value: Any) -> None:
        ctx.put({"value": value})

    @cell.register
    async def add(ctx: fn.FunctionContext, amount: int) -> int:
        value = (ctx.get() or {"value": 0})["value"] + amount
        ctx.put({"value": value})
        return int(value)

    @cell.register
    async def value(ctx: fn.FunctionContext) -> Any:
        state = ctx.get()
        return None if state is None else state["value"]

    @cell.register
    async def add_to_all(ctx: fn.FunctionContext, keys: list[str]) -> None:
        for key in keys:
            ctx.call_async("cell", key, "add", 1)

    @cell.register
    async def copy_of(ctx: fn.FunctionContext, of: str) -> None:
        ctx.put({"value": await ctx.call("cell", of, "value")})

    @cell.register
    async def add_to_named(ctx: fn.FunctionContext) -> int:
        """Adds one to the cell that this one names."""
        named = ctx.get()
        assert named is not None
        return int(await ctx.call("cell", named["value"], "add", 1))

    @cell.register
    async def write_and_fail(ctx: fn.FunctionContext, value: int) -> None:
        ctx.put({"value": value})
        raise ValueError("no")

    return cell


BALANCE = pa.schema([pa.field("balance", pa.int64(), nullable=False)])


def column_accounts() -> fn.Operator:
    """The transfers of `accounts` as a batch function; one of a negative amount fails all that come with it."""
    account = fn.Operator("account", schema=BALANCE)

    @account.register_batch(touches={"payee": "account"})
    def transfer(batch: fn.FunctionBatch) -> Any:
        amount, mine = batch["amount"], batch.state("balance")
        if (pc.min(amount).as_py() or 0) < 0:
            raise ValueError("an amount is negative")
        batch.abort(pc.less(mine, amount), "not enough credit")
        batch.put({"balance": pc.subtract(mine, amount)})
        batch.put({"balance": pc.add(batch.state("balance", of="payee"), amount)}, of="payee")
        return pc.subtract(mine, amount)

    return account


def run_together(runtime: fn.Runtime, *requests: tuple[Any, ...]) -> list[Any]:
    """Send requests for one epoch, however slowly they come; returns values, and texts of errors."""
    runtime.pause()
    futures = [runtime.send(*request) for request in requests]
    runtime.resume()
    wait(futures, SECONDS)
    return [str(one.exception()) if one.exception() else one.result() for one in futures]
