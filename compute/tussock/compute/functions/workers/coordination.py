"""One epoch over several workers: what to tell them next, from what they have answered. Pure, so without I/O or time.

Each transaction is a token that moves to the worker which has its next entity. Each exchange gives every worker all
tokens for it, and takes what became of them; how late an answer comes, and in which order, changes no result.

1. Execution: all transactions run on the state that the epoch began with. Workers keep what was read and written.
2. With what all workers say of the touched entities it is decided for each transaction as a whole who lost.
3. Lock phase: losers run again, each behind all lower ones with which it shares an entity. All workers of a loser run
   it at once, from what they have cached of its first run; and behind it, in the same exchange, those that wait for it,
   as if it will commit. One that does something else than before moves as a token, when all lower ones have ended.

Workers learn what commits with the next thing that they are told, before they do it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from tussock.compute.functions.epochs.acks import ROOT
from tussock.compute.functions.epochs.conflicts import Conflicts
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.replay_errors import differs
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import TransactionAborted, WorkerLost, unread_of
from tussock.compute.functions.function_times import FunctionTimes, sample_of
from tussock.compute.functions.program.context import Entity, GraphRun, Invocation, Target
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import STOPPED, overdue_name
from tussock.compute.functions.program.values import pack, unpack
from tussock.compute.functions.site import SiteHost, note_stopped, overdue_run
from tussock.compute.functions.workers.assignment import Assignment
from tussock.compute.functions.workers.early_end import EarlyEnd
from tussock.compute.functions.workers.lock_phase.attempts import Attempt, touched_by
from tussock.compute.functions.workers.lock_phase.losers import CachedGuess, Losers
from tussock.compute.functions.workers.messages import (
    STEP_BYTES_MAX,
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
)

__all__ = ["EpochCoordination"]

NOTHING = msgspec.Raw(pack(None))
decode_stay = msgspec.msgpack.Decoder(TokenStay).decode
decode_cached = msgspec.msgpack.Decoder(CachedEnd).decode


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
        least: int,
        commits: list[list[int]],
        guess: CachedGuess,
        times: FunctionTimes,
    ) -> None:
        """The first `least` run in any case. `commits`: what each worker is to be told next; the rest stays there."""
        self._epoch = epoch
        self._all = transactions
        self._operators = operators
        self._assignment = assignment
        self._host = host
        self._conflicts = conflicts
        self._lock_phase = lock_phase
        self._by_tid = {one.tid: one for one in transactions}
        self._attempts: dict[int, Attempt] = {}
        self._first: dict[int, Attempt] = {}
        """Of losers, the attempts by which they have their locks."""
        self._running = 0
        """Transactions that have not ended in this phase."""
        self._queues: list[deque[TravelToken]] = [deque() for _ in range(assignment.workers)]
        self._left = [0] * assignment.workers
        """Tokens that a worker has and did not run."""
        self._commits = commits
        self._times = times
        self._sample = sample_of(transactions)
        self._entities: list[list[Entity]] = [[] for _ in range(assignment.workers)]
        self._guess = guess
        self._losers = Losers([], [], guess, epoch)
        self._chain: list[FunctionTransaction] = []
        """Losers that workers have, to run from what is cached."""
        self._parts: list[list[CachedPart]] = [[] for _ in range(assignment.workers)]
        self._asked: set[int] = set()
        """Workers that have not told what came of the chain."""
        self.cached = 0
        """Transactions that committed by a cached run."""
        self._ended: list[FunctionTransaction] = []
        self._hot: list[Entity] = []
        self._written = 0
        self.asking: list[FunctionTransaction] = []
        """Those that wait to call outside, until `permit`."""
        self.unread: list[Exception] = []
        """What the store could not tell, until `read_again`."""
        self._again: list[FunctionTransaction] = []
        self._early = EarlyEnd(transactions, least)
        self.result: EndedEpoch | None = None
        for one in transactions:
            one.runs += 1
            self._begin(one)
        if not self._running:
            self._decide()

    # --- What to tell ------------------------------------------------------------------------------------------------

    def steps(self, numbers: Sequence[int]) -> dict[int, EpochStep]:
        """What to tell workers now, each under its number; nobody if the epoch has ended, or waits for its host."""
        self._gather()
        found = {}
        for worker, queue in enumerate(self._queues):
            parts, self._parts[worker] = self._parts[worker], []
            if not queue and not self._left[worker] and not parts:
                continue
            if parts:
                self._asked.add(worker)
            tokens: list[TravelToken] = []
            size = 0
            while queue and size < STEP_BYTES_MAX and not self._left[worker]:
                token = queue.popleft()
                size += token_bytes(token)
                tokens.append(token)
            commits, self._commits[worker] = self._commits[worker], []
            found[worker] = EpochStep(numbers[worker], self._epoch, self._host.is_replay, commits, tokens, parts)
        return found

    def _begin(self, one: FunctionTransaction, *, may_ask: bool = False) -> None:
        """Run a transaction from its beginning."""
        overdue = overdue_name(is_locked=one.tid in self._first)
        if one.draws is not None and overdue in one.draws.kept:
            one.run = overdue_run(one, overdue)
            attempt = self._attempts[one.tid] = Attempt(one.runs)
            attempt.run = one.run
            self._early.end(one.tid)
            if one.tid in self._first:
                self._end_locked(one, attempt, is_diverged=False)
            return
        older = self._attempts.get(one.tid)
        attempt = self._attempts[one.tid] = Attempt(1 if older is None else older.number + 1)
        one.run = attempt.run
        function, (operator, key), arguments = one.request.target
        call = RemoteCall(operator, key, function.name, msgspec.Raw(pack(arguments)), ROOT, -1, False)
        drawn = None if (draws := one.draws) is None else Carried(draws.kept, draws.fresh, {})
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
            one.tid in self._sample,
        )
        self._queues[self._assignment.home((operator, key))].append(token)
        self._running += 1

    def permit(self) -> None:
        """What those who ask outside have drawn is durable."""
        for one in self._early.asked(self.asking):
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
        for tid, name, function, nanoseconds in answer.times:
            self._times.note(name, function, nanoseconds / 1e9, self._sample.get(tid, 1))
        for packed in answer.stays:
            stay = decode_stay(packed)
            one, attempt = self._by_tid.get(stay.tid), self._attempts.get(stay.tid)
            if stay.tid in self._early.dropped:
                self._running -= 1
                continue
            if one is None or attempt is None or (stay.token is not None and stay.token.run != attempt.number):
                raise WorkerLost(f"worker {worker} told of transaction {stay.tid}, which it was not given")
            self._note(one, attempt, worker, stay)
        for packed in answer.cached:
            end = decode_cached(packed)
            attempt = self._attempts.get(end.tid)
            if attempt is None or end.run != attempt.number:
                raise WorkerLost(f"worker {worker} told of transaction {end.tid}, which it was not given")
            attempt.ends[worker] = end
        self._asked.discard(worker)
        if self._chain and not self._asked:
            self._settle()
        if not self._first and (place := self._early.place()) is not None:
            self._end_before(place)
        if not self._running and not self.asking and not self._again:
            self._go_on()

    def _note(self, one: FunctionTransaction, attempt: Attempt, worker: int, stay: TokenStay) -> None:
        workers = self._assignment.workers
        attempt.reads.update([key * workers + worker for key in stay.reads])
        if stay.writes:
            attempt.writes.update([key * workers + worker for key in stay.writes])
            attempt.digests[worker] = stay.digest
        run = attempt.run
        attempt.stays.append((worker, len(run.invocations)))
        self._add_calls(run, stay.calls)
        value = unpack(stay.value)
        if value is not None:
            run.value, run.value_bytes = value, len(stay.value)
            self._early.count(run.value_bytes)
        token = stay.token
        if token is not None and token.drawn is not None:
            self._host.draws(one).go_on(token.drawn.kept, token.drawn.fresh, {})
        if stay.end == "moved":
            assert token is not None
            call = token.call
            home = token.path.pop() if call is None else self._assignment.home((call.operator, call.key))
            self._queues[home].append(token)
            return
        self._running -= 1
        if stay.end in ("ended", "aborted"):
            self._early.end(one.tid)
        self._end(one, attempt, stay)

    def _end_before(self, place: int) -> None:
        """The transactions behind have not run; some are at workers, and will be told of."""
        self._all = self._all[:place]
        waiting = sum(map(len, self._queues))
        self._queues = [deque(self._early.kept(queue)) for queue in self._queues]
        self._running -= waiting - sum(map(len, self._queues))
        self.asking, self._again = self._early.kept(self.asking), self._early.kept(self._again)

    def _end(self, one: FunctionTransaction, attempt: Attempt, stay: TokenStay) -> None:
        if stay.end == "differs":
            raise differs(one, *stay.error)
        if stay.end == "asks":
            self.asking.append(one)
        elif stay.end == "unread":
            self.unread.append(unread_of(*stay.error))
            self._again.append(one)
        elif one.tid in self._first:
            if stay.end == "aborted":
                self._abort(one, attempt, stay)
            self._end_locked(one, attempt, is_diverged=stay.end == "diverged")
        elif stay.end == "aborted":
            self._abort(one, attempt, stay)

    def _add_calls(self, run: GraphRun, calls: Sequence[Any]) -> None:
        operators = self._operators.all
        for operator, key, name, caller, share, is_awaited in calls:
            target = Target(operators[operator].functions[name], (operator, key), ())
            run.invocations.append(Invocation(target, whole(share), caller, is_awaited))

    def _abort(self, one: FunctionTransaction, attempt: Attempt, stay: TokenStay | CachedEnd) -> None:
        run = attempt.run
        run.aborted, run.value = TransactionAborted(*stay.error), None
        attempt.writes = set()
        if run.aborted.kind in STOPPED:
            note_stopped(one, self._host.draws(one), overdue_name(is_locked=one.tid in self._first), run.aborted)
            self._times.stop(run.aborted)

    # --- Phases ------------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._first:
            if self._losers.is_over:
                ended, deferred = (self._losers.which(is_ended=is_ended) for is_ended in (True, False))
                self.result = EndedEpoch([*self._ended, *ended], deferred, self._hot, self._written, self._early.left)
        else:
            self._decide()

    def _decide(self) -> None:
        """All have run: find out who lost."""
        workers = self._assignment.workers
        self._ended = [one for one in self._all if one.run is not None and one.run.aborted is not None]
        alive = [one for one in self._all if one.run is not None and one.run.aborted is None]
        keys, used = touched_by([self._attempts[one.tid] for one in alive])
        lost = keys.lost(self._conflicts, len(alive), max(used, default=0) + 1, len(used))
        if True in lost:
            self._hot = [self._entities[key % workers][key // workers] for key in keys.met(lost)]
        losers = []
        for one, has_lost in zip(alive, lost, strict=True):
            if has_lost:
                losers.append(one)
            else:
                one.is_lock_free = True
                self._commit(one, self._attempts[one.tid])
                self._ended.append(one)
        if not losers or not self._lock_phase:
            self.result = EndedEpoch(self._ended, losers, self._hot, self._written, self._early.left)
            return
        self._first = {one.tid: self._attempts[one.tid] for one in losers}
        wants = [(first.reads, first.writes) for first in self._first.values()]
        self._losers = Losers(losers, wants, self._guess, self._epoch)
        for one in losers:
            one.is_lock_free = False
            one.runs += 1

    def _gather(self) -> None:
        """Let losers run whose turn has come."""
        moving, self._chain = self._losers.next()
        while moving:
            for one in moving:
                self._begin(one)
            # Those that had been stopped, at a replay, have ended at once, and others may follow.
            moving, self._chain = self._losers.next()
        if self._first and self._losers.is_over and self.result is None:
            self._go_on()
        self._running += len(self._chain)
        for one in self._chain:
            first = self._first[one.tid]
            attempt = self._attempts[one.tid] = Attempt(self._attempts[one.tid].number + 1)
            for worker in first.workers:
                self._parts[worker].append(CachedPart(one.tid, attempt.number, first.number))

    def _settle(self) -> None:
        """What holds of a chain: all that ran on what was to come, as far as it did come."""
        chain, self._chain = self._chain, []
        self._running -= len(chain)
        doubted: set[int] = set()
        """Entities of which workers may have believed what did not come."""
        ended = 0
        for one in chain:
            touched = self._first[one.tid].touched
            if doubted.isdisjoint(touched) and self._settle_one(one, self._attempts[one.tid], doubted):
                ended += 1
            else:
                doubted |= touched
        self._losers.end_chain(ended, len(chain))

    def _settle_one(self, one: FunctionTransaction, attempt: Attempt, doubted: set[int]) -> bool:
        """Whether a loser has ended, after a run on what holds."""
        first, run, workers = self._first[one.tid], attempt.run, self._assignment.workers
        if attempt.ends.keys() != first.workers:
            raise WorkerLost(f"workers did not tell what came of transaction {one.tid}")
        end, begun = attempt.first_other(first)
        if end is not None and end.end == "left":
            return False
        is_same = end is None or end.end != "changed"
        self._losers.note(one, is_same=is_same)
        if not is_same:
            return False
        one.run = run
        if end is None:
            self.cached += 1
            run.invocations, attempt.reads, attempt.writes = first.run.invocations, first.reads, first.writes
            attempt.digests = {worker: attempt.ends[worker].digest for worker in first.digests}
            for told in attempt.ends.values():
                value = unpack(told.value)
                run.value = value if value is not None else run.value
        else:
            run.invocations = first.run.invocations[:begun]
            self._add_calls(run, end.calls)
            doubted.update(key for key in first.writes if attempt.ends[key % workers].end == "same")
            if end.end == "aborted":
                self._abort(one, attempt, end)
        self._end_locked(one, attempt, is_diverged=end is not None and end.end == "diverged")
        return True

    def _end_locked(self, one: FunctionTransaction, attempt: Attempt, *, is_diverged: bool) -> None:
        first = self._first[one.tid]
        if is_diverged:
            is_ended = False
        elif attempt.run.aborted is not None:
            is_ended = attempt.reads <= first.reads | first.writes
        else:
            is_ended = attempt.reads == first.reads and attempt.writes == first.writes
            if is_ended:
                self._commit(one, attempt)
        self._losers.end(one, is_ended=is_ended)

    def _commit(self, one: FunctionTransaction, attempt: Attempt) -> None:
        for worker, digest in attempt.digests.items():
            self._commits[worker].append(one.tid)
            self._written += digest
