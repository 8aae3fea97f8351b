"""Runs batches through the graph, and calls between them: a `Program` of the runner.

A batch runs in one savepoint: after each procedure those follow whose streams all have the batch, and nothing else runs
before the last of them. An error of any of them undoes the whole batch; its id is used up.
"""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from tussock.compute.applications.draws import Draws
from tussock.compute.applications.errors import NotDeterministic, ProcedureError
from tussock.compute.applications.program import Host, Outcome
from tussock.compute.applications.records import Kind, Record
from tussock.compute.procedures.context import ProcedureContext
from tussock.compute.procedures.definitions import Call, Definitions, Procedure, Window
from tussock.compute.procedures.graph import graph_of
from tussock.compute.procedures.insertions import Insertions
from tussock.compute.procedures.replies import Reply, pack_value, unpack_value
from tussock.compute.procedures.rows import Shape, from_bytes
from tussock.compute.procedures.state import EngineState
from tussock.statestore import TussockError
from tussock.statestore.errors import InvalidBatch, InvalidOption
from tussock.statestore.transactions.delta import Delta

__all__ = ["Ask", "BatchRequest", "CallRequest", "Engine"]

TRACE_MAX = 10_000


class BatchRequest(NamedTuple):
    """A batch for a border procedure."""

    procedure: str
    batch_id: int | None
    table: pa.Table
    given: bytes


class CallRequest(NamedTuple):
    """A call between the batches."""

    name: str
    arguments: bytes


class Ask(NamedTuple):
    """Something to look at between two requests, in their thread."""

    look: Callable[[], Any]


class Engine:
    """The procedures of one application."""

    def __init__(self, definitions: Definitions, *, strong: bool, alone: bool) -> None:
        """`alone`: each step is durable before the next one runs."""
        self._definitions = definitions
        self._strong = strong
        self._alone = alone
        self._graph = graph_of(definitions.procedures, definitions.streams)
        self._consuming = [one for one in self._graph.order if one.consumes]
        self._input_shapes = {
            name: Shape(one.schema, f"procedure {name!r}") if one.schema is not None else None
            for name, one in definitions.procedures.items()
        }
        self.trace: deque[tuple[str, int | None]] = deque(maxlen=TRACE_MAX)
        self._running: _Running | None = None
        """A batch of a strong log that is not through."""
        self._intent: Record | None = None
        """Of a replay, a request that called outside and whose record has not come."""
        self._numbers = itertools.count()
        self._asked: tuple[str, int, bytes] | None = None
        """What an intent has to say of the request that runs; `None` once it was said."""

    # --- As a program of the runner ----------------------------------------------------------------------------------

    def load(self, delta: Delta, state: bytes, host: Host) -> None:
        """Begin on these tables."""
        self._delta = delta
        self._host = host
        self._state = EngineState(self._definitions, delta, state)
        self._insertions = Insertions(self._definitions, self._graph, delta, self._state)

    def persist(self) -> bytes:
        """For a commit."""
        return self._state.persist()

    def run(self, what: Any, seq: int) -> Outcome:
        """A batch, a call, or a look."""
        self._numbers = itertools.count(seq)
        if type(what) is BatchRequest:
            return self._run_batch(what)
        if type(what) is CallRequest:
            return self._run_call(what)
        assert isinstance(what, Ask)
        try:
            return Outcome(value=what.look())
        except TussockError as error:
            return Outcome(error=error)

    def replay(self, record: Record) -> None:
        """Do again what was recorded, held to its result."""
        if record.kind == Kind.INTENT:
            self._intent = record if self._running is None else None
            return
        self._intent = None
        if record.kind == Kind.CALL:
            outcome = self._run_call(CallRequest(record.name, record.given), record)
            again = outcome.records[0] if outcome.records else record
            self._compare(record, again.digest, again.error)
            return
        procedure = self._definitions.procedures.get(record.name)
        if procedure is None:
            raise NotDeterministic(
                f"record {record.seq} of the input log is of procedure {record.name!r}, which the program no longer has"
            )
        if record.kind == Kind.BATCH:
            rows = from_bytes(record.given, self._input_shapes[record.name], self._named(record))
            running = _Running(procedure, record.batch_id, rows, record.given)
            self._begin()
            error = self._run_through(running, record.drawn)
            self._compare(record, self._delta.digest(), error.cause if error is not None else "")
            self._end(running, error)
        elif record.kind == Kind.STEP:
            self._replay_step(procedure, record)
        elif record.kind == Kind.ABORT and self._running is not None:
            self._end(self._running, self._failure(procedure, record.batch_id, record.error))
            self._running = None

    def resume(self, seq: int) -> Sequence[Outcome]:
        """The scheduler is on again: what the log had begun goes on."""
        running, self._running = self._running, None
        intent, self._intent = self._intent, None
        self._numbers = itertools.count(seq)
        if running is not None:
            return (self._go_on(running),)
        if intent is None:
            return ()
        if intent.name in self._definitions.calls:
            return (self._run_call(CallRequest(intent.name, intent.given)),)
        rows = from_bytes(intent.given, self._input_shapes[intent.name], self._named(intent))
        return (self._run_batch(BatchRequest(intent.name, intent.batch_id, rows, intent.given)),)

    def border_shapes(self) -> dict[str, Shape | None]:
        """What the batches of each border procedure have to look like; `None` for any schema."""
        return {name: shape for name, shape in self._input_shapes.items() if self._definitions.procedures[name].border}

    def empty_batch(self, procedure: str) -> pa.Table:
        """A batch without rows, for a border without a schema: with the columns of the one stream that it emits."""
        emits = self._definitions.procedures[procedure].emits
        return emits[0].schema.empty_table() if len(emits) == 1 else pa.table({})

    def window_rows(self, window: Window, *, staged: bool) -> pa.Table:
        """The visible tuples of a window, or the staged ones; between two requests."""
        return self._insertions.window_rows(window, staged=staged)

    # --- Batches -----------------------------------------------------------------------------------------------------

    def _run_batch(self, request: BatchRequest) -> Outcome:
        procedure = self._definitions.procedures[request.procedure]
        last = self._state.last(procedure.name)
        batch_id = last + 1 if request.batch_id is None else request.batch_id
        if batch_id <= last:
            return self._repeated(procedure, batch_id, last)
        running = _Running(procedure, batch_id, request.table, request.given)
        self._begin()
        self._asked = procedure.name, batch_id, request.given
        if self._strong:
            return self._go_on(running)
        drawn = self._new_draws()
        error = self._run_through(running, None, drawn)
        digest = self._delta.digest() if error is None else None
        reply = self._end(running, error)
        record = Record(
            next(self._numbers), Kind.BATCH, procedure.name, batch_id, request.given, drawn.drawn, digest, reply.cause
        )
        return self._outcome([record], reply, error)

    def _go_on(self, running: "_Running") -> Outcome:
        """Run the steps of a batch that are left, each with its record."""
        records: list[Record] = []
        for procedure in iter(lambda: self._next_step(running), None):
            drawn = self._new_draws()
            error = self._step(running, procedure, drawn)
            if error is not None:
                records.append(
                    Record(
                        next(self._numbers), Kind.ABORT, procedure.name, running.batch_id, b"", [], None, error.cause
                    )
                )
                return self._outcome(records, self._end(running, error), error)
            given = running.given if procedure is running.border else b""
            record = Record(
                next(self._numbers),
                Kind.STEP,
                procedure.name,
                running.batch_id,
                given,
                drawn.drawn,
                self._delta.digest(),
            )
            if self._alone:
                self._host.write_now(record)
            else:
                records.append(record)
        return self._outcome(records, self._end(running, None), None)

    def _replay_step(self, procedure: Procedure, record: Record) -> None:
        running = self._running
        if running is None:
            rows = from_bytes(record.given, self._input_shapes[record.name], self._named(record))
            running = self._running = _Running(procedure, record.batch_id, rows, record.given)
            self._begin()
        expected = self._next_step(running)
        if expected is not procedure or running.batch_id != record.batch_id:
            raise NotDeterministic(
                f"record {record.seq} of the input log is of {self._named(record)}, and after what came before the "
                f"graph would run {expected.name if expected else 'nothing'} on batch {running.batch_id}: changed?"
            )
        error = self._step(running, procedure, self._new_draws(record.drawn))
        self._compare(record, self._delta.digest(), error.cause if error is not None else "")
        if self._next_step(running) is None:
            self._running = None
            self._end(running, None)

    def _begin(self) -> None:
        self._delta.begin()
        self._state.begin()

    def _next_step(self, running: "_Running") -> Procedure | None:
        """The procedure that runs on the batch now; `None` once it is through."""
        if not running.steps:
            return running.border
        if not self._state.waiting:
            return None
        batch_id = running.batch_id
        return next((one for one in self._consuming if self._state.is_ready(one, batch_id)), None)

    def _run_through(
        self, running: "_Running", recorded: list[Any] | None, draws: Draws | None = None
    ) -> ProcedureError | None:
        """All steps of a batch, with one list of draws; the error that ended it."""
        draws = draws or self._new_draws(recorded)
        while (procedure := self._next_step(running)) is not None:
            error = self._step(running, procedure, draws)
            if error is not None:
                return error
        return None

    def _step(self, running: "_Running", procedure: Procedure, draws: Draws) -> ProcedureError | None:
        """One procedure on the batch."""
        batch_id = running.batch_id
        tx = ProcedureContext(procedure.name, batch_id, self._insertions, draws, procedure.writes, procedure.emits)
        self._insertions.begin_step()
        try:
            if procedure is running.border:
                returned = procedure.run(tx, running.rows)
            else:
                returned = procedure.run(tx, *self._state.take(procedure, batch_id))
            if returned is not None:
                if len(procedure.emits) != 1:
                    raise InvalidOption(
                        f"what it returned is emitted where it is declared for one stream, and it is for "
                        f"{len(procedure.emits)}: use tx.emit(stream, rows)"
                    )
                self._insertions.insert(tx, procedure.emits[0], returned)
            self._insertions.end_step(tx, procedure.emits, batch_id)
            value, has_replied = tx.replied
            if has_replied:
                running.reply = pack_value(value)
        except NotDeterministic:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a program raises is its batch's result
            failure = self._failure(procedure, batch_id, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            return failure
        self.trace.append((procedure.name, batch_id))
        running.steps += 1
        return None

    # --- Ends --------------------------------------------------------------------------------------------------------

    def _end(self, running: "_Running", error: ProcedureError | None) -> Reply:
        """Keep or undo the batch, and remember its reply."""
        if error is None:
            self._delta.keep()
            self._state.keep()
            reply = Reply(running.batch_id, running.reply)
        else:
            self._delta.undo()
            self._state.undo()
            for _ in range(running.steps):
                self.trace.pop()
            reply = Reply(running.batch_id, pack_value(None), error.procedure, error.cause)
        self._state.answered(running.border.name, reply)
        return reply

    def _outcome(self, records: list[Record], reply: Reply, error: ProcedureError | None) -> Outcome:
        if error is not None:
            return Outcome(records, error=error)
        return Outcome(records, unpack_value(reply.value))

    def _repeated(self, procedure: Procedure, batch_id: int, last: int) -> Outcome:
        reply = self._state.replies.find(procedure.name, batch_id)
        if reply is not None:
            error = reply.error()
            return Outcome(error=error) if error is not None else Outcome(value=unpack_value(reply.value))
        return Outcome(
            error=InvalidBatch(
                f"procedure {procedure.name!r}: batch {batch_id} comes after batch {last}, and batches run in the "
                "order of their ids: it was never given, or so long ago that its reply is not kept; nothing was done"
            )
        )

    def _failure(self, procedure: Procedure | Call, batch_id: int | None, cause: str) -> ProcedureError:
        of = "was called" if batch_id is None else f"failed on batch {batch_id}, which is rolled back"
        return ProcedureError(f"procedure {procedure.name!r} {of}: {cause}", procedure.name, batch_id, cause)

    # --- Calls -------------------------------------------------------------------------------------------------------

    def _run_call(self, request: CallRequest, recorded: Record | None = None) -> Outcome:
        call = self._definitions.calls.get(request.name)
        if call is None:
            raise NotDeterministic(
                f"the input log has a call of procedure {request.name!r}, which the program no longer has"
            )
        self._asked = request.name, 0, request.arguments
        draws = self._new_draws(None if recorded is None else recorded.drawn)
        self._delta.begin()
        tx = ProcedureContext(call.name, None, self._insertions, draws, call.writes, ())
        cause, failure, value = "", None, None
        try:
            value = call.run(tx, *msgspec.msgpack.decode(request.arguments))
            packed = pack_value(tx.replied[0] if tx.replied[1] else value)
            value = unpack_value(packed)
        except NotDeterministic:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a program raises is the call's result
            cause = f"{type(error).__name__}: {error}"
            failure = self._failure(call, None, cause)
            failure.__cause__ = error
        digest = None if failure is not None else self._delta.digest()
        if failure is None:
            self._delta.keep()
            self.trace.append((call.name, None))
        else:
            self._delta.undo()
        records = []
        if digest is not None or draws.drawn:
            records = [
                Record(next(self._numbers), Kind.CALL, call.name, 0, request.arguments, draws.drawn, digest, cause)
            ]
        return Outcome(records, value, failure)

    def _before_call(self) -> None:
        """Before an outside call: the request is durable, so that a recovery makes the call again, by the same key."""
        if self._asked is None:
            return
        name, batch_id, given = self._asked
        self._asked = None
        self._host.write_now(Record(next(self._numbers), Kind.INTENT, name, batch_id, given, [], None))

    # --- Replay ------------------------------------------------------------------------------------------------------

    def _new_draws(self, recorded: list[Any] | None = None) -> Draws:
        return Draws(self._delta.system, self._before_call, recorded)

    def _compare(self, record: Record, digest: int | None, error: str) -> None:
        if (digest if not error else None) != record.digest or error != record.error:
            had, has = record.error or f"writes {record.digest}", error or f"writes {digest}"
            raise NotDeterministic(
                f"record {record.seq} of the input log, {self._named(record)}: the replay has another result than the "
                f"run that was recorded ({has}; it had {had}). Does it read a clock, draw a random number, or use what "
                "is outside of its tables? tx.now(), tx.random(), tx.uuid() and tx.call_external() are replayed"
            )

    def _named(self, record: Record) -> str:
        return f"procedure {record.name!r}, batch {record.batch_id}"


class _Running:
    """A batch on its way through the graph."""

    def __init__(self, border: Procedure, batch_id: int, rows: pa.Table, given: bytes) -> None:
        self.border = border
        self.batch_id = batch_id
        self.rows = rows
        self.given = given
        self.reply = pack_value(None)
        self.steps = 0
        """Procedures that have run on it."""
