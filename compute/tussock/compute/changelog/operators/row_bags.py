"""Bags: the rows of a stream as an operator has taken them so far, found by other columns than their key.

A bag has the rows with one value of some columns, in no order. Each lies in a slot, numbered from 0 without gaps, so
that a bag is read by its count and by keys that are known then: a thousand bags cost three look-ups of many keys, where
scans would cost a thousand. Where a row goes, the last one takes its slot.

| table | key | value |
|---|---|---|
| rows | the bag's columns, slot | the row |
| counts | the bag's columns | how many rows it has |
| slots | the row's key | its slot |
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.computations import StateTable

__all__ = ["Members", "RowBags"]

FEW_ROWS = 32
"""At most this many rows are read one by one, which leaves rows that were written alone where they are."""

Places = npt.NDArray[np.int64]
Row = dict[str, Any]


class Members(NamedTuple):
    """Rows, and the number of the bag of each."""

    bags: Places
    rows: pa.RecordBatch

    def part(self, which: npt.NDArray[np.bool_]) -> "Members":
        """Some of them."""
        return Members(self.bags[which], self.rows.filter(pa.array(which)))


class RowBags:
    """Of one stream."""

    def __init__(self, name: str, bag: Sequence[pa.DataType], row: pa.Schema, key: Sequence[str]) -> None:
        """`bag`: the types of the columns that make a bag; `row`: the columns that are kept, with the row's `key`.

        `name` begins the names of its tables.
        """
        self._name = name
        self._bag = [pa.field(f"bag_{at}", kind, nullable=False) for at, kind in enumerate(bag)]
        self.row = pa.schema([pa.field(one.name, one.type) for one in row])
        self._row = [pa.field(f"row_{one.name}", one.type, one.name not in key) for one in row]
        self._key = tuple(key)
        self._bag_names = [one.name for one in self._bag]
        self._row_names = [one.name for one in self._row]
        self._key_names = [f"row_{one}" for one in key]

    def tables(self) -> dict[str, StateTable]:
        """As a computation names them."""
        slot, count = pa.field("slot", pa.int64(), nullable=False), pa.field("count", pa.int64(), nullable=False)
        by_name = {one.name: one for one in self._row}
        rows = pa.schema([*self._bag, slot, *self._row])
        slots = pa.schema([*(by_name[one] for one in self._key_names), slot])
        return {
            f"{self._name}_rows": StateTable(rows, [*self._bag_names, "slot"], self._bag_names),
            f"{self._name}_counts": StateTable(pa.schema([*self._bag, count]), self._bag_names),
            f"{self._name}_slots": StateTable(slots, self._key_names),
        }

    def open(self, tables: Mapping[str, Any]) -> None:
        """On the tables of a run."""
        self._rows = tables[f"{self._name}_rows"]
        self._counts = tables[f"{self._name}_counts"]
        self._slots = tables[f"{self._name}_slots"]

    # --- Row by row --------------------------------------------------------------------------------------------------

    def count(self, bag: Sequence[Any]) -> int:
        """How many rows a bag has."""
        found = self._counts.get(tuple(bag))
        return 0 if found is None else int(found["count"])

    def rows(self, bag: Sequence[Any]) -> list[Row]:
        """The rows of a bag."""
        count = self.count(bag)
        keys = [(*bag, slot) for slot in range(count)]
        if count <= FEW_ROWS:
            found = [self._rows.get(key) for key in keys]
        else:
            found = self._rows.multi_get(_batch_of(keys, [*self._bag, pa.field("slot", pa.int64())])).to_pylist()
        return [{name[4:]: row[name] for name in self._row_names} for row in found]

    def move(self, before: Sequence[Any] | None, after: Sequence[Any] | None, row: Mapping[str, Any]) -> None:
        """A row that was in one bag is in another, with these values; `None`: it is in none."""
        key = tuple(row[name] for name in self._key)
        if before is not None and before == after:
            found = self._slots.get(key)
            if found is not None:
                self._write(after or (), found["slot"], row)
                return
        elif before is not None:
            self._remove(before, key)
        if after is not None:
            count = self.count(after)
            self._write(after, count, row)
            self._write_slot(key, count)
            self._write_count(after, count + 1)

    def _remove(self, bag: Sequence[Any], key: tuple[Any, ...]) -> None:
        found = self._slots.get(key)
        if found is None:
            return  # A transaction that has brought it was bad.
        last = self.count(bag) - 1
        if found["slot"] != last:
            moved = self._rows.get((*bag, last))
            self._rows.upsert([{**moved, "slot": found["slot"]}])
            self._write_slot(tuple(moved[name] for name in self._key_names), found["slot"])
        self._rows.delete([(*bag, last)])
        self._slots.delete([key])
        self._write_count(bag, last)

    def _write(self, bag: Sequence[Any], slot: int, row: Mapping[str, Any]) -> None:
        values = {name: row[name[4:]] for name in self._row_names}
        self._rows.upsert([{**dict(zip(self._bag_names, bag, strict=True)), "slot": slot, **values}])

    def _write_slot(self, key: tuple[Any, ...], slot: int) -> None:
        self._slots.upsert([{**dict(zip(self._key_names, key, strict=True)), "slot": slot}])

    def _write_count(self, bag: Sequence[Any], count: int) -> None:
        if count:
            self._counts.upsert([{**dict(zip(self._bag_names, bag, strict=True)), "count": count}])
        else:
            self._counts.delete([tuple(bag)])

    # --- By columns --------------------------------------------------------------------------------------------------

    def counts(self, bags: Sequence[pa.Array]) -> Places:
        """How many rows each of some bags has, which are given by their columns."""
        if not len(bags[0]):
            return np.zeros(0, np.int64)
        found = self._counts.multi_get(pa.record_batch(list(bags), self._bag_names), columns=["count"])
        counts: Places = found.flatten()[0].fill_null(0).to_numpy()
        return counts

    def read(self, bags: Sequence[pa.Array]) -> tuple[Places, pa.RecordBatch]:
        """The rows of some bags, bag by bag, and how many each has."""
        counts = self.counts(bags)
        owners = np.repeat(np.arange(len(counts)), counts)
        return counts, self._read(bags, owners, _ranges(np.zeros(len(counts), np.int64), counts))

    def _read(self, bags: Sequence[pa.Array], owners: Places, slots: Places) -> pa.RecordBatch:
        if not len(owners):
            return pa.RecordBatch.from_pylist([], schema=self.row)
        found = self._rows.multi_get(self._keys(bags, owners, slots), columns=self._row_names)
        return pa.record_batch(found.flatten(), schema=self.row)

    def change(self, bags: Sequence[pa.Array], gone: Members, come: Members, stay: Members) -> tuple[Places, Places]:
        """Rows leave bags, come to others, or get other values where they are; a row is in one of `come` and `stay`.

        Of the rows that are gone the key is enough. Returns the counts before and after.
        """
        before = self.counts(bags)
        stay_slots = self._slots_of(stay.rows)
        if (stay_slots < 0).any():
            # A transaction that has brought them was bad.
            come = _together(come, stay.part(stay_slots < 0))
            stay, stay_slots = stay.part(stay_slots >= 0), stay_slots[stay_slots >= 0]
        # First, as one of these may be moved.
        self._write_rows(bags, stay, stay_slots)
        left, slots = self._taken_out(gone)
        after = before + np.bincount(come.bags, minlength=len(before)) - np.bincount(left, minlength=len(before))
        # Whose slot is beyond the new end moves into a free one.
        shrunk = np.flatnonzero(after < before)
        ends = np.repeat(shrunk, (before - after)[shrunk])
        end_slots = _ranges(after[shrunk], (before - after)[shrunk])
        is_free = _is_among(ends, end_slots, left, slots)
        moved = Members(ends[~is_free], self._read(bags, ends[~is_free], end_slots[~is_free]))
        grown = np.flatnonzero(after > before)
        is_inner = slots < after[left]
        free_bags = np.concatenate([left[is_inner], np.repeat(grown, (after - before)[grown])])
        free = np.concatenate([slots[is_inner], _ranges(before[grown], (after - before)[grown])])
        placed = _together(come, moved)
        order, free_order = np.argsort(placed.bags, kind="stable"), np.lexsort((free, free_bags))
        new_slots = np.empty(len(order), np.int64)
        new_slots[order] = free[free_order]
        self._delete_rows(bags, ends, end_slots)
        self._write_rows(bags, placed, new_slots)
        self._write_slots(gone, placed, new_slots)
        self._write_counts(bags, before, after)
        return before, after

    def _taken_out(self, gone: Members) -> tuple[Places, Places]:
        """Bags and slots of the rows that are gone, as far as they are known."""
        slots = self._slots_of(gone.rows)
        is_known = slots >= 0
        return gone.bags[is_known], slots[is_known]

    def _slots_of(self, rows: pa.RecordBatch) -> Places:
        if not rows.num_rows:
            return np.zeros(0, np.int64)
        found = self._slots.multi_get(rows.select(self._key).rename_columns(self._key_names), columns=["slot"])
        slots: Places = found.flatten()[0].fill_null(-1).to_numpy()
        return slots

    def _write_rows(self, bags: Sequence[pa.Array], members: Members, slots: Places) -> None:
        if len(slots):
            keys = self._keys(bags, members.bags, slots)
            values = [members.rows.column(one.name) for one in self.row]
            self._rows.upsert(pa.record_batch([*keys.columns, *values], [*keys.schema.names, *self._row_names]))

    def _write_slots(self, gone: Members, placed: Members, slots: Places) -> None:
        if gone.rows.num_rows:
            self._slots.delete(gone.rows.select(self._key).rename_columns(self._key_names))
        if len(slots):
            keys = placed.rows.select(self._key).columns
            self._slots.upsert(pa.record_batch([*keys, pa.array(slots)], [*self._key_names, "slot"]))

    def _delete_rows(self, bags: Sequence[pa.Array], owners: Places, slots: Places) -> None:
        if len(owners):
            self._rows.delete(self._keys(bags, owners, slots))

    def _write_counts(self, bags: Sequence[pa.Array], before: Places, after: Places) -> None:
        names = self._bag_names
        kept, ended = np.flatnonzero((after != before) & (after > 0)), np.flatnonzero((after == 0) & (before > 0))
        if len(kept):
            keys = [one.take(pa.array(kept)) for one in bags]
            self._counts.upsert(pa.record_batch([*keys, pa.array(after[kept])], [*names, "count"]))
        if len(ended):
            self._counts.delete(pa.record_batch([one.take(pa.array(ended)) for one in bags], names))

    def _keys(self, bags: Sequence[pa.Array], owners: Places, slots: Places) -> pa.RecordBatch:
        places = pa.array(owners)
        return pa.record_batch([*(one.take(places) for one in bags), pa.array(slots)], [*self._bag_names, "slot"])


def _batch_of(keys: Sequence[tuple[Any, ...]], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    columns = zip(*keys, strict=True)
    return pa.record_batch(
        [pa.array(column, one.type) for column, one in zip(columns, fields, strict=True)], [one.name for one in fields]
    )


def _ranges(starts: Places, counts: Places) -> Places:
    """For each start as many numbers in a row, from it on."""
    total = np.cumsum(counts)
    return np.arange(total[-1] if len(total) else 0) + np.repeat(starts - total + counts, counts)


def _is_among(bags: Places, slots: Places, other_bags: Places, other_slots: Places) -> npt.NDArray[np.bool_]:
    """Which pairs of two arrays are among the pairs of two others."""
    most = max(slots.max(initial=0), other_slots.max(initial=0)) + 1
    return np.isin(bags * most + slots, other_bags * most + other_slots)


def _together(one: Members, other: Members) -> Members:
    names = one.rows.schema.names
    rows = [pa.concat_arrays([one.rows.column(name), other.rows.column(name)]) for name in names]
    return Members(np.concatenate([one.bags, other.bags]), pa.record_batch(rows, names))
