"""Reads of history: what compaction took out of the live tree, for readers at older epochs.

The first column of its SSTs says until when each row is for (`writer.UNTIL`). A reader at an epoch takes, of the row
that it finds in the live tree and those that it finds in the runs of history, the one with the largest epoch. Within a
run the newest row up to the epoch decides: if that is not for the reader, none that is older in it can be the newest of
all. `docs/decisions/0030-superseded-rows-are-history.md` has the proof.

So history joins a merge by epochs, and not by position as runs of the live tree do (`merge.py`).
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.contract.records import SstInfo
from tussock.statestore.errors import CorruptSst
from tussock.statestore.rows.key_arrays import key_order, repeats
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.cached_blocks import CachedBlock
from tussock.statestore.sst.iterators import ConcatIterator, ReadRange
from tussock.statestore.sst.lookups.lookup import FoundRow, RunIndex, find
from tussock.statestore.sst.lookups.lookup_many import Hits, Piece, find_many
from tussock.statestore.sst.lookups.wanted_keys import Keys
from tussock.statestore.sst.merge import MergeIterator, distinct_versions, newest_versions
from tussock.statestore.sst.reader import Sstables
from tussock.statestore.sst.writer import UNTIL

__all__ = [
    "EpochMerge",
    "changed_rows",
    "find_at",
    "find_many_at",
    "history_range",
    "in_range",
    "index_history",
    "open_at",
    "rows_at",
    "until_array",
    "with_untils",
]


def index_history(ssts: Sequence[SstInfo]) -> list[RunIndex]:
    """A run of history, prepared: as several runs where the versions of a key are parted over SSTs of it.

    No SST of these has a key in common with another. Which runs rows of history are in does not matter to readers.
    """
    layers: list[list[SstInfo]] = []
    for sst in ssts:
        layer = next((one for one in layers if one[-1].largest < sst.smallest), None)
        if layer is None:
            layers.append([sst])
        else:
            layer.append(sst)
    return [RunIndex(ssts)] if len(layers) == 1 else [RunIndex(layer, ssts) for layer in layers]


def open_at(history: Iterable[RunIndex], epoch: int) -> list[RunIndex]:
    """The runs of history that may have a row for a reader at that epoch."""
    return [run for run in history if run.min_epoch <= epoch < run.until]


# --- Keys -------------------------------------------------------------------------------------------------------------


def find_at(
    sstables: Sstables, runs: Sequence[RunIndex], history: Sequence[RunIndex], key: bytes, epoch: int
) -> FoundRow | None:
    """The version of `key` that a reader at `epoch` sees, or `None`: of the live `runs`, or of those of `history`."""
    best = find(sstables, runs, key, epoch)
    for run in open_at(history, epoch):
        found = find(sstables, [run], key, epoch, sparse=True)
        if found is None or found.block.rows.columns[0][found.at].as_py() <= epoch:
            continue
        # Of two rows of one epoch the one that was parted first counts, which is in the run that comes later.
        if best is None or found.block.rows.epoch(found.at) >= best.block.rows.epoch(best.at):
            best = FoundRow(CachedBlock(_without_until(found.block.rows)), found.at)
    return best


def find_many_at(
    sstables: Sstables, runs: Sequence[RunIndex], history: Sequence[RunIndex], keys: Keys, epoch: int
) -> Hits:
    """The same for many keys, as `find_many` returns it: deletes included."""
    hits = find_many(sstables, runs, keys, epoch)
    opened = open_at(history, epoch)
    if not opened:
        return hits
    epochs = np.zeros(len(keys), np.uint64)
    for block, at, slot in hits.points:
        epochs[slot] = block.rows.epoch(at)
    for rows, places, into in hits.pieces:
        epochs[into] = rows.epoch_array()[places]
    # Which of the pieces below a key's row is in; -1: it is among the hits.
    owner = np.full(len(keys), -1)
    pieces: list[Piece] = []
    for run in opened:
        for rows, places, into in _in_history(find_many(sstables, [run], keys, epoch, sparse=True), epoch):
            newer = rows.epoch_array()[places] >= epochs[into]
            places, into = places[newer], into[newer]
            epochs[into] = rows.epoch_array()[places]
            owner[into] = len(pieces)
            pieces.append((_without_until(rows), places, into))
    points = [one for one in hits.points if owner[one[2]] < 0]
    numbered = [(-1, piece) for piece in hits.pieces] + list(enumerate(pieces))
    kept = [
        (rows, places[mine], into[mine])
        for number, (rows, places, into) in numbered
        if (mine := owner[into] == number).any()
    ]
    return Hits(points, kept)


def _in_history(hits: Hits, epoch: int) -> Iterator[Piece]:
    """The hits in a run of history that are for a reader at that epoch."""
    by_block: dict[int, tuple[Rows, list[int], list[int]]] = {}
    for block, at, slot in hits.points:
        _, places, into = by_block.setdefault(id(block), (block.rows, [], []))
        places.append(at)
        into.append(slot)
    found: list[Piece] = [(rows, np.array(places), np.array(into)) for rows, places, into in by_block.values()]
    for rows, places_found, into_found in [*found, *hits.pieces]:
        there = until_array(rows)[places_found] > np.uint64(epoch)
        if there.any():
            yield rows, places_found[there], into_found[there]


# --- Ranges -----------------------------------------------------------------------------------------------------------


def history_range(want: ReadRange) -> ReadRange:
    """The same range of an SST of history: its first column is read, too."""
    types = None if want.types is None else [UNTIL.type, *want.types]
    columns = None if want.columns is None else [0, *(column + 1 for column in want.columns)]
    return want._replace(types=types, columns=columns)


def rows_at(sstables: Sstables, run: RunIndex, want: ReadRange, epoch: int) -> Iterator[Rows]:
    """What a reader at `epoch` may see of a run of history, `UNTIL` first: of each key one row at most.

    `want.newest_at` has to be `epoch`.
    """
    ssts = [sst for sst in run.ssts if sst.until > epoch]
    source = ConcatIterator(sstables, ssts, history_range(want))
    for rows in newest_versions(source, epoch, reverse=want.reverse):
        seen = rows.filter(until_array(rows) > np.uint64(epoch))
        if len(seen):
            yield seen


def changed_rows(
    sstables: Sstables, runs: Sequence[RunIndex], history: Sequence[RunIndex], want: ReadRange
) -> Iterable[Rows]:
    """All versions with epochs in (want.after_epoch, want.until_epoch], by key ascending, then newest first.

    Without history for such readers there are others among them: of the same blocks, what a change has replaced first.
    """
    after, until = want.after_epoch, want.until_epoch
    assert until is not None
    past = [run for run in history if run.min_epoch <= until and run.max_epoch > after]
    want = want.shared_by(len(runs) + len(past))
    live = [source for run in runs if (source := ConcatIterator(sstables, run.ssts, want)).ssts]
    merged = MergeIterator(live, limits=sstables.limits)
    if not past:
        return merged
    changed = [in_range(ConcatIterator(sstables, run.ssts, history_range(want)), after, until) for run in past]
    return distinct_versions(EpochMerge(in_range(merged, after, until), changed))


def in_range(source: Iterable[Rows], after: int, until: int) -> Iterator[Rows]:
    """The rows with after < epoch <= until."""
    for rows in source:
        epochs = rows.epoch_array()
        wanted = rows.filter((epochs > np.uint64(after)) & (epochs <= np.uint64(until)))
        if len(wanted):
            yield wanted


def until_array(rows: Rows) -> npt.NDArray[np.uint64]:
    """Of rows of history `UNTIL`, their first column; `CorruptSst` if they have another one there."""
    column = rows.columns[0]
    if column.type != UNTIL.type:
        raise CorruptSst(f"an SST that is said to be history has a first column of {column.type}, not {UNTIL.type}")
    untils: npt.NDArray[np.uint64] = column.to_numpy(zero_copy_only=False)
    return untils


def with_untils(rows: Rows, untils: npt.NDArray[np.uint64], *, added: bool = False) -> Rows:
    """Rows of history with that `UNTIL`; `added` where they come from the live tree, and have none."""
    return Rows(
        rows.keys,
        rows.epochs,
        rows.deletes,
        (pa.array(untils, UNTIL.type), *(rows.columns if added else rows.columns[1:])),
    )


def _without_until(rows: Rows) -> Rows:
    return rows.with_columns(range(1, len(rows.columns)))


class _Input:
    """One source of an `EpochMerge`, with the batch in hand."""

    def __init__(self, source: Iterable[Rows]) -> None:
        self._batches = iter(source)
        self.rows: Rows | None = None

    def refill(self) -> bool:
        """Fetch a batch if there is none in hand; `False` if none comes."""
        while self.rows is None or not len(self.rows):
            self.rows = next(self._batches, None)
            if self.rows is None:
                return False
        return True

    def take(self, start: int, stop: int, rest: tuple[int, int]) -> Rows:
        """The rows start .. stop-1; those of `rest`, as (start, stop), stay in hand."""
        assert self.rows is not None
        taken, self.rows = self.rows.slice(start, stop), self.rows.slice(*rest)
        return taken


class EpochMerge:
    """Rows of the live tree and of history as one: by key ascending, then by epoch descending.

    `live` comes in that order already, with batches as iterators yield them; `history` has `UNTIL` as the first column,
    the run that was parted last first. The rows here have it no more, unless `live` is `None`. Of one key and epoch the
    first row counts. Forward a key may go on in the next batch; in reverse the sources have each key in one batch. At
    most one batch of each source is in hand.
    """

    def __init__(
        self, live: Iterable[Rows] | None, history: Sequence[Iterable[Rows]], *, reverse: bool = False
    ) -> None:
        self._with_until = live is None
        self._sources = [*reversed(history), () if live is None else live]
        self._reverse = reverse

    def __iter__(self) -> Iterator[Rows]:
        inputs = list(enumerate(map(_Input, self._sources)))
        while inputs := [(number, held) for number, held in inputs if held.refill()]:
            taken = self._backward(inputs) if self._reverse else self._forward(inputs)
            yield self._merged([(number, rows) for number, rows in taken if len(rows)])

    @staticmethod
    def _forward(inputs: Sequence[tuple[int, _Input]]) -> Iterator[tuple[int, Rows]]:
        """Of each input what comes before anything that is not in hand."""
        ends = [
            (held.rows.key(len(held.rows) - 1), -held.rows.epoch(len(held.rows) - 1)) for _, held in inputs if held.rows
        ]
        key, epoch = min(ends)
        for number, held in inputs:
            assert held.rows is not None
            count = len(held.rows)
            end = held.rows.upper_bound(key)
            if end:
                # Of the last key no version that is older than the last one: a newer one of another input may come.
                start = held.rows.lower_bound(key)
                end = start + int(np.count_nonzero(held.rows.slice(start, end).epoch_array() >= np.uint64(-epoch)))
                yield number, held.take(0, end, (end, count))

    @staticmethod
    def _backward(inputs: Sequence[tuple[int, _Input]]) -> Iterator[tuple[int, Rows]]:
        """The same from the other end; of an input's first key everything is in hand."""
        key = max(held.rows.key(0) for _, held in inputs if held.rows)
        for number, held in inputs:
            assert held.rows is not None
            start = held.rows.lower_bound(key)
            yield number, held.take(start, len(held.rows), (0, start))

    def _merged(self, parts: Sequence[tuple[int, Rows]]) -> Rows:
        live = len(self._sources) - 1
        ranks, plain = [], []
        for number, rows in parts:
            rank = np.full(len(rows), number)
            if number < live:
                # A delete that vanished is for no reader, and has a newer row of its epoch before it, if there is one.
                rank[until_array(rows) == rows.epoch_array()] = live + 1
            ranks.append(rank)
            plain.append(rows if number == live or self._with_until else _without_until(rows))
        if len(plain) == 1:
            return plain[0]
        joined = Rows.concat(plain)
        epochs, order = joined.epoch_array(), key_order(joined.keys)
        keys = np.cumsum(~repeats(joined.keys.take(pa.array(order))))
        # All bits inverted, since epochs descend.
        order = order[np.lexsort((np.concatenate(ranks)[order], ~epochs[order], keys))]
        return joined.with_epochs(epochs).take(order)
