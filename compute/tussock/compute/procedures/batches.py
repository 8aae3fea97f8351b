"""Runs batches through the graph, one procedure after the other, in one savepoint.

After each procedure those follow whose streams all have the batch, and nothing else runs before the last of them. An
error of any of them undoes the whole batch.
"""

import datetime as dt
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.compute.applications.draws import Draws
from tussock.compute.applications.errors import NotDeterministic, ProcedureError
from tussock.compute.procedures.context import ProcedureContext
from tussock.compute.procedures.definitions import CallProcedure, Definitions, Procedure
from tussock.compute.procedures.graph import Graph
from tussock.compute.procedures.insertions import Insertions
from tussock.compute.procedures.partitions.group_draws import GroupDraws
from tussock.compute.procedures.partitions.partition import KeyGroup, Partition
from tussock.compute.procedures.replies import Reply, pack_value
from tussock.compute.procedures.state import EngineState
from tussock.statestore.errors import InvalidOption, MetaUnavailable, ObjectStoreUnavailable, SchemaMismatch
from tussock.statestore.transactions.delta import Delta
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["Batches", "RunningBatch", "failure"]

TRACE_MAX = 10_000
CAUSE_MAX = 10_000
"""Characters of what a procedure raised."""


class RunningBatch:
    """A batch on its way through the graph."""

    def __init__(self, border: Procedure, batch_id: int, rows: pa.Table, given: bytes) -> None:
        self.border = border
        self.batch_id = batch_id
        self.rows = rows
        self.given = given
        self.reply = pack_value(None)
        self.steps = 0
        """Procedures that have run on it."""


class Batches:
    """The batches, and calls, of one run."""

    def __init__(
        self,
        definitions: Definitions,
        graph: Graph,
        delta: Delta | Transaction,
        state: EngineState,
        deadline: Deadline,
        partition: Partition | None = None,
    ) -> None:
        self._application = definitions.application
        self._consuming = [one for one in graph.order if one.consumes]
        self._delta: Any = delta
        self._partition = partition
        self._state = state
        self._deadline = deadline
        self.insertions = Insertions(definitions, graph, delta, state)
        self.insertions.partition = partition
        self.is_replay = False
        """Whether what runs was recorded: then an outage of the store is no result of the program."""
        self.trace: deque[tuple[str, int | None]] = deque(maxlen=TRACE_MAX)

    def begin(self, running: RunningBatch) -> RunningBatch:
        """The batch's savepoint."""
        self._delta.begin()
        self._state.begin()
        return running

    def next_step(self, running: RunningBatch) -> Procedure | None:
        """The procedure that runs on the batch now; `None` once it is through."""
        if not running.steps:
            return running.border
        if not self._state.waiting:
            return None
        batch_id = running.batch_id
        return next((one for one in self._consuming if self._state.is_ready(one, batch_id)), None)

    def run_through(self, running: RunningBatch, draws: Draws) -> ProcedureError | None:
        """All that is left of a batch; the error that ended it."""
        if self._partition is not None:
            return self._run_groups(self._partition, running, functools.cache(draws.now))
        return self._run_steps(running, draws)

    def _run_groups(
        self, partition: Partition, running: RunningBatch, now: Callable[[], dt.datetime]
    ) -> ProcedureError | None:
        """The graph once for each key, on its tuples alone; the error of the first key that has one."""
        border, batch_id = running.border, running.batch_id
        try:
            groups = partition.groups(running.rows)
        except SchemaMismatch as mismatch:
            return self._failure_by(border.name, batch_id, mismatch)
        for group in groups:
            error = self.run_group(running, group, now)
            if error is not None:
                return error
        return None

    def run_group(
        self, running: RunningBatch, group: KeyGroup, now: Callable[[], dt.datetime]
    ) -> ProcedureError | None:
        """The graph on the tuples of one key."""
        part = RunningBatch(running.border, running.batch_id, group.rows, b"")
        part.reply = running.reply
        self.insertions.group = group
        try:
            return self._run_steps(part, GroupDraws(self._application, running.batch_id, group.key, now))
        finally:
            self.insertions.group = None
            running.reply = part.reply
            running.steps += part.steps

    def _run_steps(self, running: RunningBatch, draws: Draws | GroupDraws) -> ProcedureError | None:
        while (procedure := self.next_step(running)) is not None:
            error = self.step(running, procedure, draws)
            if error is not None:
                return error
        return None

    def step(self, running: RunningBatch, procedure: Procedure, draws: Draws | GroupDraws) -> ProcedureError | None:
        """One procedure on the batch; what it raised."""
        tx = ProcedureContext(
            procedure.name, running.batch_id, self.insertions, draws, procedure.writes, procedure.emits
        )
        self.insertions.begin_step()
        error = self._guarded(procedure, running.batch_id, lambda: self._run(running, procedure, tx))
        tx.end()
        if error is None:
            self.trace.append((procedure.name, running.batch_id))
            running.steps += 1
        return error

    def end(self, running: RunningBatch, error: ProcedureError | None) -> Reply:
        """Keep or undo the batch, and remember its reply."""
        if error is None:
            self._delta.keep()
            self._state.keep()
            reply = Reply(running.batch_id, running.reply)
        else:
            self._delta.undo()
            self._state.undo()
            # A batch of many keys may have pushed out all that was before it, and its own first steps.
            for _ in range(min(running.steps, len(self.trace))):
                self.trace.pop()
            reply = Reply(running.batch_id, pack_value(None), error.procedure, error.cause)
        self._state.answered(running.border.name, reply)
        return reply

    def call(
        self, call: CallProcedure, arguments: list[Any], draws: Draws
    ) -> "tuple[bytes, int | None, ProcedureError | None]":
        """Run a call procedure: its packed reply, the digest of its writes, and what it raised."""
        self._delta.begin()
        tx = ProcedureContext(call.name, None, self.insertions, draws, call.writes, ())
        replies: list[bytes] = []

        def run() -> None:
            value = call.run(tx, *arguments)
            tx.check_returned()
            replied, has_replied = tx.replied
            replies.append(pack_value(replied if has_replied else value))

        error = self._guarded(call, None, run)
        tx.end()
        if error is not None:
            self._delta.undo()
            return pack_value(None), None, error
        digest = self._delta.digest()
        self._delta.keep()
        self.trace.append((call.name, None))
        return replies[0], digest, None

    def _run(self, running: RunningBatch, procedure: Procedure, tx: ProcedureContext) -> None:
        if procedure is running.border:
            returned = procedure.run(tx, running.rows)
        else:
            returned = procedure.run(tx, *self._state.take(procedure, running.batch_id))
        tx.check_returned()
        if returned is not None:
            if len(procedure.emits) != 1:
                raise InvalidOption(
                    f"procedure {procedure.name!r} returned rows, which are emitted where it is declared for one "
                    f"stream, and it is for {len(procedure.emits)}: use tx.emit(stream, rows)"
                )
            self.insertions.insert(tx, procedure.emits[0], returned)
        self.insertions.end_step(tx, procedure.emits, running.batch_id)
        value, has_replied = tx.replied
        if has_replied:
            running.reply = pack_value(value)

    def _guarded(
        self, procedure: Procedure | CallProcedure, batch_id: int | None, run: Callable[[], None]
    ) -> ProcedureError | None:
        """Run a user's code; what it raised, as an error that says where."""
        try:
            self._deadline.run(run)
        except NotDeterministic as error:
            # What is drawn in a replay raises it; of others it is the procedure's own.
            if self.is_replay and self._partition is None:
                raise
            return self._failure_by(procedure.name, batch_id, error)
        except (ObjectStoreUnavailable, MetaUnavailable) as error:
            if self.is_replay:
                raise
            return self._failure_by(procedure.name, batch_id, error)
        except Overdue:
            return failure(procedure.name, batch_id, f"it did not return within {self._deadline.seconds:g} s")
        except BaseException as error:  # noqa: BLE001 - whatever a program raises is its batch's result
            return self._failure_by(procedure.name, batch_id, error)
        return None

    def _failure_by(self, procedure: str, batch_id: int | None, error: BaseException) -> ProcedureError:
        try:
            # The text is the program's, too, and may never come.
            cause = self._deadline.run(lambda: cause_of(error))
        except Overdue:
            cause = type(error).__name__
        raised = failure(procedure, batch_id, cause[:CAUSE_MAX])
        raised.__cause__ = error
        return raised


def failure(procedure: str, batch_id: int | None, cause: str) -> ProcedureError:
    """The error of a batch, or of a call, that raised."""
    of = "failed" if batch_id is None else f"failed on batch {batch_id}, which is rolled back"
    return ProcedureError(f"procedure {procedure!r} {of}: {cause}", procedure, batch_id, cause)
