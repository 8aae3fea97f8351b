"""`project`: other columns of the same rows, and maybe another key.

A key that has the source's key among its columns belongs to one row of the source, so nothing has to be kept. Any other
key may be that of several rows. So a table says which row of the source has which key, and a transaction after which
two rows would have one is bad.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.record import Op
from tussock.compute.changelog.changes.stream_shape import CODES, StreamShape
from tussock.compute.changelog.computations import CHUNK, Computation, StateTable
from tussock.compute.changelog.loop.stream_loop import ComputeFault
from tussock.compute.changelog.operators.operator_base import (
    check_source,
    derive,
    known_columns,
    numbered,
    of_rows,
    transitions,
)
from tussock.compute.changelog.operators.projected_columns import ProjectedColumns, parse_columns
from tussock.compute.changelog.stream import Stream
from tussock.statestore.errors import InvalidOption

__all__ = ["project"]

_INSERT, _DELETE, _BLOCK = CODES[Op.INSERT], CODES[Op.DELETE], CODES[Op.UPDATE_BLOCK]
_UPSERT, _SAFEDELETE = CODES[Op.UPSERT], CODES[Op.SAFEDELETE]
_KEY, _SOURCE = "key_", "source_"

Places = npt.NDArray[np.int64]


def project(
    name: str,
    source: Stream,
    columns: Mapping[str, Any],
    key: str | Sequence[str] | None = None,
    required: Sequence[str] = (),
) -> Stream:
    """A stream of the rows of `source` with other columns.

    `columns`: by new name the name of a column, a `pyarrow.compute.Expression` over columns, or a function of a record
    together with the Arrow type of what it returns. `key`: some of the new columns, by default those that are the
    source's key. A row whose key changes is deleted and inserted. Where two rows would have one key after a
    transaction, it is bad. `required`: columns without nulls; a null in one of them, or in the key, makes the
    transaction bad. Raises `InvalidOption`.
    """
    what = f"project {name!r}"
    check_source(what, source)
    parsed = parse_columns(what, source, columns)
    plain = {one.origin: one.name for one in parsed if one.origin is not None}
    if key is None:
        missing = [one for one in source.key if one not in plain]
        if missing:
            raise InvalidOption(
                f"{what}: no column is {missing[0]!r}, of the key of stream {source.name!r}: add it, or say key="
            )
        key = [plain[one] for one in source.key]
    schema = pa.schema([one.field for one in parsed])
    key = known_columns(what, "key", key, schema)
    strict = (*key, *known_columns(what, "required", required, schema))
    schema = pa.schema([field.with_nullable(field.nullable and field.name not in strict) for field in schema])
    owned = {one.origin for one in parsed if one.name in key} >= set(source.key)
    is_same = owned and len(key) == len(source.key)

    def make(shape: StreamShape) -> Computation:
        made = ProjectedColumns(shape, parsed)
        return _Projection(made, can_move=not is_same) if owned else _Rekeying(made, source)

    return derive("project", name, [source], schema, key, make, values=columns, required=required)


class _Projection(Computation):
    """To a key that has the source's in it."""

    is_view = True

    def __init__(self, columns: ProjectedColumns, *, can_move: bool) -> None:
        """`can_move`: the key has more columns than the source's, so that a row's may change."""
        self._columns = columns
        self._can_move = can_move
        self.is_users = columns.has_functions
        self.chunk = CHUNK if columns.has_functions else None

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """By columns, except for what users' functions give."""
        _, codes, olds = changes.columns
        kept = np.arange(len(codes)) if self._can_move else np.flatnonzero(~olds)
        is_gone = codes[kept] == _DELETE
        rows, can_be = self._columns.of(changes, kept, is_gone)
        is_old = olds[kept]
        fresh = np.where(codes[kept] == _INSERT, _UPSERT, codes[kept])
        fresh[is_gone & ~is_old] = _SAFEDELETE
        if not self._can_move:
            fresh[fresh == _BLOCK] = _UPSERT
        if not can_be.all():
            # What was never inserted, as it has no key, does not go.
            is_alone = np.append(~can_be[1:] & is_old[1:], False)
            fresh[is_alone] = _UPSERT
            rows, fresh, is_old = rows.filter(pa.array(can_be)), fresh[can_be], is_old[can_be]
        return Changes(self._columns.shape, None, (rows, fresh.astype(np.int8), is_old), changes.time)


class _Rekeying(Computation):
    """To any other key."""

    is_whole = is_view = True

    def __init__(self, columns: ProjectedColumns, source: Stream) -> None:
        self._columns = columns
        self.is_users = columns.has_functions
        shape = columns.shape
        self._source_key = source.key
        keys = [shape.schema.field(name).with_name(_KEY + name) for name in shape.key]
        owners = [source.schema.field(name).with_name(_SOURCE + name) for name in source.key]
        self._schema = pa.schema([*keys, *owners])
        self._key = [field.name for field in keys]
        self._owner = [field.name for field in owners]

    def tables(self) -> dict[str, StateTable]:
        """Which row of the source has a key."""
        return {"owners": StateTable(self._schema, self._key)}

    def open(self, tables: Mapping[str, Any]) -> None:
        """As the base class has it."""
        self._owners = tables["owners"]

    def compute(self, source: str, changes: Changes) -> Changes:  # noqa: ARG002 - as the base class has it
        """What is there after the transaction counts: rows may exchange their keys in it."""
        rows, before, after = transitions(changes)
        olds, news = before[before >= 0], after[after >= 0]
        goes, can_be = self._columns.of(changes, olds, np.ones(len(olds), np.bool_))
        comes, _ = self._columns.of(changes, news, np.zeros(len(news), np.bool_))
        keys, places = self._keys(goes.filter(pa.array(can_be)), comes)
        sources = rows.select(list(self._source_key))
        firsts = np.where(before >= 0, before, after)
        known = sources.take(pa.array(firsts[firsts >= 0]))
        owner = self._owner_places(known, keys)
        # Rows that the transaction has nothing to do with keep their keys.
        is_foreign = owner == known.num_rows
        wanted = np.bincount(places, minlength=keys.num_rows)
        wrong = np.flatnonzero(((wanted > 1) | (is_foreign & (wanted > 0)))[places])
        if len(wrong):
            raise self._fault(changes, comes, int(wrong[np.argmax(news[wrong])]), news)
        gone = keys.filter(pa.array((wanted == 0) & (owner >= 0) & ~is_foreign))
        if gone.num_rows:
            self._owners.delete(gone.rename_columns(self._key))
        if comes.num_rows:
            columns = [*comes.select(self._columns.shape.key).columns, *sources.take(pa.array(news)).columns]
            self._owners.upsert(pa.record_batch(columns, names=self._schema.names))
        return of_rows(self._columns.shape, comes, gone, changes.time)

    def _keys(self, goes: pa.RecordBatch, comes: pa.RecordBatch) -> tuple[pa.RecordBatch, Places]:
        """All keys that the transaction has to do with, each once, and the place there of each row that comes."""
        names = list(self._columns.shape.key)
        columns = [pa.concat_arrays([goes.column(name), comes.column(name)]) for name in names]
        keys = pa.record_batch(columns, names=names)
        numbers, firsts = numbered(keys)
        return keys.take(pa.array(firsts)), numbers[goes.num_rows :]

    def _owner_places(self, known: pa.RecordBatch, keys: pa.RecordBatch) -> Places:
        """Of the owner of each key its place among the known rows; their number: none; -1: there is no owner."""
        owners = self._owners.multi_get(keys.rename_columns(self._key))
        columns = [
            pa.concat_arrays([column, owners.field(name)])
            for column, name in zip(known.columns, self._owner, strict=True)
        ]
        # The known ones are different, so their numbers are their places.
        numbers, _ = numbered(pa.record_batch(columns, names=self._owner))
        found = np.minimum(numbers[known.num_rows :], known.num_rows)
        return np.where(owners.is_valid().to_numpy(zero_copy_only=False), found, -1)

    def _fault(self, changes: Changes, comes: pa.RecordBatch, at: int, news: Places) -> ComputeFault:
        key = self._columns.shape.key_of(comes.slice(at, 1).to_pylist()[0])
        record = int(np.count_nonzero(~changes.columns[2][: news[at] + 1])) - 1
        return ComputeFault(record, f"another row of stream {changes.shape.stream!r} has the key {key!r:.200} already")
