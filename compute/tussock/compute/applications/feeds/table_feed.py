"""The change feed of a table as input: each store epoch that wrote to the table is a batch.

The source pins the position that is committed, so that the store keeps what a replay would read. The pin ends with the
process; an application that is down for longer than the store's retention may find that epochs are gone.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.applications.errors import InputLost
from tussock.compute.applications.feeds.feed import FedBatch, OnBad, check_on_bad
from tussock.statestore import InvalidOption, SnapshotExpired, StateStore, TableNotFound
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.system import System
from tussock.statestore.snapshot import Snapshot

__all__ = ["OPERATION", "TableFeed", "TableSource"]

LOOK_SECONDS = 0.02
"""Between two looks for new epochs; an embedded store asks its bucket a few times a second at most."""
OPERATION = "_op"


@dataclass(frozen=True)
class TableFeed:
    """The changes of a table of the store: one batch for each epoch that wrote to it, with the rows as they were then.

    `start`: "earliest" begins with the table's rows, "latest" with what is committed after the first start, a number
    with what came after that epoch. With `operations` the batches have a column `_op`, which is "insert", "update" or
    "delete", and hold deleted rows, too; without it they hold the rows that were inserted and updated. With `images`
    they have `_op`, too, and an update is two rows, "update_preimage" and "update_postimage"; a deleted row is whole.
    """

    table: str
    start: Literal["earliest", "latest"] | int = "earliest"
    operations: bool = False
    images: bool = False
    on_bad: OnBad = "stop"

    def __post_init__(self) -> None:
        """Check what was given; `InvalidOption`."""
        if not isinstance(self.table, str) or not self.table:
            raise InvalidOption(f"a table feed is of table {self.table!r:.100}; expected a name")
        what = f"the feed of table {self.table!r}"
        is_epoch = type(self.start) is int and self.start >= 0
        if not is_epoch and self.start not in ("earliest", "latest"):
            raise InvalidOption(f"{what}: start={self.start!r:.100}; expected 'earliest', 'latest' or an epoch")
        for name, value in (("operations", self.operations), ("images", self.images)):
            if not isinstance(value, bool):
                raise InvalidOption(f"{what}: {name}={value!r:.100}; expected True or False")
        check_on_bad(self.on_bad, what)

    @property
    def has_operations(self) -> bool:
        """Whether the batches have `_op`."""
        return self.operations or self.images

    def open(self, store: StateStore, system: System, what: str) -> "TableSource":
        """The source; `TableNotFound`, or `InvalidOption` if the table cannot be fed."""
        return TableSource(self, store, system, what)


class _TablePosition(msgspec.Struct, array_like=True, frozen=True):
    table: int
    """Its id: a table of the same name that was made later is another one."""
    epoch: int
    """All changes up to it were read."""
    is_new: bool = False
    """Nothing was read yet, and the first batch is the table's rows at that epoch."""


class _TableSpan(msgspec.Struct, array_like=True, frozen=True):
    table: int
    epoch: int
    is_whole: bool = False
    """The table's rows at that epoch, instead of what the epoch changed."""


class TableSource:
    """One run's reader of a table's changes."""

    def __init__(self, feed: TableFeed, store: StateStore, system: System, what: str) -> None:
        self._feed = feed
        self._store = store
        self._system = system
        self._what = what
        self.trouble = ""
        self._table = self._opened()
        schema = self._table.schema
        if feed.has_operations and OPERATION in schema.names:
            raise InvalidOption(f"{what}: table {feed.table!r} has a column {OPERATION!r}, which the feed would add")
        key = self._table.primary_key
        # Of a deleted row the values may be unknown.
        fields = [field.with_nullable(field.name not in key) if feed.has_operations else field for field in schema]
        added = [pa.field(OPERATION, pa.string(), nullable=False)] if feed.has_operations else []
        self.schema = pa.schema([*fields, *added])
        self._id = int(self._table.spec.id)
        self._position = _TablePosition(self._id, 0)
        self._ahead: list[int] = []
        """Epochs to read, ascending."""
        self._looked = 0
        """Epochs up to here were looked for."""
        self._pin: Snapshot | None = None
        self._held = -1

    def begin(self) -> bytes:
        """Where the option `start` says."""
        newest, start = self._store.committed_epoch, self._feed.start
        if start == "latest":
            return _pack(_TablePosition(self._id, newest))
        if start == "earliest":
            return _pack(_TablePosition(self._id, newest, is_new=True))
        assert isinstance(start, int)
        if start > newest:
            raise InvalidOption(f"{self._what}: start={start} is no committed epoch; the newest is {newest}")
        return _pack(_TablePosition(self._id, start))

    def seek(self, position: bytes) -> None:
        """Go on there, and keep what comes after it in the store."""
        self._position = self._unpack(position, _TablePosition)
        self._check_table(self._position.table)
        self._looked, self._ahead = self._position.epoch, []
        self._hold(self._position.epoch)

    def read(self, seconds: float) -> FedBatch | None:
        """The next epoch's changes."""
        if self._position.is_new:
            return self._go_on(_TableSpan(self._id, self._position.epoch, is_whole=True))
        until = self._system.monotonic() + seconds
        while not self._ahead:
            self._look()
            if self._ahead:
                break
            left = until - self._system.monotonic()
            if left <= 0:
                return None
            self._system.sleep(min(LOOK_SECONDS, left))
        batch = self._go_on(_TableSpan(self._id, self._ahead[0]))
        self._ahead.pop(0)
        return batch

    def again(self, span: bytes) -> FedBatch:
        """The same changes as the first time."""
        wanted = self._unpack(span, _TableSpan)
        self._check_table(wanted.table)
        return self._batch(span, wanted)

    def after(self, position: bytes, span: bytes) -> bytes:  # noqa: ARG002 - a span says it alone
        """Behind the span's epoch."""
        read = self._unpack(span, _TableSpan)
        return _pack(_TablePosition(read.table, read.epoch))

    def standing(self) -> bytes:
        """Behind all epochs that were looked for, if none of them is left."""
        if self._ahead or self._position.is_new:
            return _pack(self._position)
        return _pack(_TablePosition(self._id, max(self._looked, self._position.epoch)))

    def release(self, position: bytes) -> None:
        """Move the pin."""
        epoch = self._unpack(position, _TablePosition).epoch
        if epoch > self._held:
            self._hold(epoch)

    def newest(self) -> int:
        """The newest committed epoch."""
        return self._store.committed_epoch

    def has_reached(self, mark: Any) -> bool:
        """Whether all epochs up to the mark were read."""
        return not self._ahead and not self._position.is_new and self._looked >= int(mark)

    def close(self) -> None:
        """Release the pin."""
        pin, self._pin = self._pin, None
        if pin is not None:
            pin.close()

    # --- Within ------------------------------------------------------------------------------------------------------

    def _go_on(self, span: _TableSpan) -> FedBatch:
        batch = self._batch(_pack(span), span)
        self._position = _TablePosition(self._id, span.epoch)
        return batch

    def _batch(self, packed: bytes, span: _TableSpan) -> FedBatch:
        place = f"table {self._feed.table!r} in epoch {span.epoch}"
        return FedBatch(packed, self._rows(span), place=place)

    def _look(self) -> None:
        version = self._store.recent_version()
        newest = version.max_committed_epoch
        state = version.find_table(self._feed.table)
        if state is None or state.spec.id != self._id:
            self._check_table(self._id)
            return
        if newest <= self._looked:
            return
        if state.last_epoch > self._looked:
            assert self._pin is not None, "a source reads after `seek`"
            try:
                self._ahead = self._pin.table(self._feed.table).change_epochs(self._looked, newest)
            except SnapshotExpired as error:
                raise self._gone(f"changes after epoch {self._looked}", error) from error
        self._looked = newest

    def _rows(self, span: _TableSpan) -> pa.Table:
        feed, epoch = self._feed, span.epoch
        try:
            if span.is_whole:
                if not epoch:
                    return self.schema.empty_table()
                with self._store.pin_snapshot(epoch) as snapshot:
                    whole: Any = snapshot.table(feed.table)
                    rows = pa.Table.from_batches(list(whole.read()), self._table.schema)
                operations = pa.repeat("insert", rows.num_rows)
            else:
                table = self._table if self._pin is None else self._pin.table(feed.table)
                # The pin may lie behind the epoch before this one; what is between is not asked for.
                changes = table.change_feed(epoch - 1, epoch, before_images=feed.images)
                batches = list(changes)
                if not batches:
                    return self.schema.empty_table()
                rows = pa.Table.from_batches(batches)
                operations = rows.column(rows.num_columns - 2)
        except SnapshotExpired as error:
            raise self._gone(f"epoch {epoch}", error) from error
        if not feed.has_operations:
            if not span.is_whole:
                rows = rows.filter(pc.not_equal(operations, "delete"))
            return pa.Table.from_arrays([rows.column(name) for name in self.schema.names], schema=self.schema)
        is_shown = pc.equal(operations, "update_postimage")
        shown = operations if feed.images else pc.if_else(is_shown, "update", operations)
        columns = [rows.column(name) for name in self.schema.names[:-1]]
        return pa.Table.from_arrays([*columns, shown], schema=self.schema)

    def _hold(self, epoch: int) -> None:
        """Keep what comes after `epoch`; the new pin before the old one goes, so that nothing between them can go."""
        # No epoch lies below 1, and of a store without commits the newest epoch is 0.
        has_commits = self._store.recent_version().max_committed_epoch
        try:
            pin = self._store.pin_snapshot(max(epoch, 1) if has_commits else None)
        except SnapshotExpired as error:
            raise self._gone(f"changes after epoch {epoch}", error) from error
        before, self._pin, self._held = self._pin, pin, epoch
        if before is not None:
            before.close()

    def _opened(self) -> Any:
        try:
            table = self._store.table(self._feed.table)
        except TableNotFound as error:
            raise TableNotFound(f"{self._what}: {error}", self._feed.table) from error
        if not hasattr(table, "primary_key"):
            raise InvalidOption(f"{self._what}: {self._feed.table!r} is a raw table; expected one with a schema")
        return table

    def _check_table(self, wanted: int) -> None:
        version = self._store.version()
        state = version.find_table(self._feed.table)
        if state is not None and state.spec.id == wanted:
            return
        former = version.tables.get(wanted)
        if former is not None:
            raise InvalidOption(
                f"{self._what}: the application has read from table {former.spec.name!r} under this name, and not from "
                f"{self._feed.table!r}; give the feed another name="
            )
        found = "is gone since the application read it"
        if state is not None:
            found = "was dropped and made again since the application read it, or is another one than it has read"
        raise InputLost(
            f"{self._what}: table {self._feed.table!r} {found}: what that had is lost; to begin with the new table, "
            "give the feed another name=",
            self._feed.table,
        )

    def _gone(self, what: str, error: SnapshotExpired) -> InputLost:
        return InputLost(
            f"{self._what}: {what} of table {self._feed.table!r} are no longer kept by the store ({error}): the "
            "application was down for longer than the retention; to begin anew, give the feed another name=",
            self._feed.table,
        )

    def _unpack(self, data: bytes, kind: type[Any]) -> Any:
        try:
            return msgspec.msgpack.decode(data, type=kind)
        except UNREADABLE as error:
            raise InvalidOption(
                f"{self._what}: the application has read from another kind of source under this name; give the feed "
                "another name="
            ) from error


def _pack(value: _TablePosition | _TableSpan) -> bytes:
    return msgspec.msgpack.encode(value)
