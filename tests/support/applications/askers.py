"""A function that asks outside at several entities, by keys that it draws; it dies while the last one is asked.

`python askers.py URL FILE WORKERS`: the other system is the file, to which each call appends its key.
"""

import os
import signal
import sys
from pathlib import Path

from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = ["PLACES", "askers"]

PLACES = [f"place {at}" for at in range(6)]
"""Entities, of which two workers have some each."""


def askers(outside: Path, victim: int | None) -> fn.Operator:
    """`victim`: the process to be killed by the last call."""
    asker = fn.Operator("asker", partitions=8)

    @asker.register
    async def begin(ctx: fn.FunctionContext) -> int:
        for place in PLACES:
            await ctx.call("asker", place, "ask", str(ctx.uuid()), place == PLACES[-1])
        return len(PLACES)

    @asker.register
    async def ask(ctx: fn.FunctionContext, number: str, is_last: bool) -> None:
        def note(key: str) -> None:
            with outside.open("a") as file:
                file.write(f"{key}\n")
            if is_last and victim is not None:
                os.kill(victim, signal.SIGKILL)

        ctx.call_external(f"{ctx.key}:{number}", note)
        ctx.put({"number": number})

    return asker


if __name__ == "__main__":
    url, file, workers = sys.argv[1:]
    with connect(url) as store:
        operator = askers(Path(file), os.getpid())
        with fn.Runtime(store, "askers", [operator], checkpoint=3600, workers=int(workers)) as runtime:
            runtime.send("asker", "a", "begin").result(60)
