"""The build side of a hash join: all rows of a table at one epoch, in a worker's memory, found by key.

A task that looks up many keys pays for each: sorting, searching and gathering in every segment. Reading the whole table
once and hashing its keys costs no more than looking up one key for each of its rows, and then a key costs a third or
less. The number of keys to come is not known. So keys are looked up until they are as many as the table has rows, and
then the table is read: that never costs more than about twice what it would with knowledge of the future, and no
deterministic rule promises less. It is the ski-rental problem (rent until the rent has reached the price, then buy);
see Karlin, Manasse, Rudolph and Sleator, "Competitive snoopy caching", Algorithmica 3 (1988).

A Python worker serves many tasks, so counts and build sides live as long as the process, within `BYTES_MAX`. A build
side is identified by the last epoch that wrote to the table, or the epoch read if that is older: commits to other
tables leave it valid.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.joins.key_index import KeyIndex
from tussock.compute.spark.options.options import StoreAddress
from tussock.compute.spark.options.schemas import fit_batch
from tussock.statestore.client import StateStore
from tussock.statestore.contract.records import TableState
from tussock.statestore.errors import SchemaMismatch
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.sst.cache import ByteCache, CacheStats
from tussock.statestore.tables.typed_input import conform
from tussock.statestore.tables.typed_table import TypedTable

__all__ = ["BYTES_MAX", "BuildSide", "BuildSides"]

BYTES_MAX = 128 << 20
"""Bytes of all build sides of a process together: half of what a worker's cache of blocks has."""

_COUNTED_MAX = 64
"""Tables, epochs and columns whose keys are counted; the oldest are forgotten."""


class BuildSide:
    """A table's rows at an epoch, in Spark's types; immutable."""

    def __init__(self, encoder: KeyEncoder, table: TypedTable, keys: pa.BinaryArray, values: pa.RecordBatch) -> None:
        """Row i of `values` has key i, which `encoder` made from the table's key columns."""
        self._encoder = encoder
        self._schema = pa.schema([table.schema.field(name) for name in table.primary_key])
        self._table = table.name
        self._values = values
        self.index = KeyIndex(keys)

    @property
    def nbytes(self) -> int:
        """Bytes of rows and index."""
        return int(self._values.nbytes) + self.index.nbytes

    def find(self, keys: pa.RecordBatch, whole: npt.NDArray[np.bool_]) -> pa.StructArray:
        """The struct for each row of `keys`; null if the row is not `whole` (has a null) or is not in the table.

        Raises `SchemaMismatch` for keys of another kind, as `TypedTable.multi_get` does.
        """
        asked = keys if whole.all() else keys.filter(pa.array(whole))
        found = self.index.find(self._encoder.encode(conform(asked, self._schema, self._schema.names, self._table)))
        rows = found
        if asked is not keys:
            rows = np.full(keys.num_rows, -1, np.int32)
            rows[whole] = found
        missing = rows < 0
        at = pa.array(rows, mask=missing)
        fields = [pc.take(column, at, boundscheck=False) for column in self._values.columns]
        return pa.StructArray.from_arrays(fields, fields=list(self._values.schema), mask=pa.array(missing))


class _Read(NamedTuple):
    """What distinguishes build sides."""

    address: StoreAddress
    table: int
    epoch: int
    """The last epoch that wrote to the table, or the one that is read if that is older."""
    target: pa.Schema
    """The columns, in Spark's types."""


class BuildSides:
    """The build sides of a process, and how many keys were looked up without one."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._sides = ByteCache(bytes_max)
        self._key_counts: dict[_Read, float] = {}

    def get(
        self, store: StateStore, address: StoreAddress, table: TypedTable, epoch: int, target: pa.Schema, keys: int
    ) -> BuildSide | None:
        """The build side for the next `keys` keys of the table at `epoch`, or `None` to look them up.

        It is built if that pays by now and if it fits. `target`: the wanted columns, in Spark's types. Raises what
        `TypedTable.read` raises.
        """
        version = store.recent_version()
        if version.max_committed_epoch < epoch:
            version = store.version()
        state = version.tables.get(table.spec.id)
        if state is None:
            return None  # The table was dropped: the lookup raises the error.
        read = _Read(address, table.spec.id, min(state.last_epoch, epoch), target)
        side: BuildSide | None = self._sides.get(read)
        if side is not None:
            return side
        asked = self._key_counts.pop(read, 0) + keys
        rows = sum(sst.rows for sst in state.levels.ssts())
        if asked >= rows:
            side = self._build(table, state, epoch, target)
            if side is not None:
                self._sides.put(read, side, max(side.nbytes, 1))
                # If it was evicted, the count starts again.
                return side
            asked = -math.inf
        self._key_counts[read] = asked
        if len(self._key_counts) > _COUNTED_MAX:
            del self._key_counts[next(iter(self._key_counts))]
        return None

    def stats(self) -> CacheStats:
        """How many build sides there are, and their bytes."""
        return self._sides.stats()

    def _build(self, table: TypedTable, state: TableState, epoch: int, target: pa.Schema) -> BuildSide | None:
        """All rows at `epoch`; `None` if they exceed the limit of bytes, or do not all fit Spark's types."""
        left = self._bytes_max - KeyIndex.bytes_for(sum(sst.rows for sst in state.levels.ssts()))
        encoder = KeyEncoder(table.schema, table.primary_key)
        wanted = list(dict.fromkeys([*table.primary_key, *target.names]))
        keys: list[pa.BinaryArray] = [pa.array([], pa.binary())]
        values = [pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in target.types], schema=target)]
        if left < 0:
            return None
        try:
            for batch in table.read(wanted, epoch=epoch):
                keys.append(encoder.encode(batch))
                values.append(fit_batch(batch.select(target.names), target, table.name))
                left -= keys[-1].nbytes + values[-1].nbytes
                if left < 0:
                    return None
        except SchemaMismatch:
            # Spark's type does not hold some value, maybe of a row that no task asks for: a lookup finds out.
            return None
        side = BuildSide(encoder, table, pa.concat_arrays(keys), pa.concat_batches(values))
        return None if side.index.collides else side
