"""One task of a stateful function: gathers its rows by key, reads their state, calls the function, uploads the result.

Nothing of it is visible until the driver commits the reports of all tasks as one epoch. Each attempt uploads SSTs under
its own ids, so attempts that fail, or that are slower than another one of the same task, leave only garbage.
"""

import functools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from tussock.compute.spark.batches.task_times import Meter
from tussock.compute.spark.reads.connections import same_table, working_store
from tussock.compute.spark.reads.epoch_reads import EpochReads
from tussock.compute.spark.state.arrivals import convert_arrivals
from tussock.compute.spark.state.event_time import MICROS, newest, split_late
from tussock.compute.spark.state.plan import LATE, Report, TaskPlan
from tussock.compute.spark.state.records import KeyedBatch, State, Update
from tussock.compute.spark.state.task.answers import CalledKeys, batch_of, one_batch
from tussock.compute.spark.state.task.expiry import expired_keys, oldest_kept, stamp_rows, without_expired
from tussock.compute.spark.state.task.groups import Share, pieces_of, sorted_by_key
from tussock.compute.spark.state.task.placement import check_placed, own_rows, own_vnodes
from tussock.compute.spark.state.task.states import join_states, state_after, state_at, with_states
from tussock.compute.spark.state.timers import FiredTimers, due_timers
from tussock.compute.spark.writes.operations import DELETE_COLUMN
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidBatch
from tussock.statestore.keys.encoding import KeyEncoder

__all__ = ["REPORT_COLUMN", "run_in_spark", "run_task"]

T = TypeVar("T")

Writes: TypeAlias = dict[str, list[tuple[pa.RecordBatch, bool]]]
"""Rows to write by table, oldest first, each with whether they are deletes."""

REPORT_COLUMN = "report"


def run_in_spark(plan: TaskPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: yields one row with the task's report, or none if this is not one of the plan's tasks.

    For an empty batch Spark may plan fewer tasks than it was asked for; the driver then does the missing ones.
    """
    context = TaskContext.get()
    partition = plan.tasks if context is None else context.partitionId()
    if partition < plan.tasks:
        report = run_task(plan, partition, batches)
        yield pa.record_batch([pa.array([msgspec.msgpack.encode(report)], pa.binary())], names=[REPORT_COLUMN])
    elif any(batch.num_rows for batch in batches):
        raise InvalidBatch(f"Spark gave rows to task {partition} of {plan.tasks}; nothing of the batch was stored")


def run_task(plan: TaskPlan, partition: int, batches: Iterable[pa.RecordBatch]) -> Report:
    """Do the work of one partition."""
    task = _Task(plan, partition, working_store(plan.address))
    try:
        task.run(batches)
        task.report.spent = task.meter.spent()
        return task.report
    finally:
        task.reads.close()


@functools.lru_cache(maxsize=8)
def load_function(pickled: bytes) -> Any:
    """The user's function; unpickled once for many batches."""
    return cloudpickle.loads(pickled)


class _Task:
    """A task's inputs and its progress."""

    def __init__(self, plan: TaskPlan, partition: int, store: StateStore) -> None:
        self.plan = plan
        self.partition = partition
        self.store = store
        self.meter = Meter()
        self.reads = EpochReads(store, plan.read_epoch)
        self.report = Report(partition)
        first = plan.states[0]
        self.key_schema = pa.schema([first.arrow_schema().field(name) for name in plan.key])
        self.distribution = first.distribution_key
        self.encoder = KeyEncoder(self.key_schema, plan.key, first.distribution_key, first.vnodes)
        self.oldest = oldest_kept(plan)
        # Rows to write that belong to no piece: late ones, and expired ones.
        self.late: list[pa.RecordBatch] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Do all of it. Holds the writes of a piece until the next, so that the last go up with what comes after."""
        plan = self.plan
        due = self._due()
        pending = self._due_deletes(due)
        called = False
        for piece in pieces_of(self._in_time(batches), plan.rows, self.distribution, plan.chunk_bytes):
            rows, starts = sorted_by_key(piece.rows, self.encoder, plan.order_by)
            own_due = due if due is None else self._of_share(due, piece.share)
            if not rows.num_rows and (own_due is None or not own_due.num_rows):
                continue
            if called:
                self._upload(pending)
                pending = {}
            called = True
            for writes in self._calls(rows, starts, own_due):
                _add(pending, writes)
        if self.late:
            spec = plan.outputs[LATE]
            _add(pending, {spec.name: [(batch_of(batch, spec), False) for batch in self.late]})
        largest = self.report.newest_event
        if plan.progress is not None and largest is not None:
            row = [pa.array([self.partition], pa.int32()), pa.array([largest]).cast(MICROS)]
            pending[plan.progress.name] = [(pa.record_batch(row, schema=plan.progress.arrow_schema()), False)]
        self._upload(pending)

    def _in_time(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = self.plan
        for raw in self.meter.rows(batches):
            if not raw.num_rows:
                continue
            batch = convert_arrivals(raw, plan)
            if plan.event_time is not None:
                largest = newest(batch, plan.event_time)
                known = self.report.newest_event if self.report.newest_event is not None else plan.newest_event
                if largest is not None and (known is None or largest > known):
                    self.report.newest_event = largest
                batch, late = split_late(batch, plan.event_time, plan.late_until)
                if late is not None and LATE in plan.outputs:
                    self.late.append(late)
            yield batch

    def _due(self) -> pa.RecordBatch | None:
        """The task's timers that the watermark has passed; `None` without timers."""
        plan = self.plan
        if plan.timers is None:
            return None
        schema = plan.timers.arrow_schema()
        if plan.watermark is None or not plan.read_epoch:
            return pa.RecordBatch.from_pylist([], schema)
        vnodes = own_vnodes(self.partition, plan.tasks, plan.timers.vnodes)
        watermark = plan.watermark
        due = self._read(plan.timers, lambda table: due_timers(table, plan.read_epoch, watermark, vnodes))
        batch = one_batch(due)
        return batch.filter(pa.array(own_rows(self._distribution(batch), self.partition, plan.tasks)))

    def _of_share(self, due: pa.RecordBatch, share: Share) -> pa.RecordBatch:
        return due.filter(pa.array(share.of(due.select(list(self.distribution)))))

    def _distribution(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return [rows.column(name) for name in self.distribution]

    def _calls(
        self, rows: pa.RecordBatch, starts: npt.NDArray[np.int64], due: pa.RecordBatch | None
    ) -> Iterator[Writes]:
        """Call the function for some keys, once for each round of due timers; yields what each call wrote."""
        plan = self.plan
        keys = rows.select(list(plan.key)).take(pa.array(starts))
        check_placed(self._distribution(keys), self.partition, plan.tasks, plan.states[0].name)
        timers = None
        if due is not None:
            keys, at = self._with_due(keys, due)
            timers = FiredTimers(due, at, keys.num_rows)
        states = {spec.name: self._state(spec, keys) for spec in plan.states}
        if timers is not None and plan.each_timer:
            states = yield from self._earlier_rounds(keys, states, timers, rows.slice(0, 0))
        fired = None if timers is None else timers.latest()
        yield self._call(self._batch(rows, starts, keys, states, fired), CalledKeys(keys, self.encoder))

    def _earlier_rounds(
        self, keys: pa.RecordBatch, states: dict[str, State], timers: FiredTimers, no_rows: pa.RecordBatch
    ) -> Generator[Writes, None, dict[str, State]]:
        """Call keys with several timers for all but their latest; returns the states after these calls."""
        several = timers.several()
        if not len(several):
            return states
        names = self.plan.key
        after = {name: state_at(state, several[:0]) for name, state in states.items()}
        called = 0
        for fired in timers.earlier_rounds(several):
            joining = several[called : len(fired)]
            called = len(fired)
            after = {name: join_states(state, state_at(states[name], joining)) for name, state in after.items()}
            round_keys = keys.take(pa.array(several[:called]))
            known = CalledKeys(round_keys, self.encoder)
            writes = self._call(self._batch(no_rows, np.zeros(0, np.int64), round_keys, after, fired), known)
            after = {
                name: self._without_expired(state_after(state, writes.get(name, ()), known, names))
                for name, state in after.items()
            }
            yield writes
        return {name: with_states(state, several, after[name]) for name, state in states.items()}

    def _batch(
        self,
        rows: pa.RecordBatch,
        starts: npt.NDArray[np.int64],
        keys: pa.RecordBatch,
        states: dict[str, State],
        fired: npt.NDArray[np.datetime64] | None,
    ) -> KeyedBatch:
        plan = self.plan
        watermark = None if plan.watermark is None else np.datetime64(plan.watermark, "us")
        return KeyedBatch(rows, starts, keys, states, plan.batch_id, watermark, fired)

    def _call(self, batch: KeyedBatch, known: CalledKeys) -> Writes:
        """Call the function once; returns what it wrote, by table."""
        plan = self.plan
        with self.meter.calling():
            update = load_function(plan.function)(batch)
        if not isinstance(update, Update):
            raise InvalidBatch(
                f"the function for table {plan.states[0].name!r} returned a value of type {type(update).__name__}; "
                "expected an Update; nothing of the batch was stored"
            )
        return self._writes(update, known)

    def _with_due(self, keys: pa.RecordBatch, due: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.intp]]:
        """The keys, followed by those that only have timers; and for each timer the position of its key."""
        wanted = due.select(list(self.plan.key))
        joined = pa.concat_batches([keys, wanted]) if wanted.num_rows else keys
        encoded = self.encoder.encode(joined).dictionary_encode()
        place = encoded.indices.to_numpy()
        # Codes count by first occurrence: those of `keys` are 0, 1, ..., and each new one is one more.
        first = np.flatnonzero(np.diff(np.maximum.accumulate(place), prepend=-1) > 0)
        return joined.take(pa.array(first)), place[keys.num_rows :]

    def _read(self, spec: TableSpec, read: Callable[[Any], T]) -> T:
        with self.meter.reading():
            return self.reads.run(spec, read)

    def _state(self, spec: TableSpec, keys: pa.RecordBatch) -> State:
        plan = self.plan
        schema = spec.arrow_schema()
        if not plan.read_epoch:
            columns = [
                keys.column(field.name) if field.name in plan.key else pa.nulls(keys.num_rows, field.type)
                for field in schema
            ]
            state = State(pa.RecordBatch.from_arrays(columns, names=schema.names), np.zeros(keys.num_rows, np.bool_))
        else:
            rows = self._read(spec, lambda table: table.multi_get(keys, epoch=plan.read_epoch))
            found = rows.is_valid().to_numpy(zero_copy_only=False)
            columns = [
                keys.column(name) if name in plan.key else values
                for name, values in zip(schema.names, rows.flatten(), strict=True)
            ]
            state = State(pa.RecordBatch.from_arrays(columns, names=schema.names), found)
        return self._without_expired(state)

    def _without_expired(self, state: State) -> State:
        plan = self.plan
        if plan.expiry is None or self.oldest is None:
            return state
        return without_expired(state, plan.expiry.column, self.oldest, plan.key)

    def _writes(self, update: Update, known: CalledKeys) -> Writes:
        """What the function returned, by table."""
        plan = self.plan
        writes: Writes = {}
        for rows, deletes in ((update.deletes, True), (update.state, False)):
            for spec, part in self._by_state(rows):
                batch = batch_of(part, spec, keys_only=deletes)
                known.check(batch, spec.name, "a delete" if deletes else "state")
                if not deletes and plan.expiry is not None and not plan.expiry.event:
                    batch = stamp_rows(batch, plan.expiry.column, plan.now)
                writes.setdefault(spec.name, []).append((batch, deletes))
        for name, rows in update.outputs.items():
            if name not in plan.outputs:
                raise InvalidBatch(
                    f"the function returned rows for output {name!r}; expected one of {sorted(plan.outputs)}; nothing "
                    "of the batch was stored"
                )
            if rows is not None:
                spec = plan.outputs[name]
                writes.setdefault(spec.name, []).append((batch_of(rows, spec), False))
        if update.timers is not None:
            if plan.timers is None:
                raise InvalidBatch(
                    "the function returned timers, and they need a watermark; give stateful an event_time and a delay; "
                    "nothing of the batch was stored"
                )
            batch = batch_of(update.timers, plan.timers)
            known.check(batch, plan.timers.name, "a timer")
            writes.setdefault(plan.timers.name, []).append((batch, False))
        return writes

    def _by_state(self, rows: Any) -> list[tuple[TableSpec, Any]]:
        if rows is None:
            return []
        specs = {spec.name: spec for spec in self.plan.states}
        if not isinstance(rows, Mapping):
            return [(self.plan.states[0], rows)]
        unknown = sorted(set(rows) - set(specs))
        if unknown:
            raise InvalidBatch(
                f"the function returned rows for the state tables {unknown}; expected some of {list(specs)}; nothing "
                "of the batch was stored"
            )
        return [(specs[name], part) for name, part in rows.items() if part is not None]

    def _due_deletes(self, due: pa.RecordBatch | None) -> Writes:
        """Deletes of the timers that fire now, and of expired state in the vnodes whose turn it is."""
        plan, oldest = self.plan, self.oldest
        writes: Writes = {}
        if due is not None and due.num_rows and plan.timers is not None:
            writes[plan.timers.name] = [(due, True)]
        if plan.expiry is None or oldest is None or not plan.read_epoch:
            return writes
        column = plan.expiry.column
        for spec in plan.states:
            vnodes = own_vnodes(self.partition, plan.tasks, spec.vnodes)
            expired = self._read(spec, functools.partial(expired_keys, column, oldest, plan, vnodes))
            for keys in expired:
                own = keys.filter(pa.array(own_rows(self._distribution(keys), self.partition, plan.tasks)))
                writes.setdefault(spec.name, []).append((own, True))
        return writes

    def _upload(self, writes: Writes) -> None:
        """Upload rows, each table's at the same time as the others'; they win over earlier uploads."""
        plan = self.plan
        specs = {spec.name: spec for spec in (*plan.states, *plan.outputs.values(), plan.timers, plan.progress) if spec}
        wanted = [(specs[name], parts) for name, parts in writes.items() if any(batch.num_rows for batch, _ in parts)]
        if len(wanted) < 2:
            runs = [_upload_runs(self.store, spec, parts) for spec, parts in wanted]
        else:
            with ThreadPoolExecutor(len(wanted)) as pool:
                runs = list(pool.map(lambda item: _upload_runs(self.store, *item), wanted))
        # Tables that upload at the same time are waited for at the same time.
        self.meter.add_wait(max((waited for _, waited in runs), default=0.0))
        for (spec, _), (levels, _) in zip(wanted, runs, strict=True):
            self.report.uploads[spec.name] = levels + self.report.uploads.get(spec.name, [])


def _add(pending: Writes, writes: Writes) -> None:
    for name, parts in writes.items():
        pending.setdefault(name, []).extend(parts)


def _upload_runs(
    store: StateStore, spec: TableSpec, parts: list[tuple[pa.RecordBatch, bool]]
) -> tuple[list[UploadedRun], float]:
    """The sorted runs of one table's rows and deletes, newest first, and the seconds of waiting for the bucket.

    If rows share a key, the later part wins.
    """
    table: Any = same_table(store, spec)
    waits: list[float] = []
    if not any(deletes for _, deletes in parts):
        return table.upload((batch for batch, _ in parts), waited=waits.append), sum(waits)
    marked = [
        (_with_all_columns(batch, spec) if deletes else batch).append_column(
            DELETE_COLUMN, pa.repeat(deletes, batch.num_rows)
        )
        for batch, deletes in parts
        if batch.num_rows
    ]
    return table.upload(marked, delete_column=DELETE_COLUMN, waited=waits.append), sum(waits)


def _with_all_columns(keys: pa.RecordBatch, spec: TableSpec) -> pa.RecordBatch:
    """Keys with the table's other columns, all null: a delete ignores them."""
    schema = spec.arrow_schema()
    columns = [
        keys.column(field.name) if field.name in spec.primary_key else pa.nulls(keys.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
