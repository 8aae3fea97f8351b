"""The graph of the acceptance scenarios, and its application.

SP1 (border) appends x to `log` and emits x+1, SP2 emits 2x, SP3 adds to `sum`.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute import procedures as ps
from tussock.statestore import StateStore

X = pa.schema([("x", pa.int64())])


def plus_one(app: ps.App) -> None:
    app.table("log", pa.schema([("id", pa.int64()), ("x", pa.int64())]), primary_key=["id"])
    app.table("sum", pa.schema([("k", pa.int64()), ("v", pa.int64())]), primary_key=["k"])


def total_in(tx: Any) -> int:
    row = tx.table("sum").get(0)
    return row["v"] if row else 0


class Story:
    """The application, and what its procedures did."""

    def __init__(self, store: StateStore, **options: Any) -> None:
        self.store = store
        self.app = ps.App(store, "story", **{"checkpoint": 60.0, **options})
        plus_one(self.app)
        self.after: Story
        self.check: Callable[[], None]
        self.next_options: dict[str, Any] = {}
        self.bonus = 0
        """What a changed program adds to each x."""
        self.runs: list[tuple[str, int]] = []
        self.fail_on: set[int] = set()
        self.in_sp2 = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        app = self.app
        first = app.stream("first", X)
        second = app.stream("second", X)

        @app.procedure("SP1", border=True, emits=first)
        def sp1(tx: Any, batch: pa.Table) -> Any:
            self.runs.append(("SP1", tx.batch_id))
            rows = [{"id": tx.batch_id * 1000 + at, "x": x + self.bonus} for at, x in enumerate(batch["x"].to_pylist())]
            tx.table("log").upsert(rows)
            return pa.table({"x": pc.add(batch["x"], 1)})

        @app.procedure("SP2", consumes=first, emits=second)
        def sp2(tx: Any, batch: pa.Table) -> Any:
            self.runs.append(("SP2", tx.batch_id))
            self.in_sp2.set()
            self.go_on.wait(30)
            if tx.batch_id in self.fail_on:
                raise ValueError("no such luck")
            return [{"x": 2 * x} for x in batch["x"].to_pylist()]

        @app.procedure("SP3", consumes=second)
        def sp3(tx: Any, batch: pa.Table) -> None:
            self.runs.append(("SP3", tx.batch_id))
            total = total_in(tx) + sum(batch["x"].to_pylist())
            tx.table("sum").upsert([{"k": 0, "v": total}])
            tx.reply(total)

        @app.call_procedure("read_sum")
        def read_sum(tx: Any) -> int:
            return total_in(tx)

        @app.call_procedure("times")
        def times(tx: Any, factor: int) -> int:
            total = total_in(tx) * factor
            tx.table("sum").upsert([{"k": 0, "v": total}])
            return total

    def go_on_for(self, batches: int) -> None:
        """Batches, one by one, with time for commits between them."""
        for _ in range(batches):
            self.app.submit("SP1", batch(1)).result(10)
            time.sleep(0.02)

    def sum(self) -> int:
        return self.app.call("read_sum")

    def log(self) -> list[int]:
        return sorted(row["x"] for batch in self.store.table("log").read() for row in batch.to_pylist())


def batch(*values: int) -> list[dict[str, int]]:
    return [{"x": x} for x in values]
