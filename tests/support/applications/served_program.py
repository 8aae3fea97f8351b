"""A small application for `tussock serve`, whose procedures do what a test asks of them."""

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.compute.procedures import App
from tussock.statestore import StateStore, connect

NUMBER = pa.schema([pa.field("n", pa.int64(), nullable=False)])
GATE_SECONDS_MAX = 60


def make(store: StateStore, **options: Any) -> App:
    """Border `take` adds numbers up and replies the sum; negative ones raise. Calls: `total`, `echo`, `wait` ..."""
    app = App(store, "numbers", **options)
    app.table("sums", pa.schema([("id", pa.int64()), ("sum", pa.int64())]), primary_key=["id"])
    taken = app.stream("taken", NUMBER)
    app.window("newest", on=taken, rows=4, slide=2)

    @app.procedure("take", border=True, schema=NUMBER, emits=taken)
    def take(tx: Any, batch: pa.Table) -> pa.Table:
        numbers = batch["n"].to_pylist()
        if any(number < 0 for number in numbers):
            raise ValueError(f"{min(numbers)} is negative")
        return batch

    @app.procedure("add", consumes=taken)
    def add(tx: Any, batch: pa.Table) -> None:
        table = tx.table("sums")
        total = (table.get(0) or {"sum": 0})["sum"] + sum(batch["n"].to_pylist())
        table.upsert([{"id": 0, "sum": total}])
        tx.reply(total)

    @app.procedure("anything", border=True)
    def anything(tx: Any, batch: pa.Table) -> None:
        tx.reply(batch)

    @app.call_procedure("total")
    def total(tx: Any) -> int:
        return int((tx.table("sums").get(0) or {"sum": 0})["sum"])

    @app.call_procedure("set")
    def set_total(tx: Any, number: int) -> None:
        tx.table("sums").upsert([{"id": 0, "sum": number}])

    @app.call_procedure("echo")
    def echo(tx: Any, *values: Any) -> list[Any]:
        return list(values)

    @app.call_procedure("wait")
    def wait(tx: Any, begun: str, gate: str) -> str:
        """Tell by a file that it runs, and return once there is another one."""
        Path(begun).touch()
        deadline = time.monotonic() + GATE_SECONDS_MAX
        while not Path(gate).exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return "waited"

    @app.call_procedure("boom")
    def boom(tx: Any, text: str) -> None:
        raise LookupError(text)

    @app.call_procedure("half")
    def half(tx: Any) -> None:
        """Raise a text that UTF-8 does not have."""
        raise LookupError("caf\udce9")

    return app


def at_once(store: StateStore) -> App:
    """The same, with a commit of the store for each request."""
    return make(store, checkpoint=0)


def raises(store: StateStore) -> App:
    raise RuntimeError("no application today")


def returns_text(store: StateStore) -> str:
    return "an application"


def exits(store: StateStore) -> App:
    raise SystemExit("bye")


number = 7

if "SERVED_STORE" in os.environ:
    ready = make(connect(os.environ["SERVED_STORE"]))
