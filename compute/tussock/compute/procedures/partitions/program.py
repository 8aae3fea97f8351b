"""A partitioned application as something to send to other processes, and its run on some keys of a batch there.

Spark's tasks are these processes (`tussock.compute.spark.applications`). A run writes to a transaction, whose rows the
task uploads; it keeps no windows and no replies, and a batch that fails is given up whole, so nothing is undone.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tussock.compute.applications.arguments import cause_of
from tussock.compute.applications.deadline import Deadline
from tussock.compute.applications.errors import ProcedureError
from tussock.compute.procedures.batches import Batches, RunningBatch, failure
from tussock.compute.procedures.definitions import Definitions
from tussock.compute.procedures.graph import graph_of
from tussock.compute.procedures.partitions.partition import Partition
from tussock.compute.procedures.partitions.requirements import partition_of
from tussock.compute.procedures.rows import TupleShape
from tussock.compute.procedures.state import EngineState
from tussock.statestore.base.system import RealSystem
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.transactions.transaction import Transaction

__all__ = ["PartitionedProgram", "PartitionedRun", "partitioned_program"]


@dataclass(frozen=True)
class PartitionedProgram:
    """What was declared, and where batches come in."""

    definitions: Definitions
    border: str
    partition_by: pa.Schema
    """The partition columns."""
    timeout: float
    """Seconds that a procedure may run."""

    @property
    def name(self) -> str:
        """The application's."""
        return self.definitions.application

    @property
    def tables(self) -> list[str]:
        """All that are written."""
        return sorted(self.definitions.tables)

    @property
    def schema(self) -> pa.Schema:
        """Of the border's batches."""
        schema = self.definitions.procedures[self.border].schema
        assert schema is not None
        return schema

    def columns_of(self, names: Sequence[str]) -> list[str]:  # noqa: ARG002 - a flow takes one more if it is there
        """Which columns of the rows are used."""
        return list(self.schema.names)

    def begin(self, tx: Transaction, batch_id: int, now: dt.datetime) -> "PartitionedRun":
        """The run of one batch, or of some keys of it; `now` is its time, the same in all tasks and attempts."""
        return PartitionedRun(self, tx, batch_id, now)

    def failure(self, procedure: str, batch_id: int, cause: str) -> ProcedureError:
        """The error of a batch in which a procedure raised."""
        return failure(procedure, batch_id, cause)


def partitioned_program(
    definitions: Definitions, border: str | None, timeout: float, specs: Mapping[str, TableSpec]
) -> PartitionedProgram:
    """The program; `InvalidOption` for an application that cannot run in tasks, with the reason."""
    what = f"application {definitions.application!r}"
    borders = sorted(name for name, one in definitions.procedures.items() if one.border)
    if border is None and len(borders) > 1:
        raise InvalidOption(f"{what} has several border procedures; say which one gets the rows: one of {borders}")
    name = borders[0] if border is None and borders else border
    if name not in borders:
        raise InvalidOption(f"{what} has no border procedure {border!r:.100}; batches go to one of {borders}")
    for call in definitions.calls:
        raise InvalidOption(
            f"{what} has call procedure {call!r}, which nobody can reach while the application runs in tasks: leave it "
            "out there, and read the tables instead"
        )
    for fed in definitions.feeds:
        raise InvalidOption(
            f"{what} has a feed for procedure {fed!r}, which gets the rows of the query in tasks: leave the feed out "
            "there"
        )
    partition = partition_of(definitions, graph_of(definitions.procedures, definitions.streams), specs)
    return PartitionedProgram(definitions, name, partition.schema, timeout)


class PartitionedRun:
    """The run of one batch, or of some keys of it."""

    def __init__(self, program: PartitionedProgram, tx: Transaction, batch_id: int, now: dt.datetime) -> None:
        definitions = program.definitions
        self._border = definitions.procedures[program.border]
        self._shape = TupleShape(program.schema, f"procedure {program.border!r}")
        self._batch_id = batch_id
        self._partition = Partition(program.partition_by)
        self._deadline = Deadline(RealSystem(), program.timeout, _nothing)
        graph = graph_of(definitions.procedures, definitions.streams)
        state = EngineState(definitions, None, b"")
        self._batches = Batches(definitions, graph, tx, state, self._deadline, self._partition)
        # An outage of the store ends the task, which is tried again.
        self._batches.is_replay = True
        self._now: Callable[[], dt.datetime] = lambda: now

    def run(self, rows: pa.Table) -> tuple[bytes, str, str] | None:
        """The graph on each key of the rows, in their order; the first key that fails, the procedure, and why."""
        try:
            groups = self._partition.groups(self._shape.table(rows))
        except SchemaMismatch as mismatch:
            return b"", self._border.name, cause_of(mismatch)
        running = RunningBatch(self._border, self._batch_id, rows, b"")
        for group in groups:
            error = self._batches.run_group(running, group, self._now)
            if error is not None:
                return group.key, error.procedure, error.cause
        return None

    def close(self) -> None:
        """Nothing more runs."""
        self._deadline.stop()


def _nothing() -> None:
    """A task that hangs is Spark's to end."""
