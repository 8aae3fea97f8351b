"""Operators of the acceptance scenarios: accounts that pay each other, and cells that hold a number."""

from concurrent.futures import wait
from typing import Any

from tussock.compute import functions as fn

__all__ = ["NotEnough", "accounts", "cells", "run_together"]

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


def run_together(runtime: fn.Runtime, *requests: tuple[Any, ...]) -> list[Any]:
    """Send requests for one epoch; returns values, and texts of errors."""
    futures = [runtime.send(*request) for request in requests]
    wait(futures, SECONDS)
    return [str(one.exception()) if one.exception() else one.result() for one in futures]
