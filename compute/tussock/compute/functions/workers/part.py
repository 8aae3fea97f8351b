"""What a worker does with its entities: runs transactions that come, and keeps what they read and wrote.

It is told what commits; by itself it decides nothing. Of each transaction of the epoch it has a part: the functions
that await others, and what the transaction touched here. A part of an older run goes when the next run comes.

Of the first run it keeps the tokens as they came and as they left. What a token does here depends on itself and on the
entities here, so a loser runs again in all workers at once, each beginning with the tokens of the first run: where all
of them leave as they left then, that is what the loser had done on its way from one to the other (Styx, section 6.3).
"""

import copy
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.functions.entities.entities import Entities
from tussock.compute.functions.epochs.digest import writes_digest
from tussock.compute.functions.epochs.graph import CallGraph, Guard
from tussock.compute.functions.epochs.locked_access import LockedAccess
from tussock.compute.functions.errors import Diverged, FunctionFault, Interrupt, ReplayDiffers, StateUnread
from tussock.compute.functions.function_times import TimedAccess
from tussock.compute.functions.program.context import Entity, EntityAccess, Invocation, Target
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import TransactionDraws
from tussock.compute.functions.program.operators import Function
from tussock.compute.functions.program.places import stack_of
from tussock.compute.functions.program.values import pack, unpack
from tussock.compute.functions.workers.assignment import Assignment
from tussock.compute.functions.workers.lock_phase.visits import KeptStay, Visit
from tussock.compute.functions.workers.messages import (
    STEP_BYTES_MAX,
    TOKEN_BYTES_MAX,
    CachedEnd,
    CachedPart,
    Carried,
    EpochStep,
    RemoteCall,
    Stepped,
    TokenStay,
    TravelToken,
    token_bytes,
    whole,
    wide,
)
from tussock.statestore import TussockError
from tussock.statestore.base.system import System

__all__ = ["AskFirst", "WorkerPart"]

NOTHING = msgspec.Raw(pack(None))
KEPT_BYTES_MAX = 64 << 20
"""Of the tokens of an epoch that are kept; transactions beyond it move when they run again."""
CALL_BYTES = 256
"""Of a call that is kept, beside its arguments, about."""
encode = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(RemoteCall).decode


class AskFirst(Interrupt):
    """A call outside has to wait until what leads to it is durable."""


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
        self._visits: dict[int, Visit] = {}
        self._numbers: dict[Entity, int] = {}
        self._left: list[TravelToken] = []
        self._kept_bytes = 0
        self._times: list[tuple[int, str, str, int]] = []
        """What no answer has yet."""

    def step(self, step: EpochStep) -> Stepped:
        """Go on with the epoch. Raises what the store says of states that are not there yet, but for an outage."""
        self.commit(step.commit)
        if step.epoch != self._epoch:
            self.end_epoch()
            self._epoch = step.epoch
        self._is_replay = step.is_replay
        tokens = [*self._left, *step.tokens]
        # An outage is told of the transaction that meets it.
        self._prefetch([token.call for token in tokens if token.call is not None])
        known, size, stays = len(self._numbers), 0, []
        done = 0
        while done < len(tokens) and size < STEP_BYTES_MAX:
            stay = msgspec.Raw(encode(self._count(self._take(tokens[done]))))
            size += len(stay)
            stays.append(stay)
            done += 1
        self._left = tokens[done:]
        cached = self._run_cached(step.cached, size)
        times, self._times = self._times, []
        entities = list(itertools.islice(self._numbers, known, None)) if len(self._numbers) > known else []
        return Stepped(
            step.number,
            stays,
            cached,
            entities,
            len(self._left),
            self._entities.dirty,
            self._entities.dirty_bytes,
            self._entities.misses,
            times,
        )

    def commit(self, tids: Sequence[int]) -> None:
        """What these transactions wrote here holds."""
        for tid in tids:
            graph = self._visits[tid].graph
            assert graph is not None
            self._entities.apply(graph.run.writes)

    def end_epoch(self) -> None:
        """What was asked for has ended, or is not needed any more: no function goes on."""
        for visit in self._visits.values():
            if visit.graph is not None and visit.graph.depth:
                visit.graph.end(self._guard)
        self._visits.clear()
        self._numbers.clear()
        self._left = []
        self._kept_bytes = 0

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
        came = None if token.first else copy.copy(token)
        self._may_ask = token.may_ask
        graph.begun, graph.run.held = token.begun, token.held
        graph.acks.set(whole(token.parts), whole(token.of))
        visit.carried = deque(token.waiting)
        if token.drawn is not None:
            draws = self._draws(visit)
            draws.go_on(token.drawn.kept, token.drawn.fresh, token.drawn.counts)
        elif draws is not None:
            draws.go_on({}, [], {})
        stay = TokenStay(token.tid, "ended", None, NOTHING, [], [], [], 0, [])
        begun = None
        if token.call is not None:
            begun = self._invocation(token.call, visit)
            graph.last = begun.target
        try:
            self._guard(self._run, visit, token, begun, stay)
        except BaseException as error:  # noqa: BLE001 - of the user's code, which may raise anything
            interrupt = graph.interrupt_of(error)
            if interrupt is None:
                graph.abort(error, self._guard)
                self._abort(graph, stay)
            else:
                _end_by(interrupt, stay)
        # What led to a call outside is durable for that call; a later one, at another worker too, has led on from it.
        token.may_ask = self._may_ask
        if stay.end not in ("moved", "ended", "aborted") and graph.end(self._guard):
            self._abort(graph, stay)
        self._tell(visit, stay, token)
        if came is not None and visit.stays is not None:
            self._keep(visit, KeptStay(came, stay.end, token, stay.calls))
        return stay

    def _visit_of(self, token: TravelToken, believed: dict[Entity, Any] | None = None) -> Visit:
        visit = self._visits.get(token.tid)
        if visit is None or visit.run != token.run:
            older, visit = visit, Visit(token.run)
            self._visits[token.tid] = visit
            access: Any = self._entities
            if token.first:
                if older is not None:
                    visit.first = older.first_of(token.first)
                access = LockedAccess(self._entities, visit.first.reads, visit.first.writes, believed)
            if older is not None and older.graph is not None:
                older.graph.end(self._guard)
            if token.is_timed:
                access = visit.timed = self._timed(access, token.tid)
            visit.graph = CallGraph(access, lambda: self._draws(visit), self._is_here)
        return visit

    def _run(self, visit: Visit, token: TravelToken, begun: Invocation | None, stay: TokenStay) -> None:
        """Until the transaction has ended, or goes elsewhere."""
        graph = visit.graph
        assert graph is not None
        value = None if begun is not None else unpack(token.value)
        if begun is not None:
            visit.bases.append(graph.depth)
        while True:
            begun, value = graph.run_through(begun, value, visit.bases[-1])
            if begun is not None:
                if begun.is_awaited:
                    token.path = [*token.path, self._worker]
                else:
                    visit.bases.pop()
                self._move(stay, token, begun, NOTHING)
                return
            visit.bases.pop()
            if token.path:
                self._move(stay, token, None, msgspec.Raw(pack(value)))
                return
            if visit.carried:
                begun = self._invocation(decode_call(visit.carried.popleft()), visit)
            elif graph.waiting:
                begun = graph.waiting.popleft()
            else:
                assert graph.acks.is_complete, "no share of a transaction is lost"
                return
            visit.bases.append(graph.depth)

    def _move(self, stay: TokenStay, token: TravelToken, begun: Invocation | None, value: msgspec.Raw) -> None:
        token.call = None if begun is None else self._call(begun)
        token.value = value
        stay.end, stay.token = "moved", token

    def _abort(self, graph: CallGraph, stay: TokenStay) -> None:
        aborted = graph.run.aborted
        assert aborted is not None
        assert aborted.__cause__ is not None
        stay.end, stay.token, stay.error = "aborted", None, [*aborted.args, stack_of(aborted.__cause__)]

    def _tell(self, visit: Visit, stay: TokenStay, token: TravelToken) -> None:
        """What the run has touched here, and where it stands."""
        graph = visit.graph
        assert graph is not None
        if stay.end == "moved":
            token.waiting = [*visit.carried, *(msgspec.Raw(encode(self._call(one))) for one in graph.waiting)]
            graph.waiting.clear()
            if _size(token) > TOKEN_BYTES_MAX:
                fault = FunctionFault("calls of a transaction that wait, and what it has drawn, take at most 16 MiB")
                stay.token, stay.end = None, "aborted"
                graph.run.writes = {}
                target = self._invocation(token.call, visit).target if token.call is not None else None
                names = ("", "", "") if target is None else _names(target)
                stay.error = [str(fault), "FunctionFault", *names, "", ""]
        run = graph.run
        stay.calls = [
            (*one.target.entity, one.target.function.name, one.caller, wide(one.share), one.is_awaited)
            for one in run.invocations
        ]
        run.invocations = []
        token.begun, token.held = graph.begun, run.held
        token.parts, token.of = map(wide, graph.acks.parts)
        draws = visit.draws
        token.drawn = None if draws is None else Carried(draws.kept, draws.fresh, draws.counts)
        if stay.end != "moved":
            token.waiting, token.call, token.value = [], None, NOTHING
            stay.token = token if draws is not None else None
        if run.value is not None:
            stay.value = msgspec.Raw(pack(run.value))

    def _count(self, stay: TokenStay) -> TokenStay:
        """With what the run has touched here so far."""
        graph, numbers = self._visits[stay.tid].graph, self._numbers
        assert graph is not None
        stay.reads = [numbers.setdefault(entity, len(numbers)) for entity in graph.run.reads]
        stay.writes = [numbers.setdefault(entity, len(numbers)) for entity in graph.run.writes]
        stay.digest = writes_digest(stay.tid, graph.run.writes)
        return stay

    # --- From what is cached -----------------------------------------------------------------------------------------

    def _keep(self, visit: Visit, stay: KeptStay) -> None:
        assert visit.stays is not None
        calls = 2 + len(stay.came.waiting) + len(stay.left.waiting) + len(stay.calls)
        self._kept_bytes += CALL_BYTES * calls + _size(stay.came) + _size(stay.left)
        if self._kept_bytes > KEPT_BYTES_MAX or visit.draws is not None:
            visit.stays = None
        else:
            visit.stays.append(stay)

    def _run_cached(self, parts: Sequence[CachedPart], size: int) -> list[msgspec.Raw]:
        """One after the other, each on what those before it wrote here, if they were the same: they may commit."""
        believed: dict[Entity, Any] = {}
        ends = []
        for part in parts:
            end = CachedEnd(part.tid, part.run, "left", 0, NOTHING, [], 0, [])
            if size < STEP_BYTES_MAX:
                self._run_part(part, end, believed)
            ends.append(msgspec.Raw(encode(end)))
            size += len(ends[-1])
        return ends

    def _run_part(self, part: CachedPart, end: CachedEnd, believed: dict[Entity, Any]) -> None:
        """All stays of a first run here, up to the first that is not the same."""
        end.end = "changed"
        older = self._visits.get(part.tid)
        first = None if older is None else older.first_of(part.first)
        if first is None or not first.stays:
            return
        for end.at, kept in enumerate(first.stays):
            token = copy.copy(kept.came)
            token.run, token.first = part.run, part.first
            visit = self._visit_of(token, believed)
            stay = self._take(token)
            assert visit.graph is not None
            run = visit.graph.run
            if visit.draws is not None:
                return
            if stay.end == "diverged" or (stay.end == "aborted" and run.reads <= first.reads | first.writes.keys()):
                end.end, end.error, end.calls = stay.end, stay.error, stay.calls
                return
            token.run, token.first = kept.left.run, kept.left.first
            if (stay.end, token, stay.calls) != (kept.end, kept.left, kept.calls):
                return
        end.at += 1
        if run.reads == first.reads and run.writes.keys() == first.writes.keys():
            believed.update(run.writes)
            end.end, end.digest = "same", writes_digest(part.tid, run.writes)
            if run.value is not None:
                end.value = msgspec.Raw(pack(run.value))

    # --- Within ------------------------------------------------------------------------------------------------------

    def _draws(self, visit: Visit) -> TransactionDraws:
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

    def _timed(self, access: EntityAccess, tid: int) -> TimedAccess:
        def note(function: Function, seconds: float) -> None:
            self._times.append((tid, function.operator, function.name, int(seconds * 1e9)))

        return TimedAccess(access, self._system.monotonic, note)

    def _invocation(self, call: RemoteCall, visit: Visit) -> Invocation:
        function = self._operators.all[call.operator].functions[call.function]
        target = Target(function, (call.operator, call.key), tuple(unpack(call.arguments)))
        if visit.timed is not None:
            target = visit.timed.timed(target)
        return Invocation(target, whole(call.share), call.caller, call.is_awaited)

    def _call(self, one: Invocation) -> RemoteCall:
        function, (operator, key), arguments = one.target
        packed = msgspec.Raw(pack(arguments))
        return RemoteCall(operator, key, function.name, packed, wide(one.share), one.caller, one.is_awaited)


def _end_by(interrupt: Interrupt, stay: TokenStay) -> None:
    if isinstance(interrupt, StateUnread):
        stay.end, stay.error = "unread", [str(interrupt.cause), type(interrupt.cause).__name__]
    elif isinstance(interrupt, ReplayDiffers):
        stay.end, stay.error = "differs", [str(interrupt)]
    else:
        stay.end = "diverged" if isinstance(interrupt, Diverged) else "asks"


def _size(token: TravelToken) -> int:
    """Bytes of a token, about."""
    return token_bytes(token) + (0 if token.drawn is None else len(encode(token.drawn)))


def _names(target: Target) -> tuple[str, Any, str]:
    return target.function.operator, target.entity[1], target.function.name
