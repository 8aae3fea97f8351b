"""The streaming source of changes: the epochs of each micro-batch, and the cursor that keeps them in the store.

Spark asks for the newest offset about every ten milliseconds while it is idle, so the answer comes from the version
that this process knows: a meta service pushes it, and an embedded store reads its bucket at most a few times a second.
"""

import contextlib
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tussock.compute.spark.changes.cursor import Cursor, oldest_kept
from tussock.compute.spark.changes.offsets import Offset, Sight, next_offset
from tussock.compute.spark.changes.reader import ChangeTasks, Span, plan_shares, start_of
from tussock.compute.spark.options.options import ChangeOptions
from tussock.compute.spark.reads.connections import same_table, working_store
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import RealSystem
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec, TableState
from tussock.statestore.errors import InvalidOption, SchemaMismatch, SnapshotExpired

__all__ = ["ChangeStreamReader"]

log = get_logger("tussock.compute")

_HOLD_ATTEMPTS = 5


class ChangeStreamReader(ChangeTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream` with `readChangeFeed`; one object in its own process plans, and copies of it in tasks read."""

    def __init__(self, options: ChangeOptions, spec: TableSpec, schema: StructType) -> None:
        super().__init__(options, spec, schema)
        self._cursor: Cursor | None = None
        self._initial: Offset | None = None
        self._floor = 0
        self._target: int | None = None
        self._epochs: list[int] = []
        self._counted = 0
        self._moved = 0.0

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The start of a new query, the same each time Spark asks; held from here on."""
        if self._initial is None:
            self._initial = self._first()
        return self._initial.record()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """`maxEpochsPerTrigger`, as the only one of Spark's limits that counts."""
        most = self.options.epochs_max
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Ignore what is committed from now on."""
        self._target = working_store(self.options.address).committed_epoch

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch, as far as this process knows; `start` if there is nothing to read."""
        store = working_store(self.options.address)
        begun = Offset.of(start).check(self.spec, store.url)
        state, newest = self._current_table(store, begun.epoch)
        begin = self._begin(store, begun.epoch)
        sight = Sight(begin, newest if self._target is None else min(newest, self._target), state.last_epoch)
        epochs_max = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        epochs = [] if epochs_max is None else self._epochs_in(sight)
        end = next_offset(begun, sight, epochs, epochs_max, move_on=self._is_due())
        if end is begun:
            return begun.record()
        self._moved = RealSystem().monotonic()
        return end.of_table(self.spec).record()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        """The shares of a batch's tasks. The end of a batch says where it begins, see `offsets`."""
        store = working_store(self.options.address)
        wanted = Offset.of(end).check(self.spec, store.url)
        state, _ = self._current_table(store, wanted.epoch)
        begin = self._begin(store, wanted.start)
        if wanted.initial or (begin >= wanted.epoch and not wanted.snapshot):
            return []
        same_table(store, self.spec)
        return list(plan_shares(state, Span(begin, max(wanted.epoch, begin), wanted.snapshot)))

    def commit(self, end: dict[str, Any]) -> None:
        """Release everything up to `end`: Spark has processed it, and says so with the batch after it."""
        if self._cursor is not None:
            self._cursor.move(Offset.of(end).epoch)

    def _first(self) -> Offset:
        """The first offset of a query without a checkpoint; the store keeps it for a consumer with a name."""
        store = working_store(self.options.address)
        begin = self._held_start(store)
        after = max(begin.after, self._floor)
        if self.options.start == "latest" and self.options.consumer is not None:
            # It may be from an earlier start; then the changes since that start have to be there still.
            after = self._begin(store, self._agreed_epoch(store, self.options.consumer))
        return Offset(after, after, begin.snapshot, initial=True).of_table(self.spec)

    def _held_start(self, store: StateStore) -> Span:
        """The start that the options ask for; what comes after it is held."""
        table = same_table(store, self.spec)
        for attempt in range(1, _HOLD_ATTEMPTS + 1):
            begin = start_of(store, table, self.options)
            if isinstance(self.options.start, int) or attempt == _HOLD_ATTEMPTS:
                self._begin(store, begin.after)
                break
            cursor = self._new_cursor(store)
            # What was the oldest or the newest a moment ago may have expired meanwhile.
            with contextlib.suppress(SnapshotExpired):
                cursor.hold(begin.after)
                self._cursor = cursor
                break
        return begin

    def _agreed_epoch(self, store: StateStore, consumer: str) -> int:
        """The epoch at which this consumer first began; its name is committed with it, once.

        The process may die between Spark's first question and its first note in the checkpoint; the name survives that.
        """
        return store.commit_uploaded({}, writer=f"changes of {self.spec.name} to {consumer}", batch_id=0)

    def _begin(self, store: StateStore, epoch: int) -> int:
        """The epoch, or the start of the kept changes if some after it are gone; `failOnDataLoss` makes that an error.

        What comes after the returned epoch is held from here on.
        """
        wanted = max(epoch, self._floor)
        cursor = self._cursor or self._new_cursor(store)
        try:
            cursor.hold(wanted)
        except SnapshotExpired as error:
            if self.options.fail_on_loss:
                raise SnapshotExpired(
                    f"changes of table {self.spec.name!r} after epoch {wanted} are no longer all kept ({error}); give "
                    "the query a new checkpoint location, or set failOnDataLoss=false to go on with what is kept",
                    wanted,
                ) from error
            wanted = self._floor = self._skip(store, cursor)
            log.warning(
                "changes were lost: a stream goes on where the kept ones begin",
                table=self.spec.name,
                consumer=self.options.consumer or "",
                after_epoch=epoch,
                next_after_epoch=wanted,
            )
        self._cursor = cursor
        return wanted

    def _skip(self, store: StateStore, cursor: Cursor) -> int:
        """Hold the oldest changes that are kept, and return the epoch after which they begin."""
        table = same_table(store, self.spec)
        for _ in range(_HOLD_ATTEMPTS - 1):
            oldest = oldest_kept(table)
            try:
                cursor.hold(oldest)
            except SnapshotExpired:
                continue
            return oldest
        newest = store.committed_epoch
        cursor.hold(newest)
        return newest

    def _current_table(self, store: StateStore, epoch: int) -> tuple[TableState, int]:
        """The table and the newest epoch in a version that has `epoch`."""
        version = store.recent_version()
        if version.max_committed_epoch < epoch or self.spec.id not in version.tables:
            version = store.version()
        if version.max_committed_epoch < epoch:
            raise InvalidOption(
                f"the checkpoint has read up to epoch {epoch}, but the newest one of the store at {store.url} is "
                f"{version.max_committed_epoch}: it is another store, or was restored; give the query a new checkpoint "
                "location"
            )
        state = version.tables.get(self.spec.id)
        if state is None:
            raise SchemaMismatch(
                f"table {self.spec.name!r} was dropped after the stream began; give a stream of a table of that name a "
                "new checkpoint location",
                self.spec.name,
            )
        return state, version.max_committed_epoch

    def _epochs_in(self, sight: Sight) -> list[int]:
        """Epochs in (begin, newest] that wrote to the table; each is looked up once."""
        self._epochs = [epoch for epoch in self._epochs if epoch > sight.begin]
        counted = max(self._counted, sight.begin)
        if sight.table_epoch > counted and sight.newest > counted:
            assert self._cursor is not None
            self._epochs += self._cursor.table.change_epochs(counted, sight.newest)
            self._counted = sight.newest
        return self._epochs

    def _is_due(self) -> bool:
        """Whether to move on without changes: at the end of an `availableNow`, and otherwise now and then."""
        return self._target is not None or RealSystem().monotonic() - self._moved > self.options.idle_seconds

    def _new_cursor(self, store: StateStore) -> Cursor:
        self._moved = self._moved or RealSystem().monotonic()
        return Cursor(store, self.spec.name, self.options.consumer or "")
