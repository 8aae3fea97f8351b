"""`lookup`: rows of a table for the keys in a DataFrame's columns, without a shuffle on either side.

Built on `arrow_udf` over an iterator: only the key columns cross to Python, one Arrow batch at a time, and a struct
comes back. Each Python worker keeps its connection, so it reads and decodes the table's blocks once for all its later
batches. A worker that looks up very many keys reads the whole table (`build_side.py`).
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.functions import arrow_udf
from pyspark.sql.types import StructField, StructType

from tussock.compute.spark.joins.build_side import BuildSides
from tussock.compute.spark.options.options import StoreAddress
from tussock.compute.spark.options.schemas import arrow_target, fit_batch, spark_schema
from tussock.compute.spark.reads.connections import address_of, opened_store, working_store
from tussock.compute.spark.reads.epoch_reads import EpochReads
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableSpec
from tussock.statestore.errors import InvalidOption, SchemaMismatch
from tussock.statestore.moments import check_begun
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["LookupTask", "group_batches", "lookup"]

KEYS_AT_ONCE = 1 << 16
"""Keys looked up together: Spark's batches have 10,000 rows, and one lookup for several batches costs less."""

worker_sides = BuildSides()
"""Those of this Python worker, for all tasks that it is given."""


def lookup(
    table: str,
    *,
    store: str | StateStore,
    columns: Sequence[str] | None = None,
    epoch: int | None = None,
    latest: bool = False,
) -> Callable[..., Column]:
    """A function of key columns that returns the table's rows under them, as a struct; null where there is none.

    `lookup("accounts", store=url)("id")` takes a column, or its name, for each column of the primary key, in its order;
    a null in a key finds nothing. The struct has `columns`, by default all that are not in the key. `store` is a URL,
    or an open store.

    All rows are read at `epoch`, by default the newest one when `lookup` is called: in `foreachBatch`, that of the
    batch. It must stay readable until the last task has begun: hold a snapshot if that takes longer than the retention.
    With `latest` each task reads at the newest epoch when it begins, which is for streams without `foreachBatch`; two
    tasks of one batch may then see different epochs.

    Raises `TableNotFound`, `SchemaMismatch` or `InvalidOption`; the job raises `SnapshotExpired`, and `SchemaMismatch`
    for keys of another type.
    """
    opened = opened_store(store)
    address = address_of(opened.url)
    found = opened.table(table)
    if not isinstance(found, TypedTable):
        raise InvalidOption(
            f"table {table!r} is raw; lookup needs a typed one, whose keys are columns of Spark's types"
        )
    if latest and epoch is not None:
        raise InvalidOption(f"epoch={epoch} and latest=True: give one of them")
    if epoch is None and not latest:
        epoch = opened.committed_epoch
    elif epoch is not None and not 0 < epoch <= opened.committed_epoch:
        raise InvalidOption(f"epoch {epoch} is not committed; the newest committed epoch is {opened.committed_epoch}")
    elif epoch is not None:
        check_begun(opened, found, epoch, f"epoch {epoch}")
    names = tuple(columns) if columns is not None else _values(found)
    missing = [name for name in names if name not in found.schema.names]
    if missing or not names or len(set(names)) != len(names):
        raise SchemaMismatch(
            f"table {table!r}: columns {list(names)}: expected different names out of {found.schema.names}", table
        )
    schema = spark_schema(pa.schema([found.schema.field(name) for name in names]), (), table)
    # Each field may be null: without a row, the struct is null.
    shown = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    task = LookupTask(address, found.spec, names, epoch, arrow_target(shown))
    find = arrow_udf(task.finder(), shown)
    if latest:
        find = find.asNondeterministic()

    def of(*keys: Column | str) -> Column:
        """The rows under these key columns."""
        if len(keys) != len(found.primary_key):
            raise InvalidOption(
                f"lookup in table {table!r} takes a column for each of its key columns {list(found.primary_key)}; "
                f"{len(keys)} were given"
            )
        return find(*keys)

    return of


def _values(table: TypedTable) -> tuple[str, ...]:
    """The columns outside the key, or those of the key if there are no others."""
    names = tuple(name for name in table.schema.names if name not in table.primary_key)
    return names or tuple(table.schema.names)


@dataclass(frozen=True)
class LookupTask:
    """A task's parameters; pickled with the function that runs in it."""

    address: StoreAddress
    spec: TableSpec
    columns: tuple[str, ...]
    epoch: int | None
    """`None`: the newest epoch when the task begins; 0: nothing was ever committed."""
    target: pa.Schema
    """The struct's fields, in the Arrow types that Spark takes."""
    keys_at_once: int = KEYS_AT_ONCE
    """Batches of keys are looked up together up to about this number."""

    def finder(self) -> Callable[..., Iterator[pa.Array]]:
        """The function for `arrow_udf`, which reads from the annotations what to pass."""
        if len(self.spec.primary_key) == 1:

            def find_one(keys: Iterator[pa.Array]) -> Iterator[pa.Array]:
                return self.run((column,) for column in keys)

            return find_one

        def find(keys: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            return self.run(keys)

        return find

    def run(self, batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """For each batch of key columns the structs found, several batches at once."""
        store = working_store(self.address)
        epoch = store.committed_epoch if self.epoch is None else self.epoch
        with EpochReads(store, epoch) as reads:
            for group in group_batches(batches, self.keys_at_once):
                keys = pa.record_batch(
                    [pa.concat_arrays(columns) for columns in zip(*group, strict=True)],
                    names=list(self.spec.primary_key),
                )
                found = reads.run(self.spec, functools.partial(self._find_structs, store, keys, epoch))
                start = 0
                for columns in group:
                    yield found.slice(start, len(columns[0]))
                    start += len(columns[0])

    def _find_structs(self, store: StateStore, keys: pa.RecordBatch, epoch: int, table: TypedTable) -> pa.StructArray:
        """The struct for each row of `keys`, in Spark's types; null if a key has a null or is not in the table."""
        whole = np.ones(keys.num_rows, np.bool_)
        for column in keys.columns:
            if column.null_count:
                whole &= column.is_valid().to_numpy(zero_copy_only=False)
        if not epoch or not whole.any():
            return pa.nulls(keys.num_rows, pa.struct(list(self.target)))
        side = worker_sides.get(store, self.address, table, epoch, self.target, int(np.count_nonzero(whole)))
        if side is not None:
            # Even for no row, the table refuses an epoch that it does not keep, and raises if it was dropped.
            table.read(self.columns, epoch=epoch, limit=0)
            return side.find(keys, whole)
        asked = keys if whole.all() else keys.filter(pa.array(whole))
        rows = table.multi_get(asked, epoch=epoch, columns=self.columns)
        if asked is not keys:
            rows = rows.take(pa.array(np.cumsum(whole) - 1, mask=~whole))
        batch = pa.RecordBatch.from_arrays([rows.field(name) for name in self.columns], names=list(self.columns))
        fields = fit_batch(batch, self.target, self.spec.name).columns
        return pa.StructArray.from_arrays(fields, fields=list(self.target), mask=rows.is_null())


def group_batches(
    batches: Iterable[tuple[pa.Array, ...]], keys_at_once: int = KEYS_AT_ONCE
) -> Iterator[list[tuple[pa.Array, ...]]]:
    """The batches in groups of about `keys_at_once` rows."""
    group: list[tuple[pa.Array, ...]] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += len(batch[0])
        if size >= keys_at_once:
            yield group
            group, size = [], 0
    if group:
        yield group
