"""What an application of `plans.py` has to do, one request after the other, on dicts and lists.

Nothing here is the product's. A batch that is refused leaves everything as it was, but for its id and its reply.
"""

import copy
import zlib
from collections.abc import Sequence
from typing import Any

from support.procedures.plans import LIMIT, TABLES, Plan, ProcedurePlan, WindowPlan

__all__ = ["Interpreter", "Outcome", "Refused", "answer_outside"]

Outcome = tuple[Any, ...]
"""`("reply", value)`, `("refused", procedure, batch or None, cause)`, or `("too old",)`."""


class Refused(Exception):
    """A procedure, trigger or call does not want what it got."""


def answer_outside(key: str) -> int:
    """The other system, which answers the same key the same."""
    return zlib.crc32(key.encode()) % 10


class Interpreter:
    """The state of one application, and its rules."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tables: dict[str, dict[int, int]] = {name: {} for name in (*TABLES, "seen")}
        self.drawn: set[int] = set()
        """Keys of the rows with random numbers."""
        self.last = dict.fromkeys(plan.borders, 0)
        self.replies: dict[tuple[str, int], Outcome] = {}
        self.waiting: dict[tuple[str, int], tuple[list[int], list[str]]] = {}
        """Of (stream, batch) the numbers, and who has still to take them."""
        self.visible: dict[str, list[list[int]]] = {one.name: [] for one in plan.windows}
        self.staged: dict[str, list[list[int]]] = {one.name: [] for one in plan.windows}
        self.slides: dict[str, int] = {one.name: 0 for one in plan.windows}
        self.trace: list[tuple[str, int | None]] = []
        """What has run and was kept; of calls those that wrote."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interpreter) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def copy(self) -> "Interpreter":
        """Another one in the same state."""
        other = Interpreter(self.plan)
        other._restore(self._state())
        return other

    # --- Requests ----------------------------------------------------------------------------------------------------

    def batch(self, border: str, batch_id: int | None, numbers: Sequence[int]) -> Outcome:
        """A batch for a border procedure."""
        number = self.last[border] + 1 if batch_id is None else batch_id
        if number <= self.last[border]:
            return self.replies.get((border, number), ("too old",))
        before = self._state()
        try:
            outcome: Outcome = ("reply", self._run(border, number, list(numbers)))
        except _Stopped as stop:
            self._restore(before)
            outcome = ("refused", stop.procedure, number, stop.cause)
        self.last[border] = number
        self.replies[border, number] = outcome
        return outcome

    def call(self, name: str, arguments: Sequence[int]) -> Outcome:
        """A call procedure."""
        before = self._state()
        try:
            value = getattr(self, f"_{name}")(*arguments)
        except Refused as error:
            self._restore(before)
            return ("refused", name, None, f"Refused: {error}")
        if name != "look":
            self.trace.append((name, None))
        return ("reply", value)

    def shown(self, window: str, *, staged: bool) -> list[int]:
        """The numbers in a window."""
        slots = self.staged[window] if staged else self.visible[window]
        return [x for slot in slots for x in slot]

    def _look(self, key: int) -> list[int | None]:
        return [self.tables[table].get(key) for table in TABLES]

    def _add(self, key: int, by: int) -> int:
        value = (self.tables["left"].get(key, 0) + by) % LIMIT
        self._write("left", {key: value})
        if value % 13 == 0:
            raise Refused(f"add {value}")
        return value

    def _order(self, key: int) -> int:
        return self._add(key, answer_outside(f"order {key}"))

    def _drop(self, key: int) -> None:
        for table in TABLES:
            self.tables[table].pop(key, None)

    # --- A batch -----------------------------------------------------------------------------------------------------

    def _run(self, border: str, batch_id: int, numbers: list[int]) -> Any:
        first = next(one for one in self.plan.procedures if one.name == border)
        replies = [self._step(first, batch_id, numbers)]
        while (procedure := self._ready(batch_id)) is not None:
            given = [x for stream in procedure.consumes for x in self._take(procedure, stream, batch_id)]
            replies.append(self._step(procedure, batch_id, given))
        return ([None] + [reply for reply in replies if reply is not None])[-1]

    def _ready(self, batch_id: int) -> ProcedurePlan | None:
        for procedure in self.plan.procedures:
            has = [procedure.name in self.waiting.get((stream, batch_id), ([], []))[1] for stream in procedure.consumes]
            if has and all(has):
                return procedure
        return None

    def _take(self, procedure: ProcedurePlan, stream: str, batch_id: int) -> list[int]:
        numbers, left = self.waiting[stream, batch_id]
        left.remove(procedure.name)
        if not left:
            del self.waiting[stream, batch_id]
        return numbers

    def _step(self, procedure: ProcedurePlan, batch_id: int, numbers: list[int]) -> Any:
        try:
            total = self._do(procedure, batch_id, numbers)
        except Refused as error:
            raise _Stopped(procedure.name, f"Refused: {error}") from None
        self.trace.append((procedure.name, batch_id))
        return [procedure.name, batch_id, len(numbers), total] if procedure.replies else None

    def _do(self, procedure: ProcedurePlan, batch_id: int, numbers: list[int]) -> int:
        table = self.tables[procedure.table]
        if procedure.in_bulk:
            sums: dict[int, int] = {}
            for x in numbers:
                sums[x % 6] = sums.get(x % 6, 0) + x
            self._write(procedure.table, {key: (table.get(key, 0) + sums[key]) % LIMIT for key in sorted(sums)})
        else:
            for x in numbers:
                if x % 7 == 0:
                    table.pop(x % 6, None)
                else:
                    self._write(procedure.table, {x % 6: (table.get(x % 6, 0) * 3 + x + procedure.number) % LIMIT})
        runs = 100 + procedure.number
        self._write(procedure.table, {runs: table.get(runs, 0) + 1})
        if procedure.asks:
            answers = 200 + procedure.number
            answer = answer_outside(f"{procedure.name}-{batch_id}")
            self._write(procedure.table, {answers: table.get(answers, 0) + answer})
        if procedure.draws:
            self.drawn.add(batch_id * 10 + procedure.number)
        total = sum(table.values()) % LIMIT
        if not procedure.refuses_late:
            self._refuse(procedure, numbers, total)
        for at, stream in enumerate(procedure.emits):
            self._emit(stream, [(2 * x + at) % 997 for x in numbers if (x + at) % 4])
        if procedure.refuses_late:
            self._refuse(procedure, numbers, total)
        for at, stream in enumerate(procedure.emits):
            sent = [(2 * x + at) % 997 for x in numbers if (x + at) % 4]
            for window in self.plan.windows:
                if window.on == stream and window.by_batches:
                    self._insert(window, sent)
            consumers = [one.name for one in self.plan.procedures if stream in one.consumes]
            if consumers:
                self.waiting[stream, batch_id] = (sent, consumers)
        return total

    def _refuse(self, procedure: ProcedurePlan, numbers: list[int], total: int) -> None:
        for x in numbers:
            if x % 23 == procedure.refuses:
                raise Refused(f"{procedure.name} {x}")
        if procedure.refuses_state and total % 5 == 1:
            raise Refused(f"{procedure.name} state {total}")

    # --- What follows ------------------------------------------------------------------------------------------------

    def _emit(self, stream: str, numbers: list[int]) -> None:
        for x in numbers:
            self._fire("stream", stream, [x])
            for window in self.plan.windows:
                if window.on == stream and not window.by_batches:
                    self._insert(window, [x])

    def _insert(self, window: WindowPlan, slot: list[int]) -> None:
        name, staged = window.name, self.staged[window.name]
        staged.append(slot)
        waits = window.first == "full" and self.slides[name] == 0
        if len(staged) == (window.size if waits else window.slide):
            self.visible[name] = [*self.visible[name], *staged][-window.size :]
            self.staged[name] = []
            self.slides[name] += 1
            self._fire("window", name, self.shown(name, staged=False))

    def _write(self, table: str, rows: dict[int, int]) -> None:
        self.tables[table].update(rows)
        for key, value in rows.items():
            self._fire("table", table, [key * 7 + value])

    def _fire(self, kind: str, on: str, numbers: list[int]) -> None:
        for trigger in self.plan.triggers:
            if (trigger.kind, trigger.on) != (kind, on):
                continue
            seen = self.tables["seen"]
            value = seen.get(trigger.number, 0) + 1
            for x in numbers:
                value = (value * 5 + x) % LIMIT
            seen[trigger.number] = value
            for x in numbers:
                if x % 61 == trigger.refuses:
                    raise Refused(f"trigger {trigger.number}: {x}")

    # --- Savepoints --------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return copy.deepcopy({name: value for name, value in vars(self).items() if name != "plan"})

    def _restore(self, state: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(state))


class _Stopped(Exception):
    def __init__(self, procedure: str, cause: str) -> None:
        super().__init__(procedure, cause)
        self.procedure = procedure
        self.cause = cause
