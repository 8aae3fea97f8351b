"""One epoch over several workers: what to tell them next, from what they have answered. Pure, so without I/O or time.

Each transaction is a token that moves to the worker which has its next entity. Each exchange gives every worker all
tokens for it, and takes what became of them; how late an answer comes, and in which order, changes no result.

1. Execution: all transactions run on the state that the epoch began with. Workers keep what was read and written.
2. With what all workers say of the touched entities it is decided for each transaction as a whole who lost.
3. Lock phase: losers run again, each as soon as all lower ones with which it shares an entity have ended.

Workers learn what commits with the next thing that they are told, before they do it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.functions.epochs.acks import ROOT
from tussock.compute.functions.epochs.conflicts import Conflicts
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.touched_keys import TouchedKeys
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import ReplayDiffers, TransactionAborted, WorkerLost
from tussock.compute.functions.program.context import Entity, GraphRun, Invocation, Target
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import OVERDUE
from tussock.compute.functions.program.values import pack, unpack
from tussock.compute.functions.site import SiteHost, overdue_run
from tussock.compute.functions.workers.assignment import Assignment
from tussock.compute.functions.workers.locks import LockQueue
from tussock.compute.functions.workers.messages import (
    STEP_BYTES_MAX,
    Carried,
    EpochStep,
    RemoteCall,
    Stepped,
    TokenStay,
    TravelToken,
    whole,
)

__all__ = ["EpochCoordination"]

NOTHING = msgspec.Raw(pack(None))
decode_stay = msgspec.msgpack.Decoder(TokenStay).decode


class _Attempt:
    """A run of a transaction, as far as the workers have told of it."""

    __slots__ = ("digests", "number", "reads", "run", "writes")

    def __init__(self, number: int) -> None:
        self.number = number
        self.run = GraphRun()
        self.reads: set[int] = set()
        """Entities, by their numbers over all workers."""
        self.writes: set[int] = set()
        self.digests: dict[int, int] = {}
        """Of the workers that it has written in."""


class EpochCoordination:
    """From its transactions to its end; transactions ascend by number."""

    def __init__(
        self,
        epoch: int,
        transactions: Sequence[FunctionTransaction],
        operators: Operators,
        assignment: Assignment,
        host: SiteHost,
        conflicts: Conflicts,
        *,
        lock_phase: bool,
        commits: list[list[int]],
    ) -> None:
        """`commits`: for each worker what it has to be told with the next message; what is left stays there."""
        self._epoch = epoch
        self._all = transactions
        self._operators = operators
        self._assignment = assignment
        self._host = host
        self._conflicts = conflicts
        self._lock_phase = lock_phase
        self._by_tid = {one.tid: one for one in transactions}
        self._attempts: dict[int, _Attempt] = {}
        self._first: dict[int, _Attempt] = {}
        """Of losers, the attempts by which they have their locks."""
        self._running = 0
        """Transactions that have not ended in this phase."""
        self._queues: list[deque[TravelToken]] = [deque() for _ in range(assignment.workers)]
        self._left = [0] * assignment.workers
        """Tokens that a worker has and did not run."""
        self._commits = commits
        self._entities: list[list[Entity]] = [[] for _ in range(assignment.workers)]
        self._losers: list[FunctionTransaction] = []
        self._locks = LockQueue([])
        self._locked: dict[int, bool] = {}
        """Of losers that have ended, whether they committed or aborted; else they are deferred."""
        self._places: dict[int, int] = {}
        self._ended: list[FunctionTransaction] = []
        self._hot: list[Entity] = []
        self._written = 0
        self.asking: list[FunctionTransaction] = []
        """Those that wait to call outside, until `permit`."""
        self.unread: list[str] = []
        """What the store could not tell, until `read_again`."""
        self._again: list[FunctionTransaction] = []
        self.result: EndedEpoch | None = None
        for one in transactions:
            one.runs += 1
            self._begin(one)
        if not self._running:
            self._decide()

    # --- What to tell ------------------------------------------------------------------------------------------------

    def steps(self, numbers: Sequence[int]) -> dict[int, EpochStep]:
        """What to tell workers now, each under its number; nobody if the epoch has ended, or waits for its host."""
        found = {}
        for worker, queue in enumerate(self._queues):
            if not queue and not self._left[worker]:
                continue
            tokens: list[TravelToken] = []
            size = 0
            while queue and size < STEP_BYTES_MAX and not self._left[worker]:
                token = queue.popleft()
                size += sum([len(call.arguments) for call in token.waiting])
                size += len(token.value) + (0 if token.call is None else len(token.call.arguments))
                tokens.append(token)
            commits, self._commits[worker] = self._commits[worker], []
            found[worker] = EpochStep(numbers[worker], self._epoch, self._host.is_replay, commits, tokens)
        return found

    def _begin(self, one: FunctionTransaction, *, may_ask: bool = False) -> None:
        """Run a transaction from its beginning."""
        if one.draws is not None and OVERDUE in one.draws.kept:
            one.run = overdue_run(one)
            attempt = self._attempts[one.tid] = _Attempt(one.runs)
            attempt.run = one.run
            return
        older = self._attempts.get(one.tid)
        attempt = self._attempts[one.tid] = _Attempt(1 if older is None else older.number + 1)
        one.run = attempt.run
        function, (operator, key), arguments = one.request.target
        call = RemoteCall(operator, key, function.name, msgspec.Raw(pack(arguments)), ROOT, -1, False)
        draws = one.draws
        drawn = None if draws is None else Carried(draws.kept, draws.fresh, {})
        first = self._first.get(one.tid)
        token = TravelToken(
            one.tid,
            attempt.number,
            0 if first is None else first.number,
            0,
            call,
            NOTHING,
            [],
            [],
            0,
            1,
            drawn,
            may_ask,
        )
        self._queues[self._assignment.home((operator, key))].append(token)
        self._running += 1

    def permit(self) -> None:
        """What those who ask outside have drawn is durable."""
        for one in self.asking:
            self._begin(one, may_ask=True)
        self.asking = []

    def read_again(self) -> None:
        """Run those again whose states could not be read."""
        again, self._again, self.unread = self._again, [], []
        for one in again:
            self._begin(one)

    # --- What was answered -------------------------------------------------------------------------------------------

    def take(self, worker: int, answer: Stepped) -> None:
        """What a worker has answered. Raises `ReplayDiffers`, and `WorkerLost` for what no worker may answer."""
        self._left[worker] = answer.left
        self._entities[worker] += [(operator, key) for operator, key in answer.entities]
        for packed in answer.stays:
            stay = decode_stay(packed)
            one, attempt = self._by_tid.get(stay.tid), self._attempts.get(stay.tid)
            if one is None or attempt is None or (stay.token is not None and stay.token.run != attempt.number):
                raise WorkerLost(f"worker {worker} told of transaction {stay.tid}, which it was not given")
            self._note(one, attempt, worker, stay)
        if not self._running and not self.asking and not self._again:
            self._go_on()

    def _note(self, one: FunctionTransaction, attempt: _Attempt, worker: int, stay: TokenStay) -> None:
        workers = self._assignment.workers
        attempt.reads.update([key * workers + worker for key in stay.reads])
        if stay.writes:
            attempt.writes.update([key * workers + worker for key in stay.writes])
            attempt.digests[worker] = stay.digest
        operators, run = self._operators.all, attempt.run
        for operator, key, name, caller, share, is_awaited in stay.calls:
            target = Target(operators[operator].functions[name], (operator, key), ())
            run.invocations.append(Invocation(target, whole(share), caller, is_awaited))
        value = unpack(stay.value)
        if value is not None:
            run.value = value
        token = stay.token
        if token is not None and token.drawn is not None:
            self._host.draws(one).go_on(token.drawn.kept, [tuple(pair) for pair in token.drawn.fresh], {})
        if stay.end == "moved":
            assert token is not None
            token_home = token.path.pop() if token.call is None else self._home(token.call)
            self._queues[token_home].append(token)
            return
        self._running -= 1
        self._end(one, attempt, stay)

    def _end(self, one: FunctionTransaction, attempt: _Attempt, stay: TokenStay) -> None:
        if stay.end == "differs":
            raise ReplayDiffers(*stay.error)
        if stay.end == "asks":
            self.asking.append(one)
        elif stay.end == "unread":
            self.unread.append(stay.error[0])
            self._again.append(one)
        elif one.tid in self._first:
            if stay.end == "aborted":
                self._abort(one, attempt, stay)
            self._end_locked(one, attempt, is_diverged=stay.end == "diverged")
        elif stay.end == "aborted":
            self._abort(one, attempt, stay)

    def _abort(self, one: FunctionTransaction, attempt: _Attempt, stay: TokenStay) -> None:
        run = attempt.run
        run.aborted, run.value = TransactionAborted(*stay.error), None
        attempt.writes = set()
        if run.aborted.kind == "Overdue":
            self._host.draws(one).add(OVERDUE, list(run.aborted.args))

    def _home(self, call: RemoteCall) -> int:
        return self._assignment.home((call.operator, call.key))

    # --- Phases ------------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._first:
            if len(self._locked) == len(self._losers):
                self._finish()
        else:
            self._decide()

    def _decide(self) -> None:
        """All have run: find out who lost."""
        workers = self._assignment.workers
        self._ended = [one for one in self._all if self._run_of(one).aborted is not None]
        alive = [one for one in self._all if self._run_of(one).aborted is None]
        keys = TouchedKeys()
        used: set[int] = set()
        for at, one in enumerate(alive):
            attempt = self._attempts[one.tid]
            keys.read_by += [at] * len(attempt.reads)
            keys.read_key += attempt.reads
            keys.write_by += [at] * len(attempt.writes)
            keys.write_key += attempt.writes
            used |= attempt.reads
            used |= attempt.writes
        lost = keys.lost(self._conflicts, len(alive), max(used, default=0) + 1, len(used))
        if True in lost:
            self._hot = [self._entities[key % workers][key // workers] for key in keys.met(lost)]
        for one, has_lost in zip(alive, lost, strict=True):
            if has_lost:
                self._losers.append(one)
            else:
                one.is_lock_free = True
                self._commit(one, self._attempts[one.tid])
                self._ended.append(one)
        if not self._losers or not self._lock_phase:
            self.result = EndedEpoch(self._ended, self._losers, self._hot, self._written)
            return
        self._first = {one.tid: self._attempts[one.tid] for one in self._losers}
        self._places = {one.tid: at for at, one in enumerate(self._losers)}
        self._locks = LockQueue([(first.reads, first.writes) for first in self._first.values()])
        self._run_locked(self._locks.free())

    def _run_locked(self, places: Sequence[int]) -> None:
        for at in places:
            one = self._losers[at]
            one.is_lock_free = False
            one.runs += 1
            self._begin(one)

    def _end_locked(self, one: FunctionTransaction, attempt: _Attempt, *, is_diverged: bool) -> None:
        first = self._first[one.tid]
        if is_diverged:
            is_ended = False
        elif attempt.run.aborted is not None:
            is_ended = attempt.reads <= first.reads | first.writes
        else:
            is_ended = attempt.reads == first.reads and attempt.writes == first.writes
            if is_ended:
                self._commit(one, attempt)
        self._locked[one.tid] = is_ended
        self._run_locked(self._locks.release(self._places[one.tid]))

    def _finish(self) -> None:
        ended = [one for one in self._losers if self._locked[one.tid]]
        deferred = [one for one in self._losers if not self._locked[one.tid]]
        self.result = EndedEpoch([*self._ended, *ended], deferred, self._hot, self._written)

    def _commit(self, one: FunctionTransaction, attempt: _Attempt) -> None:
        for worker, digest in attempt.digests.items():
            self._commits[worker].append(one.tid)
            self._written += digest

    def _run_of(self, one: FunctionTransaction) -> Any:
        assert one.run is not None
        return one.run
