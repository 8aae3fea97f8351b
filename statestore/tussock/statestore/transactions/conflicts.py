"""Whether what a transaction read, or wrote, has been committed to since its snapshot.

Only SSTs that hold something newer than the snapshot are looked at. Keys go through their block index and bloom
filters, as lookups do; ranges skip the blocks without news. So the cost follows the SSTs that came since, and not the
table. Nothing newer than the snapshot can be missing from them: what compaction drops, a newer version of the same key
has replaced, and deletes stay, in history at least, while a reader at the snapshot is served.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tussock.statestore.contract.records import SstInfo, TableSpec, TableState
from tussock.statestore.epochs import MAX_EPOCH
from tussock.statestore.keys.encoding import KeyEncoder
from tussock.statestore.keys.ranges import Range
from tussock.statestore.rows.key_arrays import shown_key
from tussock.statestore.sst.history import index_history
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookups.lookup_many import find_many
from tussock.statestore.sst.lookups.wanted_keys import Keys
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.transactions.read_set import ReadSet
from tussock.statestore.transactions.recent_keys import RecentKeys

__all__ = ["Overlap", "overlap", "show_key"]


class Overlap(NamedTuple):
    """A key of the transaction's that another commit has written."""

    key: bytes
    epoch: int
    """Of that commit."""


def overlap(
    sstables: Sstables, state: TableState, since: int, read: ReadSet, recent: RecentKeys | None = None
) -> Overlap | None:
    """A key or a key within a range of `read` with a version after epoch `since`; `None` if there is none.

    SSTs whose keys are among the `recent` ones are not read.
    """
    runs: list[list[SstInfo]] = []
    # A delete that has vanished from the live tree is in history.
    for run in (*state.levels.runs(), *(one.ssts for one in state.levels.history)):
        news = []
        for sst in run:
            if sst.max_epoch <= since:
                continue
            keys = None if recent is None else recent.get(sst.id)
            if keys is None:
                news.append(sst)
            elif (key := read.holds(keys)) is not None:
                return Overlap(key, sst.epoch)
        if news:
            runs.append(news)
    if not runs:
        return None
    asked: list[Keys] = [list(read.keys), *read.arrays] if read.keys else list(read.arrays)
    for some in asked:
        found = _among_keys(sstables, runs, since, some)
        if found is not None:
            return found
    for bounds in read.ranges:
        found = _in_range(sstables, runs, since, bounds)
        if found is not None:
            return found
    return None


def _among_keys(sstables: Sstables, runs: Sequence[Sequence[SstInfo]], since: int, keys: Keys) -> Overlap | None:
    for run in runs:
        # An SST of one epoch does not tell it by its rows, so those are asked one epoch at a time.
        by_epoch: dict[int, list[SstInfo]] = {}
        for sst in run:
            by_epoch.setdefault(sst.epoch, []).append(sst)
        for epoch, index in ((epoch, index) for epoch, ssts in by_epoch.items() for index in index_history(ssts)):
            hits = find_many(sstables, [index], keys, MAX_EPOCH)
            for block, at, slot in hits.points:
                written = epoch or block.rows.epoch(at)
                if written > since:
                    return Overlap(_key(keys, slot), written)
            for rows, places, into in hits.pieces:
                epochs = np.full(len(places), epoch, np.uint64) if epoch else rows.epoch_array()[places]
                newer = np.flatnonzero(epochs > np.uint64(since))
                if len(newer):
                    return Overlap(_key(keys, int(into[newer[0]])), int(epochs[newer[0]]))
    return None


def _in_range(sstables: Sstables, runs: Iterable[Sequence[SstInfo]], since: int, bounds: Range) -> Overlap | None:
    want = ReadRange(*bounds, columns=(), types=(), after_epoch=since)
    for run in runs:
        for rows in ConcatIterator(sstables, run, want):
            epochs = rows.epoch_array()
            newer = np.flatnonzero(epochs > np.uint64(since))
            if len(newer):
                return Overlap(rows.key(int(newer[0])), int(epochs[newer[0]]))
    return None


def _key(keys: Keys, slot: int) -> bytes:
    key: bytes = keys[slot] if isinstance(keys, list) else keys[slot].as_py()
    return key


def show_key(key: bytes, spec: TableSpec) -> str:
    """A key as a person knows it: the values of the key columns, or the bytes of a raw key."""
    if spec.schema is None:
        return shown_key(key)
    encoder = KeyEncoder(spec.arrow_schema(), spec.primary_key, spec.distribution_key, spec.vnodes)
    columns = encoder.decode(pa.array([key], pa.binary()), check_text=False)
    values = ", ".join(
        f"{name}={column[0].as_py()!r:.60}" for name, column in zip(spec.primary_key, columns, strict=True)
    )
    return f"({values})"
