"""Brings a task's rows together by key, in as many pieces as memory requires.

Rows that fit are sorted by key at once. More rows go to files on the local disk, divided by bits of the key's hash that
neither Spark's partitions nor the vnodes use, so that each file has whole keys and its share of them; a file that is
still too large is divided again. (This is the partitioning of a Grace hash join.) The rows of one key have to fit into
memory together.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.compute.spark.state.task.answers import one_batch
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.keys.spark_hash import spark_hash
from tussock.statestore.rows.key_arrays import key_order, repeats

__all__ = ["Piece", "Share", "pieces_of", "sorted_by_key"]

_BITS = 4
_FIRST_SHIFT = 8
"""The low byte of the hash makes partitions and vnodes, so it says little about a task's rows."""
_LAST_SHIFT = 28


@dataclass(frozen=True)
class Share:
    """The keys of a piece: those whose hash has these bits. Empty: all keys of the task."""

    bits: tuple[tuple[int, int], ...] = ()
    """(shift, value) of four bits each, all of which must agree."""

    def of(self, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which of the keys (their distribution columns) belong to it."""
        inside = np.ones(keys.num_rows, np.bool_)
        if self.bits and keys.num_rows:
            hashes = spark_hash(keys.columns)
            for shift, value in self.bits:
                inside &= _bits(hashes, shift) == value
        return inside


@dataclass(frozen=True)
class Piece:
    """All rows of some of the task's keys, in the order in which they came."""

    rows: pa.Table
    share: Share


def pieces_of(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, distribution: Sequence[str], bytes_max: int
) -> Iterator[Piece]:
    """The rows in pieces of about `bytes_max` each, which together have every key; one piece if they fit."""
    yield from _divide(iter(batches), schema, list(distribution), bytes_max, Share())


def _divide(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, names: list[str], bytes_max: int, share: Share
) -> Iterator[Piece]:
    shift = share.bits[-1][0] + _BITS if share.bits else _FIRST_SHIFT
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > bytes_max and shift <= _LAST_SHIFT:
            break
    else:
        yield Piece(pa.Table.from_batches(held, schema), share)
        return
    with tempfile.TemporaryDirectory(prefix="tussock-spill-") as folder:
        files = [Path(folder) / str(value) for value in range(1 << _BITS)]
        _spill(held, batches, schema, names, shift, files)
        held.clear()
        for value, path in enumerate(files):
            with pa.ipc.open_stream(path.open("rb")) as stream:
                yield from _divide(iter(stream), schema, names, bytes_max, Share((*share.bits, (shift, value))))
            path.unlink()


def _spill(
    held: list[pa.RecordBatch],
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    names: list[str],
    shift: int,
    files: list[Path],
) -> None:
    writers: list[Any] = [pa.ipc.new_stream(str(path), schema) for path in files]
    try:
        for part in (held, batches):
            for batch in part:
                values = _bits(spark_hash(batch.select(names).columns), shift)
                order = np.argsort(values, kind="stable")
                ordered = batch.take(pa.array(order))
                ends = np.searchsorted(values[order], np.arange(len(files) + 1))
                for writer, start, end in zip(writers, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
                    if start < end:
                        writer.write_batch(ordered.slice(start, end - start))
    finally:
        for writer in writers:
            writer.close()


def _bits(hashes: npt.NDArray[np.uint32], shift: int) -> npt.NDArray[np.uint32]:
    return (hashes >> np.uint32(shift)) & np.uint32((1 << _BITS) - 1)


def sorted_by_key(
    rows: pa.Table, encoder: KeyEncoder, order_by: Sequence[str]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows by key as the store orders keys, then by `order_by` (nulls last), and where each key starts.

    Rows that are equal by `order_by` stay in the order in which they came. Raises `SchemaMismatch` for a null in a
    key.
    """
    if order_by:
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in order_by]))
    keys = encoder.encode(rows)
    order = key_order(keys)
    at = pa.array(order)
    starts = np.flatnonzero(~repeats(keys.take(at)))
    return one_batch(rows.take(at)), starts
