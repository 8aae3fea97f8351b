"""What may be true of an application of which some requests were not answered, and the rules of its order."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from support.procedures.interpreter import Interpreter, Outcome
from support.procedures.plans import Plan

__all__ = ["Oracle", "Request", "broken_rule"]


class Request(NamedTuple):
    """A batch for a border procedure, or a call."""

    procedure: str
    is_batch: bool
    batch_id: int | None
    given: tuple[int, ...]
    """The numbers of a batch, the arguments of a call."""
    form: str = "dicts"

    def do(self, interpreter: Interpreter) -> Outcome:
        """Run it."""
        if self.is_batch:
            return interpreter.batch(self.procedure, self.batch_id, self.given)
        return interpreter.call(self.procedure, self.given)


class Oracle:
    """The states that the application may be in: one, until it dies with requests on their way."""

    def __init__(self, plan: Plan) -> None:
        self.states = [Interpreter(plan)]

    @property
    def newest(self) -> Interpreter:
        """The state if all that was asked for has been done."""
        return self.states[-1]

    def answered(self, request: Request, outcome: Outcome) -> None:
        """The client was told this; what it rules out is gone."""
        self.observed(str(request), outcome, request.do)

    def died(self, unanswered: Sequence[Request]) -> None:
        """The first few of these were done, maybe none, maybe all; none of them in part."""
        states = []
        for state in self.states:
            states.append(state.copy())
            for request in unanswered:
                request.do(state)
                states.append(state.copy())
        self.states = _different(states)

    def observed(self, what: str, seen: Any, said: Callable[[Interpreter], Any]) -> None:
        """The application shows this."""
        told = [(said(state), state) for state in self.states]
        self._keep(f"{what}: {seen}", [state for says, state in told if says == seen], [says for says, _ in told])

    def traced(self, trace: Sequence[tuple[str, int | None]]) -> None:
        """The application has run this, since its state was read."""
        written = [one for one in trace if one[0] not in ("look", "dump")]
        told = [state.trace[len(state.trace) - len(written) :] for state in self.states]
        fitting = [state for state, one in zip(self.states, told, strict=True) if one == written]
        self._keep(f"trace {written}", fitting, told)

    def _keep(self, what: str, fitting: list[Interpreter], told: Sequence[Any]) -> None:
        assert fitting, f"{what}; expected one of {told}"
        self.states = _different(fitting)


def _different(states: Sequence[Interpreter]) -> list[Interpreter]:
    kept: list[Interpreter] = []
    for state in states:
        if state not in kept:
            kept.append(state)
    return kept


def _follows(plan: Plan, later: str, earlier: str) -> bool:
    """Whether the first procedure consumes what comes of the second one."""
    reached = {earlier}
    for one in plan.procedures:
        emitted = {stream for other in plan.procedures if other.name in reached for stream in other.emits}
        if emitted & set(one.consumes):
            reached.add(one.name)
    return later in reached and later != earlier


def broken_rule(plan: Plan, runs: Sequence[tuple[str, int | None]]) -> str:
    """The first of the rules of order that the executions of one runner break; empty if they keep all."""
    rank = {one.name: at for at, one in enumerate(plan.procedures)}
    sources = {stream: one.name for one in plan.procedures for stream in one.emits}
    newest: dict[str, int] = {}
    batch: list[str] = []
    batch_id: int | None = None
    """Of the batch on its way, what ran; a call ends it."""
    for name, number in runs:
        if name not in rank:
            batch, batch_id = [], None
            continue
        assert number is not None
        if number <= newest.get(name, 0):
            return f"S4, S6: {name} ran on batch {number} after batch {newest[name]}"
        newest[name] = number
        procedure = plan.procedures[rank[name]]
        if procedure.border:
            batch, batch_id = [name], number
            continue
        if number != batch_id:
            return f"S7: {name} ran on batch {number}, and before it {batch[-1:]} on batch {batch_id}"
        if not any(sources[stream] in batch for stream in procedure.consumes):
            return f"S5, S8: {name} ran on batch {number} before its sources; {batch} had"
        late = [one for one in batch if rank[one] > rank[name] and _follows(plan, one, name)]
        if late:
            return f"S5: {name} ran on batch {number} after {late}, which consume what comes of it"
        batch.append(name)
    return ""
