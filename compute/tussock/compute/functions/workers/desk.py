"""The answers of a worker to what its program asks: epochs are its part's, the rest is about states and commits."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tussock.compute.functions.entities.entities import Cut, Entities
from tussock.compute.functions.errors import StateUnread
from tussock.compute.functions.program.context import Entity
from tussock.compute.functions.program.directory import Operators
from tussock.compute.functions.program.values import Key
from tussock.compute.functions.workers.assignment import Assignment
from tussock.compute.functions.workers.messages import (
    AllDone,
    BeginAt,
    CutPart,
    EpochStep,
    NextCut,
    Refused,
    StateReads,
    StateRows,
    StateWrites,
)
from tussock.compute.functions.workers.part import WorkerPart
from tussock.compute.functions.workers.state_rows import from_rows, in_parts, to_rows
from tussock.statestore import StateStore, TussockError
from tussock.statestore.base.system import System
from tussock.statestore.errors import MetaUnavailable, ObjectStoreUnavailable

__all__ = ["WorkerDesk"]

OPEN_SECONDS = 30.0


class TimeLimit(Protocol):
    """A `Deadline`, or none."""

    def run(self, fn: Callable[..., Any], *arguments: Any) -> Any:
        """What `fn` returns; may raise `Overdue` in it."""

    def excuse(self, wait: Callable[[], Any]) -> Any:
        """What `wait` returns; its time does not count."""


class WorkerDesk:
    """For one thread. It reads the store and never writes to it."""

    def __init__(
        self, operators: Operators, store: StateStore, cache_bytes: int, system: System, limit: TimeLimit
    ) -> None:
        """`limit`: of each part of a transaction."""
        self._operators = operators
        self._store = store
        self._cache_bytes = cache_bytes
        self._system = system
        self._limit = limit
        self._cut: Iterator[CutPart] = iter(())
        self._part: WorkerPart | None = None

    def answer(self, question: Any) -> Any:
        """Do what is asked; raises what the store says."""
        if type(question) is EpochStep:
            return self._the_part.step(question)
        if type(question) is NextCut:
            return self._next_cut(question)
        if type(question) is StateReads:
            return self._read(question)
        if type(question) is StateWrites:
            return self._write(question)
        assert isinstance(question, BeginAt)
        return self._begin(question)

    def _begin(self, at: BeginAt) -> AllDone:
        if self._part is not None:
            # As their clean-up is the user's code, Python must not do it where nobody looks at the time.
            self._part.end_epoch()
        self._store.wait_epoch(at.store_epoch, OPEN_SECONDS)
        self._entities = Entities(self._operators, self._store, self._cache_bytes, self._limit.excuse, keeps_cut=True)
        assignment = Assignment(self._operators, at.workers)
        self._part = WorkerPart(self._operators, self._entities, assignment, at.worker, self._system, self._limit.run)
        return AllDone()

    @property
    def _the_part(self) -> WorkerPart:
        assert self._part is not None, "the first question is where to begin"
        return self._part

    def _read(self, reads: StateReads) -> StateRows | Refused:
        self._the_part.commit(reads.commit)
        entities = [(reads.operator, key) for key in reads.keys]
        try:
            states = self._states(entities)
        except (ObjectStoreUnavailable, MetaUnavailable):
            # The program asks again.
            raise
        except TussockError as error:
            # What is lost is so for all, and no worker is to blame.
            return Refused(str(error), is_passing=False, kind=type(error).__name__)
        return StateRows(*to_rows(self._entities.form(reads.operator), states))

    def _states(self, entities: Sequence[Entity]) -> dict[Key, Any]:
        self._entities.prefetch(entities)
        try:
            return {entity[1]: self._entities.read(entity) for entity in entities}
        except StateUnread as error:
            # No function runs, so the store's own error may come up.
            raise error.cause from None

    def _write(self, writes: StateWrites) -> AllDone:
        form = self._entities.form(writes.operator)
        states: dict[Any, Any] = {**dict.fromkeys(writes.gone), **from_rows(form, writes.rows)}
        self._entities.apply({(writes.operator, key): state for key, state in states.items()})
        return AllDone()

    def _next_cut(self, cut: NextCut) -> CutPart:
        self._the_part.commit(cut.commit)
        if cut.is_first:
            self._store.wait_epoch(cut.store_epoch, OPEN_SECONDS)
            self._cut = _parts(list(self._entities.cut()))
        return next(self._cut)


def _parts(cuts: Sequence[Cut]) -> Iterator[CutPart]:
    for cut in cuts:
        for gone, rows in in_parts(cut.gone, cut.there):
            yield CutPart(cut.operator, gone, rows, False)
    yield CutPart(-1, [], b"", True)
