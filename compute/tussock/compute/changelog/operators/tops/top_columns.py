"""The top of groups by columns: fronts of all groups of a transaction at once, merged with what comes and goes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.operators.operator_base import netted, numbered, transitions
from tussock.compute.changelog.operators.sort_keys import SortKeys
from tussock.compute.changelog.operators.tops.packed_lists import pack_many, unpack_many
from tussock.statestore.keys.pieces import join_pieces, text_piece
from tussock.statestore.rows.buffers import binary_array
from tussock.statestore.rows.key_arrays import binary_buffers, key_order, repeats

__all__ = ["TopPlan", "TopTables", "top_by_columns"]

PLACES_AT_ONCE = 2_000_000
"""Of the fronts that are worked on at once, at most; one may have a hundredth of that."""

NUMBER = np.dtype(">u4")

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


class TopPlan(NamedTuple):
    """A checked top."""

    n: int
    front: int
    """How many places a front has at most."""
    by: tuple[str, ...]
    order: tuple[str, ...]
    """The columns of a place."""
    groups: SortKeys
    places: SortKeys
    rank: str | None
    schema: pa.Schema
    """Of the source."""
    key: tuple[str, ...]


class TopTables(NamedTuple):
    """What a top keeps."""

    rows: Any
    fronts: Any

    def first_places(self, group: bytes, limit: int) -> pa.BinaryArray:
        """The first places of a group, by its rows."""
        found = [one.column("place") for one in self.rows.read(["place"], prefix=(group,), limit=limit)]
        return pa.concat_arrays(found) if found else pa.array([], pa.binary())


class _Marked(NamedTuple):
    """Places of groups, as bytes: the number of the group, and then the place."""

    numbers: Places
    keys: pa.BinaryArray

    def part(self, which: Any) -> "_Marked":
        """Some of them, by their positions."""
        return _Marked(self.numbers[which], self.keys.take(pa.array(which)))


class _Rows(NamedTuple):
    """Rows of a transaction with the place of each in its group."""

    marked: _Marked
    at: Places
    """Where in the transaction the row is."""


class _Tops(NamedTuple):
    """The top of groups, with ranks from 0."""

    marked: _Marked
    ranks: Places


def top_by_columns(shape: StreamShape, plan: TopPlan, tables: TopTables, changes: Changes) -> Changes:
    """What the transaction does to the first rows of groups."""
    rows, before, after = transitions(changes)
    groups = _sort_keys(plan.groups, rows, plan.by)
    places = plan.places.of_columns([rows.column(one) for one in plan.order])
    gone, come = before[before >= 0], after[after >= 0]
    is_both = (before >= 0) & (after >= 0)
    is_same = is_both.copy()
    is_same[is_both] = _is_equal(groups, before[is_both], after[is_both]) & _is_equal(
        places, before[is_both], after[is_both]
    )
    left, fresh = before[(before >= 0) & ~is_same], after[(after >= 0) & ~is_same]
    _write_rows(tables, rows, groups, places, left, come)
    numbers, firsts = numbered(pa.record_batch([groups], ["group"]))
    touched = np.zeros(len(firsts), np.bool_)
    touched[numbers[gone]] = touched[numbers[come]] = True
    upserts, deletes = [], []
    for portion in _portions(np.flatnonzero(touched), max(1, PLACES_AT_ONCE // plan.front)):
        number_of = np.full(len(firsts), -1, np.int64)
        number_of[portion] = np.arange(len(portion))

        def of(at: Places, number_of: Places = number_of) -> _Rows:
            mine = at[number_of[numbers[at]] >= 0]
            return _Rows(_marked(number_of[numbers[mine]], places.take(pa.array(mine))), mine)

        names = groups.take(pa.array(firsts[portion]))
        one = _Portion(plan, tables, rows, names)
        lost, got = one.moved(of(left), of(fresh), of(come))
        deletes.append(lost)
        upserts.append(got)
    schema = shape.relaxed
    key = pa.schema([schema.field(name) for name in shape.key])
    return netted(shape, _joined(upserts, schema), _joined(deletes, key), changes.time)


def _portions(numbers: Places, size: int) -> Iterator[Places]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def _write_rows(
    tables: TopTables, rows: pa.RecordBatch, groups: pa.Array, places: pa.Array, left: Places, come: Places
) -> None:
    if len(left):
        gone = pa.array(left)
        tables.rows.delete(pa.record_batch([groups.take(gone), places.take(gone)], ["group", "place"]))
    if len(come):
        at = pa.array(come)
        values = [column.take(at) for column in rows.columns]
        names = ["group", "place", *(f"row_{name}" for name in rows.schema.names)]
        tables.rows.upsert(pa.record_batch([groups.take(at), places.take(at), *values], names))


class _Portion:
    """Some of the groups, numbered from 0."""

    def __init__(self, plan: TopPlan, tables: TopTables, rows: pa.RecordBatch, groups: pa.BinaryArray) -> None:
        self._plan = plan
        self._tables = tables
        self._rows = rows
        self._groups = groups

    def moved(self, left: _Rows, fresh: _Rows, come: _Rows) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Keys of rows that the tops lose, and rows that they get or that change in them.

        `left` go from their places, `fresh` come to new ones, `come` are all that are there afterwards.
        """
        plan = self._plan
        stored = self._tables.fronts.multi_get(pa.record_batch([self._groups], ["group"])).flatten()
        items, counts = unpack_many(stored[1].fill_null(_EMPTY))
        has_more = stored[2].fill_null(False).to_numpy(zero_copy_only=False)
        fronts = _marked(np.repeat(np.arange(len(counts)), counts), items)
        merged, has_more = self._merged(fronts, has_more, left.marked, fresh.marked)
        merged, has_more = self._refilled(merged, has_more)
        self._write_fronts(merged, has_more, stored)
        had, has = _first(fronts, plan.n), _first(merged, plan.n)
        return self._lost(had, has, left), self._got(had, has, come)

    def _merged(self, fronts: _Marked, has_more: Flags, left: _Marked, fresh: _Marked) -> tuple[_Marked, Flags]:
        sizes = [len(one.numbers) for one in (fronts, left, fresh)]
        numbers = np.concatenate([fronts.numbers, left.numbers, fresh.numbers])
        keys = pa.concat_arrays([fronts.keys, left.keys, fresh.keys])
        source = np.repeat(np.arange(3), sizes)
        # Stable: of one place what the front has comes first, and then what says that it is gone.
        order = key_order(keys)
        numbers, source, keys = numbers[order], source[order], keys.take(pa.array(order))
        is_again = repeats(keys)
        is_cancelled = is_again | np.append(is_again[1:], [False] * min(1, len(is_again)))
        last = np.full(len(has_more), -1, np.int64)
        of_front = np.flatnonzero(source == 0)
        last[numbers[of_front]] = of_front
        # Behind a front that has more nobody knows who is next.
        is_known = ~has_more[numbers] | (np.arange(len(numbers)) < last[numbers])
        kept = np.flatnonzero(np.where(source == 0, ~is_cancelled, (source == 2) & is_known))
        merged = _Marked(numbers[kept], keys.take(pa.array(kept)))
        within = _within(merged.numbers, len(has_more))
        has_more = has_more.copy()
        has_more[merged.numbers[within >= self._plan.front]] = True
        return merged.part(np.flatnonzero(within < self._plan.front)), has_more

    def _refilled(self, merged: _Marked, has_more: Flags) -> tuple[_Marked, Flags]:
        """Read what is behind the fronts that are too short."""
        counts = np.bincount(merged.numbers, minlength=len(has_more))
        short = np.flatnonzero(has_more & (counts < self._plan.n))
        if not len(short):
            return merged, has_more
        most = self._plan.front
        found = [self._tables.first_places(self._groups[at].as_py(), most + 1) for at in short.tolist()]
        has_more = has_more.copy()
        has_more[short] = [len(one) > most for one in found]
        found = [one[:most] for one in found]
        whole = merged.part(np.flatnonzero(~np.isin(merged.numbers, short)))
        read = _marked(np.repeat(short, [len(one) for one in found]), pa.concat_arrays(found))
        numbers = np.concatenate([whole.numbers, read.numbers])
        order = np.argsort(numbers, kind="stable")
        return _Marked(numbers, pa.concat_arrays([whole.keys, read.keys])).part(order), has_more

    def _write_fronts(self, merged: _Marked, has_more: Flags, stored: list[pa.Array]) -> None:
        counts = np.bincount(merged.numbers, minlength=len(has_more))
        packed = pack_many(_places(merged.keys), counts)
        is_same = pc.equal(packed, stored[1]).fill_null(False).to_numpy(zero_copy_only=False)
        is_same &= pc.equal(pa.array(has_more), stored[2]).fill_null(False).to_numpy(zero_copy_only=False)
        changed, ended = np.flatnonzero(~is_same & (counts > 0)), np.flatnonzero(~is_same & (counts == 0))
        if len(changed):
            at = pa.array(changed)
            columns = [self._groups.take(at), packed.take(at), pa.array(has_more[changed])]
            self._tables.fronts.upsert(pa.record_batch(columns, ["group", "places", "has_more"]))
        if len(ended):
            self._tables.fronts.delete(pa.record_batch([self._groups.take(pa.array(ended))], ["group"]))

    def _lost(self, had: _Tops, has: _Tops, left: _Rows) -> pa.RecordBatch:
        lost = had.marked.part(np.flatnonzero(~_is_in(had.marked.keys, has.marked.keys)))
        key = list(self._plan.key)
        return self._rows_of(lost, left, key)

    def _got(self, had: _Tops, has: _Tops, come: _Rows) -> pa.RecordBatch:
        was_at = _index(has.marked.keys, had.marked.keys)
        is_new = was_at < 0
        if self._plan.rank is not None and len(had.ranks):
            is_new |= had.ranks[was_at] != has.ranks
        picked = np.flatnonzero(is_new | _is_in(has.marked.keys, come.marked.keys))
        rows = self._rows_of(has.marked.part(picked), come, self._plan.schema.names)
        if self._plan.rank is not None:
            rows = rows.append_column(self._plan.rank, pa.array(has.ranks[picked] + 1))
        return rows

    def _rows_of(self, wanted: _Marked, known: _Rows, names: list[str]) -> pa.RecordBatch:
        """Rows by their places: of the transaction where it has them, else of the table."""
        at = _index(wanted.keys, known.marked.keys)
        order = np.concatenate([np.flatnonzero(at >= 0), np.flatnonzero(at < 0)])
        here = self._rows.select(names).take(pa.array(known.at[at[at >= 0]]))
        other = wanted.part(np.flatnonzero(at < 0))
        if not len(other.numbers):
            there = here.slice(0, 0)
        else:
            keys = [self._groups.take(pa.array(other.numbers)), _places(other.keys)]
            columns = [f"row_{name}" for name in names]
            found = self._tables.rows.multi_get(pa.record_batch(keys, ["group", "place"]), columns=columns)
            there = pa.record_batch(found.flatten(), schema=here.schema)
        back = pa.array(np.argsort(order))
        columns = [
            pa.concat_arrays([one, two]).take(back) for one, two in zip(here.columns, there.columns, strict=True)
        ]
        return pa.record_batch(columns, names)


_EMPTY = pa.scalar(bytes(4), pa.binary())
"""A front without places."""


def _marked(numbers: Places, places: pa.BinaryArray) -> _Marked:
    return _Marked(numbers, join_pieces([(NUMBER, numbers), text_piece(places)], len(numbers)))


def _places(keys: pa.BinaryArray) -> pa.BinaryArray:
    offsets, raw = binary_buffers(keys)
    # Of an array of numbers and places every second one is a place.
    both = np.empty(2 * len(keys) + 1, np.int32)
    both[0::2], both[1::2] = offsets, offsets[:-1] + NUMBER.itemsize
    places: pa.BinaryArray = binary_array(both, np.frombuffer(raw, np.uint8)).take(
        pa.array(np.arange(1, 2 * len(keys), 2))
    )
    return places


def _first(marked: _Marked, n: int) -> _Tops:
    """The first places of each group, which are in order."""
    most = int(marked.numbers.max(initial=-1)) + 1
    ranks = _within(marked.numbers, most)
    picked = np.flatnonzero(ranks < n)
    return _Tops(marked.part(picked), ranks[picked])


def _within(numbers: Places, most: int) -> Places:
    """Of ascending numbers, how many of the same stand before each."""
    counts = np.bincount(numbers, minlength=most)
    return np.arange(len(numbers)) - (np.cumsum(counts) - counts)[numbers]


def _index(keys: pa.BinaryArray, among: pa.BinaryArray) -> Places:
    """Where each key stands among others; -1: nowhere."""
    found: Places = pc.index_in(keys, among).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _is_in(keys: pa.BinaryArray, among: pa.BinaryArray) -> Flags:
    found: Flags = pc.is_in(keys, among).to_numpy(zero_copy_only=False)
    return found


def _is_equal(keys: pa.BinaryArray, ones: Places, others: Places) -> Flags:
    found: Flags = pc.equal(keys.take(pa.array(ones)), keys.take(pa.array(others))).to_numpy(zero_copy_only=False)
    return found


def _sort_keys(sort: Any, rows: pa.RecordBatch, columns: tuple[str, ...]) -> pa.BinaryArray:
    if not columns:
        return binary_array(np.zeros(rows.num_rows + 1, np.int32), np.zeros(0, np.uint8))
    found: pa.BinaryArray = sort.of_columns([rows.column(one) for one in columns])
    return found


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    columns = [pa.concat_arrays([one.column(name) for one in parts]) for name in schema.names]
    return pa.record_batch(columns, schema.names)
