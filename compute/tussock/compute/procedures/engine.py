"""The procedures of an application as a `Program` of the runner: requests in, records out, and records again."""

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from tussock.compute.applications.deadline import Deadline
from tussock.compute.applications.draws import Draws
from tussock.compute.applications.errors import NotDeterministic, ProcedureError
from tussock.compute.applications.program import Host, Outcome
from tussock.compute.applications.records import Record, RecordKind
from tussock.compute.procedures.batches import Batches, RunningBatch, failure
from tussock.compute.procedures.borders.fed_inputs import FedInputs, is_fed
from tussock.compute.procedures.borders.requests import (
    BATCH_ID_MAX,
    Ask,
    BatchRequest,
    CallRequest,
    Halt,
    MoveRequest,
    SentRequest,
)
from tussock.compute.procedures.definitions import Definitions, Procedure, Window
from tussock.compute.procedures.graph import graph_of
from tussock.compute.procedures.partitions.partition import Partition
from tussock.compute.procedures.remote.picture import picture
from tussock.compute.procedures.replies import Reply, pack_value, unpack_value
from tussock.compute.procedures.rows import TupleShape, from_bytes
from tussock.compute.procedures.state import EngineState
from tussock.statestore import TussockError
from tussock.statestore.errors import InvalidBatch
from tussock.statestore.transactions.delta import Delta

__all__ = ["Engine"]


class Engine:
    """The procedures of one application; a `Program`."""

    nbytes = 0
    """All is in the delta, but for windows, which are limited by themselves."""

    def __init__(
        self,
        definitions: Definitions,
        inputs: FedInputs,
        *,
        strong: bool,
        alone: bool,
        timeout: float,
        partition: Partition | None = None,
    ) -> None:
        """`alone`: each step is durable before the next one runs; `timeout`: seconds that a procedure may run.

        With a `partition` the graph runs on the tuples of each key alone.
        """
        self._definitions = definitions
        self.inputs = inputs
        self._partition = partition
        self._strong = strong
        self._alone = alone
        self._timeout = timeout
        self._graph = graph_of(definitions.procedures, definitions.streams)
        self._input_shapes = {
            name: TupleShape(one.schema, f"procedure {name!r}") if one.schema is not None else None
            for name, one in definitions.procedures.items()
        }
        self._deadline: Deadline | None = None
        self._numbers = itertools.count()
        self._begun: RunningBatch | None = None
        """Of a replay, a batch whose steps have not all come."""
        self._intent: Record | None = None
        """Of a replay, a request that called outside and whose record has not come."""
        self._asked: tuple[str, int, bytes] | None = None
        """What an intent has to say of the request that runs; `None` once it was said."""

    # --- As a program ------------------------------------------------------------------------------------------------

    def load(self, delta: Delta, state: bytes, host: Host) -> None:
        """Begin on these tables."""
        self.system = delta.system
        self._host = host
        self._state = EngineState(self._definitions, delta, state)
        self.inputs.open(delta.system, self._state, self._input_shapes)
        self._deadline = Deadline(delta.system, self._timeout, self._give_up)
        self._batches = Batches(self._definitions, self._graph, delta, self._state, self._deadline, self._partition)
        self._delta = delta

    def unload(self) -> None:
        """Nothing runs any more."""
        if self._deadline is not None:
            self._deadline.stop()
        self.inputs.unload()

    def persist(self) -> bytes:
        """For a commit."""
        self.inputs.cut()
        return self._state.persist()

    def run(self, what: Any, seq: int) -> Outcome:
        """A batch, a call, or a look."""
        self._numbers = itertools.count(seq)
        if type(what) is BatchRequest:
            return self._run_batch(what)
        if type(what) is CallRequest:
            return self._run_call(what)
        if type(what) is MoveRequest:
            return Outcome((self.inputs.move(next(self._numbers), what.procedure, what.position),))
        if type(what) is SentRequest:
            self._state.outputs.sent(what.stream, what.sequence)
            return Outcome((Record(seq, RecordKind.SENT, what.stream, what.sequence, b"", [], None),))
        if type(what) is Halt:
            raise what.error
        assert isinstance(what, Ask)
        try:
            return Outcome(value=what.look())
        except TussockError as error:
            return Outcome(error=error)

    def replay(self, record: Record) -> None:
        """Do again what was recorded, held to its result."""
        self._batches.is_replay = True
        if record.kind == RecordKind.INTENT:
            self._intent = record if self._begun is None else None
            return
        if record.kind == RecordKind.SENT:
            self._state.outputs.sent(record.name, record.batch_id)
            return
        if record.kind == RecordKind.FEED:
            self.inputs.moved(record)
            return
        self._intent = None
        if record.kind == RecordKind.CALL:
            self._replay_call(record)
            return
        procedure = self._definitions.procedures.get(record.name)
        if procedure is None:
            raise _unknown("procedure", record.name)
        if record.kind == RecordKind.BATCH:
            self._replay_batch(procedure, record)
        elif record.kind == RecordKind.STEP:
            self._replay_step(procedure, record)
        elif self._begun is not None:
            self._batches.end(self._begun, failure(record.failed, record.batch_id, record.error))
            self.inputs.took(record.name, record.batch_id, self._begun.given, record.error)
            self._begun = None
        else:
            # The first procedure raised: it was never begun.
            self._replay_failed(record)

    def resume(self, seq: int) -> Sequence[Outcome]:
        """The scheduler is on again: what the log had begun goes on."""
        self._batches.is_replay = False
        begun, self._begun = self._begun, None
        intent, self._intent = self._intent, None
        self._numbers = itertools.count(seq)
        return (*self._resumed(begun, intent), *self.inputs.resume(self._numbers))

    def _resumed(self, begun: RunningBatch | None, intent: Record | None) -> Sequence[Outcome]:
        if begun is not None:
            return (self._go_on(begun),)
        if intent is None:
            return ()
        if intent.name in self._definitions.calls:
            return (self._run_call(CallRequest(intent.name, intent.given)),)
        rows = self._rows(intent)
        return (self._run_batch(BatchRequest(intent.name, intent.batch_id, rows, intent.given)),)

    # --- For users to look at ----------------------------------------------------------------------------------------

    def border_shapes(self) -> dict[str, TupleShape | None]:
        """What the batches of each border procedure have to look like; `None` for any schema."""
        return {name: shape for name, shape in self._input_shapes.items() if self._definitions.procedures[name].border}

    def empty_batch(self, procedure: str) -> pa.Table:
        """A batch without rows, for a border without a schema: with the columns of the one stream that it emits."""
        emits = self._definitions.procedures[procedure].emits
        return emits[0].schema.empty_table() if len(emits) == 1 else pa.table({})

    def window_rows(self, window: Window, *, staged: bool) -> pa.Table:
        """The visible tuples of a window, or the staged ones; between two requests."""
        return self._batches.insertions.window_rows(window, staged=staged)

    def output(self, stream: str) -> tuple[int, int, int]:
        """Of an output the sequence of the newest rows, what is sent, and how many rows are not known to be."""
        return self._state.outputs.of(stream)

    def trace(self, last: int) -> list[tuple[str, int | None]]:
        """The newest executions, in order; between two requests."""
        return list(self._batches.trace)[-last:]

    def picture(self) -> dict[str, Any]:
        """The graph with figures of this moment, as JSON can say it; in any thread, beside what runs."""
        return picture(self._definitions, self._state, self._batches.trace)

    # --- Batches -----------------------------------------------------------------------------------------------------

    def _run_batch(self, request: BatchRequest) -> Outcome:
        border = self._definitions.procedures[request.procedure]
        last = self._state.last(border.name)
        batch_id = last + 1 if request.batch_id is None else request.batch_id
        if request.fed is not None:
            self.inputs.arrived(request.fed)
        if batch_id <= last:
            return self._repeated(border.name, batch_id, last)
        if batch_id > BATCH_ID_MAX:
            # Nothing of it may be recorded: no table could keep it, so no commit would ever succeed again.
            return Outcome(error=_no_id_left(border.name))
        running = self._batches.begin(RunningBatch(border, batch_id, request.table, request.given))
        self._asked = border.name, batch_id, request.given
        if self._strong:
            return self._go_on(running)
        draws = self._draws()
        error = self._batches.run_through(running, draws)
        digest = self._delta.digest() if error is None else None
        reply = self._end(running, error)
        record = Record(
            next(self._numbers),
            RecordKind.BATCH,
            border.name,
            batch_id,
            request.given,
            draws.drawn,
            digest,
            reply.failed,
            reply.cause,
        )
        return _outcome([record], reply, error)

    def _go_on(self, running: RunningBatch) -> Outcome:
        """Run the steps of a batch that are left, each with its record."""
        records: list[Record] = []
        batch_id, border = running.batch_id, running.border
        while (procedure := self._batches.next_step(running)) is not None:
            draws = self._draws()
            error = self._batches.step(running, procedure, draws)
            number = next(self._numbers)
            if error is not None:
                given = running.given if not running.steps and is_fed(running.given) else b""
                records.append(
                    Record(
                        number, RecordKind.ABORT, border.name, batch_id, given, [], None, error.procedure, error.cause
                    )
                )
                return _outcome(records, self._end(running, error), error)
            given = running.given if procedure is border else b""
            record = Record(number, RecordKind.STEP, procedure.name, batch_id, given, draws.drawn, self._delta.digest())
            if self._alone:
                self._host.write_now(record)
            else:
                records.append(record)
        return _outcome(records, self._end(running, None), None)

    def _end(self, running: RunningBatch, error: ProcedureError | None) -> Reply:
        """The end of a batch that runs for the first time."""
        if error is not None:
            self.inputs.check_goes_on(running.border.name, running.batch_id, running.given, error)
        reply = self._batches.end(running, error)
        self.inputs.took(running.border.name, running.batch_id, running.given, reply.cause)
        return reply

    def _repeated(self, procedure: str, batch_id: int, last: int) -> Outcome:
        reply = self._state.replies.find(procedure, batch_id)
        if reply is None:
            return Outcome(
                error=InvalidBatch(
                    f"procedure {procedure!r}: batch {batch_id} comes after batch {last}, and batches run in the "
                    "order of their ids: it was never given, or its reply is no longer kept; nothing was done"
                )
            )
        if reply.failed:
            return Outcome(error=failure(reply.failed, batch_id, reply.cause))
        return Outcome(value=unpack_value(reply.value))

    def _run_call(self, request: CallRequest) -> Outcome:
        call = self._definitions.calls[request.name]
        self._asked = request.name, 0, request.arguments
        draws = self._draws()
        value, digest, error = self._batches.call(call, msgspec.msgpack.decode(request.arguments), draws)
        is_recorded = digest is not None or draws.drawn or self._asked is None
        if not is_recorded:
            return Outcome((), unpack_value(value), error)
        failed, cause = ("", "") if error is None else (error.procedure, error.cause)
        number = next(self._numbers)
        record = Record(number, RecordKind.CALL, call.name, 0, request.arguments, draws.drawn, digest, failed, cause)
        return Outcome([record], unpack_value(value), error)

    # --- Replay ------------------------------------------------------------------------------------------------------

    def _replay_batch(self, procedure: Procedure, record: Record) -> None:
        if record.failed:
            self._replay_failed(record)
            return
        rows = self._rows(record)
        running = self._batches.begin(RunningBatch(procedure, record.batch_id, rows, record.given))
        error = self._batches.run_through(running, self._draws(record))
        self._compare(record, self._delta.digest(), error)
        self._batches.end(running, None)
        self.inputs.took(record.name, record.batch_id, record.given, "")

    def _replay_failed(self, record: Record) -> None:
        """A batch that was rolled back left nothing but its reply, and of a feed the letters."""
        if is_fed(record.given):
            self._rows(record)
        self._state.answered(record.name, _failed(record))
        self.inputs.took(record.name, record.batch_id, record.given, record.error)

    def _rows(self, record: Record) -> pa.Table:
        """What the batch of a record was given."""
        if is_fed(record.given):
            return self.inputs.again(record)
        return from_bytes(record.given, self._input_shapes[record.name], _named(record))

    def _replay_step(self, procedure: Procedure, record: Record) -> None:
        if self._begun is None:
            rows = self._rows(record)
            self._begun = self._batches.begin(RunningBatch(procedure, record.batch_id, rows, record.given))
        running = self._begun
        expected = self._batches.next_step(running)
        if expected is not procedure or running.batch_id != record.batch_id:
            raise NotDeterministic(
                f"record {record.seq} of the input log is of {_named(record)}, and after what came before the graph "
                f"would run {expected.name if expected else 'nothing'} on batch {running.batch_id}: has it changed?"
            )
        error = self._batches.step(running, procedure, self._draws(record))
        self._compare(record, self._delta.digest(), error)
        if self._batches.next_step(running) is None:
            self._begun = None
            self._batches.end(running, None)
            self.inputs.took(running.border.name, running.batch_id, running.given, "")

    def _replay_call(self, record: Record) -> None:
        if record.failed:
            return
        call = self._definitions.calls.get(record.name)
        if call is None:
            raise _unknown("call procedure", record.name)
        _, digest, error = self._batches.call(call, msgspec.msgpack.decode(record.given), self._draws(record))
        self._compare(record, digest, error)

    def _compare(self, record: Record, digest: int | None, error: ProcedureError | None) -> None:
        if error is None and digest == record.digest:
            return
        has = f"writes of digest {digest}" if error is None else error.cause
        raise NotDeterministic(
            f"record {record.seq} of the input log, {_named(record)}: the replay has another result than the run that "
            f"was recorded ({has}; it had writes of digest {record.digest}). Does it read a clock, draw a random "
            "number, or use what is outside of its tables? Of those only tx.now(), tx.random(), tx.uuid() and "
            "tx.call_external() are replayed"
        )

    # --- Within ------------------------------------------------------------------------------------------------------

    def _draws(self, record: Record | None = None) -> Draws:
        return Draws(self.system, self._before_call, None if record is None else record.drawn)

    def _before_call(self) -> None:
        """Before an outside call: the request is durable, so that a recovery makes the call again, by the same key."""
        if self._asked is None:
            return
        name, batch_id, given = self._asked
        self._asked = None
        record = Record(next(self._numbers), RecordKind.INTENT, name, batch_id, given, [], None)
        assert self._deadline is not None
        self._deadline.excuse(lambda: self._host.write_now(record))

    def _give_up(self) -> None:
        self._host.give_up(
            f"a procedure has not returned for {2 * self._timeout:g} s, nor heard that its time was up: application "
            f"{self._definitions.application!r} ends; find out what it waits for, and start it again"
        )


def _outcome(records: list[Record], reply: Reply, error: ProcedureError | None) -> Outcome:
    return Outcome(records, unpack_value(reply.value), error)


def _failed(record: Record) -> Reply:
    return Reply(record.batch_id, pack_value(None), record.failed, record.error)


def _named(record: Record) -> str:
    return f"procedure {record.name!r}, batch {record.batch_id}"


def _no_id_left(procedure: str) -> InvalidBatch:
    return InvalidBatch(
        f"procedure {procedure!r}: the batch before has the id {BATCH_ID_MAX}, the largest that there is, so no id is "
        "left; nothing was done. Give the batches to another border procedure"
    )


def _unknown(kind: str, name: str) -> NotDeterministic:
    return NotDeterministic(f"the input log has a run of {kind} {name!r}, which the program no longer has")
