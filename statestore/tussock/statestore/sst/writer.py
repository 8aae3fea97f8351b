"""Writes sorted rows as SSTs: blocks, block index, bloom filter, split into objects of bounded size.

Relied on by the shared buffer's flush and by compaction. One `SstWriter` yields any number of SSTs with ascending,
non-overlapping key ranges: a sorted run. It holds at most one SST's encoded bytes and one batch of rows; of an SST that
grows while it is uploaded, only what is on its way.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.base.limits import DEFAULT_LIMITS
from tussock.statestore.contract.records import SstInfo, TableSpec
from tussock.statestore.format import bloom
from tussock.statestore.format.block import CODECS, encode_block
from tussock.statestore.format.columns import storage_type
from tussock.statestore.format.expiry import NEVER, expiry_of
from tussock.statestore.format.hashing import hash_keys
from tussock.statestore.format.meta import DATA_HEADER, ONE_OBJECT_HEADER, BlockIndex, SstMeta, encode_meta
from tussock.statestore.format.parted_filter import (
    CHECKSUM_BYTES,
    FilterShape,
    build_parts,
    parts_of,
    with_checksums,
)
from tussock.statestore.format.value_bounds import BoundsWriter
from tussock.statestore.rows.key_arrays import binary_buffers, repeats
from tussock.statestore.rows.rows import Rows
from tussock.statestore.sst.encoded_sst import EncodedSst, GrowingBytes

__all__ = ["BITS_PER_KEY", "UNTIL", "SstWriter", "history_schema", "value_schema"]

UNTIL = pa.field("until", pa.uint64(), nullable=False, metadata={"tussock": "history"})
"""The first column of an SST of history: no reader at this epoch or a later one sees the row."""

BITS_PER_KEY = 10
"""Bloom filter bits per row: about 1 % false positives."""

_PARTS_MIN = 4
"""A filter that lies apart has at least that many parts."""


@lru_cache(maxsize=1024)
def value_schema(spec: TableSpec) -> pa.Schema:
    """The columns that the table's SSTs store besides the key, with the types in which they are stored."""
    fields = [field for field in spec.arrow_schema() if field.name not in (spec.primary_key or ("key",))]
    return pa.schema([pa.field(field.name, storage_type(field.type, field.name)) for field in fields])


def history_schema(spec: TableSpec) -> pa.Schema:
    """The columns that the table's SSTs of history store besides the key."""
    return pa.schema([UNTIL, *value_schema(spec)])


class _Accumulator:
    """The SST being built."""

    def __init__(self) -> None:
        self.parts: list[bytes] = [DATA_HEADER]
        self.size = len(DATA_HEADER)
        self.begun: EncodedSst | None = None
        """What was given out of it while it is made; then the parts are those that were not handed on yet."""
        self.handed_on = 0
        self.raw_size = 0
        self.offset: list[int] = []
        self.length: list[int] = []
        self.raw_length: list[int] = []
        self.crc: list[int] = []
        self.rows: list[int] = []
        self.deletes: list[int] = []
        self.min_epoch: list[int] = []
        self.max_epoch: list[int] = []
        self.continues = bytearray()
        self.first_keys: list[bytes] = []
        self.hashes: list[npt.NDArray[np.uint64]] = []
        self.bounds: list[bytes] = []
        self.largest = b""
        self.goes_on = False
        """It has older versions of the last key of the SST before, and nothing else."""
        self.until = 0
        self.expires_ms = 0


def _packed(kind: str, numbers: Sequence[int]) -> bytes:
    """The numbers, little-endian. Most SSTs have one block, for which an array of NumPy would be dear."""
    return struct.pack(f"<{len(numbers)}{kind}", *numbers)


def _row_sizes(rows: Rows) -> npt.NDArray[np.int64]:
    """Bytes of each row before compression, to cut blocks by; exact for keys and plain values."""
    offsets, _ = binary_buffers(rows.keys)
    sizes = np.diff(offsets).astype(np.int64)
    fixed = 0 if isinstance(rows.epochs, int) else 8
    for column in rows.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            value_offsets, _ = binary_buffers(column)
            sizes += np.diff(value_offsets)
            fixed += 4
        elif column.type.num_fields == 0 and pa.types.is_primitive(column.type):
            fixed += max(column.type.bit_width // 8, 1)
        else:
            fixed += column.nbytes // max(len(column), 1)
    return sizes + fixed


class SstWriter:
    """Turns a stream of `Rows` batches, sorted as one run over all of them, into `EncodedSst`s.

    `sst_bytes` bounds an SST before compression; it ends where a user key does. With `epoch_inherited` the rows are of
    one epoch which the version will give (a commit); otherwise every block says its epochs. With `history` the first
    column of the rows is `UNTIL`, and an SST twice as large ends within a key, whose older versions have the next SSTs
    for themselves. SSTs with up to `one_object_bytes` of data are one object; with 0 none is. A filter of more than
    `whole_filter_bytes` in a separate meta lies apart. With `grow`, which makes what takes the data, an SST is given
    out once it has `hand_on_bytes`, and the rest of it is handed on as it is made.
    """

    def __init__(
        self,
        spec: TableSpec,
        *,
        sst_bytes: int,
        epoch_inherited: bool,
        one_object_bytes: int = DEFAULT_LIMITS.one_object_bytes,
        whole_filter_bytes: int = DEFAULT_LIMITS.whole_filter_bytes,
        history: bool = False,
        grow: Callable[[], GrowingBytes] | None = None,
        hand_on_bytes: int = DEFAULT_LIMITS.hand_on_bytes,
    ) -> None:
        self._grow = grow
        self._hand_on_bytes = hand_on_bytes
        self._codec = CODECS[spec.compression]
        self._block_bytes = spec.block_bytes
        self._sst_bytes = sst_bytes
        self._inherited = epoch_inherited
        self._one_object_bytes = one_object_bytes
        self._whole_filter_bytes = whole_filter_bytes
        self._vnodes = spec.vnodes
        self._history = history
        expiry = expiry_of(spec)
        # Of history nobody asks. By epochs it follows from those, which are not known yet where they are inherited.
        self._expiry = expiry if expiry is not None and expiry.column is not None and not history else None
        self._schema = history_schema(spec) if history else value_schema(spec)
        self._bounds = BoundsWriter([] if history else self._schema.types, spec.block_bytes)
        self._open = _Accumulator()

    def write(self, batches: Iterable[Rows]) -> Iterator[EncodedSst]:
        """The SSTs of one sorted run; consume it to the end."""
        for rows in batches:
            yield from self.add(rows)
        yield from self.end()

    def add(self, rows: Rows) -> Iterator[EncodedSst]:
        """Take the next batch of the run; the SSTs that are full, to be consumed to the end."""
        if not len(rows):
            return
        hashes, again, start = hash_keys(rows.keys), repeats(rows.keys), 0
        cuts = self._cuts(rows, again)
        bounds = self._bounds.of(rows.columns, [0, *cuts[:-1]])
        for number, end in enumerate(cuts):
            border = self._vnode_border(rows, start, end)
            for stop in (border, end) if start < border < end else (end,):
                while start < stop:
                    if start == border or self._is_full(rows.key(start)):
                        yield from self._finish(goes_on=rows.key(start) == self._open.largest)
                    last = self._end_of_key(rows, start, stop)
                    heads = ~again[start:last]
                    # The filter of an SST has its first key, though the SST before may have it, too.
                    heads[0] |= not self._open.rows
                    self._add(rows.slice(start, last))
                    self._open.hashes.append(hashes[start:last][heads])
                    # Where a block was parted, these are of all its parts: wider than need be, and still right.
                    self._open.bounds.append(bounds[number])
                    start = last
                    if self._open.size - self._open.handed_on >= self._hand_on_bytes:
                        yield from self._hand_on()

    def end(self) -> Iterator[EncodedSst]:
        """The run has ended: its last SST, if there is one."""
        if self._open.rows:
            yield from self._finish()

    def _is_full(self, next_key: bytes) -> bool:
        sst = self._open
        if not sst.rows:
            return False
        if next_key != sst.largest:
            return sst.goes_on or sst.raw_size >= self._sst_bytes
        # Not as soon as it is full: most keys have few versions, and none of them need be parted.
        return self._history and sst.raw_size >= (self._sst_bytes if sst.goes_on else 2 * self._sst_bytes)

    def _end_of_key(self, rows: Rows, start: int, stop: int) -> int:
        """Up to where in start .. stop-1 the rows may be a block of the open SST; all unless that has one key."""
        if not self._open.goes_on or rows.key(stop - 1) == rows.key(start):
            return stop
        return start + rows.slice(start, stop).upper_bound(rows.key(start))

    def _vnode_border(self, rows: Rows, start: int, end: int) -> int:
        """The first row in start .. end-1 of another virtual node than the row before it; -1 if it does not matter.

        An SST that is at least half full ends where a virtual node does, so that readers and tasks that work by
        ranges of virtual nodes share few SSTs.
        """
        if not self._vnodes or self._open.raw_size < self._sst_bytes // 2:
            return -1
        vnode = self._open.largest[:2]
        if rows.key(end - 1)[:2] == vnode:
            return -1
        if rows.key(start)[:2] != vnode:
            return start
        return start + rows.slice(start, end).lower_bound((int.from_bytes(vnode, "big") + 1).to_bytes(2, "big"))

    def _cuts(self, rows: Rows, again: npt.NDArray[np.bool_]) -> list[int]:
        """Ends of the blocks in `rows`; `again` says which rows have the key of the row before."""
        if len(rows) == 1:
            return [1]
        total = np.cumsum(_row_sizes(rows))
        heads = np.flatnonzero(~again) if again.any() else None
        cuts, start = [], 0
        while start < len(rows):
            base = int(total[start - 1]) if start else 0
            end = max(int(np.searchsorted(total, base + self._block_bytes, side="right")), start + 1)
            if heads is not None and end < len(rows) and again[end]:
                # SSTs and segments end only where a key does, so a block had better do so too, if it is half full.
                head = int(heads[np.searchsorted(heads, end) - 1])
                if head > start and 2 * (int(total[head - 1]) - base) >= self._block_bytes:
                    end = head
            # A rest of less than a quarter block joins the last one.
            if int(total[-1]) - int(total[end - 1]) < self._block_bytes // 4:
                end = len(rows)
            cuts.append(end)
            start = end
        return cuts

    def _add(self, block: Rows) -> None:
        sst = self._open
        low = high = 0
        if not self._inherited:
            if isinstance(block.epochs, int):
                low = high = block.epochs
            else:
                low, high = int(block.epochs.min()), int(block.epochs.max())
            if low == high:
                block = block.with_epochs(low)
        if self._history:
            sst.until = max(sst.until, pc.max(block.columns[0]).as_py())
        if self._expiry is not None:
            sst.expires_ms = max(sst.expires_ms, self._expiry.expires_ms(block))
        data, raw_length, crc = encode_block(block, self._codec)
        sst.parts.append(data)
        sst.offset.append(sst.size)
        sst.length.append(len(data))
        sst.raw_length.append(raw_length)
        sst.crc.append(crc)
        sst.rows.append(len(block))
        sst.deletes.append(0 if block.deletes is None else int(block.deletes.sum()))
        sst.min_epoch.append(low)
        sst.max_epoch.append(high)
        first_key = block.key(0)
        sst.continues.append(bool(sst.first_keys) and first_key == sst.largest)
        sst.first_keys.append(first_key)
        sst.largest = block.key(len(block) - 1)
        sst.size += len(data)
        sst.raw_size += raw_length

    def _hand_on(self) -> Iterator[EncodedSst]:
        """Hand on what was made of the SST; at the first time give it out."""
        sst = self._open
        if self._grow is None or sst.size <= self._one_object_bytes:
            return
        first = sst.begun is None
        if sst.begun is None:
            sst.begun = EncodedSst((), growing=self._grow())
        growing = sst.begun.growing
        assert growing is not None
        growing.add(sst.parts)
        sst.parts, sst.handed_on = [], sst.size
        if first:
            yield sst.begun

    def _finish(self, *, goes_on: bool = False) -> Iterator[EncodedSst]:
        """The open SST as a whole, unless it was given out before."""
        sst, self._open = self._open, _Accumulator()
        self._open.goes_on = goes_on
        if sst.begun is not None and sst.begun.growing is not None:
            # Before the rest is made: the disk is at work meanwhile.
            sst.begun.growing.add(sst.parts)
            sst.begun.growing.end()
            sst.parts = []
        index = BlockIndex(
            offset=_packed("Q", sst.offset),
            length=_packed("I", sst.length),
            raw_length=_packed("I", sst.raw_length),
            crc=_packed("I", sst.crc),
            rows=_packed("I", sst.rows),
            deletes=_packed("I", sst.deletes),
            min_epoch=_packed("Q", sst.min_epoch),
            max_epoch=_packed("Q", sst.max_epoch),
            continues=bytes(sst.continues),
            key_ends=_packed("I", list(accumulate(map(len, sst.first_keys)))),
            first_keys=b"".join(sst.first_keys),
        )
        hashes = sst.hashes[0] if len(sst.hashes) == 1 else np.concatenate(sst.hashes)
        schema = self._schema.serialize().to_pybytes()
        low, high = min(sst.min_epoch), max(sst.max_epoch)
        in_data = sst.size <= self._one_object_bytes
        # What is fetched whole gains nothing by blocks that need not be read.
        bounds = () if in_data else self._bounds.joined(sst.bounds)
        if in_data:
            sst.parts[0] = ONE_OBJECT_HEADER

        def describe(sst_id: str) -> tuple[SstInfo, list[bytes]]:
            whole_filter, shape, filters = self._filter(hashes, whole=in_data)
            meta = SstMeta(
                id=sst_id,
                schema=schema,
                rows=sum(sst.rows),
                deletes=sum(sst.deletes),
                smallest=sst.first_keys[0],
                largest=sst.largest,
                data_bytes=sst.size,
                index=index,
                bloom=whole_filter,
                bounds=bounds,
                filter=shape,
            )
            encoded = [encode_meta(meta, in_data=in_data), *with_checksums(sst_id, filters)]
            info = SstInfo(
                id=sst_id,
                smallest=meta.smallest,
                largest=meta.largest,
                rows=meta.rows,
                deletes=meta.deletes,
                data_bytes=sst.size,
                meta_bytes=sum(map(len, encoded)),
                epoch=0,
                min_epoch=low,
                max_epoch=high,
                meta_in_data=in_data,
                until=sst.until,
                expires_ms=0 if sst.expires_ms == NEVER else sst.expires_ms,
                head_bytes=0 if shape is None else len(encoded[0]),
                filter_parts=0 if shape is None else shape.parts,
            )
            return info, encoded

        if sst.begun is None:
            yield EncodedSst(sst.parts, describe)
        else:
            sst.begun.whole(describe)

    def _filter(
        self, hashes: npt.NDArray[np.uint64], *, whole: bool
    ) -> tuple[bytes, FilterShape | None, Sequence[bytes]]:
        """The filter of an SST, whole, or the shape of one that lies apart, and its parts; `whole`: in any case."""
        if whole or len(hashes) * BITS_PER_KEY <= 8 * self._whole_filter_bytes:
            return bloom.build(hashes, BITS_PER_KEY), None, ()
        parts = parts_of(len(hashes), BITS_PER_KEY, max(self._whole_filter_bytes // _PARTS_MIN, 1))
        filters = build_parts(hashes, BITS_PER_KEY, parts)
        return b"", FilterShape(parts=parts, bytes=len(filters[0]) + CHECKSUM_BYTES), filters
