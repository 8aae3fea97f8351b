"""A flow as something to send to other processes, and its run on some keys of a batch there.

Spark's tasks are these processes (`tussock.compute.spark.applications`). A run writes to a transaction, whose rows the
task uploads; a batch that turns bad is given up whole, in all tasks.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.deadline import Deadline, Overdue
from tussock.compute.applications.errors import BadRow
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import OP, StreamShape
from tussock.compute.changelog.computations import Computation
from tussock.compute.changelog.engine.tables.ordered_table import ordered
from tussock.compute.changelog.loop.put_columns import put_columns
from tussock.compute.changelog.loop.put_rules import PutFault
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.compute.changelog.plan import FlowPlan, StreamPlan
from tussock.statestore.base.system import RealSystem
from tussock.statestore.errors import InvalidBatch, InvalidOption, SchemaMismatch
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["FlowProgram", "FlowRun", "TaskStream", "flow_program"]


@dataclass(frozen=True)
class TaskStream:
    """One stream."""

    name: str
    shape: StreamShape
    inputs: tuple[str, ...]
    computation: Computation


@dataclass(frozen=True)
class FlowProgram:
    """The streams, each behind those that it reads."""

    name: str
    streams: tuple[TaskStream, ...]
    timeout: float
    """Seconds that a function may take for a batch."""

    @property
    def border(self) -> str:
        """The stream that gets the rows."""
        return self.streams[0].name

    @property
    def tables(self) -> list[str]:
        """All that are written."""
        return sorted(one.name for one in self.streams)

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, which may have `_op` as well."""
        return self.streams[0].shape.relaxed

    @property
    def partition_by(self) -> pa.Schema:
        """The columns of the key."""
        shape = self.streams[0].shape
        return pa.schema([shape.schema.field(name) for name in shape.key])

    def columns_of(self, names: Sequence[str]) -> list[str]:
        """Which columns of the rows are used."""
        return [*self.schema.names, *([OP] if OP in names else [])]

    def begin(self, tx: Transaction, batch_id: int, now: dt.datetime) -> "FlowRun":  # noqa: ARG002 - as procedures have it
        """A run of one batch, or of some keys of it; `now` is the time of its transactions."""
        return FlowRun(self, tx, int(now.timestamp() * 1000))

    def failure(self, stream: str, batch_id: int, cause: str) -> BadRow:
        """The error of a batch that turned bad."""
        return BadRow(f"stream {stream!r}: batch {batch_id} is bad: {cause}", stream, batch_id, None, cause)


class FlowRun:
    """The run of one batch, or of some keys of it."""

    def __init__(self, program: FlowProgram, tx: Transaction, now_ms: int) -> None:
        self._program = program
        self._now_ms = now_ms
        self._tables = {one.name: ordered(tx.table(one.name), one.shape.names) for one in program.streams}
        self._deadline = Deadline(RealSystem(), program.timeout, _nothing)

    def run(self, rows: pa.Table) -> tuple[bytes, str, str] | None:
        """All streams on some rows, in their order; what fails first: no key, the stream, and why."""
        published: dict[str, Changes] = {}
        for one in self._program.streams:
            try:
                computed = self._computed(one, rows, published)
                result = put_columns(one.shape, computed, self._tables[one.name].multi_get)
            except (ComputeFault, PutFault) as fault:
                return b"", one.name, str(fault.args[1])
            except (SchemaMismatch, InvalidBatch) as mismatch:
                return b"", one.name, cause_of(mismatch)
            except Overdue:
                return b"", one.name, f"it did not return within {self._deadline.seconds:g} s"
            if result.deletes is not None:
                self._tables[one.name].delete(result.deletes)
            if result.upserts is not None:
                self._tables[one.name].upsert(result.upserts)
            published[one.name] = result.changes
        return None

    def close(self) -> None:
        """Nothing more runs."""
        self._deadline.stop()

    def _computed(self, one: TaskStream, rows: pa.Table, published: dict[str, Changes]) -> Changes:
        if one.inputs:
            [source] = one.inputs
            given = published[source]
        else:
            source = ""
            if OP not in rows.schema.names:
                rows = rows.append_column(OP, pa.repeat(str(Op.UPSERT), rows.num_rows))
            given = Changes.of_batch(one.shape, rows, self._now_ms)
        computed: Changes = self._deadline.run(one.computation.compute, source, given)
        computed.check_times()
        return computed


def flow_program(plan: FlowPlan, timeout: float) -> FlowProgram:
    """The program; `InvalidOption` for a flow that cannot run in tasks, with the reason."""
    what = f"flow {plan.name!r}"
    sources = [one.name for one in plan.streams if not one.inputs]
    if len(sources) != 1:
        raise InvalidOption(f"{what} has {len(sources)} streams without inputs, {sources}; in tasks one gets the rows")
    by_name = {one.name: one for one in plan.streams}
    source = by_name[sources[0]]
    for one in plan.streams:
        if why := _hindrance(one, source):
            raise InvalidOption(f"{what}: stream {one.name!r} {why}, so it cannot run on the keys of one task")
    streams = [by_name[name] for name in reversed(plan.from_the_end())]
    return FlowProgram(
        plan.name, tuple(TaskStream(one.name, one.shape, one.inputs, one.computation) for one in streams), timeout
    )


def _hindrance(one: StreamPlan, source: StreamPlan) -> str:
    keys = [
        [(field.name, field.type) for field in stream.shape.schema if field.name in stream.shape.key]
        for stream in (one, source)
    ]
    if keys[0] != keys[1]:
        return f"has the key {list(one.shape.key)}, and {source.name!r} has {list(source.shape.key)}"
    if len(one.inputs) > 1:
        return "reads several streams"
    if one.computation.tables():
        return "remembers other rows"
    if one.ages is not None:
        return "lets rows expire"
    return ""


def _nothing() -> None:
    """A task that hangs is Spark's to end."""
