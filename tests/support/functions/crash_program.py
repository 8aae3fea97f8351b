"""A program of functions that is killed: run as a process, it writes what it knows to its output and waits.

`python crash_program.py URL FILE STORY`: what is outside is the file, which an outside call appends to.
"""

import os
import sys
from pathlib import Path
from typing import Any

from support.functions.accounts import accounts, run_together
from tussock.compute import functions as fn
from tussock.statestore import connect

__all__ = ["draws", "replies"]


def draws(outside: Path, *, dies: bool) -> fn.Operator:
    """`draw` keeps a random number, a time, a UUID and an answer of the file's other side; may die with the answer."""
    operator = fn.Operator("draw")

    @operator.register
    async def draw(ctx: fn.FunctionContext) -> list[Any]:
        def ask(key: str) -> int:
            with outside.open("a") as file:
                file.write(key + "\n")
            if dies:
                os._exit(9)
            return len(outside.read_text().splitlines())

        found = [ctx.random(), str(ctx.now()), str(ctx.uuid())]
        found.append(ctx.call_external(f"pay-{found[2]}", ask))
        ctx.put({"found": found})
        return found

    return operator


def replies(future: Any) -> str:
    """The reply, or the text of the failure."""
    return str(future.exception(30) or future.result())


def _main(url: str, outside: Path, story: str) -> None:
    store = connect(url)
    if story == "cut":
        runtime = fn.Runtime(store, "bank", [accounts()], checkpoint=3600)
        runtime.load("account", [{"key": key, "balance": amount} for key, amount in {"A": 10, "B": 0, "C": 0}.items()])
        runtime.start()
        runtime.pause()
        first = runtime.send("account", "A", "transfer", "B", 10, request_id="one")
        second = runtime.send("account", "B", "transfer", "C", 5, request_id="two")
        runtime.resume()
        print(replies(first), replies(second), sep="|", flush=True)
    else:
        runtime = fn.Runtime(store, "draws", [draws(outside, dies=story == "dies")], checkpoint=3600)
        runtime.start()
        print(run_together(runtime, ("draw", "x", "draw")), flush=True)
    os._exit(9)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
