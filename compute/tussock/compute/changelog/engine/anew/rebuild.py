"""Streams that are made anew from the rows that their inputs have, such as after they were declared otherwise.

What a stream keeps is emptied, and the rows of its inputs are computed in parts, as insertions, into a table beside the
stream's own. Then the difference of the two is put into the stream and published, in parts, so that those behind it
come to what they would have come to had it always been so. A subscriber sees none of this before its end.

All of it happens at a start, before anything else does. The log has a record of it, which a replay passes by: until the
end is committed the state says that the stream has to be made anew, and a start after a crash begins again with it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tussock.compute.applications.limits import ApplicationLimits
from tussock.compute.applications.program import Host
from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape
from tussock.compute.changelog.changes.transaction import StreamTransaction
from tussock.compute.changelog.engine.kept_state import KeptState
from tussock.compute.changelog.engine.loop_work import LoopWork
from tussock.compute.changelog.engine.running_stream import RunningStream
from tussock.compute.changelog.loop.location import Location
from tussock.compute.changelog.loop.put_rules import PutFault
from tussock.compute.changelog.loop.stream_loop import BadTransaction, ComputeFault, Queued
from tussock.compute.changelog.plan import FlowPlan
from tussock.statestore.base.logs import get_logger
from tussock.statestore.transactions.delta import Delta

__all__ = ["REBUILD", "RebuildHost", "rebuild_streams"]

log = get_logger("tussock.compute.changelog")

REBUILD = "rebuild"
"""The event in the log, with the stream."""
BAD_ALONE_MAX = 1000
"""Records that are told of alone; after them a part that cannot be computed is a bad transaction as it is."""
HOLD_BYTES = 16 << 20
"""Of records that cannot be computed, after which they are held back together with those before them."""


class RebuildHost(NamedTuple):
    """What a rebuild needs of the run."""

    plan: FlowPlan
    streams: Mapping[str, RunningStream]
    work: LoopWork
    kept: KeptState
    delta: Delta
    host: Host
    limits: ApplicationLimits
    go_on: Callable[[Collection[str]], None]
    """Let these streams take what they have in their queues."""


def rebuild_streams(run: RebuildHost, seq: int) -> int:
    """Make those anew that have to be, each before those behind it; returns the next free number of the log."""
    for name in reversed(run.plan.from_the_end()):
        if name in run.kept.rebuilds:
            rebuild = _Rebuild(run, run.streams[name], seq)
            rebuild.run()
            seq = rebuild.seq
    return seq


class _Rebuild:
    """Of one stream."""

    def __init__(self, run: RebuildHost, stream: RunningStream, seq: int) -> None:
        self._run = run
        self._stream = stream
        self._name = stream.plan.name
        self._shape = stream.plan.shape
        self.seq = seq
        self._bad = 0
        self._rows = run.limits.rebuild_rows
        self._now_ms = run.delta.system.now_ms()
        self._table = run.kept.tables[self._name]
        self._anew = run.kept.table(self._name, "anew")
        self._behind = run.plan.behind(self._name) - run.kept.rebuilds
        self._held: list[tuple[Changes, BadTransaction]] = []
        """What an operator could not compute, and why not."""
        self._held_bytes = 0

    def run(self) -> None:
        """All of it."""
        log.info("a stream is made anew", flow=self._run.plan.name, stream=self._name)
        stream, run = self._stream, self._run
        # What waits, and what is held back, is among the rows of its inputs; of what was bad, too.
        stream.forget_waiting()
        run.kept.bad_rows.remove_all(self._name)
        self._commit()
        for table in stream.plan.computation.tables():
            self._empty(run.kept.table(self._name, table))
        self._empty(self._anew)
        stream.read.clear()
        for source in stream.plan.inputs:
            for part in self._rows_of(source):
                self._compute(source, part)
                self._commit_large()
            self._hold_back(source)
            stream.read[source] = run.streams[source].history.seq
        self._publish()
        self._empty(self._anew)
        run.kept.rebuilds.discard(self._name)
        self._commit()

    # --- Computing ---------------------------------------------------------------------------------------------------

    def _rows_of(self, source: str) -> Iterator[Changes]:
        shape = self._run.streams[source].plan.shape
        rows = self._stream.plan.computation.chunk or self._rows
        for batch in _slices(self._run.kept.tables[source].read(), rows):
            yield _changes(shape, batch, Op.INSERT, self._now_ms)

    def _compute(self, source: str, rows: Changes) -> None:
        """Into the table beside; of what cannot be computed the records that are to blame are bad transactions.

        An operator holds them back, together.
        """
        delta, work = self._run.delta, self._run.work
        left = [rows]
        while left:
            part = left.pop()
            delta.begin()
            try:
                computed = work.computed(self._stream.plan.computation, part)
                work.put_into(self._anew, self._shape, computed)
            except (ComputeFault, PutFault) as fault:
                delta.undo()
                if len(part) > 1 and self._bad < BAD_ALONE_MAX:
                    middle = len(part) // 2
                    left += [part.part(middle, len(part)), part.part(0, middle)]
                    continue
                at = Location.COMPUTE if isinstance(fault, ComputeFault) else Location.PUT
                why = BadTransaction(fault.args[0], fault.args[1], at)
                self._bad += 1
                if self._stream.plan.computation.is_view:
                    self._held.append((part, why))
                    self._held_bytes += part.nbytes
                    if self._held_bytes >= HOLD_BYTES:
                        self._hold_back(source)
                else:
                    work.keep_bad(self._stream, self._queued(source, part), why)
                continue
            delta.keep()

    def _hold_back(self, source: str) -> None:
        """What an operator could not compute of an input, besides what it holds back of it already."""
        bad, self._held, self._held_bytes = self._held, [], 0
        if bad:
            shape, (_, why) = bad[0][0].shape, bad[0]
            changes = Changes(shape, [record for part, _ in bad for record in part.records], None, self._now_ms)
            taken = self._run.work.taken(self._stream.loop, self._queued(source, changes))
            row = why.row
            if row is not None and why.at is Location.COMPUTE:
                row += len(taken.transaction) - len(changes)
            self._run.work.keep_bad(self._stream, taken, BadTransaction(row, why.cause, why.at))

    def _queued(self, source: str, changes: Changes) -> Queued:
        return Queued(source, StreamTransaction(self._run.streams[source].history.seq, changes))

    # --- Publishing --------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """What the stream has and should not have goes; then comes what it should have."""
        key = list(self._shape.key)
        for keys in _slices(self._table.read(columns=key), self._rows):
            is_there = self._anew.multi_get(keys, columns=key).is_valid().to_numpy(zero_copy_only=False)
            self._put(keys.filter(pa.array(~is_there)), Op.SAFEDELETE)
        for rows in _slices(self._anew.read(), self._rows):
            self._put(rows, Op.UPSERT)

    def _put(self, rows: pa.RecordBatch, op: Op) -> None:
        if rows.num_rows:
            self._run.work.publish(self._stream, _changes(self._shape, rows, op, self._now_ms), self._run.kept.rebuilds)
            self._run.go_on(self._behind)
            self._commit_large()

    # --- Storing -----------------------------------------------------------------------------------------------------

    def _empty(self, table: Any) -> None:
        for keys in _slices(table.read(columns=list(table.primary_key)), self._rows):
            table.delete(keys)
            self._commit_large()

    def _commit_large(self) -> None:
        if self._run.delta.nbytes + self._run.kept.nbytes > self._run.limits.rebuild_bytes:
            self._commit()

    def _commit(self) -> None:
        """What those behind it have done meanwhile is in the commit, and needs no replay."""
        journal = self._run.work.journal
        journal.forget()
        journal.note_event(REBUILD, self._name)
        self._run.host.write_now(journal.record(self.seq, self._run.work.transactions))
        self.seq += 1
        self._run.host.commit_now()


def _slices(batches: Any, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _changes(shape: StreamShape, rows: pa.RecordBatch, op: Op, time: int) -> Changes:
    """The same operation on all rows, which have the key at least."""
    names, count = rows.schema.names, rows.num_rows
    schema = pa.schema([pa.field(one.name, one.type) for one in shape.relaxed])
    columns = [rows.column(one.name) if one.name in names else pa.nulls(count, one.type) for one in schema]
    codes = np.full(count, CODES[op], np.int8)
    return Changes(shape, None, (pa.record_batch(columns, schema=schema), codes, np.zeros(count, np.bool_)), time)
