"""Checks one SST against everything that is said about it: by the version, by its meta, by its block index.

Every byte of both objects is covered: the meta by its checksum, the data by its header, the checksums of its blocks and
the rule that the blocks follow each other without a gap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.cli.check.findings import Findings
from tussock.cli.sst_blocks import meta_home, read_blocks, read_head, read_meta, read_meta_in_entry
from tussock.cli.values import as_text
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.contract.records import (
    SstInfo,
    TableSpec,
    data_object,
    data_path,
    meta_object,
    object_sizes,
    stored_bytes,
)
from tussock.statestore.errors import CorruptSst
from tussock.statestore.format.hashing import hash_keys
from tussock.statestore.format.meta import DATA_HEADER, ONE_OBJECT_HEADER, LoadedMeta
from tussock.statestore.format.parted_filter import FilterShape
from tussock.statestore.format.schema_changes import is_earlier
from tussock.statestore.format.value_bounds import column_bounds, layout_of
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.rows.conversion import Misfit, check_text
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.history import until_array
from tussock.statestore.sst.writer import UNTIL, history_schema, value_schema

__all__ = ["check_alone", "check_sst"]


@dataclass
class _Seen:
    """What the blocks read so far hold together."""

    rows: int = 0
    deletes: int = 0
    first_key: bytes | None = None
    last_key: bytes = b""
    last_epoch: int = 0
    min_epoch: int = 1 << 64
    max_epoch: int = 0
    until: int = 0
    whole: bool = True
    """No block was unreadable."""


def check_sst(
    bucket: ObjectStore,
    spec: TableSpec,
    sst: SstInfo,
    sizes: Mapping[str, int],
    findings: Findings,
    advance: Callable[[int], None],
) -> None:
    """Check all of `sst`; `sizes` is the listing of `sst/` and `log/`, and `advance` hears of bytes done."""
    there = {path: _check_size(path, expected, sizes, findings) for path, expected in object_sizes(sst).items()}
    if sst.entry:
        there[data_object(sst)] = _check_place(sst, sizes, findings)
    findings.count("SSTs")
    if not there[meta_object(sst)]:
        return
    try:
        meta = read_meta_in_entry(bucket, sst) if sst.entry else read_meta(bucket, sst.id, sizes)
    except CorruptSst as error:
        findings.problem(meta_object(sst), error)
        head = read_head(bucket, sst)
        if head is None:
            return
        meta = head
    _check_meta(spec, sst, meta, findings)
    if there[data_object(sst)]:
        _check_header(bucket, sst, findings)
        _check_blocks(bucket, spec, sst, meta, findings, advance)


def check_alone(bucket: ObjectStore, sst_id: str, sizes: Mapping[str, int], findings: Findings) -> None:
    """Check an SST of which no readable version says anything: by its own meta and the checksums of its blocks."""
    try:
        meta = read_meta(bucket, sst_id, sizes)
    except CorruptSst as error:
        findings.problem(meta_home(sst_id, sizes), error)
        return
    for _, rows in read_blocks(bucket, meta, 0):
        if isinstance(rows, CorruptSst):
            findings.problem(data_path(sst_id), rows)


def _check_size(path: str, expected: int, sizes: Mapping[str, int], findings: Findings) -> bool:
    size = sizes.get(path)
    if size is None:
        findings.problem(path, "missing, although the version names it")
    elif size != expected:
        findings.problem(path, f"expected {expected} bytes as the version says, found {size}")
    return size is not None


def _check_place(sst: SstInfo, sizes: Mapping[str, int], findings: Findings) -> bool:
    path, end = data_object(sst), sst.offset + stored_bytes(sst)
    size = sizes.get(path)
    if size is None:
        findings.problem(path, f"missing, although the version says that SST {sst.id} lies in it")
    elif size < end:
        findings.problem(
            path, f"expected SST {sst.id} at {sst.offset} to {end} as the version says, found {size} bytes"
        )
    return size is not None and size >= end


def _check_meta(spec: TableSpec, sst: SstInfo, meta: LoadedMeta, findings: Findings) -> None:
    path = meta_object(sst)
    for name in ("rows", "deletes", "smallest", "largest", "data_bytes"):
        said, found = getattr(sst, name), getattr(meta, name)
        if said != found:
            findings.problem(path, f"{name}: expected {as_text(said)} as the version says, found {as_text(found)}")
    if sst.filter_parts:
        shape = FilterShape(parts=sst.filter_parts, bytes=(sst.meta_bytes - sst.head_bytes) // sst.filter_parts)
        if meta.filter != shape:
            findings.problem(path, f"filter: expected {shape} as the version says, found {meta.filter}")
    expected = history_schema(spec) if sst.until else value_schema(spec)
    if not is_earlier(meta.schema, expected):
        found = _brief(meta.schema)
        findings.problem(
            path, f"schema: expected {_brief(expected)} as table {spec.name!r} has, or had once, found {found}"
        )
    ends = meta.offset + meta.length
    starts = np.concatenate([[len(DATA_HEADER)], ends[:-1]]) if meta.blocks else meta.offset
    gaps = np.flatnonzero(meta.offset != starts)
    if len(gaps):
        findings.problem(path, f"block {gaps[0]} begins at {meta.offset[gaps[0]]}, expected {starts[gaps[0]]}")
    end = int(ends[-1]) if meta.blocks else len(DATA_HEADER)
    if end != meta.data_bytes:
        findings.problem(path, f"the blocks end at {end}, expected {meta.data_bytes}, the size of the data")
    if int(meta.block_rows.sum()) != meta.rows or int(meta.block_deletes.sum()) != meta.deletes:
        findings.problem(path, f"the block index adds up to other counts than {meta.rows} rows, {meta.deletes} deletes")


def _check_header(bucket: ObjectStore, sst: SstInfo, findings: Findings) -> None:
    expected = ONE_OBJECT_HEADER if sst.meta_in_data else DATA_HEADER
    path = data_object(sst)
    head = bytes(bucket.get_range(path, sst.offset, len(expected)))
    if head != expected:
        findings.problem(path, f"offset {sst.offset}: expected the header {expected.hex()}, found {head.hex()}")


def _check_blocks(
    bucket: ObjectStore,
    spec: TableSpec,
    sst: SstInfo,
    meta: LoadedMeta,
    findings: Findings,
    advance: Callable[[int], None],
) -> None:
    encoder = None
    if spec.schema is not None:
        encoder = KeyEncoder(spec.arrow_schema(), spec.primary_key, spec.distribution_key, spec.vnodes)
    seen = _Seen()
    path = data_object(sst)
    for number, rows in read_blocks(bucket, meta, sst.epoch, sst):
        if isinstance(rows, CorruptSst):
            findings.problem(path, rows)
            seen.whole = False
        else:
            for what in _block_problems(number, rows, sst, meta, encoder, seen):
                findings.problem(path, f"block {number} at offset {meta.offset[number]}: {what}")
            findings.count("rows", len(rows))
        findings.count("blocks")
        advance(int(meta.length[number]))
    if seen.whole:
        _check_totals(sst, seen, findings)


def _block_problems(
    number: int, rows: Rows, sst: SstInfo, meta: LoadedMeta, encoder: KeyEncoder | None, seen: _Seen
) -> list[str]:
    """What is wrong with a block that could be decoded; `seen` moves on over it."""
    problems: list[str] = []

    def expect(what: str, expected: object, found: object) -> None:
        if expected != found:
            problems.append(f"{what}: the block index says {as_text(expected)}, found {as_text(found)}")

    deletes, epochs = int(rows.delete_array().sum()), rows.epoch_array()
    first, last = rows.key(0), rows.key(len(rows) - 1)
    expect("rows", int(meta.block_rows[number]), len(rows))
    expect("deletes", int(meta.block_deletes[number]), deletes)
    expect("first key", meta.first_keys[number], first)
    expect("continues", bool(meta.continues[number]), seen.first_key is not None and first == seen.last_key)
    low, high = int(epochs.min()), int(epochs.max())
    if isinstance(rows.epochs, int) != bool(sst.epoch):
        # A block without epochs in an SST without one has its epoch in the index, equal for all its rows.
        uniform = isinstance(rows.epochs, int) and meta.min_epoch[number] == meta.max_epoch[number]
        if sst.epoch or not uniform:
            problems.append("its rows carry epochs, and the version gives the SST one, or neither does")
    expect("smallest epoch", int(meta.min_epoch[number]) or sst.epoch, low)
    expect("largest epoch", int(meta.max_epoch[number]) or sst.epoch, high)
    if seen.first_key is not None and (first, -int(epochs[0])) <= (seen.last_key, -seen.last_epoch):
        problems.append("its first full key does not come after the last one of the block before")
    misplaced = _first_misplaced(rows)
    if misplaced is not None:
        problems.append(f"row {misplaced}: its full key does not come after that of the row before")
    if meta.bloom is not None:
        absent = np.flatnonzero(~meta.bloom.may_contain_many(hash_keys(rows.keys)))
        if len(absent):
            problems.append(f"the bloom filter denies {len(absent)} of its keys, the first in row {absent[0]}")
    problems.extend(_bounds_problems(number, rows, meta))
    if encoder is not None:
        problems.extend(_key_problems(rows, encoder))
    if sst.until and rows.columns[0].type == UNTIL.type:
        untils = until_array(rows)
        seen.until = max(seen.until, int(untils.max()))
        if early := np.flatnonzero(untils < epochs).tolist():
            problems.append(f"row {early[0]}: it is for readers until epoch {untils[early[0]]}, before its own")
    seen.rows += len(rows)
    seen.deletes += deletes
    seen.first_key = first if seen.first_key is None else seen.first_key
    seen.last_key, seen.last_epoch = last, int(epochs[-1])
    seen.min_epoch, seen.max_epoch = min(seen.min_epoch, low), max(seen.max_epoch, high)
    return problems


def _first_misplaced(rows: Rows) -> int | None:
    """The first row that does not come after the one before it: by key ascending, then epoch descending."""
    if len(rows) < 2:
        return None
    before, after = rows.keys.slice(0, len(rows) - 1), rows.keys.slice(1)
    epochs = rows.epoch_array()
    ascends = pc.less(before, after).to_numpy(zero_copy_only=False)
    again = pc.equal(before, after).to_numpy(zero_copy_only=False) & (epochs[:-1] > epochs[1:])
    wrong = np.flatnonzero(~(ascends | again))
    return int(wrong[0]) + 1 if len(wrong) else None


def _bounds_problems(number: int, rows: Rows, meta: LoadedMeta) -> list[str]:
    """Values beyond the bounds in the meta, which a read with a filter might not find."""
    problems = []
    for at, column in enumerate(rows.columns):
        bounds, layout = meta.bounds.column(at), layout_of(column.type)
        if bounds is None or layout is None:
            continue
        (low,), (high,) = column_bounds(column, layout, [0])
        said = bounds[0][number], bounds[1][number]
        # Where there are only nulls and NaN, no number lies between the two.
        if low <= high and not said[0] <= low <= high <= said[1]:
            name = meta.schema.field(at).name
            problems.append(f"column {name!r}: the meta says {said[0]} to {said[1]}, found {low} to {high}")
    return problems


def _key_problems(rows: Rows, encoder: KeyEncoder) -> list[str]:
    """Whether the keys are those that the table's columns give, virtual nodes included."""
    try:
        columns = encoder.decode(rows.keys, check_text=False)
        for column in columns:
            check_text(column)
    except Misfit as error:
        where = f"a key column of {list(encoder.primary_key)}"
        return [f"{where}: {error}; older programs took it: delete these rows by what a read returns"]
    except ValueError as error:
        return [f"a key is none of this table: {error}"]
    again = encoder.encode(pa.record_batch(columns, names=list(encoder.primary_key)))
    wrong = np.flatnonzero(~pc.equal(again, rows.keys).to_numpy(zero_copy_only=False))
    return [f"row {wrong[0]}: its key is not the encoding of its key columns"] if len(wrong) else []


def _check_totals(sst: SstInfo, seen: _Seen, findings: Findings) -> None:
    path = data_object(sst)
    found = (
        ("rows", sst.rows, seen.rows),
        ("deletes", sst.deletes, seen.deletes),
        ("smallest key", sst.smallest, seen.first_key),
        ("largest key", sst.largest, seen.last_key),
        ("smallest epoch", sst.min_epoch, seen.min_epoch),
        ("largest epoch", sst.max_epoch, seen.max_epoch),
        ("until", sst.until, seen.until),
    )
    for name, said, is_so in found:
        if said != is_so:
            findings.problem(path, f"{name}: expected {as_text(said)} as the version says, found {as_text(is_so)}")


def _brief(schema: pa.Schema) -> str:
    return "{" + ", ".join(f"{field.name}: {field.type}" for field in schema) + "}"
