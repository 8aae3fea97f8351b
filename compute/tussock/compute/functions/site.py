"""Where entities are and functions run: in this process, or in several that share the entities."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from tussock.compute.applications.deadline import Deadline
from tussock.compute.functions.batches.batch_run import EndedBatch, run_guarded
from tussock.compute.functions.batches.columns_request import ColumnsRequest
from tussock.compute.functions.entities.entities import Cut, Entities
from tussock.compute.functions.epochs.conflicts import Conflicts
from tussock.compute.functions.epochs.epoch import EndedEpoch, run_epoch
from tussock.compute.functions.epochs.graph import run_graph
from tussock.compute.functions.epochs.replay_errors import differs
from tussock.compute.functions.epochs.transaction import FunctionTransaction
from tussock.compute.functions.errors import ReplayDiffers, StateUnread, TransactionAborted
from tussock.compute.functions.function_times import FunctionTimes, TimedAccess, sample_of
from tussock.compute.functions.program.context import Entity, EntityAccess, GraphRun, Invocation
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.draws import STOPPED, TransactionDraws, overdue_name
from tussock.statestore import TussockError
from tussock.statestore.transactions.delta import Delta

__all__ = ["LocalSite", "Site", "SiteHost", "SiteOptions", "overdue_run", "write_cuts"]


class SiteOptions(NamedTuple):
    """How transactions run."""

    conflicts: Conflicts
    lock_phase: bool
    timeout: float
    """Seconds that the run of a transaction may take."""
    cache_bytes: int
    """Of entities in memory, about; of each process."""


class SiteHost(Protocol):
    """What a program does for its site while an epoch runs."""

    @property
    def is_replay(self) -> bool:
        """Whether transactions have to ask for what they asked for in their first run."""

    def draws(self, one: FunctionTransaction) -> TransactionDraws:
        """What a transaction drew, and draws."""

    def before_call(self) -> None:
        """Make durable what leads to a call outside."""

    def wait_for_store(self, error: Exception) -> None:
        """Wait a while for what the store could not do; raises what will not pass."""

    def hang(self) -> None:
        """A function cannot be stopped. In any thread."""


class Site(Protocol):
    """Used by the thread that runs the program. Where several processes do it, `WorkerLost` may come from any call."""

    def open(self, delta: Delta, host: SiteHost) -> None:
        """Begin on the newest commit."""

    def run_epoch(self, number: int, transactions: Sequence[FunctionTransaction], least: int) -> EndedEpoch:
        """Run the transactions of an epoch, of which the first `least` run in any case, and apply what commits."""

    def run_columns(self, request: ColumnsRequest) -> EndedBatch | TransactionAborted:
        """Run a batch function, and apply what it wrote; nothing if it raised."""

    def excuse(self, wait: Callable[[], None]) -> None:
        """Wait while a function runs: not in its time."""

    def query(self, entity: Entity) -> dict[str, Any] | None:
        """The newest state of an entity."""

    def persist(self) -> None:
        """Write what is dirty into the delta, for a commit; what was written before is committed."""

    def stats(self) -> dict[str, Any]:
        """`dirty`, entities that the next commit writes, `store_reads`, and how long functions take; in any thread."""

    @property
    def dirty_bytes(self) -> int:
        """What the next commit writes, about."""

    def close(self) -> None:
        """Nothing runs any more."""


class LocalSite:
    """All entities in this process."""

    def __init__(self, operators: Operators, options: SiteOptions) -> None:
        self._operators = operators
        self._options = options
        self._deadline: Deadline | None = None

    def open(self, delta: Delta, host: SiteHost) -> None:
        """Begin on what the delta has."""
        self._delta = delta
        self._host = host
        self._deadline = Deadline(delta.system, self._options.timeout, host.hang)
        self._entities = Entities(self._operators, delta, self._options.cache_bytes, self._deadline.excuse)
        self._times = FunctionTimes(delta.system.monotonic)

    def run_epoch(
        self,
        number: int,  # noqa: ARG002
        transactions: Sequence[FunctionTransaction],
        least: int,
    ) -> EndedEpoch:
        """Run the transactions of an epoch, and apply what commits."""
        self._sample = sample_of(transactions)
        self._prefetch([one.request.target.entity for one in transactions])
        options = self._options
        return run_epoch(
            self._entities,
            transactions,
            self._execute,
            options.conflicts,
            lock_phase=options.lock_phase,
            least=least,
        )

    def run_columns(self, request: ColumnsRequest) -> EndedBatch | TransactionAborted:
        """Run a batch function, and apply what it wrote."""
        self._prefetch([one for ones in request.entities.values() for one in ones])
        deadline = self._deadline
        assert deadline is not None
        while True:
            try:
                ended = self._times.of_batch(request.function, lambda: run_guarded(self._entities, request, deadline))
                break
            except StateUnread as error:
                self._host.wait_for_store(error.cause)
        if not isinstance(ended, TransactionAborted):
            self._entities.apply(ended.writes)
        return ended

    def excuse(self, wait: Callable[[], None]) -> None:
        """Wait while a function runs: not in its time."""
        assert self._deadline is not None
        self._deadline.excuse(wait)

    def query(self, entity: Entity) -> dict[str, Any] | None:
        """The newest state of an entity."""
        while True:
            try:
                stored = self._entities.read(entity)
                return None if stored is None else self._entities.decode(entity, stored)
            except StateUnread as error:
                self._host.wait_for_store(error.cause)

    def persist(self) -> None:
        """Write what is dirty into the delta."""
        write_cuts(self._delta, self._operators, self._entities.cut())

    def stats(self) -> dict[str, Any]:
        """Counts."""
        return {"dirty": self._entities.dirty, "store_reads": self._entities.misses, **self._times.stats()}

    @property
    def dirty_bytes(self) -> int:
        """What the next commit writes, about."""
        return self._entities.dirty_bytes

    def close(self) -> None:
        """Nothing runs any more."""
        if self._deadline is not None:
            self._deadline.stop()

    def _execute(self, one: FunctionTransaction, access: EntityAccess) -> GraphRun:
        overdue = overdue_name(is_locked=access is not self._entities)
        if one.draws is not None and overdue in one.draws.kept:
            return overdue_run(one, overdue)
        while True:
            try:
                run = self._run_once(one, access)
                break
            except StateUnread as error:
                self._host.wait_for_store(error.cause)
        if run.aborted is not None and run.aborted.kind in STOPPED:
            note_stopped(one, self._host.draws(one), overdue, run.aborted)
            self._times.stop(run.aborted)
        return run

    def _run_once(self, one: FunctionTransaction, access: EntityAccess) -> GraphRun:
        if one.draws is not None:
            one.draws.begin()
        assert self._deadline is not None
        target, calls = one.request.target, self._sample.get(one.tid)
        if calls is not None:
            times = self._times
            timed = TimedAccess(access, times.clock, lambda of, spent: times.note(of.operator, of.name, spent, calls))
            access, target = timed, timed.timed(target)
        try:
            return run_graph(access, lambda: self._host.draws(one), target, self._deadline.run)
        except ReplayDiffers as error:
            raise differs(one, str(error)) from error

    def _prefetch(self, entities: Sequence[Entity]) -> None:
        while True:
            try:
                self._entities.prefetch(entities)
                return
            except TussockError as error:
                self._host.wait_for_store(error)


def note_stopped(one: FunctionTransaction, draws: TransactionDraws, overdue: str, aborted: TransactionAborted) -> None:
    """Record under that name by what a transaction was stopped; `ReplayDiffers` if that is not so in its record."""
    if not draws.is_replay:
        draws.add(overdue, list(aborted.args))
    elif aborted.kind == "Overdue":
        # At once: to stop each transaction of an epoch after its time could last for hours.
        raise differs(one, f"{aborted}; it had ended by itself when it ran first")


def overdue_run(one: FunctionTransaction, overdue: str) -> GraphRun:
    """Of a transaction that was stopped before, as it keeps under that name: it is not tried again."""
    assert one.draws is not None
    run = GraphRun()
    run.invocations.append(Invocation(one.request.target, 1, -1, is_awaited=False))
    run.aborted = TransactionAborted(*one.draws.kept[overdue])
    return run


def write_cuts(delta: Delta, operators: Operators, cuts: Iterable[Cut]) -> None:
    """Into the tables of the operators; each cut before the next one is made."""
    for cut in cuts:
        table = delta.table(operators.all[cut.operator].name)
        if cut.gone:
            table.delete([(key,) for key in cut.gone])
        if cut.there is not None:
            table.upsert(cut.there)
