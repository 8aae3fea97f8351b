"""A site of several processes: this one coordinates epochs, and each worker has a part of the entities.

What workers have not cut goes when one of them is lost: then all begin again at the newest commit, and the program
repeats what came since. Workers never write to the store, so one that is believed to be dead harms nobody.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.deadline import Deadline
from tussock.compute.applications.errors import ApplicationStopped
from tussock.compute.functions.batches.batch_run import EndedBatch, run_guarded
from tussock.compute.functions.batches.columns_request import ColumnsRequest
from tussock.compute.functions.entities.entities import Cut
from tussock.compute.functions.entities.forms import StateForm
from tussock.compute.functions.epochs.epoch import EndedEpoch
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import TransactionAborted, WorkerFault, WorkerLost, unread_of
from tussock.compute.functions.function_times import FunctionTimes
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.site import SiteHost, SiteOptions, write_cuts
from tussock.compute.functions.workers.assignment import Assignment
from tussock.compute.functions.workers.coordination import EpochCoordination
from tussock.compute.functions.workers.crew import Crew, WorkerHangs
from tussock.compute.functions.workers.lock_phase.losers import CachedGuess
from tussock.compute.functions.workers.messages import BeginAt, CutPart, NextCut, Refused, StateReads, StateWrites
from tussock.compute.functions.workers.staff.lobby import Lobby
from tussock.compute.functions.workers.staff.local_staff import LocalStaff
from tussock.compute.functions.workers.state_rows import from_rows, in_parts, table_of
from tussock.statestore.errors import ObjectStoreUnavailable
from tussock.statestore.settings import StoreSettings
from tussock.statestore.transactions.delta import Delta

__all__ = ["WorkerSite", "crew_of"]

KEYS_AT_ONCE = 10_000
JOIN_SECONDS = 300.0
"""For all the workers to join that the program needs to start, or to be scaled."""
NONSENSE = (msgspec.MsgspecError, pa.ArrowException, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What an answer raises that no worker gives."""


def crew_of(
    program: str, operators: Operators, options: SiteOptions, settings: StoreSettings, lobby: Lobby | None
) -> Crew:
    """The crew of a program: of workers that join, or of processes here."""
    return Crew(LocalStaff(program, operators, options, settings) if lobby is None else lobby)


class WorkerSite:
    """All entities in workers, for the thread that runs the program."""

    def __init__(
        self, program: str, operators: Operators, options: SiteOptions, workers: int, lobby: Lobby | None = None
    ) -> None:
        """`lobby`: where workers join; without one they are processes that this one starts."""
        self._lobby = lobby
        self._has_begun = False
        self._program = program
        self._operators = operators
        self._options = options
        self._workers = workers
        self._forms = [StateForm(operator) for operator in operators.all]
        self._crew: Crew | None = None
        self._deadline: Deadline | None = None
        self._dirty: list[tuple[int, int, int]] = []
        """Of each worker what its last step told: entities, bytes, reads of the store."""
        self._guess = CachedGuess()
        self._cached = 0

    def open(self, delta: Delta, host: SiteHost) -> None:
        """There are no workers yet: `restore` starts them."""
        self._delta = delta
        for operator in self._operators.all:
            # What workers read of it counts as read here.
            delta.table(operator.name)
        self._host = host
        self._deadline = Deadline(delta.system, self._options.timeout, host.hang)
        self._times = FunctionTimes(delta.system.monotonic)
        self._crew = crew_of(self._program, self._operators, self._options, delta.settings, self._lobby)
        self._crew.change(self._workers, [])

    def restore(self) -> None:
        """Replace who is lost, and let all begin at the newest commit.

        Those who join are awaited for a while at the start, and then for ever: requests wait, and the status says so.
        """
        while True:
            try:
                self._the_crew.replace_lost(None if self._has_begun else JOIN_SECONDS)
                break
            except ObjectStoreUnavailable as error:
                self._host.wait_for_store(error)
        self._begin()
        self._has_begun = True

    def hire(self, workers: int) -> Any:
        """Start those that a later `change` needs; in any thread, as that takes a while."""
        try:
            return self._the_crew.hire(max(0, workers - len(self._the_crew)), JOIN_SECONDS)
        except WorkerLost as error:
            raise WorkerFault(f"program {self._program!r}: a worker was lost as it began: {error}") from error

    def dismiss(self, hired: Any) -> None:
        """End those that were hired and not needed."""
        self._the_crew.dismiss(hired)

    def change(self, workers: int, hired: Any) -> None:
        """From now on there are that many workers; all is committed. Entities move to whom they belong to."""
        self._the_crew.change(workers, hired)
        self._workers = workers
        self.restore()

    @property
    def processes(self) -> list[int]:
        """Ids of the workers' processes, 0 for those elsewhere."""
        return [] if self._crew is None else self._crew.processes

    # --- As a site ---------------------------------------------------------------------------------------------------

    def run_epoch(self, number: int, transactions: Sequence[FunctionTransaction], least: int) -> EndedEpoch:
        """Run the transactions of an epoch; workers learn what commits with what they are asked next."""
        options = self._options
        epoch = EpochCoordination(
            number,
            transactions,
            self._operators,
            self._assignment,
            self._host,
            options.conflicts,
            lock_phase=options.lock_phase,
            least=least,
            commits=self._commits,
            guess=self._guess,
            times=self._times,
        )
        while epoch.result is None:
            steps = epoch.steps(self._numbers)
            for worker in steps:
                self._numbers[worker] += 1
            for worker, answer in self._ask(steps).items():
                if answer.number != steps[worker].number:
                    told = f"it answered step {answer.number} when it was asked for {steps[worker].number}"
                    raise self._the_crew.lose(worker, WorkerLost(told))
                self._dirty[worker] = answer.dirty, answer.dirty_bytes, answer.store_reads
                with self._making_sense_of(worker):
                    epoch.take(worker, answer)
            if epoch.unread:
                self._host.wait_for_store(epoch.unread[0])
                epoch.read_again()
            if epoch.asking:
                self._host.before_call()
                epoch.permit()
        self._cached += epoch.cached
        return epoch.result

    def run_columns(self, request: ColumnsRequest) -> EndedBatch | TransactionAborted:
        """Run a batch function here, on states that workers give, and give them what it wrote."""
        states = _Fetched(self._forms)
        states.states = self._fetch(list({one for ones in request.entities.values() for one in ones}))
        deadline = self._deadline
        assert deadline is not None
        ended = self._times.of_batch(request.function, lambda: run_guarded(states, request, deadline))
        if not isinstance(ended, TransactionAborted):
            self._write(ended.writes)
        return ended

    def excuse(self, wait: Callable[[], None]) -> None:
        """Wait: no function runs in this process then."""
        wait()

    def query(self, entity: Entity) -> dict[str, Any] | None:
        """The newest state of an entity."""
        stored = self._fetch([entity])[entity]
        return None if stored is None else self._forms[entity[0]].decode(stored)

    def persist(self) -> None:
        """Write what is dirty in all workers into the delta: after all have given it, so that a loss leaves nothing."""
        cuts: list[Cut] = []
        open_ones = dict.fromkeys(range(self._workers), True)
        while open_ones:
            asked = {
                worker: NextCut(self._take_commits(worker), self._delta.committed_epoch, is_first)
                for worker, is_first in open_ones.items()
            }
            answers: Mapping[int, CutPart] = self._ask(asked)
            for worker, part in answers.items():
                if part.operator >= 0:
                    with self._making_sense_of(worker):
                        cuts.append(Cut(part.operator, part.gone, table_of(part.rows)))
            open_ones = {worker: False for worker, part in answers.items() if not part.is_last}
        self._dirty = [(0, 0, reads) for _, _, reads in self._dirty]
        write_cuts(self._delta, self._operators, cuts)

    def stats(self) -> dict[str, Any]:
        """Counts."""
        return {
            "dirty": sum(dirty for dirty, _, _ in self._dirty),
            "store_reads": sum(reads for _, _, reads in self._dirty),
            "workers": self._workers,
            "workers_joined": 0 if self._crew is None else self._crew.joined,
            "cached": self._cached,
            **self._times.stats(),
        }

    @property
    def dirty_bytes(self) -> int:
        """What the next commit writes, about."""
        return sum(nbytes for _, nbytes, _ in self._dirty)

    def close(self) -> None:
        """End the workers."""
        if self._deadline is not None:
            self._deadline.stop()
        if self._crew is not None:
            self._crew.close()

    # --- Within ------------------------------------------------------------------------------------------------------

    @property
    def _the_crew(self) -> Crew:
        assert self._crew is not None
        return self._crew

    def _begin(self) -> None:
        """All forget what they have."""
        self._assignment = Assignment(self._operators, self._workers)
        self._numbers = [0] * self._workers
        self._commits: list[list[int]] = [[] for _ in range(self._workers)]
        """What workers have to be told with the next message."""
        self._dirty = [(0, 0, 0)] * self._workers
        store_epoch = self._delta.committed_epoch
        self._ask({worker: BeginAt(store_epoch, worker, self._workers) for worker in range(self._workers)})

    def _ask(self, questions: Mapping[int, Any]) -> dict[int, Any]:
        try:
            answers = self._the_crew.ask(questions)
            while away := {at: one for at, one in answers.items() if isinstance(one, Refused)}:
                # Raises what will not pass, such as that a state is lost.
                self._host.wait_for_store(_said_by_store([*away.values()]))
                answers.update(self._the_crew.ask({at: questions[at] for at in away}))
            return answers
        except WorkerHangs:
            self._host.hang()
            raise ApplicationStopped(f"program {self._program!r}: a function in a worker cannot be stopped") from None

    @contextmanager
    def _making_sense_of(self, worker: int) -> Iterator[None]:
        """What a worker has answered; one whose answer has none is lost."""
        try:
            yield
        except NONSENSE as error:
            told = f"its answer makes no sense: {type(error).__name__}: {error}"
            raise self._the_crew.lose(worker, WorkerLost(told)) from error

    def _take_commits(self, worker: int) -> list[int]:
        found, self._commits[worker] = self._commits[worker], []
        return found

    def _by_home(self, entities: Sequence[Entity]) -> dict[int, dict[int, list[Any]]]:
        """Keys by worker and operator."""
        found: dict[int, dict[int, list[Any]]] = {}
        for entity in entities:
            keys = found.setdefault(self._assignment.home(entity), {})
            keys.setdefault(entity[0], []).append(entity[1])
        return found

    def _fetch(self, entities: Sequence[Entity]) -> dict[Entity, Any]:
        """The stored forms of states, and `None` for those that are not there."""
        states: dict[Entity, Any] = dict.fromkeys(entities)
        left = self._by_home(entities)
        while left:
            asked = {}
            for worker, keys in left.items():
                operator = next(iter(keys))
                asked[worker] = StateReads(self._take_commits(worker), operator, keys[operator][:KEYS_AT_ONCE])
            for worker, rows in self._ask(asked).items():
                operator = asked[worker].operator
                with self._making_sense_of(worker):
                    found = from_rows(self._forms[operator], rows.rows)
                states.update({(operator, key): stored for key, stored in found.items()})
                _drop(left, worker, operator, rows.done)
        return states

    def _write(self, writes: Mapping[Entity, Any]) -> None:
        homes = self._by_home(list(writes))
        left = {worker: self._writes_of(keys, writes) for worker, keys in homes.items()}
        while asked := {worker: part for worker, parts in left.items() if (part := next(parts, None)) is not None}:
            self._ask(asked)
        for worker, operators in homes.items():
            # As the worker counts them: its next step tells the same.
            sizes = [
                self._forms[operator].size(key, writes[operator, key])
                for operator, keys in operators.items()
                for key in keys
            ]
            dirty, nbytes, reads = self._dirty[worker]
            self._dirty[worker] = dirty + len(sizes), nbytes + sum(sizes), reads

    def _writes_of(self, operators: Mapping[int, Sequence[Any]], writes: Mapping[Entity, Any]) -> Iterator[StateWrites]:
        """What one worker has to write, of keys by operator."""
        for operator, keys in operators.items():
            gone = [key for key in keys if writes[operator, key] is None]
            there = {key: writes[operator, key] for key in keys if writes[operator, key] is not None}
            for part, rows in in_parts(gone, self._forms[operator].table(there) if there else None):
                yield StateWrites(operator, part, rows)


class _Fetched:
    """States that were fetched, for a batch function."""

    def __init__(self, forms: Sequence[StateForm]) -> None:
        self._forms = forms
        self.states: dict[Entity, Any] = {}

    def read_many(self, entities: Sequence[Entity]) -> list[Any]:
        """The stored form of each state, or `None`."""
        return [self.states[one] for one in entities]

    def form(self, operator: int) -> StateForm:
        """How states of an operator are stored."""
        return self._forms[operator]


def _said_by_store(refusals: Sequence[Refused]) -> Exception:
    """What will not pass, if there is such a refusal."""
    lost = [one for one in refusals if not one.is_passing]
    return unread_of(lost[0].why, lost[0].kind) if lost else ObjectStoreUnavailable(refusals[0].why)


def _drop(left: dict[int, dict[int, list[Any]]], worker: int, operator: int, done: int) -> None:
    """These have come."""
    rest = left[worker][operator][done:]
    if rest:
        left[worker][operator] = rest
        return
    del left[worker][operator]
    if not left[worker]:
        del left[worker]
