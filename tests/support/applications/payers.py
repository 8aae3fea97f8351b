"""Functions that ask another system which fails, as a program that dies before it has committed.

`python payers.py URL FILE WORKERS`: the other system is the file, to which each call appends its key.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = ["USES", "payers"]

USES: dict[str, Callable[[fn.FunctionContext], Any]] = {
    "get": lambda ctx: ctx.get(),
    "put": lambda ctx: ctx.put({"n": 1}),
    "delete": lambda ctx: ctx.delete(),
    "call_async": lambda ctx: ctx.call_async("payer", "other", "count"),
    "call": lambda ctx: ctx.call("payer", "other", "count"),
    "now": lambda ctx: str(ctx.now()),
    "random": lambda ctx: ctx.random(),
    "uuid": lambda ctx: str(ctx.uuid()),
    "call_external": lambda ctx: ctx.call_external("inner", str.upper),
}
"""What a function may do with its context, and the function of an outside call may not."""


def payers(outside: Path) -> fn.Operator:
    """`pay` fails with its call, `try_to` goes on without it, `pay_twice` fails in its second one."""
    payer = fn.Operator("payer", partitions=4)

    def fails(key: str) -> None:
        answers(key)
        raise ConnectionError(f"{key} is away")

    def answers(key: str) -> int:
        with outside.open("a") as file:
            file.write(f"{key}\n")
        return 7

    @payer.register
    async def pay(ctx: fn.FunctionContext) -> None:
        ctx.put({"n": -1})
        ctx.call_external(f"pay {ctx.key}", fails)

    @payer.register
    async def try_to(ctx: fn.FunctionContext) -> str:
        try:
            ctx.call_external(f"try {ctx.key}", fails)
        except fn.OutsideCallFailed as error:
            ctx.put({"n": 5})
            return f"{error.kind}: {error}"
        return "paid"

    @payer.register
    async def pay_twice(ctx: fn.FunctionContext) -> None:
        ctx.put({"n": ctx.call_external(f"first {ctx.key}", answers)})
        ctx.call_external(f"second {ctx.key}", fails)

    @payer.register
    async def count(ctx: fn.FunctionContext) -> int:
        n = (ctx.get() or {"n": 0})["n"] + 1
        ctx.put({"n": n})
        return n

    @payer.register
    async def uses(ctx: fn.FunctionContext, what: str) -> Any:
        return ctx.call_external("uses", lambda _: USES[what](ctx))

    @payer.register
    async def dig(ctx: fn.FunctionContext) -> str:
        """It fails in the first process only, as one does that has less room for its stack."""

        def down(depth: int) -> int:
            return down(depth + 1)

        ctx.put({"n": 1})
        return str(7 if outside.exists() else down(0))

    return payer


def _main(url: str, outside: Path, workers: int) -> None:
    runtime = fn.Runtime(connect(url), "payers", [payers(outside)], checkpoint=3600, workers=workers)
    runtime.start()
    for function in ("dig", "count", "pay", "try_to", "pay_twice", "count"):
        future = runtime.send("payer", "a", function, request_id=f"{function} {runtime.stats()['tid']}")
        print(str(future.exception(30) or future.result()), flush=True)
    os._exit(9)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
