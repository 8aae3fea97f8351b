"""An application of `plans.py` as a program of `tussock.compute.procedures`."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from support.procedures.interpreter import Outcome, Refused, answer_outside
from support.procedures.plans import LIMIT, TABLES, Plan, ProcedurePlan, TriggerPlan
from tussock.compute import procedures as ps
from tussock.statestore import InvalidBatch, StateStore

__all__ = ["NAME", "Program", "outcome_of", "rows_of", "tables_of"]

NAME = "shop"
X = pa.schema([("x", pa.int64()), ("tag", pa.string())])
KV = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def rows_of(numbers: list[int], form: str = "dicts") -> Any:
    """A batch of these numbers, as `dicts`, `arrow` or `record batch`."""
    rows = [{"x": x, "tag": None if x % 3 == 0 else f"t{x % 3}"} for x in numbers]
    if form == "dicts":
        return rows
    table = pa.Table.from_pylist(rows, schema=X)
    return table if form == "arrow" else pa.RecordBatch.from_pylist(rows, schema=X)


def outcome_of(ticket: "Future[Any]", timeout: float = 60) -> Outcome:
    """What the client was told, as the interpreter says it; other errors are raised."""
    try:
        return ("reply", ticket.result(timeout))
    except ps.ProcedureError as error:
        return ("refused", error.procedure, error.batch_id, error.cause)
    except InvalidBatch:
        return ("too old",)


def tables_of(outcome: Outcome) -> dict[str, dict[int, int]]:
    """The rows of all tables, of what call `dump` replied."""
    return {table: dict(rows) for table, rows in outcome[1].items()}


class Program:
    """The application on a store, with a note of everything that ran."""

    def __init__(self, plan: Plan, store: StateStore, **options: Any) -> None:
        self.plan = plan
        self.app = app = ps.App(store, NAME, **options)
        self.runs: list[tuple[str, int | None]] = []
        """Executions in their order, also of what was rolled back."""
        for table in (*TABLES, "seen", "drawn"):
            app.table(table, KV, primary_key=["k"])
        self._streams = {name: app.stream(name, X) for name in plan.streams}
        self._windows: dict[str, Any] = {}
        for window in plan.windows:
            size = {"batches" if window.by_batches else "rows": window.size}
            self._windows[window.name] = app.window(
                window.name, on=self._streams[window.on], slide=window.slide, first=window.first, **size
            )
        for procedure in plan.procedures:
            self._declare(procedure)
        for trigger in plan.triggers:
            on = {"stream": self._streams, "window": self._windows}.get(trigger.kind, {}).get(trigger.on, trigger.on)
            app.trigger(on)(self._trigger(trigger))
        app.call_procedure("look")(lambda tx, key: [_value(tx.table(table), key) for table in TABLES])
        app.call_procedure("add")(self._add)
        app.call_procedure("drop")(self._drop)
        app.call_procedure("order")(self._order)
        app.call_procedure("dump")(
            lambda tx: {
                table: [[row["k"], row["v"]] for batch in tx.table(table).read() for row in batch.to_pylist()]
                for table in (*TABLES, "seen", "drawn")
            }
        )

    def window(self, name: str, *, staged: bool) -> list[int]:
        """The numbers in a window."""
        found: list[int] = self.app.window_rows(name, staged=staged)["x"].to_pylist()
        return found

    def _declare(self, procedure: ProcedurePlan) -> None:
        declare = self.app.procedure(
            procedure.name,
            border=procedure.border,
            consumes=[self._streams[name] for name in procedure.consumes] or None,
            emits=[self._streams[name] for name in procedure.emits] or None,
            schema=X if procedure.border and procedure.has_schema else None,
        )

        def run(tx: Any, *batches: pa.Table) -> Any:
            self.runs.append((procedure.name, tx.batch_id))
            # A batch without rows and without a schema has no columns.
            numbers = [x for batch in batches if batch.num_rows for x in batch["x"].to_pylist()]
            return self._do(tx, procedure, numbers)

        declare(run)

    def _do(self, tx: Any, procedure: ProcedurePlan, numbers: list[int]) -> Any:
        table = tx.table(procedure.table)
        if procedure.in_bulk:
            sums: dict[int, int] = {}
            for x in numbers:
                sums[x % 6] = sums.get(x % 6, 0) + x
            keys = sorted(sums)
            table.upsert(pa.table({"k": keys, "v": [(_number(table, k) + sums[k]) % LIMIT for k in keys]}, schema=KV))
        else:
            for x in numbers:
                if x % 7 == 0:
                    table.delete([x % 6])
                else:
                    table.upsert([{"k": x % 6, "v": (_number(table, x % 6) * 3 + x + procedure.number) % LIMIT}])
        runs = 100 + procedure.number
        table.upsert([{"k": runs, "v": _number(table, runs) + 1}])
        if procedure.asks:
            answers = 200 + procedure.number
            answer = tx.call_external(answer_outside, f"{procedure.name}-{tx.batch_id}")
            table.upsert([{"k": answers, "v": _number(table, answers) + answer}])
        if procedure.draws:
            # All three into one number: it changes if one of them is drawn again instead of replayed.
            parts = int(tx.random() * (1 << 40)), tx.uuid().int & ((1 << 40) - 1), int(tx.now().timestamp() * 1000)
            drawn = parts[0] ^ parts[1] ^ (parts[2] << 7)
            tx.table("drawn").upsert([{"k": tx.batch_id * 10 + procedure.number, "v": drawn}])
        total = sum(value for batch in table.read() for value in batch.column("v").to_pylist()) % LIMIT
        if procedure.replies:
            tx.reply([procedure.name, tx.batch_id, len(numbers), total])
        return self._send(tx, procedure, numbers, total)

    def _send(self, tx: Any, procedure: ProcedurePlan, numbers: list[int], total: int) -> Any:
        if not procedure.refuses_late:
            _refuse(procedure, numbers, total)
        sent = [[(2 * x + at) % 997 for x in numbers if (x + at) % 4] for at, _ in enumerate(procedure.emits)]
        if len(sent) == 1 and not procedure.refuses_late:
            return rows_of(sent[0], "arrow" if procedure.in_bulk else "dicts")
        for stream, those in zip(procedure.emits, sent, strict=True):
            # In two parts, which are one batch.
            for part in (those[:1], those[1:]):
                tx.emit(self._streams[stream], rows_of(part))
        if procedure.refuses_late:
            _refuse(procedure, numbers, total)
        return None

    def _trigger(self, trigger: TriggerPlan) -> Callable[..., None]:
        def run(tx: Any, rows: pa.Table) -> None:
            if trigger.kind == "table":
                numbers = [row["k"] * 7 + row["v"] for row in rows.to_pylist()]
            else:
                numbers = rows["x"].to_pylist()
            seen = tx.table("seen")
            value = _number(seen, trigger.number) + 1
            for x in numbers:
                value = (value * 5 + x) % LIMIT
            seen.upsert([{"k": trigger.number, "v": value}])
            for x in numbers:
                if x % 61 == trigger.refuses:
                    raise Refused(f"trigger {trigger.number}: {x}")

        return run

    def _add(self, tx: Any, key: int, by: int) -> int:
        self.runs.append(("add", None))
        left = tx.table("left")
        value = (_number(left, key) + by) % LIMIT
        left.upsert([{"k": key, "v": value}])
        if value % 13 == 0:
            raise Refused(f"add {value}")
        return value

    def _order(self, tx: Any, key: int) -> int:
        return self._add(tx, key, tx.call_external(answer_outside, f"order {key}"))

    def _drop(self, tx: Any, key: int) -> None:
        self.runs.append(("drop", None))
        for table in TABLES:
            tx.table(table).delete([key])


def _value(table: Any, key: int) -> int | None:
    row = table.get(key)
    return None if row is None else row["v"]


def _number(table: Any, key: int) -> int:
    return _value(table, key) or 0


def _refuse(procedure: ProcedurePlan, numbers: list[int], total: int) -> None:
    for x in numbers:
        if x % 23 == procedure.refuses:
            raise Refused(f"{procedure.name} {x}")
    if procedure.refuses_state and total % 5 == 1:
        raise Refused(f"{procedure.name} state {total}")
