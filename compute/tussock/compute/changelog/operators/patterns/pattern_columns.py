"""A pattern by columns: the bags around all changes of a transaction at once, in order, and the matches among them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.compute.changelog.changes.changes import Changes
from tussock.compute.changelog.changes.stream_shape import StreamShape
from tussock.compute.changelog.operators.operator_base import netted, numbered, transitions
from tussock.compute.changelog.operators.patterns.matches import Ordered, matches, reached
from tussock.compute.changelog.operators.patterns.pattern_plan import PatternPlan
from tussock.compute.changelog.operators.patterns.step_masks import masks_of_rows
from tussock.compute.changelog.operators.row_bags import Members, RowBags
from tussock.statestore.keys.pieces import join_pieces, text_piece
from tussock.statestore.rows.key_arrays import key_order

__all__ = ["pattern_by_columns"]

NUMBER, MOMENT = np.dtype(">u4"), np.dtype(">u8")
SIGN = np.uint64(1 << 63)
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]


def pattern_by_columns(shape: StreamShape, plan: PatternPlan, bags: RowBags, changes: Changes) -> Changes:
    """What the transaction does to the matches."""
    rows, before, after = transitions(changes)
    masks = masks_of_rows(plan, rows, changes.columns[2])
    times = plan.moments.numbers(rows.column(plan.time))
    takes_part = times.is_valid().to_numpy(zero_copy_only=False)
    if plan.contiguity == "any":
        takes_part &= masks != 0
    moments = times.fill_null(0).to_numpy()
    sorted_groups = plan.groups.of_columns([rows.column(one) for one in plan.by]) if plan.by else _no_groups(rows)
    groups, firsts = numbered(pa.record_batch([sorted_groups], ["group"]))
    was, will = (before >= 0) & takes_part[before], (after >= 0) & takes_part[after]
    is_same = was & will & (groups[before] == groups[after]) & (moments[before] == moments[after])
    is_same &= masks[before] == masks[after]
    gone, come = before[was & ~is_same], after[will & ~is_same]
    names = sorted_groups.take(pa.array(firsts))
    _move(plan, bags, rows, names, (groups, moments, masks), (before, after, was & ~is_same, will & ~is_same))
    touched = np.concatenate([gone, come])
    near, ordered = _near(plan, bags, names, groups[touched], moments[touched])
    is_start = ((ordered.steps & 1) == 1) & reached(ordered, groups[touched], moments[touched], plan.within)
    starts = np.flatnonzero(is_start)
    is_match, found = matches(ordered, starts, len(plan.steps), plan.within, plan.contiguity)
    fresh = _matches_of(plan, near, [places[is_match] for places in found])
    ended = [near.column(f"key_{one}").take(pa.array(starts[~is_match])) for one in plan.key]
    lost = pa.array(gone[(masks[gone] & 1) == 1])
    old = [pa.concat_arrays([one, rows.column(name).take(lost)]) for one, name in zip(ended, plan.key, strict=True)]
    return netted(shape, fresh, pa.record_batch(old, plan.key_of_match), changes.time)


def _move(
    plan: PatternPlan,
    bags: RowBags,
    rows: pa.RecordBatch,
    names: pa.BinaryArray,
    values: tuple[Places, Places, Places],
    moves: tuple[Places, Places, Flags, Flags],
) -> None:
    """Take the rows into the bags."""
    groups, moments, masks = values
    before, after, goes, comes = moves
    ranges = moments // plan.width
    pairs = pa.record_batch([pa.array(groups), pa.array(ranges)], ["group", "range"])
    places = np.concatenate([before[goes], after[comes]])
    numbers, firsts = numbered(pairs.take(pa.array(places)))
    bag = np.full(rows.num_rows, -1, np.int64)
    bag[places] = numbers
    named = places[firsts]
    columns = [names.take(pa.array(groups[named])), pa.array(ranges[named])]
    is_stay = goes & comes & (bag[before] == bag[after])
    kept = [rows.column(one) for one in (*plan.key, *plan.by)] + [pa.array(moments), pa.array(masks)]
    batch = pa.record_batch(kept, bags.row.names)

    def members(at: Places) -> Members:
        return Members(bag[at], batch.take(pa.array(at)))

    bags.change(columns, members(before[goes & ~is_stay]), members(after[comes & ~is_stay]), members(after[is_stay]))


def _near(
    plan: PatternPlan, bags: RowBags, names: pa.BinaryArray, groups: Places, moments: Places
) -> tuple[pa.RecordBatch, Ordered]:
    """The rows of the ranges of some moments, of those before and behind, in order."""
    ranges = moments // plan.width
    around = np.concatenate([ranges, ranges[ranges > LOWEST] - 1, ranges[ranges < HIGHEST] + 1])
    owners = np.concatenate([groups, groups[ranges > LOWEST], groups[ranges < HIGHEST]])
    firsts = numbered(pa.record_batch([pa.array(owners), pa.array(around)], ["group", "range"])).firsts
    counts, rows = bags.read([names.take(pa.array(owners[firsts])), pa.array(around[firsts])])
    number = np.repeat(owners[firsts], counts)
    times, steps = rows.column("time").to_numpy(), rows.column("steps").to_numpy()
    keys = plan.order.of_columns([rows.column(f"key_{one}") for one in plan.key])
    sortable = times.astype(np.uint64) ^ SIGN
    order = key_order(join_pieces([(NUMBER, number), (MOMENT, sortable), text_piece(keys)], len(number)))
    return rows.take(pa.array(order)), Ordered(number[order], times[order], steps[order])


def _matches_of(plan: PatternPlan, rows: pa.RecordBatch, found: list[Places]) -> pa.RecordBatch:
    arrays: dict[str, Any] = {}
    for step, places in zip(plan.steps, found, strict=True):
        at = pa.array(places)
        if not arrays:
            arrays = {one: rows.column(f"by_{one}").take(at) for one in plan.by}
        arrays |= {f"{step}_{one}": rows.column(f"key_{one}").take(at) for one in plan.key}
        arrays[f"{step}_{plan.time}"] = plan.moments.column(rows.column("time").take(at))
    return pa.record_batch(list(arrays.values()), list(arrays))


def _no_groups(rows: pa.RecordBatch) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(b"", pa.binary()), rows.num_rows)
