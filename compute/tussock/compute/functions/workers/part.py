"""What a worker does with its entities: runs transactions that come, and keeps what they read and wrote.

It is told what commits; by itself it decides nothing. Of each transaction of the epoch it has a part: the functions
that await others, and what the transaction touched here. A part of an older run goes when the next run comes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tussock.compute.functions.entities.entities import Entities
from tussock.compute.functions.epochs.digest import writes_digest
from tussock.compute.functions.epochs.graph import CallGraph
from tussock.compute.functions.epochs.locked_access import LockedAccess
from tussock.compute.functions.errors import Diverged, FunctionFault, ReplayDiffers, StateUnread
from tussock.compute.functions.program.context import Entity, Invocation, Target
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.program.values import pack, unpack
from tussock.compute.functions.workers.assignment import Assignment
from tussock.compute.functions.workers.messages import (
    STEP_BYTES_MAX,
    TOKEN_BYTES_MAX,
    Carried,
    EpochStep,
    RemoteCall,
    Stepped,
    TokenStay,
    TravelToken,
    whole,
    wide,
)
from tussock.statestore import TussockError
from tussock.statestore.base.system import System

__all__ = ["AskFirst", "WorkerPart"]

NOTHING = msgspec.Raw(pack(None))
Guard = Callable[[Callable[[], None]], None]


class AskFirst(BaseException):
    """A call outside has to wait until what leads to it is durable. Not an `Exception`, so that nobody catches it."""


class _Visit:
    """A transaction's run, as far as it is here."""

    __slots__ = ("bases", "draws", "first_reads", "first_writes", "graph", "run")

    def __init__(self, run: int) -> None:
        self.run = run
        self.graph: CallGraph | None = None
        self.bases: list[int] = []
        """How many functions awaited others here before each of the calls that came from elsewhere."""
        self.draws: TransactionDraws | None = None
        self.first_reads: set[Entity] = set()
        self.first_writes: dict[Entity, Any] = {}


class WorkerPart:
    """For one thread."""

    def __init__(
        self,
        operators: Operators,
        entities: Entities,
        assignment: Assignment,
        worker: int,
        system: System,
        guard: Guard,
    ) -> None:
        """`guard` runs a part of a transaction, and may raise `Overdue` in it."""
        self._operators = operators
        self._entities = entities
        self._assignment = assignment
        self._worker = worker
        self._system = system
        self._guard = guard
        self._epoch = 0
        self._is_replay = False
        self._may_ask = False
        self._visits: dict[int, _Visit] = {}
        self._numbers: dict[Entity, int] = {}
        self._left: list[TravelToken] = []

    def step(self, step: EpochStep) -> Stepped:
        """Go on with the epoch. Raises what the store says of states that are not there yet, but for an outage."""
        self.commit(step.commit)
        if step.epoch != self._epoch:
            self._end_epoch()
            self._epoch = step.epoch
        self._is_replay = step.is_replay
        tokens = [*self._left, *step.tokens]
        # An outage is told of the transaction that meets it.
        self._prefetch([token.call for token in tokens if token.call is not None])
        known, size, stays = len(self._numbers), 0, []
        done = 0
        while done < len(tokens) and size < STEP_BYTES_MAX:
            stay = msgspec.Raw(msgspec.msgpack.encode(self._take(tokens[done])))
            size += len(stay)
            stays.append(stay)
            done += 1
        self._left = tokens[done:]
        entities = list(self._numbers)[known:] if len(self._numbers) > known else []
        return Stepped(
            step.number,
            stays,
            entities,
            len(self._left),
            self._entities.dirty,
            self._entities.dirty_bytes,
            self._entities.misses,
        )

    def commit(self, tids: Sequence[int]) -> None:
        """What these transactions wrote here holds."""
        for tid in tids:
            graph = self._visits[tid].graph
            assert graph is not None
            self._entities.apply(graph.run.writes)

    def _end_epoch(self) -> None:
        for visit in self._visits.values():
            if visit.graph is not None and visit.graph.depth:
                visit.graph.end()
        self._visits.clear()
        self._numbers.clear()
        self._left = []

    def _prefetch(self, calls: Sequence[RemoteCall]) -> None:
        try:
            self._entities.prefetch([(call.operator, call.key) for call in calls])
        except TussockError:
            return

    # --- A transaction -----------------------------------------------------------------------------------------------

    def _take(self, token: TravelToken) -> TokenStay:
        visit = self._visit_of(token)
        graph, draws = visit.graph, visit.draws
        assert graph is not None
        self._may_ask = token.may_ask
        graph.begun = token.begun
        graph.acks.set(whole(token.parts), whole(token.of))
        graph.waiting.extend(self._invocation(call) for call in token.waiting)
        if token.drawn is not None:
            draws = self._draws(visit)
            draws.go_on(token.drawn.kept, token.drawn.fresh, token.drawn.counts)
        elif draws is not None:
            draws.go_on({}, [], {})
        stay = TokenStay(token.tid, "ended", None, NOTHING, [], [], [], 0, [])
        try:
            self._guard(lambda: self._run(visit, token, stay))
        except Diverged:
            stay.end = "diverged"
        except AskFirst:
            stay.end = "asks"
        except StateUnread as error:
            stay.end, stay.error = "unread", [str(error.cause), type(error.cause).__name__]
        except ReplayDiffers as error:
            stay.end, stay.error = "differs", [str(error)]
        except BaseException as error:  # noqa: BLE001 - of the user's code, which may raise anything
            self._abort(graph, stay, error)
        if stay.end not in ("moved", "ended", "aborted"):
            graph.end()
        self._tell(visit, stay, token)
        return stay

    def _visit_of(self, token: TravelToken) -> _Visit:
        visit = self._visits.get(token.tid)
        if visit is None or visit.run != token.run:
            older, visit = visit, _Visit(token.run)
            self._visits[token.tid] = visit
            access: Any = self._entities
            if token.first:
                if older is not None and older.graph is not None and older.run == token.first:
                    visit.first_reads, visit.first_writes = older.graph.run.reads, older.graph.run.writes
                elif older is not None:
                    visit.first_reads, visit.first_writes = older.first_reads, older.first_writes
                access = LockedAccess(self._entities, visit.first_reads, visit.first_writes)
            if older is not None and older.graph is not None:
                older.graph.end()
            visit.graph = CallGraph(access, lambda: self._draws(visit), self._is_here)
        return visit

    def _run(self, visit: _Visit, token: TravelToken, stay: TokenStay) -> None:
        """Until the transaction has ended, or goes elsewhere."""
        graph = visit.graph
        assert graph is not None
        begun = None if token.call is None else self._invocation(token.call)
        value = None if begun is not None else unpack(token.value)
        if begun is not None:
            visit.bases.append(graph.depth)
        while True:
            begun, value = graph.run_through(begun, value, visit.bases[-1])
            if begun is not None:
                if begun.is_awaited:
                    token.path.append(self._worker)
                else:
                    visit.bases.pop()
                self._move(stay, token, begun, NOTHING)
                return
            visit.bases.pop()
            if token.path:
                self._move(stay, token, None, msgspec.Raw(pack(value)))
                return
            if not graph.waiting:
                assert graph.acks.is_complete, "no share of a transaction is lost"
                return
            begun = graph.waiting.popleft()
            visit.bases.append(graph.depth)

    def _move(self, stay: TokenStay, token: TravelToken, begun: Invocation | None, value: msgspec.Raw) -> None:
        token.call = None if begun is None else self._call(begun)
        token.value = value
        stay.end, stay.token = "moved", token

    def _abort(self, graph: CallGraph, stay: TokenStay, error: BaseException) -> None:
        graph.abort(error)
        aborted = graph.run.aborted
        assert aborted is not None
        stay.end, stay.token, stay.error = "aborted", None, list(aborted.args)

    def _tell(self, visit: _Visit, stay: TokenStay, token: TravelToken) -> None:
        """What the run has touched here, and where it stands."""
        graph = visit.graph
        assert graph is not None
        if stay.end == "moved":
            token.waiting = [self._call(one) for one in graph.waiting]
            graph.waiting.clear()
            if _size(token) > TOKEN_BYTES_MAX:
                fault = FunctionFault("calls of a transaction that wait, and what it has drawn, take at most 16 MiB")
                stay.token, stay.end = None, "aborted"
                graph.run.writes = {}
                target = self._invocation(token.call).target if token.call is not None else None
                names = ("", "", "") if target is None else _names(target)
                stay.error = [str(fault), "FunctionFault", *names]
        run, numbers = graph.run, self._numbers
        stay.reads = [numbers.setdefault(entity, len(numbers)) for entity in run.reads]
        stay.writes = [numbers.setdefault(entity, len(numbers)) for entity in run.writes]
        stay.digest = writes_digest(stay.tid, run.writes)
        stay.calls = [
            (*one.target.entity, one.target.function.name, one.caller, wide(one.share), one.is_awaited)
            for one in run.invocations
        ]
        run.invocations = []
        token.begun = graph.begun
        token.parts, token.of = map(wide, graph.acks.parts)
        draws = visit.draws
        token.drawn = None if draws is None else Carried(draws.kept, draws.fresh, draws.counts)
        if stay.end != "moved":
            token.waiting, token.call, token.value = [], None, NOTHING
            stay.token = token if draws is not None else None
        if run.value is not None:
            stay.value = msgspec.Raw(pack(run.value))

    # --- Within ------------------------------------------------------------------------------------------------------

    def _draws(self, visit: _Visit) -> TransactionDraws:
        if visit.draws is None:
            visit.draws = TransactionDraws(self._system, self._before_call)
        visit.draws.is_replay = self._is_replay
        return visit.draws

    def _before_call(self) -> None:
        if not self._may_ask:
            raise AskFirst
        self._may_ask = False

    def _is_here(self, entity: Entity) -> bool:
        return self._assignment.home(entity) == self._worker

    def _invocation(self, call: RemoteCall) -> Invocation:
        function = self._operators.all[call.operator].functions[call.function]
        target = Target(function, (call.operator, call.key), tuple(unpack(call.arguments)))
        return Invocation(target, whole(call.share), call.caller, call.is_awaited)

    def _call(self, one: Invocation) -> RemoteCall:
        function, (operator, key), arguments = one.target
        packed = msgspec.Raw(pack(arguments))
        return RemoteCall(operator, key, function.name, packed, wide(one.share), one.caller, one.is_awaited)


def _size(token: TravelToken) -> int:
    """Bytes of a token, about."""
    size = len(token.value) + sum(len(call.arguments) for call in token.waiting)
    if token.call is not None:
        size += len(token.call.arguments)
    if token.drawn is not None:
        size += len(msgspec.msgpack.encode(token.drawn))
    return size


def _names(target: Target) -> tuple[str, Any, str]:
    return target.function.operator, target.entity[1], target.function.name
