"""A raw table: `key: binary` to `value: binary`."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tussock.statestore.base.arguments import check_flag
from tussock.statestore.contract.records import TableSpec, UploadedRun
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.keys.encoding import upper_bound
from tussock.statestore.keys.ranges import KeyRanges
from tussock.statestore.parts import StoreParts
from tussock.statestore.read.access import TableAccess
from tussock.statestore.rows.row_codec import ABSENT
from tussock.statestore.rows.rows import Rows
from tussock.statestore.shown import show_value
from tussock.statestore.tables.change_feed import ChangeFeed
from tussock.statestore.tables.changes import change_batches
from tussock.statestore.tables.raw_input import RawBatch, encode_few, few_rows, key_array, raw_keys, raw_rows
from tussock.statestore.tables.reads import check_limit
from tussock.statestore.tables.typed_input import uploaded_batches
from tussock.statestore.write.sorted_runs import sorted_newest, take_hits

__all__ = ["RawTable"]

_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)])


class RawTable:
    """Reads and writes of one raw table; of a snapshot's, reads only. In a transaction writes take no epoch."""

    def __init__(self, parts: StoreParts, spec: TableSpec, access: TableAccess) -> None:
        self.spec = spec
        self._parts = parts
        self._access = access
        self._reader = access.reads
        self._overlay = access.begin_overlay(encode_few)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.spec.name

    @property
    def schema(self) -> pa.Schema:
        """`{key: binary, value: binary}`."""
        return _SCHEMA

    def ingest_batch(self, rows: RawBatch, epoch: int | None = None) -> None:
        """Write a sorted batch of unique keys at `epoch`; visible to this client at once, to others at commit.

        `rows`: pairs `(key, value)`, where `None` deletes, or Arrow data `{key, value}` where null deletes (a
        column `op` of 'put' and 'delete' may say so, too). A key written before in this epoch takes the new
        operation. Raises `InvalidBatch`, `SchemaMismatch` or `EpochTooOld`; then nothing was stored.
        """
        at = self._access.write_epoch(epoch)
        few = few_rows(rows)
        if few is None or not self._access.write_alone(at, few, encode_few):
            self._access.write(at, raw_rows(rows, self.name))

    def upsert(self, rows: pa.RecordBatch | pa.Table, epoch: int | None = None) -> None:
        """Write Arrow data `{key, value}` in any order; of several rows with one key the last wins."""
        at = self._access.write_epoch(epoch)
        few = few_rows(rows, ordered=False)
        if few is None or not self._access.write_alone(at, few, encode_few):
            unsorted = raw_rows(rows, self.name, ordered=False)
            self._access.write(at, sorted_newest(unsorted))

    def upload(
        self, rows: Iterable[pa.RecordBatch], *, waited: Callable[[float], object] | None = None
    ) -> list[UploadedRun]:
        """Write `{key, value[, op]}` in any order straight to SSTs; only `StateStore.commit_uploaded` shows them.

        `waited` is told, each time, the seconds that the caller had to wait for the bucket.
        """
        unsorted = (raw_rows(batch, self.name, ordered=False) for batch in uploaded_batches(rows, self.name))
        return self._access.upload(self.spec, unsorted, waited)

    def get(self, key: bytes, epoch: int | None = None) -> bytes | None:
        """The value of `key`, at the latest epoch with own writes or as of `epoch`; `None` if there is none."""
        if type(key) is not bytes:
            key_array([key], self.name)
        if self._overlay is not None and epoch is None:
            row = self._overlay.find(key)
            if row is not ABSENT:
                return None if row is None else bytes(row["value"])
        found = self._reader.find(key, epoch)
        value = None if found is None else found.block.value(found.at)
        if self._overlay is not None and epoch is None:
            self._overlay.remember(key, None if value is None else {"value": value})
        return value

    def multi_get(self, keys: Sequence[bytes] | pa.Array | pa.ChunkedArray, epoch: int | None = None) -> pa.Array:
        """The values of `keys` as a binary array aligned with them, null where there is none."""
        wanted = raw_keys(keys, self.name)
        hits = self._reader.find_many(wanted, epoch)
        return take_hits(hits, len(wanted), [0], [pa.binary()], self.name)[1][0]

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        epoch: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Batches `{key, value}` of the keys in [start, end), or those that begin with `prefix`.

        Ascending, or descending with `reverse`; at most `limit` rows. Raises `SnapshotExpired` if `epoch` is no
        longer kept.
        """
        self._check_bounds(start, end, prefix)
        if prefix is not None:
            if start is not None or end is not None:
                raise InvalidOption("a scan takes a prefix or start and end, not both")
            start, end = prefix, upper_bound(prefix)
        limit = check_limit(limit)
        check_flag(reverse, "reverse")
        rows = self._reader.scan(KeyRanges([(start, end)]), epoch, limit=limit, reverse=reverse)
        return (_batch(part, reverse=reverse) for part in rows)

    def changes(self, from_epoch: int, to_epoch: int | None = None) -> Iterator[pa.RecordBatch]:
        """All that was committed in (from_epoch, to_epoch], to the newest epoch if that is `None`.

        Batches `{key, value, op, epoch}`, by key, then epoch; `op` is 'put' or 'delete', a delete's value null.
        Raises `SnapshotExpired` if versions after `from_epoch` may have been compacted away.
        """
        epochs = from_epoch, to_epoch
        return change_batches(self._feed(), self.spec, epochs, (None, None), None, compared=False)

    def change_feed(
        self,
        from_epoch: int,
        to_epoch: int | None = None,
        *,
        start: bytes | None = None,
        end: bytes | None = None,
        before_images: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """What each commit in (from_epoch, to_epoch] changed in [start, end): `{key, value, op, epoch}`, by key, epoch.

        `op` and the errors are those of `TypedTable.change_feed`.
        """
        self._check_bounds(start, end)
        epochs, keys = (from_epoch, to_epoch), (start, end)
        return change_batches(self._feed(), self.spec, epochs, keys, None, before_images=before_images)

    def change_epochs(self, from_epoch: int, to_epoch: int | None = None) -> list[int]:
        """The epochs in (from_epoch, to_epoch] that wrote to the table, ascending; raises as `change_feed` does.

        Also those whose writes changed nothing, such as a delete of a missing row, of which `change_feed` has no row.
        """
        return self._feed().epochs(from_epoch, to_epoch)

    def _check_bounds(self, *bounds: object) -> None:
        for bound in bounds:
            if bound is not None and not isinstance(bound, bytes):
                raise SchemaMismatch(f"table {self.name!r}: a bound of a scan is {show_value(bound)}, expected bytes")

    def _feed(self) -> ChangeFeed:
        self._access.check_history()
        return ChangeFeed(self._access.views, self._parts.sstables)


def _batch(rows: Rows, *, reverse: bool) -> pa.RecordBatch:
    if reverse:
        rows = rows.take(np.arange(len(rows) - 1, -1, -1))
    return pa.record_batch([rows.keys, rows.columns[0]], schema=_SCHEMA)
